"""Filter of recorded runs: by superworkflow, deployment, outcome, tag and text; for MLflow's search and for pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Protocol

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.tracking.tags import DEPLOYMENT_TAG, NOTE_TAG, OUTCOME_TAG, SHORT, SUPERWORKFLOW_TAG, UNCHANGED

STATUSES = {"completed": "FINISHED", "failed": "FAILED", "running": "RUNNING", "stopped": "KILLED"}
"""MLflow's statuses by the words of pages."""
VERDICTS = ("promoted", "rejected", "waits", "current", UNCHANGED)
OUTCOMES = (*STATUSES, *VERDICTS)
_OURS = ("superworkflow.", "mlflow.")


class Filterable(Protocol):
    """A run as far as filters read it."""

    @property
    def run_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def superworkflow(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def tags(self) -> Mapping[str, str]: ...


def own_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags that people have given, without those of this program and of MLflow."""
    return {name: value for name, value in tags.items() if not (name.startswith(_OURS) or name in SHORT.values())}


def parse_tag(text: str) -> tuple[str, str]:
    """Name and value of `NAME` or `NAME=VALUE`.

    Raises:
        UserError: no name, or one that is this program's or MLflow's.
    """
    name, _, value = text.partition("=")
    if not name.strip() or name.startswith(_OURS) or "`" in name:
        raise UserError("not a tag", where="--tag", value=text,
                        remedy=f"Write NAME or NAME=VALUE, without {' or '.join(_OURS)} at the beginning")  # fmt: skip
    return name.strip(), value.strip()


@dataclass(frozen=True)
class RunFilter:
    """Conditions that all hold; an empty one is none.

    Args:
        superworkflow: its name.
        deployment: its name, or the part before or after the slash.
        outcome: one of `OUTCOMES`.
        tag: `NAME` or `NAME=VALUE`.
        text: part of the name, the id, the note, a tag, the decision or the error, in whatever case.
    """

    superworkflow: str = ""
    deployment: str = ""
    outcome: str = ""
    tag: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        if self.outcome and self.outcome not in OUTCOMES:
            raise UserError(
                "no such outcome", where="outcome", value=self.outcome, remedy=nearest(self.outcome, list(OUTCOMES))
            )
        if self.tag:
            parse_tag(self.tag)

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))

    def matches(self, run: Filterable) -> bool:
        """True if a run passes."""
        tags = run.tags
        if self.superworkflow and run.superworkflow != self.superworkflow:
            return False
        if self.deployment and self.deployment not in _names(tags.get(DEPLOYMENT_TAG, "")):
            return False
        if self.outcome in STATUSES:
            if run.status != STATUSES[self.outcome] or (
                self.outcome == "completed" and run.outcome in ("rejected", UNCHANGED)
            ):
                return False
        elif self.outcome and run.outcome != self.outcome:
            return False
        if self.tag:
            name, value = parse_tag(self.tag)
            if name not in tags or (value and tags[name] != value):
                return False
        return not self.text or self.text.lower() in _searched(run)

    def query(self) -> str:
        """The conditions that MLflow can check, for its search; `matches` checks all."""
        found = []
        if self.superworkflow:
            found.append(f"tags.`{SUPERWORKFLOW_TAG}` = {_quoted(self.superworkflow)}")
        if self.outcome in STATUSES:
            found.append(f"attributes.status = '{STATUSES[self.outcome]}'")
        elif self.outcome:
            found.append(f"tags.`{OUTCOME_TAG}` = '{self.outcome}'")
        if self.deployment:
            found.append(f"tags.`{DEPLOYMENT_TAG}` LIKE {_quoted(f'%{self.deployment}%')}")
        if self.tag:
            name, value = parse_tag(self.tag)
            found.append(f"tags.`{name}` = {_quoted(value)}" if value else f"tags.`{name}` LIKE '%'")
        return " and ".join(found)


def _names(deployment: str) -> set[str]:
    return {deployment, *deployment.split("/", 1)} if deployment else set()


def _searched(run: Filterable) -> str:
    own = [f"{name}={value}" for name, value in own_tags(run.tags).items()]
    words = [run.tags.get(name, "") for name in (NOTE_TAG, "superworkflow.decision", "superworkflow.error")]
    return "\n".join([run.name, run.run_id, *own, *words]).lower()


def _quoted(text: str) -> str:
    """A text in a filter.

    Raises:
        UserError: it has both kinds of quotes.
    """
    if "'" not in text:
        return f"'{text}'"
    if '"' in text:
        raise UserError("has both kinds of quotes", where="filter", value=text, remedy="Filter by a part of it")
    return f'"{text}"'
