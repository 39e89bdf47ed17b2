"""Mini-batches from subgraphs that stage sample has drawn: each seed is classified by its own subgraph.

The subgraphs of a step's seeds are one graph in which they are apart, so that a node is there once for each subgraph
that it is in; a layer takes all edges of its receivers in it. Subgraphs are held in memory as they were sampled, by
numbers of nodes and positions of edges; features are read from the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.gnn.relations import LayerSchema
from superworkflow.tasks.lib.gnn.sampler.block import Block, MiniBatch
from superworkflow.tasks.lib.gnn.sampler.kernels import ALL_NEIGHBORS
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.lib.subgraphs.blocks import DESCRIPTION, SubgraphBlock, read_blocks
from superworkflow.tasks.lib.subgraphs.shard_layout import SPLITS

_NOTHING: Mapping[int, NDArray[np.int64]] = MappingProxyType({})


@dataclass(frozen=True)
class ListsOfSubgraphs:
    """Lists of numbers, of subgraph s ``values[starts[s]:starts[s + 1]]``."""

    starts: NDArray[np.int64]
    values: NDArray[Any]

    def of(self, items: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lengths of the lists of some subgraphs, and the places of all their values, one list after the other."""
        counts = self.starts[items + 1] - self.starts[items]
        before = np.cumsum(counts) - counts
        return counts, np.repeat(self.starts[items] - before, counts) + np.arange(int(counts.sum()))


class SampledSubgraphs:
    """The subgraphs of a dataset of stage sample.

    Args:
        dataset: the dataset.
        graph: the graph that they were sampled from, or one with other features of the same nodes and edges.

    `node_set` is the set of the seeds; `splits` are the seeds' splits, int8 [nodes], -1 for nodes that are no seeds.

    Raises:
        UserError: they were sampled from another graph, or around links.
        DatasetDamaged: a file is not as it was written.
    """

    def __init__(self, dataset: Dataset, graph: HeteroGraph):
        _check_graph(dataset, graph)
        self.node_set = list(graph.node_sets)[int(dataset.json(DESCRIPTION)["seed_node_set"])]
        self._numbers = {name: number for number, name in enumerate(graph.node_sets)}
        blocks: list[SubgraphBlock] = []
        self.splits = np.full(graph.node_sets[self.node_set].count, -1, np.int8)
        for number, split in enumerate(SPLITS):
            for block in read_blocks(dataset, split):
                if block.seeds.ndim > 1:
                    raise UserError("subgraphs around links are no subgraphs of nodes", where=dataset.uri,
                                    remedy="Sample around nodes: give a table of seeds with a column id")  # fmt: skip
                self.splits[block.seeds] = number
                blocks.append(block)
        self.seeds: NDArray[np.int64] = np.concatenate([np.empty(0, np.int64), *(each.seeds for each in blocks)])
        self.nodes = [_joined([(b.node_starts[i], b.nodes[i]) for b in blocks]) for i in range(len(graph.node_sets))]
        edges = range(len(graph.edge_sets))
        self.sources = [_joined([(b.edge_starts[j], b.sources[j]) for b in blocks]) for j in edges]
        self.targets = [_joined([(b.edge_starts[j], b.targets[j]) for b in blocks]) for j in edges]
        self.positions = [_joined([(b.edge_starts[j], b.positions[j]) for b in blocks]) for j in edges]
        order = np.argsort(self.seeds, kind="stable")
        counts = np.bincount(self.seeds, minlength=len(self.splits))
        self._of_seed = ListsOfSubgraphs(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), order)

    def places(self, nodes: NDArray[np.int64], turn: int) -> NDArray[np.int64]:
        """Subgraph of each seed: of several, which differ by their draws, those of successive turns follow each other.

        Raises:
            IndexError: a node is no seed.
        """
        first = self._of_seed.starts[nodes]
        count = self._of_seed.starts[nodes + 1] - first
        if (count == 0).any():
            raise IndexError("a node is no seed")
        found: NDArray[np.int64] = self._of_seed.values[first + turn % count]
        return found

    def number(self, node_set: str) -> int:
        """Number of a node set in the graph."""
        return self._numbers[node_set]


class SampledBlocks(NeighborSampler):
    """Makes blocks of sampled subgraphs. Not thread-safe.

    Args:
        subgraphs: the subgraphs.
        levels: layers of the network, first layer first.
        seed: seed of the dropout.
    """

    def __init__(self, subgraphs: SampledSubgraphs, levels: list[LayerSchema], seed: int):
        self._subgraphs, self._levels = subgraphs, levels
        self._how = Draws(levels, [ALL_NEIGHBORS] * len(levels), False, frozenset(), seed)

    def batch(
        self, targets: Mapping[str, NDArray[np.int64]], *step: int, lost: Mapping[int, NDArray[np.int64]] = _NOTHING,
        limits: Mapping[str, NDArray[np.int64]] | None = None,
    ) -> MiniBatch:  # fmt: skip
        """Blocks around seeds, as `NeighborSampler.batch` makes them; the second number of `step` is the turn."""
        given, (name,) = self._subgraphs, targets
        seeds = np.sort(targets[name])
        items = given.places(seeds, step[1])
        nodes, begins = {}, {}
        for each, count in ((each, given.nodes[given.number(each)]) for each in self._levels[0].senders):
            counts, places = count.of(items)
            nodes[each], begins[each] = count.values[places].astype(np.int64), np.cumsum(counts) - counts
        rows, positions = {}, {}
        for relation in self._levels[0].relations:
            j = relation.number
            counts, places = given.sources[j].of(items)
            own = np.repeat(np.arange(len(items)), counts)
            sources = given.sources[j].values[places] + begins[relation.receivers][own]
            indices = given.targets[j].values[places] + begins[relation.senders][own]
            indptr = np.zeros(len(nodes[relation.receivers]) + 1, np.int64)
            np.cumsum(np.bincount(sources, minlength=len(indptr) - 1), out=indptr[1:])
            rows[j], positions[j] = CsrRows(indptr, indices), given.positions[j].values[places].astype(np.int64)
        sampler = NeighborSampler(rows, {each: len(found) for each, found in nodes.items()}, self._how)
        found = sampler.batch({name: begins[name]}, *step)
        return MiniBatch({name: seeds}, tuple(_named(block, nodes, positions) for block in found.blocks))


def _named(block: Block, nodes: Mapping[str, NDArray[Any]], positions: Mapping[int, NDArray[np.int64]]) -> Block:
    """A block with the numbers that nodes and edges have in the whole graph."""
    receivers, senders = (
        {name: nodes[name][each] for name, each in ends.items()} for ends in (block.receivers, block.senders)
    )
    hops = {j: hop._replace(positions=positions[j][hop.positions]) for j, hop in block.hops.items()}
    return block._replace(receivers=receivers, senders=senders, hops=hops)


def _joined(parts: list[tuple[NDArray[np.int64], NDArray[Any]]]) -> ListsOfSubgraphs:
    """Lists of several blocks as one."""
    counts = np.concatenate([np.zeros(1, np.int64), *(np.diff(starts) for starts, _ in parts)])
    return ListsOfSubgraphs(
        np.cumsum(counts), np.concatenate([np.empty(0, np.int32), *(values for _, values in parts)])
    )


def _check_graph(dataset: Dataset, graph: HeteroGraph) -> None:
    """Refuse subgraphs of another graph; features of the stage feature_matrix do not make it another."""
    if DESCRIPTION not in dataset:
        raise UserError(f"the dataset has no {DESCRIPTION}: it holds no sampled subgraphs", where=dataset.uri,
                        remedy="Give the dataset of stage sample of a run of subgraphs")  # fmt: skip
    sampled_from = dataset.manifest.inputs["graph"].digest
    made_of = graph.dataset.manifest.inputs.get("graph")
    if sampled_from not in (graph.dataset.digest, made_of.digest if made_of is not None else ""):
        raise UserError("these subgraphs were sampled from another graph", where=dataset.uri, value=sampled_from,
                        remedy="Give gnn the graph, and the parameters of heterograph, that subgraphs had")  # fmt: skip
