"""Whether a run's model takes the place of the one in use: pure decisions, from figures of both.

A finished run registers its model as a challenger. It is promoted to champion when it passes the gates and its quality
is at least the champion's, less a tolerance, where both were scored by the same evaluation. A person's rollback holds
until a person promotes.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from superworkflow.infra.errors import UserError
from superworkflow.infra.outcomes import Metric, find_metric, settings_of
from superworkflow.infra.params import nearest

REGISTRATION = "registration"
"""Name of the flow's parameter that holds a `Registration`."""
MODEL_NAME = re.compile(r"[\w.\-]+( +[\w.\-]+)*")
"""Names of registered models: also what may stand in a registry's filter."""

Verdict = Literal["promoted", "rejected", "waits", "current"]
"""What became of a run's model: promoted to champion; not good enough; good enough, but a challenger until a person
promotes it; or the champion's own dataset."""
Basis = Literal["rescored", "recorded", "none"]
"""Where the champion's figure is from: scored again on this run's data; as its own run recorded it; there is none."""

_GATE = re.compile(r"\s*([\w-]+\.[\w@.%-]+?)\s*(>=|<=|>|<)\s*(\S+)\s*")
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip


@dataclass(frozen=True)
class Gate:
    """A limit that a model must keep to be promoted, such as `evaluate.macro_f1>=0.4`.

    Args:
        metric: `node.metric`; of one that is reported at several settings the middle one, unless it names one.
        comparison: `>=`, `<=`, `>` or `<`.
        limit: finite.
    """

    metric: str
    comparison: str
    limit: float

    @staticmethod
    def parse(text: str) -> Gate:
        """The gate that a text says.

        Raises:
            UserError: not of that form.
        """
        match = _GATE.fullmatch(text)
        try:
            limit = float(match[3]) if match is not None else math.nan
        except ValueError:
            limit = math.nan
        if match is None or not math.isfinite(limit):
            remedy = "Write NODE.METRIC>=NUMBER, such as evaluate.macro_f1>=0.4; also <=, > or <"
            raise UserError("not a gate", where="--gate", value=text, remedy=remedy)
        return Gate(match[1], match[2], limit)

    def __str__(self) -> str:
        return f"{self.metric}{self.comparison}{self.limit:g}"

    def check(self, metrics: Mapping[str, float]) -> str:
        """Why these figures do not pass; empty when they do."""
        name = find_metric(self.metric, metrics)
        if name is None:
            several = ", ".join(sorted(settings_of(self.metric, metrics)))
            return f"gate {self}: the run reports " + (f"several: {several}" if several else f"no {self.metric}")
        if _OPERATORS[self.comparison](metrics[name], self.limit):
            return ""
        return f"gate {self}: {name} is {metrics[name]:.4f}"


_LIMIT = re.compile(r"\s*([\w-]+(?:@[\w.-]+)?)\s*=\s*(\S+)\s*")


@dataclass(frozen=True)
class Limit:
    """How far a run's data may be from the champion's for its model to be promoted, such as `rows_added_share=0.2`.

    Args:
        figure: of drift; of one that is reported at several settings all of them, unless it names one.
        most: the largest value that passes, 0 or more.
    """

    figure: str
    most: float

    @staticmethod
    def parse(text: str) -> Limit:
        """The limit that a text says.

        Raises:
            UserError: not of that form.
        """
        match = _LIMIT.fullmatch(text)
        try:
            most = float(match[2]) if match is not None else math.nan
        except ValueError:
            most = math.nan
        if match is None or not math.isfinite(most) or most < 0:
            remedy = "Write FIGURE=NUMBER, such as degree_psi=0.25; the number is 0 or more"
            raise UserError("not a limit of drift", where="--max-drift", value=text, remedy=remedy)
        return Limit(match[1], most)

    def __str__(self) -> str:
        return f"{self.figure}={self.most:g}"

    def check(self, drift: Mapping[str, float], first: bool) -> str:
        """Why these figures do not pass; empty when they do.

        Args:
            drift: of the run.
            first: there is no champion, and so nothing that most of them could be taken against.
        """
        found = {name: value for name, value in drift.items() if self.figure in (name, name.partition("@")[0])}
        if not found:
            return "" if first else f"limit of drift {self}: the run reports no {self.figure}"
        above = [f"{name} is {value:.4g}" for name, value in found.items() if not value <= self.most]
        return f"limit of drift {self}: {', '.join(above)}" if above else ""


class Registration(BaseModel):
    """Under which name a run registers its models, and what it takes for one of them to be promoted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(
        default="",
        description="Name to register the model under: letters, digits, `-`, `_`, `.` and blanks. A deployment has one "
        "by default, NAME-DEPLOYMENT; other runs register nothing unless they name one.",
    )
    gates: tuple[str, ...] = Field(
        default=(), description="Limits that a model must keep to be promoted: `evaluate.macro_f1>=0.4`."
    )
    max_drift: tuple[str, ...] = Field(
        default=(), description="How far data and model may be from the champion's for it to be promoted: "
        "`degree_psi=0.25`.",
    )  # fmt: skip
    tolerance: float | None = Field(
        default=None, ge=0,
        description="How much worse than the champion's a model's quality may be, in units of the metric, 0 or more; "
        "by default the uncertainty that the champion's evaluation measures.",
    )  # fmt: skip
    promote: bool = Field(
        default=True, description="Promote a model that is good enough; otherwise it waits for a person to do so."
    )

    warm_start: bool = Field(
        default=False, description="Start training from the champion, where the superworkflow says how."
    )

    @field_validator("name")
    @classmethod
    def _registrable(cls, name: str) -> str:
        if name and not MODEL_NAME.fullmatch(name):
            raise ValueError("not a name that a model can have")
        return name

    @field_validator("gates")
    @classmethod
    def _gates(cls, gates: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(str(Gate.parse(text)) for text in gates)
        except UserError as error:
            raise ValueError(str(error)) from None

    @field_validator("max_drift")
    @classmethod
    def _limits(cls, limits: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(str(Limit.parse(text)) for text in limits)
        except UserError as error:
            raise ValueError(str(error)) from None

    def parsed_limits(self) -> tuple[Limit, ...]:
        return tuple(Limit.parse(text) for text in self.max_drift)

    def parsed_gates(self) -> tuple[Gate, ...]:
        return tuple(Gate.parse(text) for text in self.gates)


def check_gates(gates: Sequence[str], declared: Sequence[Metric]) -> None:
    """Refuse gates that no run could be held against.

    Args:
        gates: as users write them.
        declared: the superworkflow's metrics.

    Raises:
        UserError: not of the form, or of a metric that the superworkflow does not declare.
    """
    for text in gates:
        gate = Gate.parse(text)
        if not any(metric.covers(gate.metric) or gate.metric == metric.full_name for metric in declared):
            names = [metric.full_name for metric in declared]
            remedy = nearest(gate.metric, names) if names else "The superworkflow declares no metrics"
            raise UserError("no such metric", where="--gate", value=text, remedy=remedy)


def check_limits(limits: Sequence[str], names: Sequence[str]) -> None:
    """Refuse limits of drift that no run could be held against.

    Args:
        limits: as users write them.
        names: of the figures that the superworkflow's stages report.

    Raises:
        UserError: not of the form, or of a figure that no stage reports.
    """
    for text in limits:
        figure = Limit.parse(text).figure
        if figure.partition("@")[0] not in names:
            remedy = nearest(figure, list(names)) if names else "The superworkflow reports none"
            raise UserError("no such figure of drift", where="--max-drift", value=text, remedy=remedy)


@dataclass(frozen=True)
class Scored:
    """Figures of the champion, to compare with.

    Args:
        version: its number.
        metrics: `node.metric` as the run that challenges it names them; empty where there are none.
        basis: where they are from.
        fault: why it cannot be scored; no challenger is promoted then.
        own: figures of the challenger by the same evaluation, where those of its run are by another one.
    """

    version: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    basis: Basis = "recorded"
    fault: str = ""
    own: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Decision:
    """What became of a run's model, and by which figures.

    Args:
        name: registered name.
        version: of the run's model.
        verdict: see `Verdict`.
        why: one sentence.
        metric: by which the two were compared; empty when they were not.
        quality: of the run's model.
        champion: version of the champion that it was compared with; None when there was none.
        champion_quality: by the evaluation that `basis` says.
        tolerance: how much worse the quality might have been.
        basis: see `Basis`.
        gates: each gate and limit of drift, and whether it was passed.
    """

    name: str
    version: int
    verdict: Verdict
    why: str
    metric: str = ""
    quality: float | None = None
    champion: int | None = None
    champion_quality: float | None = None
    tolerance: float | None = None
    basis: Basis = "none"
    gates: Mapping[str, bool] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        """Its numbers by name, for records."""
        named = {"quality": self.quality, "champion_quality": self.champion_quality, "tolerance": self.tolerance}
        return {name: value for name, value in named.items() if value is not None}

    def document(self) -> dict[str, Any]:
        """As in a run's JSON document and in the registry."""
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(self).items()}

    def __str__(self) -> str:
        return f"{self.name} version {self.version}: {self.why}"


def decide(
    name: str,
    version: int,
    metrics: Mapping[str, float],
    declared: Sequence[Metric],
    champion: Scored | None,
    registration: Registration,
    drift: Mapping[str, float] | None = None,
) -> Decision:
    """`promoted` or `rejected`: whether the figures allow a promotion; who may promote is not asked here.

    Args:
        name: registered name.
        version: of the challenger.
        metrics: of its run, by `node.metric`.
        declared: the superworkflow's metrics; the first headline that both have is the quality.
        champion: with its figures; None when no model is in use yet.
        registration: gates, limits of drift, and tolerance.
        drift: figures of the run against the champion.
    """
    faults = {str(gate): gate.check(metrics) for gate in registration.parsed_gates()}
    faults |= {f"drift {each}": each.check(drift or {}, champion is None) for each in registration.parsed_limits()}
    gates = {text: not fault for text, fault in faults.items()}
    failed = "; ".join(filter(None, faults.values()))
    headlines = [metric for metric in declared if metric.headline]
    if champion is not None and champion.own is not None:
        metrics = champion.own
    own = [(metric, found) for metric in headlines if (found := find_metric(metric.full_name, metrics)) is not None]
    if champion is None:
        first = own[0][1] if own else ""
        why = f"rejected: {failed}" if failed else "promoted: the first model under this name"
        return Decision(name, version, "rejected" if failed else "promoted", why, metric=first,
                        quality=metrics.get(first), gates=gates)  # fmt: skip
    common = [pair for pair in own if pair[1] in champion.metrics]
    if champion.fault or (headlines and not common):
        fault = champion.fault or "the champion has none of this run's figures to compare by"
        why = f"rejected: {'; '.join(filter(None, [failed, fault]))}; a person may promote it"
        return Decision(name, version, "rejected", why, champion=champion.version, gates=gates)
    if not common:
        why = f"rejected: {failed}" if failed else "promoted: the superworkflow declares no metric to compare by"
        return Decision(name, version, "rejected" if failed else "promoted", why, champion=champion.version,
                        gates=gates)  # fmt: skip
    metric, found = common[0]
    quality, other = metrics[found], champion.metrics[found]
    tolerance = registration.tolerance
    if tolerance is None:
        spread = champion.metrics.get(metric.uncertainty_of(found), 0.0)
        tolerance = spread if math.isfinite(spread) else 0.0
    gain = quality - other if metric.direction == "maximize" else other - quality
    good = gain >= -tolerance  # false for figures that are no numbers
    basis = "scored again on the same data" if champion.basis == "rescored" else "as its own run recorded it"
    told = (
        f"{found} {quality:.4f} against {other:.4f} of version {champion.version} ({basis}), tolerance {tolerance:.4f}"
    )
    if good and not failed:
        verdict: Verdict = "promoted"
        why = f"promoted: {told}"
    else:
        verdict = "rejected"
        why = f"rejected: {'; '.join(filter(None, [failed, '' if good else told]))}"
    return Decision(
        name, version, verdict, why, found, quality, champion.version, other, tolerance, champion.basis, gates
    )
