"""The arcs of a whole graph, both ways round, and its intervals of vertices."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.degrees import degrees_of
from superworkflow.tasks.lib.gnn.model.mean_kernels import transpose
from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.kernels.arrays import read_only


class Interval(NamedTuple):
    """Vertices from `first` up to `last`, which is not one of them."""

    number: int
    first: int
    last: int


@dataclass(frozen=True)
class WholeGraph:
    """A graph whose vertices are in intervals of equal size, ±1.

    Args:
        arcs: senders by receiver.
        back: receivers by sender; the same arrays where the graph is symmetric.
        scales: 1 / sqrt(degree + 1) of each vertex, float32 [n].
        intervals: its intervals.
        reads: which intervals have senders of which: bool [intervals, intervals], receivers first.
        reads_back: the same for `back`.
    """

    arcs: CsrRows
    back: CsrRows
    scales: NDArray[np.float32]
    intervals: tuple[Interval, ...]
    reads: NDArray[np.bool_]
    reads_back: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Number of vertices."""
        return len(self.scales)

    @classmethod
    def of_rows(cls, rows: CsrRows, intervals: int) -> WholeGraph:
        """A graph in at most this many intervals; none is empty."""
        count = len(rows.indptr) - 1
        bounds = np.linspace(0, count, max(1, min(intervals, count)) + 1).astype(np.int64)
        begins, receivers = np.zeros(count + 2, np.int64), np.empty(len(rows.indices), np.int32)
        transpose(read_only(rows.indptr), read_only(rows.indices), begins, receivers)
        arcs = CsrRows(read_only(rows.indptr), read_only(rows.indices))
        back = CsrRows(read_only(begins[:-1]), read_only(receivers))
        if np.array_equal(arcs.indptr, back.indptr) and np.array_equal(arcs.indices, back.indices):
            back = arcs
        scales = (1 / np.sqrt(degrees_of(rows, None) + 1)).astype(np.float32)
        parts = tuple(
            Interval(number, int(first), int(last)) for number, (first, last) in enumerate(itertools.pairwise(bounds))
        )
        return cls(arcs, back, scales, parts, _reads(arcs, bounds), _reads(back, bounds))


def _reads(arcs: CsrRows, bounds: NDArray[Any]) -> NDArray[np.bool_]:
    count = len(bounds) - 1
    found = np.eye(count, dtype=np.bool_)
    for i in range(count):
        senders = arcs.indices[arcs.indptr[bounds[i]] : arcs.indptr[bounds[i + 1]]]
        found[i] |= np.bincount(np.searchsorted(bounds, senders, "right") - 1, minlength=count) > 0
    return found
