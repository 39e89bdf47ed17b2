"""Drawn edges divided by who of the workers has their senders: what a worker sums itself, and what it asks others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.partition_book import Route, RoutedNodes
from superworkflow.tasks.lib.gnn.distributed.kernels import count_senders, split_senders
from superworkflow.tasks.lib.kernels.arrays import read_only

NewArray = Callable[[tuple[int, ...], Any], NDArray[Any]]
"""Makes an array, not filled, of a shape and a type."""


class EdgeSplit(NamedTuple):
    """Edges of one edge set.

    Args:
        starts: where those of each receiver begin [r + 1].
        own_starts, own: those from the worker's nodes, as rows among these [r + 1], [edges].
        sum_starts: where the sums begin that each receiver is to get of others [r + 1].
        asked: of others; a route's order is that of the sums.
    """

    starts: NDArray[np.int64]
    own_starts: NDArray[np.int64]
    own: NDArray[np.int64]
    sum_starts: NDArray[np.int64]
    asked: RoutedNodes


def divided(
    node_set: str, starts: NDArray[np.int64], senders: NDArray[np.int64], bounds: NDArray[np.int64], mine: int,
    array: NewArray,
) -> EdgeSplit:  # fmt: skip
    """Divide drawn edges.

    Args:
        node_set: of the senders.
        starts, senders: of the edges of each receiver [r + 1], [edges]; senders by new numbers.
        bounds: new numbers at which each worker's nodes begin, and the end [workers + 1].
        mine: rank of this worker.
        array: makes arrays for them.
    """
    starts, senders, bounds = map(read_only, (starts, senders, bounds))
    edges, sums = (np.empty(len(bounds) - 1, np.int64) for _ in range(2))
    count_senders(starts, senders, bounds, edges, sums)
    own, edges[mine], sums[mine] = array((int(edges[mine]),), np.int64), 0, 0
    ends = np.cumsum(edges) - edges
    asked, cuts = array((int(edges.sum()),), np.int64), ends[1:].copy()
    own_starts, sum_starts = (np.empty(len(starts), np.int64) for _ in range(2))
    ranks = np.empty(sums.sum(), np.uint16)
    split_senders(starts, senders, bounds, mine, ends, own_starts, own, asked, sum_starts, ranks)
    # Each worker answers in the order in which it is asked, so that a stable sort says which sum is whose.
    route = Route(np.argsort(ranks, kind="stable"), sums)
    return EdgeSplit(starts, own_starts, own, sum_starts, RoutedNodes(node_set, route, np.split(asked, cuts)))
