"""Decisions on promotion: gates, limits of drift and the comparison with the model in use, as pure functions.

A finished run registers its model as a challenger. It is promoted to champion when it passes the gates and its quality
is at least the champion's, less a tolerance, where both were scored by the same evaluation. A person's rollback holds
until a person promotes.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.metrics import Metric, find_metric, settings_of

REGISTRATION = "registration"
"""Name of the flow's parameter that holds a `Registration`."""
MODEL_NAME = re.compile(r"[\w.\-]+( +[\w.\-]+)*")
"""Names of registered models: also what may stand in a registry's filter."""


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
        limit = _number(match[3]) if match is not None else math.nan
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


def _number(text: str) -> float:
    """The number in a text; nan for any other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class Limit:
    """Largest drift from the champion's data that allows promotion, such as `rows_added_share=0.2`.

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
        most = _number(match[2]) if match is not None else math.nan
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


class Registration(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Under which name a run registers its models, and what it takes for one of them to be promoted."""

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

    @field_validator("gates", "max_drift")
    @classmethod
    def _parsable(cls, texts: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        kind = Gate if info.field_name == "gates" else Limit
        try:
            return tuple(str(kind.parse(text)) for text in texts)
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
