"""Deployment of a flow run, and the end of a run that has nothing to do."""

from __future__ import annotations

from dataclasses import dataclass

from prefect.client.orchestration import get_client
from prefect.client.schemas import State
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound
from prefect.states import Completed

from superworkflow.infra.config.request import Request
from superworkflow.infra.orchestration.parameters import differing
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord
from superworkflow.infra.tracking.tags import DEPLOYMENT_ID_TAG, DEPLOYMENT_TAG, INPUTS_TAG

UNCHANGED_STATE = "Unchanged"


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
    changed = differing(request.superworkflow, flow_run.parameters, found.parameters)
    return DeployedRun(str(found.id), request.superworkflow.name, found.name, tuple(changed), request.inputs_digest())


def nothing_new(request: Request, tracker: Tracker, deployed: DeployedRun) -> State[RunRecord] | None:
    """The end of a run whose inputs and parameters are those of the last one of its deployment that finished.

    None where a dataset has been removed since, or where the run was started with other parameters.
    """
    if deployed.changed or tracker.last_inputs(deployed.id) != deployed.inputs:
        return None
    if not request.registration.warm_start and not request.is_complete():
        return None  # of a warm start, what it started from is not known here
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    flow_run_id, name = str(context.flow_run.id), context.flow_run.name
    tags = {**deployed.tags(), "superworkflow.flow_run_id": flow_run_id}
    tracker.unchanged(name, request.superworkflow.name, tags)
    record = RunRecord("", flow_run_id, request.store.uri, name, request.superworkflow.name)
    message = "all inputs and parameters are those of the last run of this deployment that finished"
    return Completed(name=UNCHANGED_STATE, message=message, data=record)
