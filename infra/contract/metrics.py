"""Metrics by which runs are judged: declarations, figures, headlines."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest

Direction = Literal["maximize", "minimize"]


DIRECTIONS = ("maximize", "minimize")


METRICS_TAG = "superworkflow.metrics"
"""Tag of a recorded run: its metrics as they were declared."""


@dataclass(frozen=True)
class Metric:
    """A figure of a node by which runs are judged.

    Stages report figures as stats under `metrics.`, some of them at several settings: `f1@0.1`, `f1@0.5`. Of a run they
    are kept as `node.name`, so that two nodes of one stage each keep theirs.

    Args:
        node: that reports it.
        name: as its stage declares it, which stands for the figure at every setting; or at one, such as `auc@cosine`.
        direction: which values are better.
        headline: shown in lists of runs. The first headline for which the sources suffice is what sweeps improve by
            default.
        uncertainty: name of the figure that is this one's standard deviation, shown with it.
        source: source without which it is not computed.
        options: values of the superworkflow's options with which a trial computes no more than this figure needs.
        needs: values of stages' parameters, by dotted name, with which alone the node reports it, and no others; a
            tuple of values where any of them will do.
        optional: whether diagrams may do without the node.
        baselines: name of a node, or of several, that reports the same figure of simpler methods, as `<method>_<name>`;
            these are shown with this one.
        promotes: models are compared by it before they are by other headlines, such as one that no choice within
            training was made by. A name: so they are, and before all others, where the run reports this figure too.
    """

    node: str
    name: str
    direction: Direction = "maximize"
    headline: bool = False
    uncertainty: str = ""
    source: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False
    baselines: str | tuple[str, ...] = ()
    promotes: bool | str = False

    def precedence(self, values: Mapping[str, float]) -> int | None:
        """Place in the order of comparison of a run with these figures, least first; None if it is not compared by."""
        if isinstance(self.promotes, str) and self.promotes in values:
            return 0
        return (1 if self.promotes is True else 2) if self.headline else None

    @property
    def baseline_nodes(self) -> tuple[str, ...]:
        """Names of the nodes that report baselines."""
        return (self.baselines,) if isinstance(self.baselines, str) else self.baselines

    @property
    def full_name(self) -> str:
        """`node.name`, as it is recorded."""
        return f"{self.node}.{self.name}"

    def covers(self, full_name: str) -> bool:
        """True if it stands for this recorded figure, at whatever setting."""
        return full_name == self.full_name or full_name.partition("@")[0] == self.full_name

    def uncertainty_of(self, full_name: str) -> str:
        """Name under which the uncertainty of such a figure is recorded; empty when none is."""
        if not self.uncertainty or "@" in self.uncertainty:
            return self.uncertainty and f"{self.node}.{self.uncertainty}"
        return f"{self.node}.{self.uncertainty}{full_name[len(full_name.partition('@')[0]) :]}"


@dataclass(frozen=True)
class Figure:
    """One figure for people.

    Args:
        name: of the figure.
        value: of the figure.
        spread: its standard deviation, if one was reported.
        baselines: the same figure of simpler methods, by method.
    """

    name: str
    value: float
    spread: float | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.value:.4f}" + (f" ± {self.spread:.4f}" if self.spread is not None else "")

    @property
    def baselines_text(self) -> str:
        """Baselines for people: `majority 0.3190, features 0.5710`."""
        return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.baselines.items())


def figures(values: Mapping[str, float], declared: Sequence[Metric]) -> list[Figure]:
    """Recorded figures in their order, each with its uncertainty and its baselines."""
    spreads, baselines = _spreads(values, declared), _baselines(values, declared)
    parts = {*spreads.values(), *(name for each in baselines.values() for name in each.values())}
    return [
        Figure(
            name, values[name], values[spreads[name]] if name in spreads else None,
            {method: values[each] for method, each in baselines.get(name, {}).items()},
        )
        for name in values
        if name not in parts
    ]  # fmt: skip


def _baselines(values: Mapping[str, float], declared: Sequence[Metric]) -> dict[str, dict[str, str]]:
    """Names of the baselines by the name of their figure and by method."""
    found: dict[str, dict[str, str]] = {}
    for name in values:
        for metric in declared:
            if metric.baselines and metric.covers(name):
                end = f"_{name.removeprefix(metric.node + '.')}"
                found[name] = {
                    each[len(node) + 1 : -len(end)]: each
                    for node in metric.baseline_nodes for each in values
                    if each.startswith(f"{node}.") and each.endswith(end)
                }  # fmt: skip
    return found


def uncertainties(values: Mapping[str, float], declared: Sequence[Metric]) -> list[str]:
    """Names of those recorded figures that are the uncertainty of another."""
    return list(_spreads(values, declared).values())


def _spreads(values: Mapping[str, float], declared: Sequence[Metric]) -> dict[str, str]:
    """Name of the uncertainty by the name of its figure."""
    return {
        name: spread
        for name in values
        for metric in declared
        if metric.covers(name) and (spread := metric.uncertainty_of(name)) in values
    }


def headlines(values: Mapping[str, float], declared: Sequence[Metric]) -> list[Figure]:
    """The headlines among recorded figures, in the order in which they are declared."""
    names = [find_metric(metric.full_name, values) for metric in declared if metric.headline]
    return [Figure(name, values[name]) for name in names if name is not None]


def drift_texts(drift: Mapping[str, float]) -> list[tuple[str, str]]:
    """Figures of drift for people: each name, and its value as a count or to four digits."""
    return [(name, f"{value:,.0f}" if value == round(value, 0) else f"{value:.4g}") for name, value in drift.items()]


def find_metric(name: str, metrics: Mapping[str, Any]) -> str | None:
    """The metric of this name, or the one that the name stands for.

    Of one reported at several settings that are numbers (`f1@0.1`, `f1@0.5`, `f1@0.9`) that is the middle one; a
    setting that is a word (`auc@hadamard`) is found where it is the only one.

    Returns:
        Its name; None where there is none, or several of which none comes before the others (`settings_of`).
    """
    if name in metrics:
        return name
    found = settings_of(name, metrics)
    if len(found) == 1:
        return found[0]
    numbers = sorted((float(key.rpartition("@")[2]), key) for key in found if _is_number(key.rpartition("@")[2]))
    return numbers[(len(numbers) - 1) // 2][1] if numbers and len(numbers) == len(found) else None


def settings_of(name: str, metrics: Mapping[str, Any]) -> list[str]:
    """Names of a metric at each setting at which it is reported: `accuracy@validation`, `accuracy@test`."""
    return [key for key in metrics if key.startswith(f"{name}@")]


def the_metric(name: str, metrics: Mapping[str, Any], where: str) -> str:
    """Like `find_metric`, but requires one.

    Args:
        name: as a user gave it.
        metrics: by their names.
        where: it was given, for the error.

    Raises:
        UserError: there is none, or several; names them.
    """
    if (found := find_metric(name, metrics)) is not None:
        return found
    if several := settings_of(name, metrics):
        raise UserError("the figure is reported at several settings", where=where, value=name,
                        remedy=f"Name one of {', '.join(sorted(several))}")  # fmt: skip
    raise UserError("no stage reports this figure", where=where, value=name,
                    remedy=nearest(name, list(metrics)) if metrics else "None is reported at all")  # fmt: skip


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", text) is not None


def metrics_text(declared: Sequence[Metric]) -> str:
    """Declarations as a recorder keeps them with a run, for those who read it without the superworkflow."""
    kept = {"node", "name", "direction", "headline", "uncertainty", "baselines", "promotes"}
    # Without defaults, as records have room for 5,000 characters: with those of a champion, `gnn` has 70 metrics.
    named = [{key: value for key, value in vars(metric).items() if key in kept and value} for metric in declared]
    return json.dumps(named, separators=(",", ":"))


def _node_names(given: object) -> str | tuple[str, ...]:
    return tuple(map(str, given)) if isinstance(given, list | tuple) else str(given)


def read_metrics(text: str) -> tuple[Metric, ...]:
    """The inverse of `metrics_text`; those that are whole if the text was cut off, and none where it is another."""
    if text.startswith("[{") and not text.endswith("]"):
        text = f"{text[: text.rfind('}') + 1]}]"
    try:
        return tuple(
            Metric(
                str(each["node"]), str(each["name"]), each["direction"], bool(each.get("headline")),
                each.get("uncertainty", ""), baselines=_node_names(each.get("baselines", ())),
                promotes=found if isinstance(found := each.get("promotes"), str) else found is True,
            )
            for each in json.loads(text)
            if each["direction"] in DIRECTIONS and isinstance(each.get("uncertainty", ""), str)
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
