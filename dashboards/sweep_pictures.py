"""Pictures of a sweep: history, parallel coordinates, importance, Pareto front, heat map, cost per trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from superworkflow.infra.drawing import DPI, FAINT, GREY, INK, layout, plain, save

_BLUE, _GREEN, _RED = "#4269d0", "#3ca951", "#ff725c"
_COLOURS = "viridis"

Row = Mapping[str, Any]
Axis = tuple[list[float], list[tuple[float, str]]]


def draw_all(
    report: Mapping[str, Any], importances: Mapping[str, float], space: Mapping[str, Any], folder: Path
) -> list[Path]:
    """Draw what the trials so far allow.

    Args:
        report: document of the sweep's report.
        importances: share of each parameter, empty when unknown.
        space: searched parameters, as a space file has them.
        folder: where to write.

    Returns:
        The pictures' paths.
    """
    done = [row for row in report["trials"] if row["values"]]
    pictures: list[tuple[str, Callable[[Path], None]]] = [
        ("cost-per-trial", lambda path: cost_picture(report["trials"], path))
    ]
    if done:
        pictures.append(("history", lambda path: history_picture(report, path)))
        pictures.append(("parallel-coordinates", lambda path: coordinates_picture(report, list(space), path)))
        pictures.append(("pareto", lambda path: front_picture(report, path)))
    if importances:
        pictures.append(("importance", lambda path: importance_picture(report, importances, path)))
    if len(done) > 1 and (pair := _heat_pair(done)):
        pictures.append(("heat-map", lambda path: heat_picture(report, pair, path)))
    paths = []
    for name, draw in pictures:
        path = folder / f"sweep-{name}.png"
        draw(path)
        paths.append(path)
    return paths


def history_picture(report: Mapping[str, Any], path: Path) -> None:
    """The first objective of each trial, and the best so far."""
    objective = report["objectives"][0]
    rows = [row for row in report["trials"] if row["values"]]
    numbers, values = [row["number"] for row in rows], [row["values"][0] for row in rows]
    best = (np.maximum if objective["direction"] == "maximize" else np.minimum).accumulate(values)
    figure, axes = _figure(7.6, 4.4, "History", f"{len(rows)} complete trials")
    axes.scatter(numbers, values, s=26, color=_BLUE, alpha=0.75, linewidths=0, label="trial")
    axes.step(numbers, best, where="post", color=_RED, linewidth=1.8, label="best so far")
    for state, marker in (("pruned", "|"), ("failed", "x")):
        ended = [row["number"] for row in report["trials"] if row["state"] == state]
        if ended:
            low = min(values) - 0.04 * (max(values) - min(values) or 1)
            axes.scatter(ended, [low] * len(ended), s=30, marker=marker, color=FAINT, label=state)
    axes.set_xlabel("trial", color=INK)
    axes.set_ylabel(plain(objective["name"]), color=INK)
    axes.legend(frameon=False, fontsize=8.5)
    save(figure, path)


def coordinates_picture(report: Mapping[str, Any], names: Sequence[str], path: Path) -> None:
    """A line for each trial through its parameters, coloured by the first objective."""
    rows = sorted((row for row in report["trials"] if row["values"]), key=lambda row: row["values"][0])
    if report["objectives"][0]["direction"] == "minimize":
        rows.reverse()  # the best are drawn last
    columns = [_axis([row["params"][name] for row in rows]) for name in names]
    figure, axes = _figure(max(6.5, 1.5 * (len(names) + 1)), 4.6, "Parallel coordinates", "one line for each trial")
    values = [row["values"][0] for row in rows]
    low, high = min(values), max(values) if max(values) > min(values) else min(values) + 1
    scale = Normalize(low, high)
    for place, value in enumerate(values):
        heights = [places[place] for places, _ in columns] + [float(scale(value))]
        axes.plot(range(len(names) + 1), heights, color=colormaps[_COLOURS](scale(value)), linewidth=1.3, alpha=0.8)
    for x, (_, ticks) in enumerate(columns):
        axes.axvline(x, color=GREY, linewidth=0.8, zorder=0)
        for height, text in ticks:
            axes.annotate(plain(text), (x, height), xytext=(3, 0), textcoords="offset points", fontsize=7.5, color=INK)
    last = len(names)
    for height in (0.0, 0.5, 1.0):
        text = f"{low + height * (high - low):.4g}"
        axes.annotate(text, (last, height), xytext=(4, -3), textcoords="offset points", fontsize=8, color=INK)
    objective = report["objectives"][0]["name"].replace(".", "\n", 1)
    titles = [name.replace(".", "\n", 1) for name in names] + [objective]
    axes.set_xticks(range(len(titles)), titles, fontsize=8.5, color=INK)
    axes.set_xlim(-0.1, last + 0.35)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    save(figure, path)


def importance_picture(report: Mapping[str, Any], importances: Mapping[str, float], path: Path) -> None:
    """Share of each parameter in the variance of the first objective."""
    ordered = sorted(importances.items(), key=lambda pair: pair[1])
    figure, axes = _figure(
        7.0, 1.5 + 0.42 * len(ordered), "Importance of parameters", f"for {report['objectives'][0]['name']}, fANOVA"
    )
    axes.barh([name for name, _ in ordered], [share for _, share in ordered], color=_BLUE, height=0.6)
    for place, (_, share) in enumerate(ordered):
        axes.annotate(f"{share:.0%}", (share, place), xytext=(4, -3), textcoords="offset points", fontsize=8.5)
    axes.set_xticks([])
    axes.set_xlim(0, 1.15 * max(share for _, share in ordered) or 1)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    save(figure, path)


def front_picture(report: Mapping[str, Any], path: Path) -> None:
    """The first two objectives with their Pareto front; with one objective, that against what a trial costs in full."""
    rows = [row for row in report["trials"] if row["values"]]
    several = len(report["objectives"]) > 1
    first = report["objectives"][0]
    other = report["objectives"][1]["name"] if several else "cost"
    unit = " (USD)" if other == "cost" else " (s)" if other == "seconds" else ""

    def point(row: Row) -> tuple[float, float]:
        return (row["values"][1] if several else row["paid_usd"] + row["reused_usd"]), row["values"][0]

    up = first["direction"] == "maximize"
    lower_cost = not several or report["objectives"][1]["direction"] == "minimize"
    points = [point(row) for row in rows if row["feasible"]]

    def beaten(one: tuple[float, float]) -> bool:
        return any(
            p != one
            and (p[0] <= one[0] if lower_cost else p[0] >= one[0])
            and (p[1] >= one[1] if up else p[1] <= one[1])
            for p in points
        )

    front = sorted({one for one in points if not beaten(one)})
    figure, axes = _figure(7.2, 4.8, "Pareto front", f"{len(front)} of {len(rows)} trials")
    x, y = _columns([point(row) for row in rows])
    axes.scatter(x, y, s=28, color=_BLUE, alpha=0.7, linewidths=0)
    outside = [point(row) for row in rows if not row["feasible"]]
    if outside:
        x, y = _columns(outside)
        axes.scatter(x, y, s=46, marker="x", color=FAINT, label="beyond the constraint")
    if front:
        x, y = _columns(front)
        axes.plot(x, y, color=_RED, marker="o", linewidth=1.6, label="front", markersize=5)
    axes.legend(frameon=False, fontsize=8.5)
    axes.set_xlabel(plain(f"{other}{unit}, reused work included" if other in ("cost", "seconds") else other))
    axes.set_ylabel(plain(first["name"]))
    save(figure, path)


def cost_picture(trials: Sequence[Row], path: Path) -> None:
    """What each trial paid, and what it took from the store."""
    figure, axes = _figure(max(6.5, 0.16 * len(trials) + 3), 4.2, "Cost per trial", _cost_caption(trials))
    numbers = [row["number"] for row in trials]
    paid = np.array([row["paid_usd"] for row in trials])
    axes.bar(numbers, paid, color=_GREEN, label="paid")
    reused = [row["reused_usd"] for row in trials]
    axes.bar(numbers, reused, bottom=paid, color="white", edgecolor=GREY, hatch="////", linewidth=0.6, label="reused")
    for state, colour in (("pruned", _BLUE), ("failed", _RED)):
        for row in trials:
            if row["state"] == state:
                top = row["paid_usd"] + row["reused_usd"]
                axes.annotate(state[0], (row["number"], top), ha="center", va="bottom", fontsize=8, color=colour)
    axes.set_xlabel("trial (p pruned, f failed)", color=INK)
    axes.set_ylabel("USD", color=INK)
    axes.legend(frameon=False, fontsize=8.5)
    save(figure, path)


def heat_picture(report: Mapping[str, Any], pair: tuple[str, str], path: Path) -> None:
    """The first objective over two parameters: the best of the trials at each place."""
    objective = report["objectives"][0]
    choose = max if objective["direction"] == "maximize" else min
    rows = [row for row in report["trials"] if row["values"]]
    across, down = (sorted({row["params"][name] for row in rows}) for name in pair)
    grid = np.full((len(down), len(across)), np.nan)
    for i, y in enumerate(down):
        for j, x in enumerate(across):
            found = [r["values"][0] for r in rows if r["params"][pair[0]] == x and r["params"][pair[1]] == y]
            grid[i, j] = choose(found) if found else np.nan
    figure, axes = _figure(
        2.6 + 0.85 * len(across),
        2.2 + 0.62 * len(down),
        objective["name"],
        f"best of the trials at each {' and '.join(pair)}",
    )
    image = axes.imshow(grid, cmap=_COLOURS, aspect="auto", origin="lower")
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
    for (i, j), value in np.ndenumerate(grid):
        if not math.isnan(value):
            colour = "white" if value < middle else "black"
            axes.annotate(f"{value:.3f}", (j, i), ha="center", va="center", fontsize=9, color=colour)
    axes.set_xticks(range(len(across)), [f"{value:g}" for value in across])
    axes.set_yticks(range(len(down)), [f"{value:g}" for value in down])
    axes.set_xlabel(pair[0])
    axes.set_ylabel(pair[1])
    figure.colorbar(image, ax=axes, shrink=0.9).outline.set_visible(False)
    save(figure, path)


def _figure(width: float, height: float, title: str, caption: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=DPI, layout=layout(), facecolor="white")
    axes = figure.add_subplot()
    figure.suptitle(plain(title), x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    axes.set_title(plain(caption), loc="left", fontsize=8.5, color=FAINT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    return figure, axes


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _axis(values: Sequence[Any]) -> Axis:
    """Heights from 0 to 1 of some values, and a few ticks."""
    if any(not isinstance(value, int | float) or isinstance(value, bool) for value in values) or len(set(values)) <= 6:
        order = sorted(set(values), key=lambda value: (str(type(value)), value))
        step = 1 / max(1, len(order) - 1)
        heights = {value: place * step if len(order) > 1 else 0.5 for place, value in enumerate(order)}
        return [heights[value] for value in values], [(height, _tick(value)) for value, height in heights.items()]
    low, high = min(values), max(values)
    scale = math.log if low > 0 and high / low > 20 else float
    first, last = scale(low), scale(high)
    back = math.exp if scale is math.log else float
    ticks = [(height, _tick(back(first + height * (last - first)))) for height in (0.0, 0.5, 1.0)]
    return [(scale(value) - first) / (last - first) for value in values], ticks


def _tick(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _heat_pair(rows: Sequence[Row]) -> tuple[str, str] | None:
    """The first two numeric parameters that take few values each and are met in many of their combinations."""
    names = list(rows[0]["params"])
    few = []
    for name in names:
        values = {row["params"][name] for row in rows}
        if 2 <= len(values) <= 12 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            few.append(name)
    for place, first in enumerate(few):
        for second in few[place + 1 :]:
            sizes = [len({row["params"][name] for row in rows}) for name in (first, second)]
            met = len({(row["params"][first], row["params"][second]) for row in rows})
            if met >= 0.5 * sizes[0] * sizes[1]:
                return first, second
    return None


def _cost_caption(trials: Sequence[Row]) -> str:
    paid, reused = sum(row["paid_usd"] for row in trials), sum(row["reused_usd"] for row in trials)
    share = f" of ${paid + reused:.4f} without reuse, {paid / (paid + reused):.0%}" if paid + reused else ""
    return f"paid ${paid:.4f}{share}"
