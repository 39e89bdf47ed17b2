"""Budget of a deployment: near its end a notification is sent, and at its end the deployment is paused.

The budget is in the environment of the deployment's runs. Each run adds up, when it ends, what MLflow has recorded of
the deployment since the period began.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, cast

from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.events import emit_event
from prefect.exceptions import ObjectNotFound

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import format_usd
from superworkflow.infra.orchestration.deployed_run import DeployedRun, current_flow_run, mark
from superworkflow.infra.orchestration.notifications import EVENTS
from superworkflow.infra.orchestration.source_trigger import watching_flow_name
from superworkflow.infra.tracking.base import Tracker

VARIABLE = "SUPERWORKFLOW_BUDGET_USD"
"""Variable of a deployment's runs with its budget."""
NEAR = 0.8
"""Share of the budget from which on people are warned."""
BUDGET_TAG = "over budget"
Period = Literal["day", "week", "month"]
_FORM = re.compile(r"(\d+(?:\.\d+)?)/(day|week|month)")


@dataclass(frozen=True)
class Budget:
    """A sum for each calendar period, in UTC."""

    usd: float
    period: Period

    @classmethod
    def parse(cls, text: str) -> Budget:
        """From a text such as `50/month`.

        Raises:
            UserError: not of that form, or nothing.
        """
        match = _FORM.fullmatch(text)
        if match is None or float(match[1]) <= 0:
            raise UserError("not a budget", where="--budget-usd", value=text, remedy="Write one such as 50/month")
        return cls(float(match[1]), cast("Period", match[2]))

    def began(self, now: datetime) -> datetime:
        """Beginning of the period that `now` is in."""
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        if self.period == "month":
            return today.replace(day=1)
        return today - timedelta(days=today.weekday()) if self.period == "week" else today

    def event(self, before: float, spent: float) -> str:
        """Event of a run with which the sum rose from `before` to `spent`; empty for none."""
        near, paused = EVENTS
        if spent >= self.usd:
            return paused
        return near if before < NEAR * self.usd <= spent else ""

    def __str__(self) -> str:
        return f"{format_usd(self.usd)} a {self.period}"


def keep_to_budget(deployed: DeployedRun, tracker: Tracker, cost_usd: float) -> None:
    """Warn, or pause the deployment, where the run that ends now has used up its budget.

    Args:
        deployed: the run's deployment.
        tracker: where its runs are recorded, this one too.
        cost_usd: of this run.
    """
    if not (text := os.environ.get(VARIABLE)):
        return
    budget = Budget.parse(text)
    spent = tracker.spent(deployed.id, budget.began(datetime.now(UTC)))
    event = budget.event(spent - cost_usd, spent)
    if not event:
        return
    message = f"{deployed.name} has cost {format_usd(spent)} of its budget of {budget}"
    if event == EVENTS[1]:
        message += "; it is paused until a person resumes it, or deploys it with another budget and --no-pause"
        _pause(deployed)
        mark(BUDGET_TAG)
    get_run_logger().warning(message)
    emit_event(
        event, resource={"prefect.resource.id": f"prefect.flow-run.{current_flow_run().id}"},
        related=[{"prefect.resource.id": f"prefect.deployment.{deployed.id}", "prefect.resource.role": "deployment"}],
        payload={"message": message},
    )  # fmt: skip


def _pause(deployed: DeployedRun) -> None:
    """Pause the schedules of a deployment, and of the one that watches its sources."""
    with get_client(sync_client=True) as client:
        for flow in (deployed.superworkflow, watching_flow_name(deployed.superworkflow)):
            try:
                found = client.read_deployment_by_name(f"{flow}/{deployed.title}")
            except ObjectNotFound:
                continue
            client.pause_deployment(found.id)
