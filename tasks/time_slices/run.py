"""The work of stage `time_slices`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.index.rows_again import RowsAgain
from superworkflow.tasks.lib.edge_list.edge_times import EdgeTimes
from superworkflow.tasks.time_slices import STARTS, TimeSlicesParams

_NONE = np.iinfo(np.int64).min


def run(job: StageRun[TimeSlicesParams]) -> Output:
    """Divide the times; see `tasks.time_slices`.

    Raises:
        UserError: a row is bad, there are fewer times than slices, or the edge list is another graph's.
    """
    graph, source, slices = job.inputs["graph"], job.sources["edges"], job.params.slices
    rows = RowsAgain(job, source, graph, timed=True)
    times = arc_times(graph.array("indptr.npy"), graph.array("indices.npy"), _numbered(rows, graph))
    if (times == _NONE).any():
        raise UserError("an edge of the graph has no row with a time", where=source.uri,
                        remedy=f"Give the edge list of {graph.uri}")  # fmt: skip
    starts = slice_starts(times, slices)
    if len(starts) < slices - 1:
        raise UserError("times are too few, or too many are equal, to divide the edges into slices",
                        where="bptf.slices", value=slices, remedy=f"Set {len(starts) + 1} or fewer")  # fmt: skip
    number = slices_of(times, starts)
    counts = np.bincount(number, minlength=slices) // (1 if graph.stats["directed"] else 2)
    job.output.array("slice.npy", number)
    job.output.array(STARTS, starts)
    assert isinstance(rows.times, EdgeTimes)
    job.progress.log(f"{slices} slices of {counts.min()} to {counts.max()} edges")
    return Output(rows=len(number), stats={"slices": slices, "unit": rows.times.unit, "dates": rows.times.dates})


def arc_times(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], rows: tuple[NDArray[np.int64], ...]
) -> NDArray[np.int64]:
    """Latest time of each arc; the least int64 where there is none.

    Args:
        indptr: int64 [vertices + 1].
        indices: int32 [arcs], ascending in each row.
        rows: source, target and time of each row, int64; the graph may lack the edge, or the arc of one direction.
    """
    source, target, time = rows
    vertices = len(indptr) - 1
    arcs = np.repeat(np.arange(vertices), np.diff(indptr)) * vertices + indices
    times = np.full(len(arcs), _NONE)
    for keys in (source * vertices + target, target * vertices + source):
        place = np.minimum(np.searchsorted(arcs, keys), max(0, len(arcs) - 1))
        found = arcs[place] == keys if len(arcs) else np.zeros(len(keys), bool)
        np.maximum.at(times, place[found], time[found])
    return times


def slice_starts(times: NDArray[np.int64], slices: int) -> NDArray[np.int64]:
    """First time of each slice but the first, int64, ascending: slices have as many times each.

    Fewer than `slices` - 1 come back where times are equal across a whole slice.
    """
    ordered = np.sort(times)
    starts = np.unique(ordered[np.arange(1, slices) * len(ordered) // slices]) if len(ordered) else ordered
    return starts[starts > ordered[0]] if len(ordered) else starts


def slices_of(times: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Slice of each time; times before the first slice are of the first, those after the last of the last.

    Args:
        times: int64 [n].
        starts: int64 [slices - 1], see `slice_starts`.
    """
    return np.searchsorted(starts, times, side="right").astype(np.int32)


def _numbered(rows: RowsAgain, graph: Dataset) -> tuple[NDArray[np.int64], ...]:
    """Source, target and time of the rows whose ends the graph has."""
    names = graph.table("vertices.parquet", ["node"]).column(0).combine_chunks().cast(pa.large_string())
    parts = []
    for table in rows:
        ends = [pc.fill_null(pc.index_in(table[end], value_set=names), -1).to_numpy() for end in ("source", "target")]
        kept = (ends[0] >= 0) & (ends[1] >= 0)
        parts.append(np.stack([*ends, table["time"].to_numpy()])[:, kept].astype(np.int64))
    return tuple(np.concatenate(parts, axis=1)) if parts else tuple(np.zeros((3, 0), np.int64))
