"""A light flow that checks the sources of a deployment for changes, and starts it where there are any.

It reads sizes and times of files but no content, so it may run every few minutes. The state of the sources at the last
start is kept in a variable on Prefect's server.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from prefect import Flow, flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas import State
from prefect.client.schemas.actions import VariableCreate, VariableUpdate
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Completed

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.request import DEFAULT_STORE, parameters_of
from superworkflow.infra.contract.diagram import Diagram, Given, Node
from superworkflow.infra.contract.stage import Stage
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.orchestration.deployed_run import skip_backlog
from superworkflow.infra.orchestration.liveness import enter_flow
from superworkflow.infra.storage.digest import json_sha256
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.table_access import reach_of
from superworkflow.infra.storage.warehouse.address import TableAddress
from superworkflow.infra.storage.warehouse.snapshots import TableSnapshots

UNCHANGED_STATE, STARTED_STATE, WAITS_STATE = "Unchanged", "Started", "Waits"
QUIET_S = 60.0
"""Seconds since the last write of a local file below which it may still be being copied."""
_IN_PROGRESS = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]


def watching_flow_name(superworkflow: str) -> str:
    """Name of the flow that watches the sources of a superworkflow's deployments."""
    return f"watch-{superworkflow}"


def make_watching_flow(superworkflow: Superworkflow) -> Flow[[str, float], State[None]]:
    """The flow that watches the sources of a superworkflow's deployments; its parameter names the deployment."""

    def watch(deployment: str, quiet_s: float = QUIET_S) -> State[None]:
        enter_flow()
        skip_backlog()
        with get_client(sync_client=True) as client:
            return _look(client, superworkflow, deployment, quiet_s)

    return flow(
        name=watching_flow_name(superworkflow.name), persist_result=False,
        description=f"Starts a deployment of {superworkflow.name} when its sources have been written.",
    )(watch)  # fmt: skip


def _look(client: SyncPrefectClient, superworkflow: Superworkflow, title: str, quiet_s: float) -> State[None]:
    try:
        found = client.read_deployment_by_name(title)
    except ObjectNotFound:
        raise UserError("there is no such deployment", where="deployment", value=title) from None
    seen, written_ns = look(superworkflow, found.parameters)
    name = variable_name(found.id)
    kept = client.read_variable_by_name(name)
    if kept is not None and kept.value == seen:
        return Completed(name=UNCHANGED_STATE, message="no source has been written since it last started")
    if 0 <= time.time_ns() - written_ns < quiet_s * 1e9:  # a time in the future was set on purpose
        return Completed(name=WAITS_STATE, message=f"a source has been written within the last {quiet_s:g} s")
    if _is_running(client, found.id):
        return Completed(name=WAITS_STATE, message="sources have been written, and a run is in progress")
    run = client.create_flow_run_from_deployment(found.id)
    if kept is None:
        client.create_variable(VariableCreate(name=name, value=seen, tags=["superworkflow"]))
    else:
        client.update_variable(VariableUpdate(name=name, value=seen))
    why = "sources have been written" if kept is not None else "this is its first check"
    return Completed(name=STARTED_STATE, message=f"{why}: started {run.name}")


def variable_name(deployment: UUID) -> str:
    """Name of the variable with the state of the sources at the last start."""
    return f"superworkflow_seen_{deployment.hex}"


def look(superworkflow: Superworkflow, given: Mapping[str, Any]) -> tuple[str, int]:
    """State of a deployment's sources, without reading them.

    Args:
        superworkflow: whose deployment.
        given: the deployment's parameters, which count as well: another deployment of the same name is a change.

    Returns:
        A digest of their names, sizes and times, and when the last local file was written, in nanoseconds.

    Raises:
        UserError: a source is not there.
    """
    named = [name for name in superworkflow.sources if given.get(name) and name not in superworkflow.datasets]
    tables = {name: found for name in named if (found := TableAddress.parse(given[name])) is not None}
    sources: dict[str, Given] = {
        # A table is read as one file.
        name: Source(Location.of(name), is_folder=False)
        if name in tables
        else Source.of(given[name], reach=reach_of(given[name], chosen=False))
        for name in named
    }
    settings = {prefix: given[prefix] for prefix in superworkflow.models() if given.get(prefix)}
    params = parameters_of(superworkflow, parameters=settings)
    sketch = _Opening(params, params[superworkflow.name])
    superworkflow.diagram(sketch, **{name: sources.get(name) for name in superworkflow.sources})
    states = {name: each.states() for name, each in sources.items() if isinstance(each, Source) and name not in tables}
    prints = {
        name: {path: state.fingerprint for path, state in sorted(members.items())} for name, members in states.items()
    }
    with TableSnapshots(given.get("store") or DEFAULT_STORE) as snapshots:
        versions = {name: snapshots.state(replace(address, deployed=True)) for name, address in tables.items()}
    identity = {"sources": prints, "parameters": dict(given), **({"tables": versions} if tables else {})}
    written = max((state.changed_ns for members in states.values() for state in members.values()), default=0)
    return json_sha256(identity), written


class _Opening(Diagram):
    """Opens each source as its stage declares it, without digests, for which content would be read."""

    def stage(
        self, stage: Stage[Any], *, name: str | None = None, params: str | None = None,
        defaults: Mapping[str, Any] | None = None, **inputs: Node | Given | None,
    ) -> Node:  # fmt: skip
        for key, value in inputs.items():
            if isinstance(value, Source):
                stage.inputs[key].open(value)
        node = Node(name or stage.name, stage, self._params[params or stage.name], {}, "", params or stage.name)
        self.nodes[node.name] = node
        return node


def _is_running(client: SyncPrefectClient, deployment: UUID) -> bool:
    """True if a run of the deployment is in progress or scheduled."""
    found = FlowRunFilter.model_validate(
        {"deployment_id": {"any_": [deployment]}, "state": {"type": {"any_": _IN_PROGRESS}}}
    )
    return bool(client.read_flow_runs(flow_run_filter=found, limit=1))
