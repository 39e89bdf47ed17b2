"""A picture of the pipeline: what each interval, thread and tensor worker did in two epochs, by kind of task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from superworkflow.infra.base.plot_style import COLOURS, DPI, FAINT, GREY, INK, layout, save
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.train_full.timeline import POOL_FILE, TIMELINE_FILE
from superworkflow.tasks.train_full.whole_network import AE, AV, BACK, GA, SC, VALIDATION, WU

_SHOWN = 2
"""Epochs that are drawn: those after the middle of training."""
_NAMES = {
    AV: "AV: matrix", SC: "SC: publish", GA: "GA: gather", AE: "AE: attention and gather", WU: "WU: update of weights"
}  # fmt: skip


def draw(training: Dataset, path: Path) -> None:
    """Draw the pipeline of a train_full dataset; nothing of one without tasks."""
    table = pq.read_table(training.local(TIMELINE_FILE))
    if len(table):
        has_pool = POOL_FILE in training.files()
        timeline_picture(table, path, pq.read_table(training.local(POOL_FILE)) if has_pool else None)


def timeline_picture(table: pa.Table, path: str | Path, pool: pa.Table | None = None) -> None:
    """Draw the tasks of two epochs.

    Args:
        table: rows of `timeline.TimelineRow`.
        path: PNG to write.
        pool: rows of `tensor_pool.PoolRow`, which are drawn below, of all epochs.
    """
    epochs = np.unique(table["epoch"].to_numpy())
    middle = len(epochs) // 2
    chosen = epochs[max(0, min(middle, len(epochs) - _SHOWN)) :][:_SHOWN]
    shown = table.filter(pc.is_in(table["epoch"], pa.array(chosen)))
    intervals, threads = int(pc.max(table["interval"]).as_py()) + 1, int(pc.max(shown["thread"]).as_py()) + 1
    workers = max(0, -int(pc.min(shown["thread"]).as_py()))
    heights = [intervals + 1, max(2, threads + workers), *([3] if pool is not None else [])]
    figure = Figure(figsize=(10, 2.2 + 0.24 * sum(heights)), dpi=DPI, layout=layout(), facecolor="white")
    upper, lower, *below = figure.subplots(len(heights), 1, gridspec_kw={"height_ratios": heights})
    upper.sharex(lower)
    upper.tick_params(labelbottom=False)
    if pool is not None:
        _pool(below[0], pool)
    begin = float(pc.min(shown["begin_s"]).as_py())
    kinds = [kind for kind in _NAMES if pc.any(pc.equal(shown["kind"], kind)).as_py()]
    colours = dict(zip(kinds, COLOURS, strict=False))
    _bars(upper, shown, "interval", begin, colours)
    _bars(lower, shown, "thread", begin, colours)
    upper.set_yticks([-1, 0, intervals - 1], ["all", "1", str(intervals)])
    names = [f"tensor {-each}" if each < 0 else str(each + 1) for each in range(-workers, threads)]
    lower.set_yticks(range(-workers, threads), names)
    upper.set_ylabel("interval", color=FAINT)
    lower.set_ylabel("thread", color=FAINT)
    lower.set_xlabel("milliseconds", color=FAINT)
    for axes in (upper, lower):
        axes.invert_yaxis()
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(colors=FAINT, length=0)
    title = f"Epochs {chosen[0]} and {chosen[-1]}" if len(chosen) > 1 else f"Epoch {chosen[0]}"
    upper.set_title(f"{title}: tasks over time", loc="left", fontsize=13, fontweight="bold", color=INK)
    keys = [Patch(color=colours[kind], label=_NAMES[kind]) for kind in kinds]
    keys += [Patch(facecolor=GREY, alpha=0.5, hatch="////", label="hatched: backwards")]
    keys += [Patch(facecolor=GREY, alpha=0.35, label="pale: validation")]
    figure.legend(handles=keys, ncols=4, loc="outside lower left", frameon=False, fontsize=8.5)
    save(figure, path)


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
