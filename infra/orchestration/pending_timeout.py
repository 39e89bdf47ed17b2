"""Timeout of flow runs that were claimed and never started: an automation of Prefect's server closes them.

A worker that dies between claiming a run and starting it leaves the run `Pending`, with a slot of its deployment's
concurrency limit: later runs would be cancelled for want of a slot. The server closes such a run as `Crashed`, which
frees the slot and sends the deployment's notifications, whichever worker is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

from superworkflow.infra.orchestration.notifications import of_deployments, replace_automation

PENDING_TIMEOUT: Mapping[str, timedelta] = {"process": timedelta(minutes=10), "kubernetes": timedelta(minutes=30)}
"""Time for a claimed run to start, by type of its work pool; a pod may have to wait for a node and its image."""
_NEXT_STATES = (
    "Running", "Retrying", "Completed", "Failed", "Crashed", "TimedOut", "Cancelled", "Cancelling", "Skipped", "Paused",
    "Suspended", "Scheduled", "Late", "AwaitingRetry", "AwaitingConcurrencySlot",
)  # fmt: skip


def set_pending_timeout(client: SyncPrefectClient, title: str, deployments: Sequence[UUID], timeout: timedelta) -> None:
    """Create or replace the automation of a deployment; remove it where there are no deployments.

    Args:
        client: of the server.
        title: of the deployment, `SUPERWORKFLOW/NAME`.
        deployments: ids of the deployments whose runs are watched.
        timeout: for which a run may be pending, 10 seconds or more.
    """
    minutes = f"{timeout.total_seconds() / 60:g} minutes"
    message = f"It was claimed and did not start within {minutes}: its worker ended, or could not start it."
    trigger = EventTrigger(
        after={"prefect.flow-run.Pending"}, expect={f"prefect.flow-run.{state}" for state in _NEXT_STATES},
        match={"prefect.resource.id": "prefect.flow-run.*"}, match_related=of_deployments(deployments),
        for_each={"prefect.resource.id"}, posture=Posture.Proactive, threshold=1, within=timeout,
    )  # fmt: skip
    automation = AutomationCore(
        name=f"superworkflow {title} pending", description=f"Closes runs that are pending for {minutes}.",
        tags=["superworkflow"], trigger=trigger,
        actions=[ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", message=message, force=False)],
    )  # fmt: skip
    replace_automation(client, automation, keep=bool(deployments))
