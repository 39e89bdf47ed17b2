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
        starts: edge offsets of the receivers, int64 [receivers + 1].
        senders: index of each sender in the block's senders of its set, int32 [edges].
        positions: positions of the edges in their set, int64 [edges]; empty if owners sum the senders' rows.
        degrees: all edges of each receiver, drawn or not, int64 [receivers].
        weights: weights that were sent with the edges, float32 [edges]; None if edges have none, or the reader has
            those of the whole set.
        features: likewise, features that layers read, float32 [edges, values].
    """

    starts: NDArray[np.int64]
    senders: NDArray[np.int32]
    positions: NDArray[np.int64]
    degrees: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None
    features: NDArray[np.float32] | None = None


class Lost(NamedTuple):
    """Edges of one edge set that pass no messages in a step, in the order of the set.

    Args:
        positions: positions in the set, int64 [edges], ascending.
        receivers, senders: ends of each edge, int64 [edges].
        degrees: degree of its receiver without the loss, int64 [edges].
        weights: weight of each edge, float32 [edges]; None as in `Hop`.
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
        """Sum of the weights of each receiver's lost edges; their number if edges have no weights.

        Args:
            nodes: the receivers.
            weights: weights of all edges of the set; None to use the lost edges' own.
        """
        own = self.weights if weights is None else weights[self.positions]
        if own is None:
            return self.counts(nodes)
        places, edges = self.of(nodes)
        return np.bincount(places, own[edges], len(nodes))

    def of(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Edges lost by these receivers: index of each edge's receiver in `nodes`, and its index here."""
        counts = self.counts(nodes)
        places = np.repeat(np.arange(len(nodes)), counts)
        first = np.searchsorted(self.receivers, nodes, "left")
        return places, np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts) + first[places]


class Block(NamedTuple):
    """Block of one layer: its receivers, senders and edges.

    Args:
        receivers, senders: nodes of each node set, int64; the receivers come first among the senders.
        hops: drawn edges, by number of the edge set.
        state: state of the random streams of this layer's masks.
        lost: edges that the hops exclude, by number of the edge set.
        direct: by number, `indices` of edge sets whose senders are read from a table of all nodes at the positions of
            the drawn edges; these senders are not in `senders`, nor in `Hop.senders`.
    """

    receivers: Mapping[str, NDArray[np.int64]]
    senders: Mapping[str, NDArray[np.int64]]
    hops: Mapping[int, Hop]
    state: int
    lost: Mapping[int, Lost]
    direct: Mapping[int, NDArray[Any]] = MappingProxyType({})


class MiniBatch(NamedTuple):
    """Targets of a step by node set, ascending, and the blocks of the layers, first layer first."""

    targets: Mapping[str, NDArray[np.int64]]
    blocks: tuple[Block, ...]


def lost_of(rows: CsrRows, positions: NDArray[np.int64], weights: NDArray[Any] | None = None) -> Lost:
    """Edges at ascending, distinct positions of their set, with their weights if those of all edges are given."""
    indptr, indices = rows
    receivers = np.searchsorted(indptr, positions, "right") - 1
    degrees = indptr[receivers + 1] - indptr[receivers]
    own = None if weights is None else weights[positions].astype(np.float32).reshape(-1)
    return Lost(read_only(positions), receivers, indices[positions].astype(np.int64), degrees, own)
