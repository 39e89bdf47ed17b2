"""Picture of a run: runtime and cost of each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from superworkflow.infra.base.plot_style import DPI, FAINT, GREY, INK, layout, plain, save

_RAN_TIME, _RAN_COST = "#4269d0", "#3ca951"


def cost_picture(rows: Sequence[Any], path: str | Path) -> None:
    """Draw runtime and cost of each stage as bars; hatched in grey for a cached stage: what it saved.

    Args:
        rows: stages in order; objects or mappings with `name`, `state` (`ran` or `cached`), `runtime_s`, `cost_usd`,
            `saved_usd` and, where known, `saved_s`.
        path: PNG to write.
    """
    stages = [_Bar(row) for row in rows]
    figure = Figure(figsize=(9.2, 1.7 + 0.46 * max(len(stages), 1)), dpi=DPI, layout=layout(), facecolor="white")
    seconds, dollars = figure.subplots(1, 2, sharey=True)
    for axes, figure_of, colour, unit, show in (
        (seconds, "seconds", _RAN_TIME, "runtime", duration_text),
        (dollars, "usd", _RAN_COST, "cost", dollar_text),
    ):
        _bars(axes, stages, figure_of, colour, show)
        spent = sum(getattr(stage, figure_of) for stage in stages if not stage.cached)
        saved = sum(getattr(stage, figure_of) for stage in stages if stage.cached)
        text = f"{unit}  {show(spent)}" + (f", saved {show(saved)}" if saved else "")
        axes.set_title(plain(text), loc="left", fontsize=10, color=INK)
    seconds.set_yticks(range(len(stages)), [plain(stage.name) for stage in stages], fontsize=10, color=INK)
    seconds.set_ylim(len(stages) - 0.4, -0.6)
    figure.suptitle("Runtime and cost per stage", x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    if any(stage.cached for stage in stages):
        patch = Patch(facecolor="white", edgecolor=GREY, hatch="////", label="cached: what running it again would take")
        figure.legend(
            handles=[patch], loc="outside lower left", frameon=False, fontsize=8.5, labelcolor=FAINT,
            handlelength=2.2, handleheight=1.1,
        )  # fmt: skip
    save(figure, path)


class _Bar:
    """One stage's figures, from an object or a mapping."""

    def __init__(self, row: Any):
        values = row if isinstance(row, Mapping) else None

        def get(name: str, default: Any = 0.0) -> Any:
            return values.get(name, default) if values is not None else getattr(row, name, default)

        self.name = str(get("name", ""))
        self.cached = get("state", "ran") == "cached"
        self.seconds = float(get("saved_s") if self.cached else get("runtime_s"))
        self.usd = float(get("saved_usd") if self.cached else get("cost_usd"))


def _bars(axes: Axes, stages: Sequence[_Bar], figure_of: str, colour: str, show: Any) -> None:
    values = [getattr(stage, figure_of) for stage in stages]
    largest = max(values, default=0.0) or 1.0
    for place, (stage, value) in enumerate(zip(stages, values, strict=True)):
        if stage.cached:
            axes.barh(place, value, height=0.62, color="white", edgecolor=GREY, hatch="////", linewidth=0.8)
        else:
            axes.barh(place, value, height=0.62, color=colour)
        text = show(value) if not stage.cached else f"cached, saved {show(value)}" if value else "cached"
        axes.annotate(
            plain(text), (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5,
            color=FAINT if stage.cached else INK,
        )  # fmt: skip
    axes.set_xlim(0, largest * 1.45)  # room for the figures at the ends of the bars
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(GREY)


def duration_text(seconds: float) -> str:
    """Seconds as text: `0.8 s`, `42 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def dollar_text(usd: float) -> str:
    """US dollars as text, with two significant digits: `$12.40`, `$0.0034`, `$0.0000012`."""
    if usd == 0:
        return "$0"
    if usd >= 0.995:
        return f"${usd:,.2f}"
    return f"${usd:.{1 - int(np.floor(np.log10(usd)))}f}"
