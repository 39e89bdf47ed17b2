"""A mini-batch: the disjoint union of some subgraphs, with features, as tensors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from superworkflow.loader.merge import gather_rows, place_ends
from superworkflow.tasks.lib.graph.heterograph import STRING, EdgeSet, Feature, HeteroGraph, NodeSet, Ragged
from superworkflow.tasks.lib.graph.heterograph import take as take_items
from superworkflow.tasks.lib.kernels.buffer_pool import BATCHES
from superworkflow.tasks.lib.kernels.copy_bytes import STREAMED
from superworkflow.tasks.lib.kernels.gather import gather_words
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock
from superworkflow.tasks.records.features import READOUT, READOUT_ENDS, FeatureSource, Items

_CACHED_BYTES = 1 << 20
"""Bytes of features: more would drive all else out of a core's cache, and themselves before they are used."""


class RaggedTensor(NamedTuple):
    """Values of items that differ in number: those of item i are ``values[starts[i]:starts[i + 1]]``."""

    values: Tensor
    starts: Tensor


@dataclass(frozen=True)
class Nodes:
    """Nodes of one set in a batch.

    Args:
        numbers: int64 [n], in the graph; those of a subgraph stand together, its seed first.
        starts: int64 [subgraphs + 1], where those of each subgraph begin.
        features: by name: tensors [n, *shape], `RaggedTensor`s, or lists of bytes.
    """

    numbers: Tensor
    starts: Tensor
    features: dict[str, Any] = field(default_factory=dict)

    @property
    def subgraph(self) -> Tensor:
        """Subgraph of each item, int64 [n]."""
        return torch.repeat_interleave(torch.arange(len(self.starts) - 1), torch.diff(self.starts))


@dataclass(frozen=True)
class Edges:
    """Edges of one set in a batch.

    Args:
        source, target: names of the node sets of their ends.
        index: int64 [2, e], places in `Nodes.numbers` of sources and targets.
        positions: int64 [e], in the graph's rows; None where they were not asked for.
        starts: int64 [subgraphs + 1], where those of each subgraph begin.
        features: by name, as of `Nodes`.
    """

    source: str
    target: str
    index: Tensor
    positions: Tensor | None
    starts: Tensor
    features: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """Some subgraphs, side by side.

    Args:
        sample_ids: of the subgraphs.
        seed_sets: node sets of the seeds: one, or those of a link's ends.
        seeds: int64 [subgraphs, 1 or 2], numbers of the seeds in the graph.
        seed_places: int64 [subgraphs, 1 or 2], their places in `Nodes.numbers` of their sets.
        nodes, edges: by the names of the sets. Of links there are also the node set `_readout`, a node for each
            subgraph, and the edge sets `_readout/source` and `_readout/target`, which lead there from the two seeds.
    """

    sample_ids: list[str]
    seed_sets: tuple[str, ...]
    seeds: Tensor
    seed_places: Tensor
    nodes: dict[str, Nodes]
    edges: dict[str, Edges]

    def __len__(self) -> int:
        return len(self.sample_ids)

    def to_pyg(self) -> Any:
        """As `torch_geometric.data.HeteroData`.

        Of each node set it has `num_nodes`, `n_id`, `batch`, `ptr` and the features; of each edge set `edge_index`,
        `e_id` (if positions were asked for) and the features; of the set of the seeds `seed_index` and `batch_size`.
        """
        from torch_geometric.data import HeteroData

        data = HeteroData()
        for name, nodes in self.nodes.items():
            store = data[name]
            store.num_nodes, store.n_id, store.batch, store.ptr = (
                len(nodes.numbers), nodes.numbers, nodes.subgraph, nodes.starts,
            )  # fmt: skip
            for feature, values in nodes.features.items():
                store[feature] = values
        for name, edges in self.edges.items():
            store = data[edges.source, name, edges.target]
            store.edge_index = edges.index
            if edges.positions is not None:
                store.e_id = edges.positions
            for feature, values in edges.features.items():
                store[feature] = values
        for end, name in enumerate(self.seed_sets):
            data[name]["seed_index" if end == 0 else "seed_index_target"] = self.seed_places[:, end]
            data[name].batch_size = len(self)
        return data

    def to_dgl(self) -> Any:
        """As a batched `dgl.DGLGraph`, with `dgl.NID` and `dgl.EID`, and features that are tensors."""
        import dgl

        ends = {
            (edges.source, name, edges.target): (edges.index[0], edges.index[1]) for name, edges in self.edges.items()
        }
        graph = dgl.heterograph(ends, {name: len(nodes.numbers) for name, nodes in self.nodes.items()})
        graph.set_batch_num_nodes({name: torch.diff(nodes.starts) for name, nodes in self.nodes.items()})
        graph.set_batch_num_edges({
            (edges.source, name, edges.target): torch.diff(edges.starts) for name, edges in self.edges.items()
        })  # fmt: skip
        for name, nodes in self.nodes.items():
            data = graph.nodes[name].data
            data[dgl.NID] = nodes.numbers
            data.update({key: each for key, each in nodes.features.items() if isinstance(each, Tensor)})
        for name, edges in self.edges.items():
            data = graph.edges[edges.source, name, edges.target].data
            if edges.positions is not None:
                data[dgl.EID] = edges.positions
            data.update({key: each for key, each in edges.features.items() if isinstance(each, Tensor)})
        return graph


def batch_of(
    block: SubgraphBlock, source: FeatureSource, wanted: Any, without_positions: Collection[int] = ()
) -> Batch:
    """The batch of all subgraphs in a block.

    Args:
        block: the subgraphs.
        source: of features.
        wanted: of a kind (`nodes` or `edges`) and a set, the features that are joined.
        without_positions: numbers of the edge sets of which the batch has no positions, and no features.
    """
    graph: HeteroGraph = source.graph
    nodes, edges = {}, {}
    for items in source.node_items(block):
        nodes[items.set.name] = Nodes(
            torch.from_numpy(np.ascontiguousarray(items.rows, np.int64)), torch.from_numpy(items.starts),
            {each.name: _values(source, "nodes", items, each) for each in wanted("nodes", items.set)},
        )  # fmt: skip
    numbers = {name: i for i, name in enumerate(graph.node_sets)}
    for j, items in enumerate(source.edge_items(block, without_positions)):
        edge_set = items.set
        assert isinstance(edge_set, EdgeSet)
        index = BATCHES.array((2, int(items.starts[-1])), np.int64)
        for row, (places, end) in enumerate(((block.sources[j], edge_set.source), (block.targets[j], edge_set.target))):
            if not place_ends(places, items.starts, block.node_starts[numbers[end]], index[row]):
                raise source.unfit(f"ends of {edge_set.name} are none of their subgraphs' nodes", int(places.max()))
        positions = None if j in without_positions else torch.from_numpy(block.positions[j].astype(np.int64))
        edges[edge_set.name] = Edges(
            edge_set.source, edge_set.target, torch.from_numpy(index), positions, torch.from_numpy(items.starts),
            {each.name: _values(source, "edges", items, each) for each in wanted("edges", edge_set)},
        )  # fmt: skip
    seeds = source.seeds(block)
    begins = np.stack([block.node_starts[numbers[name]][:-1] for name in source.seed_sets], 1)
    seed_places = torch.from_numpy(begins + source.seed_places(block))
    if len(source.seed_sets) == 2:
        each = torch.arange(block.subgraphs + 1)
        nodes[READOUT] = Nodes(each[:-1], each)
        for row, name in enumerate(READOUT_ENDS):
            ends = torch.stack([seed_places[:, row], each[:-1]])
            edges[name] = Edges(source.seed_sets[row], READOUT, ends, each[:-1], each)
    return Batch(
        block.sample_ids.to_pylist(), source.seed_sets, torch.from_numpy(seeds), seed_places, nodes, edges
    )  # fmt: skip


def wanted_features(items: NodeSet | EdgeSet, names: Any) -> list[Feature]:
    """Features of these names; all numeric ones if no names are given."""
    return [each for each in items.features if (each.dtype != STRING if names is None else each.name in names)]


def _values(source: FeatureSource, kind: str, items: Items, feature: Feature) -> Any:
    values = source.values(kind, items.set, feature.name)
    if isinstance(values, Ragged):
        taken = take_items(values, items.rows)
        assert isinstance(taken, Ragged)
        return RaggedTensor(torch.from_numpy(taken.values), torch.from_numpy(taken.starts))
    if not isinstance(values, np.ndarray):
        return take_items(values, items.rows).to_pylist()
    return torch.from_numpy(gathered(values, items.rows))


def gathered(values: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """``values[rows]``, the rows being numbers of items, by a kernel."""
    out = BATCHES.array((len(rows), *values.shape[1:]), values.dtype)
    if not out.size:
        return out
    width = out.nbytes // len(rows)
    if width == values.itemsize and width in (4, 8):
        gather_words(values.reshape(-1).view(f"u{width}"), rows, out.reshape(-1).view(f"u{width}"))
    else:
        past_caches = out.nbytes >= _CACHED_BYTES and width % STREAMED == 0 and out.ctypes.data % STREAMED == 0
        gather_rows(values.reshape(-1).view(np.uint8), width, rows, out.reshape(-1).view(np.uint8), past_caches)
    return out
