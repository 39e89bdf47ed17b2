"""Picture of a run: runtime and cost of each stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from superworkflow.infra.base.plot_style import DPI, FAINT, GREY, INK, layout, plain, save
from superworkflow.infra.contract.resources import format_seconds, format_usd
from superworkflow.infra.tracking.records import StageRecord

_RAN_TIME, _RAN_COST = "#4269d0", "#3ca951"


def cost_picture(stages: Sequence[StageRecord], path: str | Path) -> None:
    """Draw runtime and cost of each stage as bars; hatched in grey for a cached stage: what it saved.

    Args:
        stages: in order.
        path: PNG to write.
    """
    figure = Figure(figsize=(9.2, 1.7 + 0.46 * max(len(stages), 1)), dpi=DPI, layout=layout(), facecolor="white")
    seconds, dollars = figure.subplots(1, 2, sharey=True)
    cached = [stage.state == "cached" for stage in stages]
    runtimes = [stage.saved_s if stage.state == "cached" else stage.runtime_s for stage in stages]
    costs = [stage.saved_usd if stage.state == "cached" else stage.cost_usd for stage in stages]
    for axes, values, colour, what, show in (
        (seconds, runtimes, _RAN_TIME, "runtime", format_seconds),
        (dollars, costs, _RAN_COST, "cost", format_usd),
    ):
        _bars(axes, values, cached, colour, show)
        spent = sum(value for value, is_cached in zip(values, cached, strict=True) if not is_cached)
        saved = sum(value for value, is_cached in zip(values, cached, strict=True) if is_cached)
        text = f"{what}  {show(spent)}" + (f", saved {show(saved)}" if saved else "")
        axes.set_title(plain(text), loc="left", fontsize=10, color=INK)
    seconds.set_yticks(range(len(stages)), [plain(stage.name) for stage in stages], fontsize=10, color=INK)
    seconds.set_ylim(len(stages) - 0.4, -0.6)
    figure.suptitle("Runtime and cost per stage", x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    if any(cached):
        patch = Patch(facecolor="white", edgecolor=GREY, hatch="////", label="cached: what running it again would take")
        figure.legend(
            handles=[patch], loc="outside lower left", frameon=False, fontsize=8.5, labelcolor=FAINT,
            handlelength=2.2, handleheight=1.1,
        )  # fmt: skip
    save(figure, path)


def _bars(
    axes: Axes, values: Sequence[float], cached: Sequence[bool], colour: str, show: Callable[[float], str]
) -> None:
    largest = max(values, default=0.0) or 1.0
    for place, (value, is_cached) in enumerate(zip(values, cached, strict=True)):
        if is_cached:
            axes.barh(place, value, height=0.62, color="white", edgecolor=GREY, hatch="////", linewidth=0.8)
        else:
            axes.barh(place, value, height=0.62, color=colour)
        text = show(value) if not is_cached else f"cached, saved {show(value)}" if value else "cached"
        axes.annotate(
            plain(text), (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5,
            color=FAINT if is_cached else INK,
        )  # fmt: skip
    axes.set_xlim(0, largest * 1.45)  # room for the figures at the ends of the bars
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(GREY)
