"""Copies of nodes for the times that they are sampled for.

Seeds of different times must not share what a node between them has received: of two seeds, the later one sees edges
that the earlier one does not. So a node is there once for each time of the seeds that it is sampled for, as it is in
torch_geometric's `NeighborLoader` for each seed with `time_attr`; seeds of equal time share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.relations import LayerSchema
from superworkflow.tasks.lib.gnn.sampler.block import Block

_NOBODY = np.empty(0, np.int64)


class TimeCopies:
    """Numbers of copies of one batch: index of the time, times the size of the node set, plus the node.

    Args:
        times: those of the targets, int64, distinct, ascending.
        counts: sizes of the node sets.
    """

    def __init__(self, times: NDArray[np.int64], counts: Mapping[str, int]):
        self._times = times
        self._counts = {name: max(1, count) for name, count in counts.items()}

    def of(self, node_set: str, nodes: NDArray[np.int64], limits: NDArray[np.int64]) -> NDArray[np.int64]:
        """Copies of nodes for these limits, which are the targets'."""
        found: NDArray[np.int64] = np.searchsorted(self._times, limits) * self._counts[node_set] + nodes
        return found

    def nodes(self, node_set: str, copies: NDArray[np.int64]) -> NDArray[np.int64]:
        """Nodes that these are copies of."""
        return copies % self._counts[node_set]

    def limits(self, node_set: str, copies: NDArray[np.int64]) -> NDArray[np.int64]:
        """Times that they are for."""
        found: NDArray[np.int64] = self._times[copies // self._counts[node_set]]
        return found

    def named(self, block: Block) -> Block:
        """A block with nodes in place of copies."""
        receivers, senders = (
            {name: self.nodes(name, each) for name, each in ends.items()} for ends in (block.receivers, block.senders)
        )
        return block._replace(receivers=receivers, senders=senders)

    def numbered(
        self, level: LayerSchema, receivers: Mapping[str, NDArray[np.int64]],
        drawn: Mapping[int, tuple[NDArray[Any], NDArray[np.int64]]], starts: Mapping[int, NDArray[np.int64]],
    ) -> tuple[dict[str, NDArray[np.int64]], dict[int, NDArray[np.int32]]]:  # fmt: skip
        """Number the senders of drawn edges, which have the limits of their receivers.

        Args:
            level: the layer.
            receivers: copies by node set.
            drawn: as in `neighbor_sampler.numbered`.
            starts: edge offsets of the receivers, by number of the edge set.

        Returns:
            Copies of senders by node set, in the order of their first occurrence after the receivers, and by number of
            the edge set the index of each edge's sender among them.
        """
        senders, found = {}, {}
        for name in level.senders:
            given = receivers.get(name, _NOBODY)
            used = [each for each in level.relations if each.senders == name and each.number in drawn]
            parts = [given]
            for each in used:
                nodes, positions = drawn[each.number]
                time = receivers[each.receivers] // self._counts[each.receivers] * self._counts[name]
                parts.append(np.repeat(time, np.diff(starts[each.number])) + nodes[positions])
            distinct, first, places = np.unique(np.concatenate(parts), return_index=True, return_inverse=True)
            order = np.argsort(first)
            rank = np.empty(len(order), np.int32)
            rank[order] = np.arange(len(order), dtype=np.int32)
            senders[name], begin = distinct[order], len(given)
            for each, part in zip(used, parts[1:], strict=True):
                found[each.number] = rank[places[begin : begin + len(part)]]
                begin += len(part)
        return senders, found
