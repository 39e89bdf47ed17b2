"""Plotly figures of frames, as plain mappings: `{"data": [...], "layout": {...}}`.

Colours of text, grid and paper are left to the page, which knows whether it is dark (`static/page.js`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from superworkflow.dashboards.web.frames import DeploymentHistory, Month
from superworkflow.dashboards.web.stages import Fit, Phases
from superworkflow.infra.contract.resources import format_bytes, format_seconds, format_usd
from superworkflow.infra.tracking.model_versions import Version

if TYPE_CHECKING:
    import pandas as pd

COLOURS = ("#4c78dd", "#e8743b", "#2f9e62", "#d9a514", "#9a63e0", "#1aa3a8", "#e0609a", "#a0714f", "#7b93c9", "#8a8f2c")
"""Colours readable on white and on black."""
RAN, FAILED, WAITED, QUEUED, GOOD, LIMIT = COLOURS[0], "#d64545", "#9aa4b2", COLOURS[3], COLOURS[2], "#d64545"
REST = "others"
"""Name of the sum of parts too small for a colour of their own."""
_MOST_PARTS = 8
_STRIPES = ("", "/", "x")

Chart = dict[str, Any]


def chart(traces: Iterable[Mapping[str, Any]], height: int, **layout: Any) -> Chart:
    """A figure with the shared layout; the page adds its colours."""
    base: dict[str, Any] = {
        "height": height, "margin": {"l": 8, "r": 8, "t": 8, "b": 8}, "showlegend": False, "bargap": 0.35,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"},
        "xaxis": {"automargin": True, "fixedrange": True, "exponentformat": "none"},
        "yaxis": {"automargin": True, "fixedrange": True, "exponentformat": "none"},
        "hoverlabel": {"align": "left"}, "colorway": list(COLOURS),
    }  # fmt: skip
    for name, value in layout.items():
        base[name] = {**base[name], **value} if isinstance(base.get(name), dict) else value
    return {"data": [dict(each) for each in traces], "layout": base}


def costs(table: pd.DataFrame) -> Chart:
    """USD by day, stacked: the most expensive parts have colours of their own."""
    shown = table
    if table.shape[1] > _MOST_PARTS:
        shown = table.iloc[:, : _MOST_PARTS - 1].copy()
        shown[REST] = table.iloc[:, _MOST_PARTS - 1 :].sum(axis=1)
    days = [str(day) for day in shown.index]
    traces = [
        {
            "type": "bar", "name": str(name), "x": days, "y": shown[name].tolist(),
            "marker": _bar(place),
            "text": [format_usd(value) for value in shown[name]], "textposition": "none",
            "hovertemplate": "%{x}<br>%{fullData.name}: %{text}<extra></extra>",
        }
        for place, name in enumerate(shown.columns)
    ]  # fmt: skip
    axis = {"tickprefix": "$", "rangemode": "tozero", "nticks": 5}
    return chart(traces, 280, barmode="stack", showlegend=True, xaxis={"type": "date", "nticks": 7}, yaxis=axis)


def _bar(place: int) -> dict[str, Any]:
    """Look of the bars of one of several parts: after the last colour they are these again, with stripes."""
    again, colour = divmod(place, len(COLOURS))
    return {"color": COLOURS[colour], "pattern": {"shape": _STRIPES[again % len(_STRIPES)]}}


def month_line(found: Month, budget: float | None) -> Chart:
    """Cumulative USD of the month, its forecast, and the budget."""
    days, sums = [str(day) for day, _ in found.days], [value for _, value in found.days]
    ahead = {"x": [days[-1], str(found.last)], "y": [sums[-1], found.forecast_usd]}
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "name": "spent", "x": days, "y": sums, "fill": "tozeroy",
         "line": {"color": RAN, "width": 2}, "fillcolor": "rgba(76,120,221,0.18)",
         "text": [format_usd(value) for value in sums], "hovertemplate": "%{x}: %{text}<extra></extra>"},
        {"type": "scatter", "mode": "lines", "name": "forecast", **ahead,
         "line": {"color": RAN, "width": 2, "dash": "dot"}, "hoverinfo": "skip"},
    ]  # fmt: skip
    if budget is not None:
        traces.append({
            "type": "scatter", "mode": "lines", "name": "budget", "x": [str(found.first), str(found.last)],
            "y": [budget, budget], "line": {"color": LIMIT, "width": 1.5, "dash": "dash"}, "hoverinfo": "skip",
        })  # fmt: skip
    axis = {"tickprefix": "$", "rangemode": "tozero", "nticks": 5}
    time = {"type": "date", "range": [str(found.first), str(found.last)], "nticks": 6}
    return chart(traces, 280, showlegend=True, xaxis=time, yaxis=axis)


def gantt(found: Sequence[Phases]) -> Chart:
    """A row for each stage: waiting for others, queued, compiling kernels, running; a diamond if it was cached."""
    ran = [each for each in found if each.stage.state != "cached"]
    cached = [each for each in found if each.stage.state == "cached"]

    def bars(name: str, colour: str, begins: Sequence[float], lasted: Sequence[float], phases: Sequence[Phases],
             **marker: Any) -> dict[str, Any]:  # fmt: skip
        return {
            "type": "bar", "orientation": "h", "name": name, "y": [each.stage.name for each in phases],
            "base": list(begins), "x": list(lasted), "marker": {"color": colour, **marker}, "width": 0.62,
            "text": [format_seconds(s) for s in lasted], "textposition": "none",
            "hovertemplate": "%{y}: %{fullData.name} %{text}<extra></extra>",
        }  # fmt: skip

    traces = [
        bars("waiting for other stages", WAITED, [0.0] * len(ran), [e.waiting_s for e in ran], ran, opacity=0.28),
        bars("queued", QUEUED, [e.ready for e in ran], [e.queued_s for e in ran], ran),
    ]
    for state, title, colour in (("ran", "running", RAN), ("failed", "failed", FAILED)):
        if phases := [each for each in ran if each.stage.state == state]:
            begins = [e.began + e.compiling_s for e in phases]
            traces.append(bars(title, colour, begins, [e.running_s - e.compiling_s for e in phases], phases))
    if compiled := [each for each in ran if each.compiling_s]:
        traces.append(bars("compiling kernels, not charged", COLOURS[4], [e.began for e in compiled],
                           [e.compiling_s for e in compiled], compiled))  # fmt: skip
    if cached:
        traces.append({
            "type": "scatter", "mode": "markers", "name": "cached", "x": [each.ended for each in cached],
            "y": [each.stage.name for each in cached], "hovertemplate": "%{y}: cached<extra></extra>",
            "marker": {"symbol": "diamond-open", "size": 11, "color": GOOD, "line": {"width": 2}},
        })  # fmt: skip
    names = [each.stage.name for each in reversed(found)]
    rows = {"type": "category", "categoryorder": "array", "categoryarray": names, "showgrid": False}
    return chart(traces, 96 + 30 * len(found), barmode="overlay", showlegend=True, yaxis=rows,
                 xaxis={"ticksuffix": " s", "rangemode": "tozero", "nticks": 7})  # fmt: skip


def shares(found: Sequence[Fit]) -> Chart:
    """CPU and memory that each stage used, as a share of its resources."""
    names = [each.stage.name for each in found]
    cpu = [each.cpu_used / each.stage.cpu if each.stage.cpu and not each.stage.members else 0.0 for each in found]
    memory = [each.stage.memory_bytes / each.stage.memory for each in found]
    used = (
        [f"{each.cpu_used:.1f} of {each.stage.cpu:g} vCPUs" for each in found],
        [f"{format_bytes(each.stage.memory_bytes)} of {format_bytes(each.stage.memory)}" for each in found],
    )
    traces = [
        {"type": "bar", "orientation": "h", "name": name, "y": names, "x": values, "marker": {"color": colour},
         "text": texts, "textposition": "none", "hovertemplate": "%{y}: %{text}<extra></extra>"}
        for name, values, texts, colour in (
            ("CPU", cpu, used[0], COLOURS[0]), ("memory", memory, used[1], COLOURS[5]),
        )
    ]  # fmt: skip
    whole = {
        "type": "line",
        "x0": 1,
        "x1": 1,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": LIMIT, "dash": "dot"},
    }
    most = max([1.0, *cpu, *memory])
    return chart(traces, 96 + 38 * len(found), barmode="group", showlegend=True, shapes=[whole],
                 yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
                 xaxis={"tickformat": ".0%", "range": [0, 1.04 * most], "nticks": 6})  # fmt: skip


def history(found: DeploymentHistory) -> Chart:
    """Quality of each run, the champion's on the same data with its tolerance, and the gates on that metric."""
    points = [each for each in found.runs if each.quality is not None and math.isfinite(each.quality)]
    looks = {"promoted": ("circle", GOOD), "rejected": ("x", FAILED), "waits": ("diamond", QUEUED)}
    judged = [each for each in found.runs if each.champion is not None and math.isfinite(each.champion)]
    traces: list[dict[str, Any]] = []
    if judged:
        champion, start = [each.champion or 0.0 for each in judged], [_moment(each.run.started) for each in judged]
        traces.append({
            "type": "scatter", "mode": "lines+markers", "name": "champion", "x": start, "y": champion,
            "line": {"color": RAN, "width": 2, "shape": "hv"},
            "marker": {"symbol": "line-ew-open", "size": 16}, "hovertemplate": "champion %{y:.4f}<extra></extra>",
            "error_y": {"type": "data", "symmetric": False, "array": [0.0] * len(judged), "thickness": 1, "width": 3,
                        "arrayminus": [each.tolerance for each in judged], "color": RAN},
        })  # fmt: skip
    for verdict in dict.fromkeys(each.run.outcome for each in points):
        shown = [each for each in points if each.run.outcome == verdict]
        symbol, colour = looks.get(verdict, ("circle-open", WAITED))
        traces.append({
            "type": "scatter", "mode": "markers", "name": verdict or "not registered",
            "x": [_moment(each.run.started) for each in shown], "y": [each.quality for each in shown],
            "text": [each.run.name for each in shown], "hovertemplate": "%{text}: %{y:.4f}<extra></extra>",
            "marker": {"symbol": symbol, "size": 10, "color": colour},
        })  # fmt: skip
    shapes, notes = [], []
    for gate in found.limits:
        shapes.append({"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": gate.limit, "y1": gate.limit,
                       "line": {"color": LIMIT, "width": 1.5, "dash": "dash"}})  # fmt: skip
        notes.append({"text": f"gate {gate}", "xref": "paper", "x": 1, "xanchor": "right", "y": gate.limit,
                      "yanchor": "bottom", "showarrow": False, "font": {"size": 11}})  # fmt: skip
    return chart(traces, 300, showlegend=True, shapes=shapes, annotations=notes,
                 xaxis={"type": "date", "nticks": 6}, yaxis={"title": {"text": found.metric}, "nticks": 6})  # fmt: skip


def versions(found: Sequence[Version]) -> Chart:
    """Quality of the versions of a model, with the moves of the alias."""
    rows = sorted(found, key=lambda each: each.version)
    names = list(dict.fromkeys(name for each in rows for name in each.quality))
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines+markers", "name": name, "x": [each.version for each in rows],
         "y": [_finite(each.quality.get(name, math.nan)) for each in rows],
         "line": {"color": COLOURS[place % len(COLOURS)], "width": 1.5},
         "marker": {"size": [13 if "current" in each.aliases else 7 for each in rows],
                    "symbol": ["star" if "current" in each.aliases else "circle" for each in rows]},
         "hovertemplate": "version %{x}: %{y:.4f}<extra>%{fullData.name}</extra>"}
        for place, name in enumerate(names)
    ]  # fmt: skip
    return chart(traces, 240, showlegend=len(names) > 1, yaxis={"nticks": 6},
                 xaxis={"title": {"text": "version (star: in use)"}, "dtick": max(1, len(rows) // 12)})  # fmt: skip


def lines(table: pd.DataFrame) -> Chart:
    """A line for each column over time."""
    traces = [
        {"type": "scatter", "mode": "lines+markers", "name": str(name), "x": [_moment(time) for time in table.index],
         "y": [_finite(value) for value in table[name]], "line": {"color": COLOURS[place % len(COLOURS)]}}
        for place, name in enumerate(table.columns)
    ]  # fmt: skip
    return chart(traces, 280, showlegend=True, xaxis={"type": "date", "nticks": 6}, yaxis={"nticks": 6})


def spreads(table: pd.DataFrame, names: Mapping[str, str]) -> Chart:
    """Headline figures of several runs side by side, each with its spread.

    Args:
        table: of `frames.qualities`.
        names: of runs by their ids.
    """
    shown = table[table["headline"]]
    metrics = list(dict.fromkeys(shown["metric"]))
    traces = []
    for place, (run_id, name) in enumerate(names.items()):
        rows = shown[shown["run_id"] == run_id].set_index("metric").reindex(metrics)
        values = [_finite(value) for value in rows["value"]]
        traces.append({
            "type": "bar", "name": name, "x": metrics, "y": values, "marker": _bar(place),
            "error_y": {"type": "data", "array": [_finite(value) or 0.0 for value in rows["spread"]], "thickness": 1.2},
            "hovertemplate": "%{fullData.name}<br>%{x}: %{y:.4f}<extra></extra>",
        })  # fmt: skip
    return chart(traces, 300, barmode="group", showlegend=True, xaxis={"type": "category"}, yaxis={"nticks": 6})


def stage_costs(by_run: Mapping[str, Mapping[str, float]]) -> Chart:
    """USD of several runs, stacked by stage; runs by name."""
    stages = list(dict.fromkeys(stage for costs in by_run.values() for stage in costs))
    traces = [
        {"type": "bar", "orientation": "h", "name": stage, "y": list(by_run),
         "x": [costs.get(stage, 0.0) for costs in by_run.values()], "marker": _bar(place),
         "text": [format_usd(costs.get(stage, 0.0)) for costs in by_run.values()], "textposition": "none",
         "hovertemplate": "%{y}<br>%{fullData.name}: %{text}<extra></extra>"}
        for place, stage in enumerate(stages)
    ]  # fmt: skip
    return chart(traces, 130 + 42 * len(by_run), barmode="stack", showlegend=True,
                 yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
                 xaxis={"tickprefix": "$", "nticks": 5})  # fmt: skip


def curves(by_run: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]]) -> dict[str, Chart]:
    """Figures by step: a chart for each stage and kind of figure, such as all losses; several runs have a colour each.

    Args:
        by_run: by name of the run (empty where there is one), figures by `node.figure`.
    """
    charts: dict[str, list[dict[str, Any]]] = {}
    dashes = ("solid", "dot", "dash", "dashdot")
    for place, (run, found) in enumerate(by_run.items()):
        own: dict[str, int] = {}
        for name, points in found.items():
            node, _, figure = name.rpartition(".")
            if len(points) < 2:
                continue
            unit = "step" if len(points) != len(epochs := _epochs(points)) or epochs[0] != 1 else "epoch"
            title = f"{node}: {figure.rsplit('_', 1)[-1]} by {unit}" if node else figure
            number = own[title] = own.get(title, -1) + 1
            charts.setdefault(title, []).append({
                "type": "scatter", "mode": "lines", "name": f"{run}: {figure}" if run else figure,
                "x": [step for step, _ in points], "y": [_finite(value) for _, value in points],
                "line": {"width": 2, "color": COLOURS[(place if len(by_run) > 1 else number) % len(COLOURS)],
                         "dash": dashes[number % len(dashes)] if len(by_run) > 1 else "solid"},
                "hovertemplate": "%{fullData.name}, step %{x}: %{y:.5g}<extra></extra>",
            })  # fmt: skip
    return {
        title: chart(traces, 240 + 18 * (len(traces) > 3) * len(by_run), showlegend=len(traces) > 1,
                     xaxis={"nticks": 6}, yaxis={"nticks": 6} | _constant_range(traces))
        for title, traces in charts.items()
    }  # fmt: skip


def _constant_range(traces: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Range of an axis on which all is one value other than 0: by itself it would be from one less to one more."""
    values = {value for trace in traces for value in trace["y"]}
    value = values.pop()
    return {} if values or not value else {"range": sorted([0.0, 2 * value])}


def _epochs(points: Sequence[tuple[int, float]]) -> list[int]:
    """Steps that follow each other without a gap, as those of whole parts of the work do."""
    steps = [step for step, _ in points]
    return steps if steps == list(range(steps[0], steps[0] + len(steps))) else [0]


def _moment(time: Any) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
