"""A picture of the pipeline: what each interval and thread did in two epochs, by kind of task."""

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
from superworkflow.tasks.train_full.timeline import TIMELINE_FILE
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
        timeline_picture(table, path)


def timeline_picture(table: pa.Table, path: str | Path) -> None:
    """Draw the tasks of two epochs.

    Args:
        table: rows of `timeline.TimelineRow`.
        path: PNG to write.
    """
    epochs = np.unique(table["epoch"].to_numpy())
    middle = len(epochs) // 2
    chosen = epochs[max(0, min(middle, len(epochs) - _SHOWN)) :][:_SHOWN]
    shown = table.filter(pc.is_in(table["epoch"], pa.array(chosen)))
    intervals, threads = int(pc.max(table["interval"]).as_py()) + 1, int(pc.max(table["thread"]).as_py()) + 1
    figure = Figure(figsize=(10, 2.2 + 0.24 * (intervals + threads + 1)), dpi=DPI, layout=layout(), facecolor="white")
    upper, lower = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [intervals + 1, max(2, threads)]}
    )  # fmt: skip
    begin = float(pc.min(shown["begin_s"]).as_py())
    kinds = [kind for kind in _NAMES if pc.any(pc.equal(shown["kind"], kind)).as_py()]
    colours = dict(zip(kinds, COLOURS, strict=False))
    _bars(upper, shown, "interval", begin, colours)
    _bars(lower, shown, "thread", begin, colours)
    upper.set_yticks([-1, 0, intervals - 1], ["all", "1", str(intervals)])
    lower.set_yticks(range(threads), [str(each + 1) for each in range(threads)])
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
    lower.legend(handles=keys, ncols=4, loc="upper left", bbox_to_anchor=(0, -0.45), frameon=False, fontsize=8.5)
    save(figure, path)


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
