"""The network: embeddings of nodes without features, layers, and what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from superworkflow.infra.errors import DatasetDamaged
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks._gnn import streams
from superworkflow.tasks._gnn.batches import Batch, Block, Lost
from superworkflow.tasks._gnn.kernels import fill_masks
from superworkflow.tasks._gnn.layers import GatLayer, GcnLayer, Inputs, SageLayer
from superworkflow.tasks._gnn.shape import Relation, Shape
from superworkflow.tasks._gnn.sums import Edges
from superworkflow.tasks._gnn.tensors import read_tensors, write_tensors

WEIGHTS_FILE = "model.safetensors"
_LAYERS = {"sage": SageLayer, "rgcn": SageLayer, "gcn": GcnLayer, "gat": GatLayer}
_MASKED_IN = 65536


@dataclass
class Known:
    """What is read of the graph beside its edges.

    Args:
        features: float32 [nodes, values] by node set, of those that have them.
        degrees: of GCN's node set, float32 [nodes].
        sums: what neighbours' features come to, float32 [receivers, values] by number of the edge set.
    """

    features: Mapping[str, NDArray[np.float32]]
    degrees: NDArray[np.float32] | None = None
    sums: Mapping[int, NDArray[np.float32]] | None = None


class Network(nn.Module):
    """A network that makes a row for each target.

    Args:
        shape: of it.
        seed: of its first weights.
    """

    def __init__(self, shape: Shape, seed: int):
        super().__init__()
        self.shape = shape
        self._numbers = {name: number for number, name in enumerate(sorted(shape.nodes))}
        self._only = shape.head.node_sets[0]  # where the model takes no more than one
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(streams.state(seed, streams.EMBEDDING) >> 1)
            levels = shape.levels()
            self.layers = nn.ModuleList(_LAYERS[shape.model](shape, i, level) for i, level in enumerate(levels))
            self.embedded = {name: str(at) for at, name in enumerate(shape.embedded())}
            self.embeddings = nn.ModuleDict()
            for name, key in self.embedded.items():
                table = nn.Embedding(max(1, shape.nodes[name]), shape.hidden, sparse=True)
                nn.init.xavier_uniform_(table.weight)
                self.embeddings[key] = table
        self.factors: nn.Parameter | None = None
        if shape.head.decoder == "distmult":
            self.factors = nn.Parameter(torch.ones(shape.head.width))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def forward(self, batch: Batch, known: Known, dropout: float = 0.0) -> dict[str, torch.Tensor]:
        """Rows of the targets by node set, float32 [targets, width of the head]."""
        rows = self.first_rows(batch.blocks[0], known)
        for number, block in enumerate(batch.blocks):
            rows = self.layer(number, block, rows, known, dropout)
        return rows

    def first_rows(self, block: Block, known: Known) -> dict[str, torch.Tensor]:
        """What the first layer reads of its senders; where all of them come as sums, of its receivers."""
        rows = {}
        for name, nodes in block.senders.items():
            if name in self.embedded:
                rows[name] = self.embeddings[self.embedded[name]](torch.from_numpy(nodes).to(self.device))
            else:
                rows[name] = torch.from_numpy(known.features[name][nodes]).to(self.device)
        return rows

    def layer(
        self, number: int, block: Block, rows: Mapping[str, torch.Tensor], known: Known, dropout: float = 0.0
    ) -> dict[str, torch.Tensor]:
        """One layer, and after all but the last what makes it not linear.

        Args:
            number: of the layer, from 0.
            block: its edges.
            rows: of its senders.
            known: degrees, and of the first layer the sums.
            dropout: share of entries that are dropped.
        """
        device = self.device
        mask = _Masks(block, dropout, device)
        edges = {
            each: Edges(torch.from_numpy(hop.starts), torch.from_numpy(hop.senders), device)
            for each, hop in block.hops.items()
        }
        degrees = {each: torch.from_numpy(hop.degrees).to(device, torch.float32) for each, hop in block.hops.items()}
        sums, scales, attention = {}, None, None
        if number == 0 and known.sums is not None:
            for relation in self.shape.levels()[0].relations:
                if relation.number in known.sums and relation.number not in block.hops:
                    nodes = block.receivers[relation.receivers]
                    values = _sums_without(known, relation, nodes, block.lost.get(relation.number))
                    given = torch.from_numpy(values).to(device)
                    sums[relation.number] = mask.rows(given, nodes, 1, relation.number)
                    if known.degrees is not None:
                        degrees[relation.number] = torch.from_numpy(known.degrees[nodes]).to(device)
        if self.shape.model == "gcn":
            assert known.degrees is not None
            nodes = block.senders[self._only]
            counts = known.degrees[nodes] - sum(lost.counts(nodes) for lost in block.lost.values())
            scales = torch.rsqrt(torch.from_numpy(counts).to(device, torch.float32) + 1)
        if self.shape.model == "gat" and dropout:
            attention = mask.attention(next(iter(block.hops.values())).positions, block.receivers[self._only])
        made = self.layers[number](Inputs(
            receivers={name: len(nodes) for name, nodes in block.receivers.items()},
            senders={
                name: mask.rows(values, block.senders[name], 0, self._numbers[name]) for name, values in rows.items()
            },
            edges=edges, degrees=degrees, scales=scales, sums=sums, attention=attention,
        ))  # fmt: skip
        if number < self.shape.layers - 1:
            act = nn.functional.elu if self.shape.model == "gat" else torch.relu
            made = {name: act(values) for name, values in made.items()}
        return dict(made)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Weights by name, on the host."""
        return {name: values.detach().cpu().numpy() for name, values in self.state_dict().items()}

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take weights; see `arrays`.

        Raises:
            ValueError: names or shapes are another network's.
        """
        own = self.state_dict()
        if own.keys() != arrays.keys() or any(tuple(own[name].shape) != arrays[name].shape for name in own):
            raise ValueError("the weights are those of another network")
        self.load_state_dict({name: torch.from_numpy(np.array(values)) for name, values in arrays.items()})


def _sums_without(known: Known, relation: Relation, nodes: NDArray[np.int64], lost: Lost | None) -> NDArray[np.float32]:
    """Means of the features of these nodes' neighbours, of those that were not lost; see `Known.sums`."""
    assert known.sums is not None
    means = known.sums[relation.number][nodes]
    if lost is None:
        return means
    places, edges = lost.of(nodes)
    if not len(places):
        return means
    gone = np.zeros((len(nodes), means.shape[1]), np.float64)
    np.add.at(gone, places, known.features[relation.senders][lost.senders[edges]])
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
        self._dropped = min(_MASKED_IN - 1, round(dropout * _MASKED_IN))

    def rows(self, values: torch.Tensor, numbers: NDArray[np.int64], *kind: int) -> torch.Tensor:
        """Some entries of the rows of these items set to 0, the others scaled up."""
        if not self._dropped:
            return values
        mask = torch.empty(values.shape, dtype=torch.float32)
        fill_masks(numbers, self._dropped, np.uint64(streams.state(self._state, *kind)), mask.numpy())
        return values * mask.to(self._device)

    def attention(
        self, positions: NDArray[np.int64], nodes: NDArray[np.int64]
    ) -> tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]:
        """Dropout of the weights of edges, and of those of the nodes themselves."""
        return (
            lambda share: self.rows(share, positions, 2, streams.ATTENTION),
            lambda share: self.rows(share, nodes, 2, streams.SELF_ATTENTION),
        )


def write_network(path: Path, network: Network) -> None:
    """Write the weights as safetensors."""
    write_tensors(path, network.arrays(), {"format": "pt"})


def read_network(dataset: Dataset, shape: Shape) -> Network:
    """The trained network of a dataset of stage train.

    Raises:
        DatasetDamaged: the weights are another network's.
    """
    network = Network(shape, 0)
    try:
        network.load_arrays(read_tensors(dataset.local(WEIGHTS_FILE)))
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise DatasetDamaged(f"weights cannot be read: {error}", where=f"{dataset.uri}/{WEIGHTS_FILE}",
                             remedy="Remove this dataset, and its stage will make it again") from None  # fmt: skip
    return network
