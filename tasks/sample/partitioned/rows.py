"""The rows of one range of sources of an edge set, read from the dataset and kept on the executor's disk."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.tasks.lib.formats.npy import read_header
from superworkflow.tasks.lib.graph.integrity import check_rows
from superworkflow.tasks.lib.graph.npy_slices import fill
from superworkflow.tasks.lib.in_parts.task_outputs import executor_folder, on_this_disk
from superworkflow.tasks.sample.partitioned.plan import EdgePlan, SamplePlan
from superworkflow.tasks.sample.program import StackedRows
from superworkflow.tasks.sample.sampler import bad_weight

_PIECE = 1 << 20
"""Entries of a file that are read at a time where only some of them are wanted."""


class RangeRows(NamedTuple):
    """The rows of a range.

    Args:
        rows: as the kernels have them; entries are those of the range.
        low: first source.
        base: position of the first edge.
    """

    rows: StackedRows
    low: int
    base: int


def rows_of(plan: SamplePlan, edge_set: int, place: int) -> RangeRows:
    """The rows of a range, read by the first task of this machine that asks for them.

    Raises:
        UserError: weights are none.
        DatasetDamaged: the files do not fit each other.
    """
    low, high = (int(each) for each in plan.cuts[edge_set][place : place + 2])
    folder = executor_folder(plan.rows) / f"{edge_set}-{low}-{high}"
    arrays = on_this_disk(folder, lambda: _read(plan, plan.edge_sets[edge_set], low, high))
    rows = StackedRows(*(arrays[name] for name in ("indptr", "indices", "weights", "ranks", "times")))
    return RangeRows(rows, low, int(arrays["base"][0]))


def check_range(plan: SamplePlan, place: tuple[int, int]) -> None:
    """Read a range, so that faults in it are reported before sampling starts.

    Raises:
        UserError: see `rows_of`.
    """
    rows_of(plan, *place)


def _read(plan: SamplePlan, edges: EdgePlan, low: int, high: int) -> dict[str, NDArray[Any]]:
    graph, prefix = Location.of(plan.graph), f"edges-{edges.number}-"
    indptr = read_entries(graph.join(f"{prefix}indptr.npy"), low, high + 1)
    first, last = int(indptr[0]), int(indptr[-1])
    indptr = indptr - first
    indices = read_entries(graph.join(f"{prefix}indices.npy"), first, last).astype(plan.node_type, copy=False)
    check_rows(plan.graph, indptr, indices, None, edges.targets, prefix)
    positions = np.arange(first, last)
    stored = positions
    if edges.reverses and (edges.weight or edges.timestamp or edges.ranked):
        stored = read_entries(graph.join(f"{prefix}origin.npy"), first, last)
    weights, times = np.zeros(0, np.float32), np.zeros(0, np.int64)
    if edges.weight:
        weights = _chosen(graph.join(f"{edges.weight}.npy"), stored).astype(np.float32) + np.float32(0)
        fault = bad_weight(weights, first, edges.where)
        if fault is not None:
            raise fault
    if edges.timestamp:
        times = _chosen(graph.join(f"{edges.timestamp}.npy"), stored).astype(np.int64)
    ranks = np.zeros(0, np.int64)
    if edges.ranked:
        # Weights, of which none is negative, are in the order of their bytes; rows of tables are below 2**31.
        file = graph.join(f"edges-{edges.stored}-row.npy")
        ranks = _chosen(file, stored).astype(np.int64) if file.size() is not None else np.asarray(stored, np.int64)
        if edges.weight:
            ranks = (weights.view(np.int32).astype(np.int64) << 31) | ranks
    return {
        "indptr": indptr, "indices": indices, "weights": weights, "ranks": ranks, "times": times,
        "base": np.array([first]),
    }  # fmt: skip


def read_entries(file: Location, first: int, last: int) -> NDArray[Any]:
    """Entries ``first`` to ``last - 1`` of a `.npy` file that has one number in each.

    Raises:
        UserError: it has not.
    """
    with file.open() as stream:
        shape, dtype = read_header(stream)
        if not shape or int(np.prod(shape)) != shape[0]:
            raise UserError("one number for each edge is wanted", where=file.uri, value=list(shape),
                            remedy="Correct the feature in the schema")  # fmt: skip
        values = np.empty(last - first, dtype)
        stream.seek(first * dtype.itemsize, 1)
        fill(stream, values, file.uri)
    return values


def _chosen(file: Location, places: NDArray[np.int64]) -> NDArray[Any]:
    """Entries of a file at these places. Where they are scattered the file is read once, piece by piece."""
    if not len(places):
        return np.zeros(0, np.int64)
    low, high = int(places.min()), int(places.max()) + 1
    if high - low == len(places) and bool((np.diff(places) == 1).all()):
        return read_entries(file, low, high)
    order = np.argsort(places, kind="stable")
    ascending = places[order]
    parts = []
    for begin in range(low, high, _PIECE):
        end = min(begin + _PIECE, high)
        a, b = np.searchsorted(ascending, [begin, end])
        if a < b:
            parts.append(read_entries(file, begin, end)[ascending[a:b] - begin])
    found = np.concatenate(parts)
    values = np.empty_like(found)
    values[order] = found
    return values
