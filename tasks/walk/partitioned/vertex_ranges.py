"""The adjacency in ranges of vertices: owners of the rows, and the rows of one task.

Ranges are cut so that each has about the same number of arcs and vertices. A row is never cut, so the range of a hub
may be larger than its share; then several tasks have it, and walks are divided among them by their index. Hence
no task handles much more than its share of the walkers, whatever the degrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from superworkflow.infra.storage.location import Location
from superworkflow.tasks.lib.graph.integrity import check_rows
from superworkflow.tasks.lib.graph.npy_slices import array_header, read_slice
from superworkflow.tasks.lib.in_parts.task_outputs import on_this_disk
from superworkflow.tasks.walk.kernels.adjacency import PADDING, degree_bits, pack_headers
from superworkflow.tasks.walk.kernels.alias_table import build_alias


class VertexRanges(NamedTuple):
    """Owners of rows.

    Args:
        cuts: int64[ranges + 1]; range r has the vertices cuts[r]..cuts[r + 1] - 1.
        copies: int32[ranges + 1]; it is that of the tasks copies[r]..copies[r + 1] - 1.
    """

    cuts: npt.NDArray[np.int64]
    copies: npt.NDArray[np.int32]

    @property
    def tasks(self) -> int:
        return int(self.copies[-1])

    def of_task(self, task: int) -> tuple[int, int]:
        """(first vertex, the one after the last) of a task."""
        r = int(np.searchsorted(self.copies, task, side="right")) - 1
        return int(self.cuts[r]), int(self.cuts[r + 1])

    @classmethod
    def cut(cls, places: Sequence[tuple[int, int]]) -> VertexRanges:
        """Ranges that begin at ``places``, pairs (vertex, arcs and vertices before it), the last one at the end."""
        unique = sorted(set(places))
        share = unique[-1][1] / max(1, len(places) - 1)
        sizes = np.diff([load for _, load in unique])
        copies = np.maximum(1, np.rint(sizes / max(share, 1.0))).astype(np.int64)
        return cls(
            np.array([vertex for vertex, _ in unique], np.int64),
            np.concatenate([[0], np.cumsum(copies)]).astype(np.int32),
        )


class VertexRows(NamedTuple):
    """The rows of the vertices low..high - 1, as a kernel reads them.

    Args:
        low, high: the vertices.
        bits: as in `WalkGraph`.
        headers: uint64 [high - low + 1].
        indices: int32 or int64 [m + PADDING], neighbours, ascending in each row.
        weights: float32 [m]; empty for an unweighted graph, and for first-order walks.
        alias: uint64 [m + 1], alias tables of the rows; empty for an unweighted graph.
        totals: float64 [high - low], sums of weights; empty for an unweighted graph.
    """

    low: int
    high: int
    bits: np.uint64
    headers: npt.NDArray[np.uint64]
    indices: npt.NDArray[Any]
    weights: npt.NDArray[np.float32]
    alias: npt.NDArray[np.uint64]
    totals: npt.NDArray[np.float64]


_ARRAYS = ("headers", "indices", "weights", "alias", "totals")


def read_rows(graph: Location, low: int, high: int, *, weighted: bool, second_order: bool) -> VertexRows:
    """Read one range of an index dataset, nothing else of it, and build headers and alias tables."""
    indptr = read_slice(graph.join("indptr.npy"), low, high + 1)
    first, last = int(indptr[0]), int(indptr[-1])
    indptr = indptr - first
    bits = degree_bits(indptr)
    weights, alias, totals = np.empty(0, np.float32), np.empty(0, np.uint64), np.empty(0, np.float64)
    indices = read_slice(graph.join("indices.npy"), first, last, padding=PADDING)
    if weighted:
        weights = read_slice(graph.join("weights.npy"), first, last)
    vertices = array_header(graph.join("indptr.npy"))[0] - 1
    check_rows(graph.uri, indptr, indices[: last - first], weights if weighted else None, vertices)
    if weighted:
        alias, totals = np.zeros(last - first + 1, np.uint64), np.empty(high - low)
        build_alias(indptr, weights, 0, high - low, alias, totals)
    return VertexRows(
        low, high, np.uint64(bits), pack_headers(indptr, bits), indices,
        weights if second_order else weights[:0], alias, totals,
    )  # fmt: skip


def kept_rows(folder: Path, graph: Location, low: int, high: int, *, weighted: bool, second_order: bool) -> VertexRows:
    """`read_rows`, built by the first process of this machine that asks and mapped by all, from then on.

    Args:
        folder: on this machine's disk, the same for all its processes and for no other graph or kind of walk.
    """

    def read() -> dict[str, npt.NDArray[Any]]:
        rows = read_rows(graph, low, high, weighted=weighted, second_order=second_order)
        return {**{name: getattr(rows, name) for name in _ARRAYS}, "bits": np.asarray(rows.bits)}

    arrays = on_this_disk(folder / f"{low}-{high}", read)
    return VertexRows(low, high, np.uint64(arrays.pop("bits")), **arrays)
