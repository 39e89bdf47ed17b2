"""Predictions of seeds by the edges that they were trained with: those not after their time, or of their subgraph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.model.graph_inputs import Data
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.objective.link_prediction import nodes_at_times
from superworkflow.tasks.lib.gnn.sampler.links import HELD_OUT, HeldOut, Pairs
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.gnn.sampler.subgraph_sampler import SampledBlocks, SampledSubgraphs
from superworkflow.tasks.lib.gnn.sampler.time_draws import times_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.seed_times import UNTIMED, node_times

_AT_ONCE = 4096
_STEP = (random_streams.VALIDATION, 0, 0)
"""Key of all draws, so that what is drawn for a node does not depend on the nodes that are computed with it."""
RowsByNodeSet = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class AtTimes:
    """Rows of nodes at times, by a network whose seeds have times.

    Args:
        network: the trained network, with all embeddings.
        graph: the graph.
        data: its edges and inputs.
        batch: nodes that are computed together.
        subgraphs: subgraphs by which their seeds are predicted; None for edges at times.
    """

    network: Network
    graph: HeteroGraph
    data: Data
    batch: int
    subgraphs: SampledSubgraphs | None = None

    def fill(self, rows: RowsByNodeSet) -> int:
        """Put the rows of nodes that have a time, or a subgraph, into those of all, and return how many these are."""
        (name,) = self.network.shape.head.node_sets
        if self.subgraphs is not None:
            seeds, times = np.unique(self.subgraphs.seeds), np.zeros(self.network.shape.nodes[name], np.int64)
        else:
            times = seed_times_of(self.graph, self.network.shape)
            seeds = np.flatnonzero(times != UNTIMED)
        size = min(self.batch, _AT_ONCE)
        for first in range(0, len(seeds), size):
            nodes = seeds[first : first + size]
            rows[name][nodes] = self._rows({name: nodes}, {name: times[nodes]})[name]
        return len(seeds)

    def pairs(self, held_out: HeldOut, factors: NDArray[np.float32]) -> dict[tuple[str, bool], NDArray[np.float32]]:
        """Scores of the held-out links and of the pairs without one, by split and whether they are links."""
        found = {}
        for split in HELD_OUT:
            for linked, pairs in ((True, held_out.links[split]), (False, held_out.others[split])):
                found[split, linked] = self._scores(held_out, pairs, held_out.times[split], factors)
        return found

    def _scores(
        self, held_out: HeldOut, pairs: Pairs, times: NDArray[np.int64], factors: NDArray[np.float32]
    ) -> NDArray[np.float32]:  # fmt: skip
        edges = self.graph.edge_sets[held_out.edges]
        ends, scores, size = (edges.source, edges.target), np.empty(len(pairs), np.float32), min(self.batch, _AT_ONCE)
        for first in range(0, len(pairs), size):
            piece = slice(first, first + size)
            nodes, limits, places = nodes_at_times(ends, pairs[piece], times[piece])
            rows = self._rows(nodes, limits)
            sources, targets = (rows[end][place] for end, place in zip(ends, places, strict=True))
            scores[piece] = (sources * factors * targets).sum(axis=1)
        return scores

    def _rows(self, nodes: Mapping[str, NDArray[np.int64]], limits: Mapping[str, NDArray[np.int64]]) -> RowsByNodeSet:
        batch = self._sampler.batch(nodes, *_STEP, limits=limits)
        with torch.no_grad():
            made = self.network(batch, self.data.inputs)
        return {name: values.cpu().numpy() for name, values in made.items()}

    @cached_property
    def _sampler(self) -> NeighborSampler:
        shape = self.network.shape
        if self.subgraphs is not None:
            return SampledBlocks(self.subgraphs, shape.levels(), 0)
        assert shape.times is not None
        levels, how = shape.levels(), shape.times
        times = times_of(self.graph, levels[0].relations, how.edges)
        direct = self.network.direct(0, self.data.inputs)
        draws = Draws(levels, how.fanouts, False, frozenset(), how.seed, direct, how.latest)
        return NeighborSampler(self.data.rows, shape.nodes, draws, times=times)


def seed_times_of(graph: HeteroGraph, shape: NetworkConfig) -> NDArray[np.int64]:
    """Times of the nodes that a network predicts, int64 [nodes]; none of a graph whose nodes have no such feature."""
    (name,) = shape.head.node_sets
    feature = "" if shape.times is None else shape.times.feature
    if not any(each.name == feature for each in graph.node_sets[name].features):
        return np.full(graph.node_sets[name].count, UNTIMED)
    return node_times(graph, name, feature, np.empty(0, np.int64))
