"""Deployment of a flow run, its name and tags, its backlog, and the end of a run that has nothing to do.

Prefect's page of a deployment lists runs whose state has one of Prefect's own names, and no others. So the state of a
run has such a name, and the tags say what became of it: pages show them in every list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas import State
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Completed

from superworkflow.infra.config.request import Request
from superworkflow.infra.orchestration.parameters import differing
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord
from superworkflow.infra.tracking.tags import BEHIND, DEPLOYMENT_ID_TAG, DEPLOYMENT_TAG, INPUTS_TAG

UNCHANGED_STATE, SKIPPED_STATE = "Cached", "Skipped"
"""Names of the states of runs that had nothing to do, and of those that others did the work of. The first is one of
Prefect's own, of type completed."""
UNCHANGED_TAG, REJECTED_TAG, BEHIND_TAG = "unchanged", "rejected", "production is behind"
"""Tags of flow runs: nothing was new; the run's model was rejected; a newer model than the champion waits or was
rejected."""
_WAITING = ["Scheduled", "Late", "AwaitingConcurrencySlot"]
"""Names of the states of runs that have not been started."""


@dataclass(frozen=True)
class DeployedRun:
    """The deployment of a run.

    Args:
        id: of the deployment.
        superworkflow: name of its flow.
        title: its name among the flow's deployments.
        changed: parameters that the run was started with in place of the deployment's.
        inputs: digest of all inputs of the run, apart from the champion that a warm start reads.
    """

    id: str
    superworkflow: str
    title: str
    changed: tuple[str, ...]
    inputs: str

    @property
    def name(self) -> str:
        """Name on Prefect's pages and in its commands."""
        return f"{self.superworkflow}/{self.title}"

    def tags(self) -> dict[str, str]:
        """Tags of the run's record; with the digest of its inputs only where its parameters are the deployment's."""
        own = {DEPLOYMENT_TAG: self.name, DEPLOYMENT_ID_TAG: self.id}
        if self.changed:
            return {**own, "superworkflow.changed": ", ".join(self.changed)}
        return {**own, INPUTS_TAG: self.inputs}


def current_flow_run() -> FlowRun:
    """The flow run that this code is part of."""
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    return context.flow_run


def deployed_run(request: Request) -> DeployedRun | None:
    """The deployment of the current flow run; None where it has none."""
    context = FlowRunContext.get()
    flow_run = context.flow_run if context is not None else None
    if flow_run is None or flow_run.deployment_id is None:
        return None
    with get_client(sync_client=True) as client:
        try:
            found = client.read_deployment(flow_run.deployment_id)
        except ObjectNotFound:  # removed since it was started
            return None
        _name(client, flow_run, found)
    changed = differing(request.superworkflow, flow_run.parameters, found.parameters)
    return DeployedRun(str(found.id), request.superworkflow.name, found.name, tuple(changed), request.inputs_digest())


def _name(client: SyncPrefectClient, run: FlowRun, deployment: DeploymentResponse) -> None:
    """Name a run after its deployment and the time for which it was scheduled, in the schedule's zone."""
    zones = [getattr(each.schedule, "timezone", None) for each in deployment.schedules]
    zone = ZoneInfo(next(filter(None, zones), "UTC")) if run.auto_scheduled else UTC
    due = (run.expected_start_time or datetime.now(UTC)).astimezone(zone)
    name = f"{deployment.name} {due:{'%Y-%m-%d %H:%M' if run.auto_scheduled else '%Y-%m-%d %H:%M:%S'}}"
    if run.name != name:
        client.set_flow_run_name(run.id, name)
        run.name = name


def mark(*tags: str) -> None:
    """Add tags to the current flow run, which pages show in lists of runs."""
    run = current_flow_run()
    with get_client(sync_client=True) as client:
        client.update_flow_run(run.id, tags=sorted({*run.tags, *tags}))


def skip_backlog() -> list[UUID]:
    """Cancel scheduled runs of the current run's deployment that were due before it began; their ids.

    They pile up while no worker is there or the pool is paused. The current run reads the sources as they are now, so
    that the others would have nothing to do. Runs that a person started and runs with other parameters are kept.
    """
    with get_client(sync_client=True) as client:
        return skip_due(client, current_flow_run())


def skip_due(client: SyncPrefectClient, own: FlowRun, later: bool = False) -> list[UUID]:
    """Cancel runs of a run's deployment that are due and have not been started, and whose work it does; their ids.

    Args:
        client: of the server.
        own: the run.
        later: only those that are due after it, and those that a worker has claimed since as well: of a run that was
            interrupted and keeps its place.
    """
    if own.deployment_id is None:
        return []
    now = datetime.now(UTC)
    due = FlowRunFilter.model_validate({
        "state": {"name": {"any_": [*_WAITING, *(["Pending"] if later else [])]}},
        "expected_start_time": {"before_": now}, "deployment_id": {"any_": [own.deployment_id]},
    })  # fmt: skip
    found: list[FlowRun] = []
    while page := client.read_flow_runs(flow_run_filter=due, sort=FlowRunSort.ID_DESC, offset=len(found)):
        found += page
    first = own.created or now
    skipped = [
        run.id for run in found
        if run.auto_scheduled and run.parameters == own.parameters and run.id != own.id
        and not (later and (run.expected_start_time or first) < (own.start_time or first))
    ]  # fmt: skip
    message = f"{own.name}, which began at {own.start_time or now:%Y-%m-%d %H:%M} UTC, does its work"
    for run_id in skipped:
        client.set_flow_run_state(run_id, Cancelled(name=SKIPPED_STATE, message=message))
    return skipped


def nothing_new(
    request: Request, tracker: Tracker, deployed: DeployedRun, behind: Callable[[], str] = lambda: ""
) -> State[RunRecord] | None:
    """The end of a run whose inputs and parameters are those of the last one of its deployment that finished.

    None where a dataset has been removed since, or where the run was started with other parameters.

    Args:
        request: of the run.
        tracker: where it is recorded.
        deployed: its deployment.
        behind: finds out in which way production is behind; empty if it is not.
    """
    if deployed.changed or tracker.last_inputs(deployed.id) != deployed.inputs:
        return None
    if not request.registration.warm_start and not request.is_complete():
        return None  # of a warm start, what it started from is not known here
    run = current_flow_run()
    flow_run_id, name = str(run.id), run.name
    tags = {**deployed.tags(), "superworkflow.flow_run_id": flow_run_id}
    late = behind()
    tracker.unchanged(name, request.superworkflow.name, {**tags, **({BEHIND: late} if late else {})})
    mark(BEHIND_TAG if late else UNCHANGED_TAG)  # lists have room for one next to that of the deployment
    record = RunRecord("", flow_run_id, request.store.uri, name, request.superworkflow.name)
    message = "unchanged: all inputs and parameters are those of the last run of this deployment that finished"
    message += f"; production is behind: {late}" if late else ""
    return Completed(name=UNCHANGED_STATE, message=message, data=record)
