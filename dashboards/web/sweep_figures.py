"""Figures of a sweep: Optuna's own, as far as its trials allow them, and the cost of each trial."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from superworkflow.dashboards.web.figures import COLOURS, WAITED, Chart, chart
from superworkflow.infra.contract.resources import format_usd

Titled = tuple[str, str, Chart]
"""Title, a sentence that explains it, and the figure."""


def sweep_figures(study: Study, report: Mapping[str, Any]) -> list[Titled]:
    """All figures that the trials so far allow.

    Args:
        study: Optuna's.
        report: document of the sweep's report.
    """
    objectives = [each["name"] for each in report["objectives"]]
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    found: list[Titled] = []
    if done:
        found += [("History", _words(name, objectives), _history(study, place, name))
                  for place, name in enumerate(objectives)]  # fmt: skip
        if len(objectives) == 2:
            found.append(("Pareto front", "Trials that no other one beats in both.", _front(study, objectives)))
    first, name = _plain(done, report), objectives[0]
    if first is not None:
        searched = list(dict.fromkeys(name for trial in done for name in trial.params))
        importances = _importances(first)
        if importances is not None:
            found.append(("Importance", f"Share of each parameter in the variance of {name}.", importances))
            searched = list(reversed(importances["data"][0]["y"]))
        if searched:
            found.append(("Parallel coordinates", "One line for each trial, coloured by its result.",
                          _parallel(first, name)))  # fmt: skip
        pair = [each for each in searched if _varies(done, each)][:2]
        if len(pair) == 2:
            found.append(("Heat map", f"{name} over {pair[0]} and {pair[1]}, between trials interpolated.",
                          _contour(first, pair, name)))  # fmt: skip
    if report["trials"]:
        found.append(("Cost", "What each trial paid, and what it took from the store.", _costs(report["trials"])))
    return found


def _words(name: str, objectives: Sequence[str]) -> str:
    return f"{name} of each trial{', and the best so far' if len(objectives) == 1 else ''}."


def _history(study: Study, place: int, name: str) -> Chart:
    target: Callable[[FrozenTrial], float] | None = None
    if len(study.directions) > 1:

        def target(trial: FrozenTrial) -> float:  # fmt: skip
            return float(trial.values[place])

    plot = optuna.visualization.plot_optimization_history
    made = _optunas(lambda: plot(study, target=target, target_name=name), 300)
    made["layout"]["xaxis"] |= {"tick0": 0, "dtick": max(1, len(study.get_trials(deepcopy=False)) // 10)}
    return made


def _parallel(first: Study, name: str) -> Chart:
    plot = optuna.visualization.plot_parallel_coordinate
    made = _optunas(lambda: plot(first, target_name=name), 380, ground=True, margin={"l": 64, "r": 40})
    made["layout"]["xaxis"]["ticklabeloverflow"] = "allow"  # the first and the last name are wider than their places
    for trace in made["data"]:  # the first axis has the values of the colours
        trace.get("marker", {})["showscale"] = False
    return made


def _front(study: Study, objectives: Sequence[str]) -> Chart:
    made = _optunas(lambda: optuna.visualization.plot_pareto_front(study, target_names=list(objectives)), 340)
    looks = (("on the front", {"color": COLOURS[1], "size": 10}), ("others", {"color": WAITED, "size": 7}))
    for trace in made["data"]:  # Optuna colours both by the number of the trial, which the hover text says
        best = trace["hovertemplate"].endswith("<extra>Best Trial</extra>")
        trace["name"], trace["marker"] = looks[0 if best else 1]
        trace["showlegend"] = True
    made["layout"]["showlegend"] = True
    return made


def _contour(first: Study, pair: Sequence[str], name: str) -> Chart:
    plot = optuna.visualization.plot_contour
    made = _optunas(lambda: plot(first, params=list(pair), target_name=name), 380)
    for axis in (made["layout"]["xaxis"], made["layout"]["yaxis"]):
        if axis.get("type") == "log" and "range" in axis and len(ticks := _log_ticks(*axis["range"])) > 1:
            axis |= {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    return made


def _log_ticks(low: float, high: float) -> list[float]:
    """One, two and five times powers of ten between two logarithms; Plotly writes digits alone within a decade."""
    found = [float(f"{digit}e{power}") for power in range(math.floor(low), math.ceil(high)) for digit in (1, 2, 5)]
    inside = [tick for tick in found if low <= math.log10(tick) <= high]
    return inside if len(inside) <= 6 else [tick for tick in inside if f"{tick:e}"[0] == "1"]


def _optunas(make: Callable[[], Any], height: int, *, ground: bool = False, **more: Any) -> Chart:
    """Optuna's figure in the dashboard's layout.

    Args:
        make: draws it.
        height: in pixels.
        ground: its colours run from white to dark blue, and need a ground between the two.
        more: of the layout.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = json.loads(make().to_json())
    kept = ("xaxis", "yaxis", "shapes", "annotations")
    layout = {name: value for name, value in made["layout"].items() if name.startswith(kept)}
    for each in layout.get("annotations", ()):
        each.get("font", {}).pop("color", None)  # the page's
    for each in layout.get("shapes", ()):
        each.setdefault("line", {})["color"] = WAITED
    several = [each for each in made["data"] if each.get("name") and each.get("showlegend", True)]
    for trace in made["data"]:
        if trace["type"] == "scatter":
            trace.setdefault("marker", {}).setdefault("line", {"width": 0.5, "color": WAITED})
    legend = len(several) > 1
    return chart(made["data"], height, showlegend=legend, meta={"ground": ground}, **layout, **more)


def _plain(done: Sequence[FrozenTrial], report: Mapping[str, Any]) -> Study | None:
    """Study of the first objective alone, for figures of one objective; None without trials."""
    if not done:
        return None
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        plain = optuna.create_study(direction=report["objectives"][0]["direction"])
    finally:
        optuna.logging.set_verbosity(before)
    plain.add_trials([
        optuna.trial.create_trial(params=each.params, distributions=each.distributions, value=each.values[0])
        for each in done
    ])  # fmt: skip
    return plain


def _importances(plain: Study) -> Chart | None:
    """Parameter importances by fANOVA (Hutter et al., 2014); None with too few trials or if all are equal."""
    done = plain.get_trials(deepcopy=False)
    if len(done) < 4 or len({trial.value for trial in done}) < 2:
        return None
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    try:
        made = _optunas(lambda: optuna.visualization.plot_param_importances(plain, evaluator=evaluator), 0)
    except (ValueError, RuntimeError):
        return None
    for axis in ("xaxis", "yaxis"):
        made["layout"][axis].pop("title", None)  # the page has it
    made["layout"]["xaxis"]["range"] = [0, 1.15 * max(made["data"][0]["x"])]  # room for the figure at the longest bar
    made["layout"]["height"] = 80 + 34 * len(made["data"][0]["y"])
    return made


def _varies(done: Sequence[FrozenTrial], name: str) -> bool:
    return len({trial.params.get(name) for trial in done}) > 1


def _costs(trials: Sequence[Mapping[str, Any]]) -> Chart:
    numbers = [row["number"] for row in trials]
    traces = [
        {"type": "bar", "name": name, "x": numbers, "y": [row[key] for row in trials], "marker": {"color": colour},
         "text": [format_usd(row[key]) for row in trials], "textposition": "none",
         "hovertemplate": "trial %{x}: %{fullData.name} %{text}<extra></extra>"}
        for name, key, colour in (("paid", "paid_usd", COLOURS[2]), ("reused", "reused_usd", "rgba(154,164,178,0.5)"))
    ]  # fmt: skip
    return chart(traces, 280, barmode="stack", showlegend=True, xaxis={"title": {"text": "trial"}, "dtick": max(
        1, len(numbers) // 10)}, yaxis={"tickprefix": "$", "nticks": 5})  # fmt: skip
