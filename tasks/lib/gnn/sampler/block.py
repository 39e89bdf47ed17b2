"""Sampled blocks of a mini-batch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.kernels.arrays import read_only


class Hop(NamedTuple):
    """Drawn edges of one edge set.

    Args:
        starts: where those of each receiver begin, int64 [receivers + 1].
        senders: places of the senders among the nodes of their set, int32 [edges].
        positions: of the edges in their set, int64 [edges]; empty where a worker reads means of others' nodes as sums.
        degrees: of the receivers, of which so many were drawn, int64 [receivers].
        weights: of the edges, float32 [edges], where they came with them; None where there are none, or whoever reads
            them has those of the whole set.
    """

    starts: NDArray[np.int64]
    senders: NDArray[np.int32]
    positions: NDArray[np.int64]
    degrees: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None


class Lost(NamedTuple):
    """Edges of one edge set that pass no messages in a step, in the order of the set.

    Args:
        positions: in the set, int64 [edges], ascending.
        receivers, senders: of each, int64 [edges].
        degrees: edges of its receiver that there would be without the loss, int64 [edges].
        weights: of each, float32 [edges]; None as in `Hop`.
    """

    positions: NDArray[np.int64]
    receivers: NDArray[np.int64]
    senders: NDArray[np.int64]
    degrees: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None

    def counts(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of lost edges of each of these receivers."""
        first, end = np.searchsorted(self.receivers, nodes, "left"), np.searchsorted(self.receivers, nodes, "right")
        return np.asarray(end - first, np.int64)

    def sums(self, nodes: NDArray[np.int64], weights: NDArray[np.float32] | None) -> NDArray[Any]:
        """Sum of the weights of each receiver's lost edges, or their number.

        Args:
            nodes: the receivers.
            weights: of all edges of the set; None where there are none, or those that are lost came with them.
        """
        own = self.weights if weights is None else weights[self.positions]
        if own is None:
            return self.counts(nodes)
        places, edges = self.of(nodes)
        return np.bincount(places, own[edges], len(nodes))

    def of(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The edges that these receivers have lost: place of each one's receiver in `nodes`, and its place here."""
        counts = self.counts(nodes)
        places = np.repeat(np.arange(len(nodes)), counts)
        first = np.searchsorted(self.receivers, nodes, "left")
        return places, np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts) + first[places]


class Block(NamedTuple):
    """Block of one layer: its receivers, senders and edges.

    Args:
        receivers, senders: nodes of each node set, int64; the receivers come first among the senders.
        hops: by the number of the edge set.
        state: of the random streams of this layer's masks.
        lost: by the number of the edge set; the hops are without these edges.
        direct: `indices` of edge sets, by number, whose senders are read from a table of all nodes by the positions of
            the drawn edges: they are not among `senders`, and their hops number none.
    """

    receivers: Mapping[str, NDArray[np.int64]]
    senders: Mapping[str, NDArray[np.int64]]
    hops: Mapping[int, Hop]
    state: int
    lost: Mapping[int, Lost]
    direct: Mapping[int, NDArray[Any]] = MappingProxyType({})


class MiniBatch(NamedTuple):
    """The targets of a step by node set, ascending, and the blocks of the layers, the first layer's first."""

    targets: Mapping[str, NDArray[np.int64]]
    blocks: tuple[Block, ...]


def lost_of(rows: CsrRows, positions: NDArray[np.int64], weights: NDArray[Any] | None = None) -> Lost:
    """The edges at some positions of their set, ascending and distinct, and their weights if those of all are given."""
    indptr, indices = rows
    receivers = np.searchsorted(indptr, positions, "right") - 1
    degrees = indptr[receivers + 1] - indptr[receivers]
    own = None if weights is None else weights[positions].astype(np.float32).reshape(-1)
    return Lost(read_only(positions), receivers, indices[positions].astype(np.int64), degrees, own)
