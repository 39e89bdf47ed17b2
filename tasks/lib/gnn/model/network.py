"""The network: embeddings of nodes without features, layers, dropout and activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.model.aggregate import SampledEdges, WeightedEdges
from superworkflow.tasks.lib.gnn.model.attention import GatLayer, Gatv2Layer, RgatLayer
from superworkflow.tasks.lib.gnn.model.concat import ComputedPart, ConstantPart, RowMeansPart, RowsPart
from superworkflow.tasks.lib.gnn.model.config import ATTENTION, NetworkConfig
from superworkflow.tasks.lib.gnn.model.dropout import NOTHING, RowDropout, dropout_threshold, of_senders
from superworkflow.tasks.lib.gnn.model.embedding_init import first_embeddings
from superworkflow.tasks.lib.gnn.model.layers import GcnLayer, GinLayer, LayerInputs, SageLayer
from superworkflow.tasks.lib.gnn.model.linear import Linear
from superworkflow.tasks.lib.gnn.model.norms import BatchNorm, BatchPeers, norm_of
from superworkflow.tasks.lib.gnn.model.own_module import OwnModule
from superworkflow.tasks.lib.gnn.model.pair_decoder import decoder_of, first_factors
from superworkflow.tasks.lib.gnn.model.remote_rows import RowTable, SharedMeansPart
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.gnn.sampler.block import Block, Hop, Lost, MiniBatch
from superworkflow.tasks.lib.gnn.sampler.kernels import fill_masks
from superworkflow.tasks.lib.kernels.bfloat16 import FLOAT32

_LAYERS: Mapping[str, Callable[..., nn.Module]] = {
    "sage": SageLayer, "rgcn": SageLayer, "gcn": GcnLayer, "gin": GinLayer, "gat": GatLayer, "gatv2": Gatv2Layer,
    "rgat": RgatLayer,
}  # fmt: skip


@dataclass
class NetworkInputs:
    """Inputs from the graph in addition to its edges.

    With workers, arrays of rows are `RowTable`s of the rows that were pulled.

    Args:
        features: features of each node set that has any, float32 or float16 [nodes, values].
        degrees: degrees of GCN's node set, or sums of edge weights, float32 [nodes].
        sums: precomputed means (for GCN sums) of neighbours' features by number of the edge set, float32 [receivers,
            values].
        weights: edge weights that multiply messages, by number of the edge set, float32 [edges of the set].
        learned: embeddings of the first block's senders by node set, if the network does not hold them itself.
        products: by number of a direct edge set, its senders' rows times a layer's matrix, float32 [senders, width of
            the layer]; the layer reads means of these instead of means of the rows.
        means: by number of an edge set of the first block whose senders are not among the block's, the sources of
            their rows' means.
        edge_features: by number of the edge set, what layers read of its edges, float32 [edges of the set, values].
    """

    features: Mapping[str, NDArray[Any]]
    degrees: NDArray[np.float32] | None = None
    sums: Mapping[int, NDArray[np.float32]] | None = None
    weights: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    learned: Mapping[str, torch.Tensor] = field(default_factory=dict)
    products: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    means: Mapping[int, SharedMeansPart] = field(default_factory=dict)
    edge_features: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)


class Network(nn.Module):
    """A network that computes a row for each target.

    Args:
        shape: configuration of the network.
        seed: seed of the first weights.
        tables: hold the embeddings of nodes without features; else they come with the inputs.

    `precision` is the precision of the layers' products; see `linear.product`. `peers` are the workers that train it
    together, by whose rows batches are normalized.
    """

    def __init__(self, shape: NetworkConfig, seed: int, tables: bool = True):
        super().__init__()
        self.shape, self.precision = shape, FLOAT32
        self.peers: BatchPeers | None = None
        self._relations = {each.number: each for each in shape.relations}
        self._numbers = shape.numbers()
        self._only = shape.head.node_sets[0]  # where the model takes no more than one
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random_streams.state(seed, random_streams.EMBEDDING) >> 1)
            levels = shape.levels()
            self.own = OwnModule(shape) if shape.code else None
            built = [] if shape.code else [_LAYERS[shape.model](shape, i, level) for i, level in enumerate(levels)]
            self.layers = nn.ModuleList(built)
            self.head = Linear(shape.joined_width, shape.head.width) if shape.joins else None
            hidden = [level for number, level in enumerate(levels) if shape.is_hidden(number)]
            self.norms, self.shortcuts = nn.ModuleList(), nn.ModuleList()
            for number, level in enumerate(hidden):
                if shape.norm != "none":
                    self.norms.append(nn.ModuleList(norm_of(shape.norm, shape.hidden) for _ in level.receivers))
                widths = [shape.width_in(number, name) for name in level.receivers]
                if shape.residual:
                    self.shortcuts.append(nn.ModuleList(_shortcut(width, shape.hidden) for width in widths))
        self.embedded = {name: str(number) for number, name in enumerate(shape.embedded())}
        self.embeddings = nn.ModuleDict()
        for name, key in self.embedded.items() if tables else ():
            count = max(1, shape.nodes[name])
            first = first_embeddings(np.arange(count), shape.nodes[name], shape.hidden, seed, self._numbers[name])
            self.embeddings[key] = nn.Embedding(count, shape.hidden, sparse=True, _weight=torch.from_numpy(first))
        self.factors: nn.Parameter | None = None
        if shape.head.decoder in ("distmult", "complex"):
            self.factors = nn.Parameter(first_factors(shape.head))
        self.decoder = decoder_of(shape.head, seed)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def forward(self, batch: MiniBatch, inputs: NetworkInputs, dropout: float = 0.0) -> dict[str, torch.Tensor]:
        """Rows of the targets by node set, float32 [targets, width of the head]."""
        rows, kept = self.first_rows(batch.blocks[0], inputs), []
        if self.own is not None:
            made: dict[str, torch.Tensor] = self.own(batch, rows, inputs.weights)
            return made
        for number, block in enumerate(batch.blocks):
            rows = self.layer(number, block, rows, inputs, dropout)
            kept.append(rows)
        if not self.shape.joins:
            return rows
        ends = batch.blocks[-1].receivers  # which come first among the receivers of every layer
        return {name: self.read(self.join([rows[name][: len(ends[name])] for rows in kept])) for name in ends}

    def join(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Rows of some nodes after each layer, joined as the head reads them: float32 [nodes, joined width]."""
        kind = self.shape.jumping_knowledge
        if kind == "cat":
            return torch.cat(list(rows), 1)
        return rows[-1] if kind == "last" else torch.stack(list(rows)).amax(0)

    def read(self, joined: torch.Tensor) -> torch.Tensor:
        """Output of the head, which reads joined rows."""
        assert self.head is not None
        made: torch.Tensor = self.head(joined)
        return made

    def first_rows(self, block: Block, inputs: NetworkInputs) -> dict[str, torch.Tensor]:
        """Inputs of the first layer's senders, except those read from tables of all nodes."""
        rows = {}
        for name, nodes in block.senders.items():
            if name in inputs.learned:
                rows[name] = inputs.learned[name]
            elif name in self.embedded:
                rows[name] = self.embeddings[self.embedded[name]](torch.from_numpy(nodes).to(self.device))
            elif not self.reads_table(block, inputs, name):
                rows[name] = torch.from_numpy(inputs.features[name][nodes]).to(self.device).float()
        return rows

    def direct(self, number: int, inputs: NetworkInputs) -> frozenset[int]:
        """Edge sets whose senders a layer can read from tables in `inputs`; see `Draws.direct`."""
        if not self.shape.reads_means:
            return frozenset()
        return frozenset(
            each.number for each in self.shape.levels()[number].relations
            if _is_table(inputs.features.get(each.senders)) and each.number not in inputs.weights
        )  # fmt: skip

    def reads_table(self, block: Block, inputs: NetworkInputs, name: str) -> bool:
        """True if a layer reads rows of a node set only from the table in `inputs`."""
        if not self.shape.reads_means or not _is_table(inputs.features.get(name)):
            return False
        apart = {*block.direct, *inputs.means}
        return all(self._relations[each].senders != name or each in apart for each in block.hops)

    def layer(
        self, number: int, block: Block, rows: Mapping[str, torch.Tensor], inputs: NetworkInputs, dropout: float = 0.0
    ) -> dict[str, torch.Tensor]:
        """One layer; if it is a hidden one, with norm, activation and residual.

        Args:
            number: number of the layer, from 0.
            block: its edges.
            rows: rows of its senders, except those read from tables.
            inputs: degrees and, for the first layer, tables and sums.
            dropout: share of entries that are dropped.
        """
        layer, given = self.layers[number], self.inputs(number, block, rows, inputs, dropout)
        made: dict[str, torch.Tensor] = dict(layer(given))
        return self.activated(number, made, block.receivers, lambda name: _own_rows(given, name, self.device))

    def activated(
        self, number: int, made: dict[str, torch.Tensor], nodes: Mapping[str, NDArray[np.int64]],
        own: Callable[[str], torch.Tensor],
    ) -> dict[str, torch.Tensor]:  # fmt: skip
        """A layer's result; if it is a hidden one, with norm, activation and residual.

        Args:
            number: number of the layer, from 0.
            made: what it made of its receivers, by node set.
            nodes: the receivers.
            own: rows of the receivers of a node set that the layer read.
        """
        if not self.shape.is_hidden(number) or getattr(self.layers[number], "activates", False):
            return made
        act = nn.functional.elu if self.shape.model in ATTENTION else torch.relu
        for place, name in enumerate(self.shape.levels()[number].receivers):
            values = made[name]
            if self.shape.norm != "none":
                norm = self.norms[number][place]  # type: ignore[index]
                more = (nodes[name], self.peers) if isinstance(norm, BatchNorm) else ()
                values = norm(values, *more)
            made[name] = act(values)
            if self.shape.residual:
                made[name] = made[name] + self.shortcuts[number][place](own(name))  # type: ignore[index]
        return made

    def inputs(
        self, number: int, block: Block, rows: Mapping[str, torch.Tensor], inputs: NetworkInputs, dropout: float = 0.0
    ) -> LayerInputs:
        """Inputs of a layer; see `layer`."""
        device = self.device
        mask = _Masks(block, dropout, device)
        means = inputs.means if number == 0 else {}
        given = {each: hop for each, hop in block.hops.items() if each not in block.direct and each not in means}
        edges = {each: _edges(hop, inputs.weights.get(each), device) for each, hop in given.items()}
        degrees = {each: torch.from_numpy(hop.degrees).to(device, torch.float32) for each, hop in given.items()}
        fixed = self._tables(block, rows, inputs, mask)
        for each, part in means.items():
            fixed[each] = part._replace(dropped=mask.senders(self._numbers[self._relations[each].senders]))
        sums, scales, attention = {}, None, {}
        if number == 0 and inputs.sums is not None:
            for relation in self.shape.levels()[0].relations:
                if relation.number in inputs.sums and relation.number not in block.hops:
                    nodes, lost = block.receivers[relation.receivers], block.lost.get(relation.number)
                    table = inputs.sums[relation.number]
                    if self.shape.model != "gcn" and lost is None and _is_table(table):
                        fixed[relation.number] = _rows_of(table, nodes, mask.dropped(1, relation.number))
                        continue
                    values = torch.from_numpy(_sums_without(inputs, relation, nodes, lost)).to(device)
                    sums[relation.number] = mask.rows(values, nodes, 1, relation.number)
                    fixed[relation.number] = ComputedPart(sums[relation.number])
                    if inputs.degrees is not None:
                        degrees[relation.number] = torch.from_numpy(inputs.degrees[nodes]).to(device)
        if self.shape.model == "gcn":
            assert inputs.degrees is not None
            nodes = block.senders[self._only]
            counts = inputs.degrees[nodes] - sum(
                lost.sums(nodes, inputs.weights.get(each)) for each, lost in block.lost.items()
            )
            scales = torch.rsqrt(torch.from_numpy(counts).to(device, torch.float32) + 1)
        for each, hop in block.hops.items() if self.shape.model in ATTENTION and dropout else ():
            key = (each,) if self.shape.model == "rgat" else ()
            attention[each] = mask.attention(hop.positions, block.receivers[self._relations[each].receivers], *key)
        return LayerInputs(
            receivers={name: len(nodes) for name, nodes in block.receivers.items()},
            senders={
                name: mask.rows(values, block.senders[name], 0, self._numbers[name]) for name, values in rows.items()
            },
            edges=edges, degrees=degrees, scales=scales, sums=sums, attention=attention, fixed=fixed,
            messages=_messages(block, inputs, device), precision=self.precision,
            edge_features=_edge_features(given, inputs, device),
            own=self._own(block, mask) if number == 0 and dropout else {},
        )  # fmt: skip

    def _own(self, block: Block, mask: _Masks) -> dict[str, torch.Tensor]:
        """Dropout of whole embeddings of the receivers themselves: a node must not be recognised by its own alone.

        It is worth five points on Email-Eu-core, and costs one on Cora without features (docs/measurements/gnn.md).
        """
        if self.shape.model not in ("sage", "rgcn"):  # others have no matrix of a node's own row
            return {}
        return {
            name: mask.rows(torch.ones((len(nodes), 1), device=self.device), nodes, 3, self._numbers[name])
            for name, nodes in block.receivers.items() if name in self.embedded
        }  # fmt: skip

    def _tables(
        self, block: Block, rows: Mapping[str, torch.Tensor], inputs: NetworkInputs, mask: _Masks
    ) -> dict[str | int, ConstantPart]:
        """Inputs read from tables: rows of receivers that are not among the given ones, and means over drawn edges."""
        found: dict[str | int, ConstantPart] = {}
        for name, nodes in block.receivers.items():
            if name not in rows:
                found[name] = _rows_of(inputs.features[name], nodes, mask.senders(self._numbers[name]))
        for number, indices in block.direct.items():
            if number in inputs.products:
                continue
            hop, senders = block.hops[number], self._relations[number].senders
            dropped = mask.senders(self._numbers[senders])
            found[number] = RowMeansPart(inputs.features[senders], indices, hop.positions, hop.starts, dropped)
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Weights by name, on the host."""
        return {name: values.detach().cpu().numpy() for name, values in self.state_dict().items()}

    def check(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Check weights; see `arrays`.

        Raises:
            ValueError: names, shapes or dtypes are another network's.
        """
        own = self.state_dict()
        if own.keys() != arrays.keys() or any(
            tuple(own[name].shape) != values.shape or values.dtype != own[name].numpy(force=True).dtype
            for name, values in arrays.items()
        ):
            raise ValueError("the weights are those of another network")

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load weights; see `arrays`.

        Raises:
            ValueError: see `check`.
        """
        self.check(arrays)
        self.load_state_dict({name: torch.from_numpy(np.array(values)) for name, values in arrays.items()})


def _shortcut(width: int, out: int) -> nn.Module:
    """Projection of a residual; none between equal widths (He et al., CVPR 2016)."""
    return nn.Identity() if width == out else Linear(width, out, bias=False)


def _own_rows(given: LayerInputs, name: str, device: torch.device) -> torch.Tensor:
    """Rows of the receivers that a layer reads, after dropout."""
    if name in given.senders:
        return given.row(name)
    part = given.fixed[name]
    out = np.empty((given.receivers[name], part.width), np.float32)
    part.fill(out, 0)
    return torch.from_numpy(out).to(device)


def _is_table(values: object) -> bool:
    """True if kernels can read its rows in place."""
    if isinstance(values, RowTable):
        return True
    return isinstance(values, np.ndarray) and values.dtype in (np.float32, np.float16) and values.flags.c_contiguous


def _rows_of(table: Any, nodes: NDArray[np.int64], dropped: RowDropout) -> ConstantPart:
    return table.fixed(nodes, dropped) if isinstance(table, RowTable) else RowsPart(table, nodes, dropped)


def _edges(hop: Hop, weights: NDArray[np.float32] | None, device: torch.device) -> SampledEdges:
    """Drawn edges, with any weights: from those of the whole set, or sent with the edges."""
    starts, senders = torch.from_numpy(hop.starts), torch.from_numpy(hop.senders)
    own = hop.weights if weights is None else weights[hop.positions]
    if own is None:
        return SampledEdges(starts, senders, device)
    return WeightedEdges(starts, senders, torch.from_numpy(own), device)


def _edge_features(
    hops: Mapping[int, Hop], inputs: NetworkInputs, device: torch.device
) -> dict[int, torch.Tensor]:  # fmt: skip
    """Features of drawn edges: from those of the whole set, or sent with the edges."""
    found = {number: hop.features for number, hop in hops.items() if hop.features is not None}
    found |= {each: table[hops[each].positions] for each, table in inputs.edge_features.items() if each in hops}
    return {number: torch.from_numpy(values).to(device) for number, values in found.items()}


def _messages(block: Block, inputs: NetworkInputs, device: torch.device) -> dict[int, torch.Tensor]:
    """Means of products; see `NetworkInputs.products`."""
    found = {}
    for number, table in inputs.products.items():
        hop = block.hops[number]
        out = np.empty((len(hop.degrees), table.shape[1]), np.float32)
        RowMeansPart(table, block.direct[number], hop.positions, hop.starts, NOTHING).fill(out, 0)
        found[number] = torch.from_numpy(out).to(device)
    return found


def _sums_without(
    inputs: NetworkInputs, relation: Relation, nodes: NDArray[np.int64], lost: Lost | None
) -> NDArray[np.float32]:
    """`NetworkInputs.sums` of these nodes, without lost edges."""
    assert inputs.sums is not None
    means = inputs.sums[relation.number][nodes]
    if lost is None:
        return means
    places, edges = lost.of(nodes)
    if not len(places):
        return means
    gone = np.zeros((len(nodes), means.shape[1]), np.float64)
    np.add.at(gone, places, inputs.features[relation.senders][lost.senders[edges]])
    counts, degrees = np.bincount(places, minlength=len(nodes)), np.zeros(len(nodes), np.int64)
    degrees[places] = lost.degrees[edges]
    left = degrees - counts
    changed = np.unique(places)
    total = means[changed].astype(np.float64) * degrees[changed, None] - gone[changed]
    means[changed] = np.where(left[changed, None] > 0, total / np.maximum(left[changed, None], 1), 0)
    return means


class _Masks:
    """Dropout of one layer, by nodes and positions of edges."""

    def __init__(self, block: Block, dropout: float, device: torch.device):
        self._state, self._device = block.state, device
        self._dropped = dropout_threshold(dropout)

    def dropped(self, *kind: int) -> RowDropout:
        """Dropout for kernels that drop entries as they read them."""
        return RowDropout(self._dropped, random_streams.state(self._state, *kind))

    def senders(self, node_set: int) -> RowDropout:
        """Dropout of rows of senders, by the number of their set."""
        return of_senders(self._state, self._dropped, node_set)

    def rows(self, values: torch.Tensor, numbers: NDArray[np.int64], *kind: int) -> torch.Tensor:
        """Rows after dropout, whose keys are the items' numbers."""
        if not self._dropped:
            return values
        mask = torch.empty(values.shape, dtype=torch.float32)
        fill_masks(numbers, self._dropped, np.uint64(random_streams.state(self._state, *kind)), mask.numpy())
        return values * mask.to(self._device)

    def attention(
        self, positions: NDArray[np.int64], nodes: NDArray[np.int64], *key: int
    ) -> tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]:
        """Dropout of the attention of edges, and of the nodes themselves."""
        return (
            lambda share: self.rows(share, positions, 2, random_streams.ATTENTION, *key),
            lambda share: self.rows(share, nodes, 2, random_streams.SELF_ATTENTION, *key),
        )
