"""Pruning as a Prefect flow, and its deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefect import Flow, flow, get_run_logger
from prefect.artifacts import create_table_artifact
from prefect.client.schemas import State
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
from prefect.states import Completed

from superworkflow.infra.config.profile import load_profile
from superworkflow.infra.contract.resources import format_bytes
from superworkflow.infra.orchestration.deployment import PoolType, Registered, Schedule, ensure_pool, reached_server
from superworkflow.infra.orchestration.liveness import enter_flow
from superworkflow.infra.orchestration.pruning import Pruner
from superworkflow.infra.orchestration.server import page
from superworkflow.infra.storage.store import Store
from superworkflow.infra.tracking.mlflow_tracker import default_tracking_uri
from superworkflow.infra.tracking.pruning import Keep

FLOW = "prune"


def make_pruning_flow() -> Flow[..., State[None]]:
    """The flow that prunes a store and the records of its runs."""

    def prune(store: str, keep: str = "champions,30d", profile: str = "laptop") -> State[None]:
        enter_flow()
        logger, place = get_run_logger(), Store(store)
        pruner = Pruner(place, default_tracking_uri(place.root), Keep.parse(keep), load_profile(profile))
        done = pruner.remove(logger.info, lambda found: logger.info("to remove: %s", found))
        for note in done.notes:
            logger.warning("%s", note)
        rows = [{"kind": kind, "removed": number, "size": format_bytes(size)} for kind, number, size in done.rows]
        create_table_artifact(key="pruned", table=rows, description=f"{done}. Kept by `{keep}`.")
        return Completed(message=f"removed {done}")

    description = "Removes datasets, checkpoints and records that nothing kept refers to."
    return flow(name=FLOW, description=description, persist_result=False)(prune)


@dataclass(frozen=True)
class PruningDeployment:
    """Deployment of the flow.

    Args:
        name: of the deployment.
        entrypoint: import path of the flow where it will run.
        pull_step: import path of a function to run first, see `Deployment`.
        parameters: values of the flow's parameters.
        pool: name of the work pool.
        pool_type: its type.
        variables: values for the variables of the pool's template.
        schedule: when it runs by itself, if it does.
        version: of the project.
    """

    name: str
    entrypoint: str
    pull_step: str
    parameters: Mapping[str, Any]
    pool: str
    pool_type: PoolType
    variables: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule | None = None
    version: str | None = None


def register_pruning(deployment: PruningDeployment) -> Registered:
    """Create or update the deployment.

    Raises:
        UserError: no server, a pool of another type, or what the server refuses.
    """
    made_flow = make_pruning_flow()
    with reached_server() as client:
        _, pool_created = ensure_pool(client, deployment.pool, deployment.pool_type, False)
        made = client.create_deployment(
            flow_id=client.create_flow_from_name(FLOW),
            name=deployment.name, version=deployment.version, description=made_flow.description,
            entrypoint=deployment.entrypoint, parameters=dict(deployment.parameters),
            parameter_openapi_schema=made_flow.parameters.model_dump(exclude_unset=True),
            enforce_parameter_schema=True, work_pool_name=deployment.pool, job_variables=dict(deployment.variables),
            schedules=[DeploymentScheduleCreate(schedule=deployment.schedule)] if deployment.schedule else [],
            concurrency_limit=1,
            concurrency_options=ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
            pull_steps=[{deployment.pull_step: {}}], tags=["superworkflow"],
        )  # fmt: skip
    return Registered(str(made), page(f"deployments/deployment/{made}"), True, pool_created)
