"""Sampled edges, split by the worker that owns the sender: own rows to sum, and partial sums to request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.partition_book import Route, RoutedNodes
from superworkflow.tasks.lib.gnn.distributed.kernels import count_senders, split_senders
from superworkflow.tasks.lib.kernels.arrays import read_only

NewArray = Callable[[tuple[int, ...], Any], NDArray[Any]]
"""Function that makes an uninitialized array of a shape and a type."""


class EdgeSplit(NamedTuple):
    """Edges of one edge set.

    Args:
        starts: edge offsets of the receivers [r + 1].
        own_starts, own: edges from the worker's own nodes, as rows among these [r + 1], [edges].
        sum_starts: offsets of the partial sums that each receiver gets from other workers [r + 1].
        remote: request for these sums; its route has the order of the sums.
    """

    starts: NDArray[np.int64]
    own_starts: NDArray[np.int64]
    own: NDArray[np.int64]
    sum_starts: NDArray[np.int64]
    remote: RoutedNodes


def divided(
    node_set: str, starts: NDArray[np.int64], senders: NDArray[np.int64], bounds: NDArray[np.int64], own_rank: int,
    array: NewArray,
) -> EdgeSplit:  # fmt: skip
    """Split drawn edges.

    Args:
        node_set: set of the senders.
        starts, senders: edges of each receiver [r + 1], [edges]; senders by new numbers.
        bounds: first new number of each worker's nodes, and the end [workers + 1].
        own_rank: rank of this worker.
        array: makes the arrays of edges.
    """
    starts, senders, bounds = map(read_only, (starts, senders, bounds))
    edges, sums = (np.empty(len(bounds) - 1, np.int64) for _ in range(2))
    count_senders(starts, senders, bounds, edges, sums)
    own, edges[own_rank], sums[own_rank] = array((int(edges[own_rank]),), np.int64), 0, 0
    ends = np.cumsum(edges) - edges
    remote, cuts = array((int(edges.sum()),), np.int64), ends[1:].copy()
    own_starts, sum_starts = (np.empty(len(starts), np.int64) for _ in range(2))
    ranks = np.empty(sums.sum(), np.uint16)
    split_senders(starts, senders, bounds, own_rank, ends, own_starts, own, remote, sum_starts, ranks)
    # Each worker responds in the order of its requests, so a stable sort by rank matches sums to receivers.
    route = Route(np.argsort(ranks, kind="stable"), sums)
    return EdgeSplit(starts, own_starts, own, sum_starts, RoutedNodes(node_set, route, np.split(remote, cuts)))
