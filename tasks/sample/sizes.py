"""Sizes of subgraphs: exact distributions for each set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.graph.heterograph_writer import stat_name
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock, SubgraphLayout

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Sizes:
    """Numbers of subgraphs by size, for each set in use."""

    def __init__(self, layout: SubgraphLayout):
        self._layout = layout
        self.subgraphs = 0
        self._nodes = [np.zeros(1, np.int64) for _ in layout.used_nodes]
        self._edges = [np.zeros(1, np.int64) for _ in layout.used_edges]

    @property
    def nodes(self) -> int:
        """In all subgraphs."""
        return sum(map(_total, self._nodes))

    @property
    def edges(self) -> int:
        """In all subgraphs."""
        return sum(map(_total, self._edges))

    def add(self, block: SubgraphBlock) -> None:
        """Count the subgraphs of a block."""
        self.subgraphs += block.subgraphs
        for slot, i in enumerate(self._layout.used_nodes):
            self._nodes[slot] = _sum(self._nodes[slot], np.bincount(np.diff(block.node_starts[i])))
        for slot, j in enumerate(self._layout.used_edges):
            self._edges[slot] = _sum(self._edges[slot], np.bincount(np.diff(block.edge_starts[j])))

    def merge(self, other: Sizes) -> None:
        """Count the subgraphs that another one has counted."""
        self.subgraphs += other.subgraphs
        self._nodes = [_sum(one, two) for one, two in zip(self._nodes, other._nodes, strict=True)]
        self._edges = [_sum(one, two) for one, two in zip(self._edges, other._edges, strict=True)]

    def stats(self, node_sets: Sequence[str], edge_sets: Sequence[str]) -> dict[str, Stat]:
        """Totals, and mean, quantiles and maximum of the sizes of each set, by its name as `stat_name` gives it."""
        stats: dict[str, Stat] = {"subgraphs": self.subgraphs, "nodes": self.nodes, "edges": self.edges}
        for number, counts in zip(self._layout.used_nodes, self._nodes, strict=True):
            stats |= _described(f"nodes.{stat_name(node_sets[number], number)}", counts)
        for number, counts in zip(self._layout.used_edges, self._edges, strict=True):
            stats |= _described(f"edges.{stat_name(edge_sets[number], number)}", counts)
        return stats


def _total(counts: NDArray[np.int64]) -> int:
    return int(np.arange(len(counts)) @ counts)


def _sum(one: NDArray[np.int64], two: NDArray[np.int64]) -> NDArray[np.int64]:
    short, long = sorted((one, two), key=len)
    total = long.astype(np.int64)
    total[: len(short)] += short
    return total


def _described(name: str, counts: NDArray[np.int64]) -> dict[str, Stat]:
    below, items = np.cumsum(counts), int(counts.sum())
    quantiles = {
        f"{name}.{key}": int(np.searchsorted(below, share * items)) if items else 0 for key, share in QUANTILES.items()
    }
    most = int(np.flatnonzero(counts)[-1]) if items else 0
    return {f"{name}.mean": round(_total(counts) / max(items, 1), 3), **quantiles, f"{name}.max": most}
