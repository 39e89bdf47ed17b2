"""The timeline of training: a row for each task, and the rules that it must keep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.tasks.train_full.layer_tasks import FORWARD, VALIDATION

TIMELINE_FILE, POOL_FILE = "timeline.parquet", "pool.parquet"
ALL_INTERVALS = -1
"""Interval of an update of the weights."""


class TimelineRow(NamedTuple):
    """A task that was done.

    Args:
        epoch: from 1.
        way, kind, layer: see `whole_network.Task`; an update has the way `back` and layer -1.
        interval: number of the interval, or `ALL_INTERVALS`.
        thread: number of the thread, from 0, those of all graph servers one after the other; -1 and less for tensor
            workers.
        version: number of updates of the weights that it used.
        lead: epochs that the interval was ahead of the slowest one when the task began.
        oldest: of a gather, the earliest epoch of what it read of other intervals; else its own epoch.
        begin_s, end_s: seconds since training began.
    """

    epoch: int
    way: str
    kind: str
    layer: int
    interval: int
    thread: int
    version: int
    lead: int
    oldest: int
    begin_s: float
    end_s: float


def write_timeline(path: Path, rows: Sequence[TimelineRow]) -> None:
    """Write rows in the order of their begins."""
    columns = zip(*sorted(rows, key=lambda row: row.begin_s), strict=True) if rows else [()] * len(TimelineRow._fields)
    kinds: dict[str, Any] = {"way": pa.string(), "kind": pa.string(), "begin_s": pa.float64(), "end_s": pa.float64()}
    names = TimelineRow._fields
    table = {name: pa.array(each, kinds.get(name, pa.int32())) for name, each in zip(names, columns, strict=True)}
    pq.write_table(pa.table(table), path, compression="zstd")


def read_timeline(source: Path | IO[bytes]) -> list[TimelineRow]:
    """Rows that `write_timeline` wrote."""
    return [TimelineRow(**row) for row in pq.read_table(source).to_pylist()]


def faults(rows: Sequence[TimelineRow], staleness: int) -> list[str]:
    """Violations of the pipeline's rules; empty if there are none.

    Args:
        rows: the timeline.
        staleness: most epochs that an interval may be ahead of the slowest one.
    """
    found, seen, versions = [], set(), dict[tuple[int, int], int]()
    for row in rows:
        task = f"{row.way} {row.kind} of layer {row.layer}, interval {row.interval}, epoch {row.epoch}"
        key = row.epoch, row.way, row.kind, row.layer, row.interval
        if key in seen:
            found.append(f"{task} was done twice")
        seen.add(key)
        if row.lead > staleness:
            found.append(f"{task} was {row.lead} epochs ahead")
        if row.oldest < row.epoch - staleness - 1:
            found.append(f"{task} read values of epoch {row.oldest}")
        if row.way != VALIDATION and row.interval != ALL_INTERVALS:
            own = versions.setdefault((row.epoch, row.interval), row.version)
            if own != row.version:
                found.append(f"{task} used version {row.version} of the weights, not {own}")
    return found


def shares_of_time(rows: Sequence[TimelineRow]) -> dict[str, float]:
    """Share of the tasks' seconds by kind, validation apart."""
    seconds = dict[str, float]()
    for row in rows:
        name = VALIDATION if row.way == VALIDATION else row.kind if row.way == FORWARD else f"{row.kind}_back"
        seconds[name] = seconds.get(name, 0.0) + row.end_s - row.begin_s
    total = float(np.sum([*seconds.values()])) or 1.0
    return {name: value / total for name, value in sorted(seconds.items())}
