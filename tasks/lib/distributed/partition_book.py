"""Partition book: the worker that owns each node, and requests routed to owners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.arrays import read_only


class PartitionBook:
    """Owners of nodes, by their old numbers.

    Args:
        orders: old number of each new one, by node set.
        bounds: first new number of each worker, and the end, by node set.
    """

    def __init__(self, orders: Mapping[str, NDArray[Any]], bounds: Mapping[str, NDArray[np.int64]]):
        self.orders = {name: read_only(order) for name, order in orders.items()}
        self.bounds = dict(bounds)
        self.places = {}
        for name, order in orders.items():
            places = np.empty_like(order)
            places[order] = np.arange(len(order), dtype=order.dtype)
            self.places[name] = places

    def owners(self, node_set: str, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rank of the owner of each node."""
        return np.searchsorted(self.bounds[node_set][1:], self.places[node_set][nodes], "right")

    def own(self, node_set: str, nodes: NDArray[np.int64], rank: int) -> NDArray[np.int64]:
        """Rows of nodes in the table of their owner `rank`."""
        return self.places[node_set][nodes].astype(np.int64) - int(self.bounds[node_set][rank])


class Route(NamedTuple):
    """Route of requests: permutation that sorts nodes by owner, and the count for each owner."""

    order: NDArray[np.int64]
    counts: NDArray[np.int64]


class RoutedNodes(NamedTuple):
    """Nodes to request from each owner, which responds with rows.

    Args:
        node_set: set of the nodes.
        route: route of the rows.
        parts: data to send, by rank.
    """

    node_set: str
    route: Route
    parts: list[NDArray[np.int64]]
