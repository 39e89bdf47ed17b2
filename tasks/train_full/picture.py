"""A picture of the pipeline: what each interval, thread and tensor worker did in two epochs, by kind of task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from superworkflow.infra.base.plot_style import COLOURS, DPI, FAINT, GREY, INK, layout, save
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.train_full.layer_tasks import AE, AV, BACK, GA, SC, VALIDATION, WU
from superworkflow.tasks.train_full.params import REAL
from superworkflow.tasks.train_full.timeline import POOL_FILE, TIMELINE_FILE

_SHOWN = 2
"""Epochs that are drawn: those after the middle of training."""
_NAMES = {
    AV: "AV: matrix", SC: "SC: publish", GA: "GA: gather", AE: "AE: attention and gather", WU: "WU: update of weights"
}  # fmt: skip


def draw(training: Dataset, path: Path) -> None:
    """Draw the pipeline of a train_full dataset; nothing of one without tasks."""
    table = training.table(TIMELINE_FILE)
    if len(table):
        has_pool = POOL_FILE in training.files()
        pool = training.table(POOL_FILE) if has_pool else None
        timeline_picture(table, path, pool, training.stats.get("clock", REAL) != REAL)


def timeline_picture(
    table: pa.Table, path: str | Path, pool: pa.Table | None = None, is_simulated: bool = False
) -> None:  # fmt: skip
    """Draw the tasks of two epochs.

    Args:
        table: rows of `timeline.TimelineRow`.
        path: PNG to write.
        pool: rows of `tensor_pool.PoolRow`, which are drawn below, of all epochs.
        is_simulated: times are those of the virtual clock.
    """
    _draw({"": table}, path, pool, "milliseconds, simulated" if is_simulated else "milliseconds")


def timelines_picture(tables: Mapping[str, pa.Table], path: str | Path) -> None:
    """Draw the tasks of two epochs of several runs, below one another with one scale.

    Args:
        tables: rows of `timeline.TimelineRow` by the run's title.
        path: PNG to write.
    """
    _draw(tables, path, None, "milliseconds")


def _draw(tables: Mapping[str, pa.Table], path: str | Path, pool: pa.Table | None, unit: str) -> None:
    shown = {title: _middle(table) for title, table in tables.items()}
    heights = [size for each in shown.values() for size in (each.intervals + 1, max(2, len(each.threads)))]
    heights += [3] if pool is not None else []
    figure = Figure(
        figsize=(10, 1.4 + 0.8 * len(shown) + 0.24 * sum(heights)), dpi=DPI, layout=layout(), facecolor="white"
    )
    every = list(figure.subplots(len(heights), 1, gridspec_kw={"height_ratios": heights}))
    if pool is not None:
        _pool(every.pop(), pool)
    kinds = [
        kind for kind in _NAMES if any(pc.any(pc.equal(each.rows["kind"], kind)).as_py() for each in shown.values())
    ]
    colours = dict(zip(kinds, COLOURS, strict=False))
    for number, (title, each) in enumerate(shown.items()):
        upper, lower = every[2 * number : 2 * number + 2]
        _bars(upper, each.rows, "interval", each.begin, colours)
        _bars(lower, each.rows, "thread", each.begin, colours)
        upper.set_yticks([-1, 0, each.intervals - 1], ["all", "1", str(each.intervals)])
        own = "graph " if each.threads[0] < 0 else ""
        lower.set_yticks(each.threads, [f"tensor {-i}" if i < 0 else f"{own}{i + 1}" for i in each.threads])
        upper.set_ylabel("interval", color=FAINT)
        lower.set_ylabel("thread", color=FAINT)
        upper.set_title(f"{title}{', epochs' if title else 'Epochs'} {each.epochs}: tasks over time", loc="left",
                        fontsize=13, fontweight="bold", color=INK)  # fmt: skip
    for axes in every:
        axes.sharex(every[0]) if axes is not every[0] else None
        axes.tick_params(colors=FAINT, length=0, labelbottom=axes is every[-1])
        axes.invert_yaxis()
        axes.spines[["top", "right", "left"]].set_visible(False)
    every[-1].set_xlabel(unit, color=FAINT)
    keys = [Patch(color=colours[kind], label=_NAMES[kind]) for kind in kinds]
    keys += [Patch(facecolor=GREY, alpha=0.5, hatch="////", label="hatched: backwards")]
    keys += [Patch(facecolor=GREY, alpha=0.35, label="pale: validation")]
    figure.legend(handles=keys, ncols=4, loc="outside lower left", frameon=False, fontsize=8.5)
    save(figure, path)


class _Shown(NamedTuple):
    """Rows of the epochs that are drawn, and what they are of."""

    rows: pa.Table
    epochs: str
    begin: float
    intervals: int
    threads: Sequence[int]


def _middle(table: pa.Table) -> _Shown:
    """The epochs after the middle."""
    epochs = np.unique(table["epoch"].to_numpy())
    middle = len(epochs) // 2
    chosen = epochs[max(0, min(middle, len(epochs) - _SHOWN)) :][:_SHOWN]
    rows = table.filter(pc.is_in(table["epoch"], pa.array(chosen)))
    first, last = (int(each(rows["thread"]).as_py()) for each in (pc.min, pc.max))
    intervals, begin = int(pc.max(table["interval"]).as_py()) + 1, float(pc.min(rows["begin_s"]).as_py())
    return _Shown(rows, " and ".join(map(str, chosen)), begin, intervals, range(min(0, first), last + 1))


def _pool(axes: Axes, pool: pa.Table) -> None:
    """Tensor workers and the queue of the graph server's threads, by epoch."""
    for name, label, colour in (("size", "tensor workers", COLOURS[0]), ("queue", "tasks in the queue", COLOURS[1])):
        axes.step(pool["epoch"].to_numpy(), pool[name].to_numpy(), where="mid", color=colour, label=label, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("epoch", color=FAINT)
    axes.legend(loc="upper right", frameon=False, fontsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=FAINT, length=0)


def _bars(axes: Axes, table: pa.Table, rows: str, begin: float, colours: dict[str, str]) -> None:
    """Bars of tasks by interval or thread."""
    for kind, colour in colours.items():
        for way in pc.unique(table["way"]).to_pylist():
            own = table.filter(pc.and_(pc.equal(table["kind"], kind), pc.equal(table["way"], way)))
            if not len(own):
                continue
            starts, ends = own["begin_s"].to_numpy(), own["end_s"].to_numpy()
            axes.barh(
                own[rows].to_numpy(), 1e3 * (ends - starts), left=1e3 * (starts - begin), height=0.8, color=colour,
                alpha=0.35 if way == VALIDATION else 1.0, hatch="////" if way == BACK and kind != WU else None,
                edgecolor="white", linewidth=0.2,
            )  # fmt: skip
