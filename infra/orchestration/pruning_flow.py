"""Pruning as a Prefect flow, and its deployment."""

from __future__ import annotations

from dataclasses import replace

from prefect import Flow, flow, get_run_logger
from prefect.artifacts import create_table_artifact
from prefect.client.schemas import State
from prefect.states import Completed

from superworkflow.infra.config.profile import load_profile
from superworkflow.infra.contract.resources import format_bytes
from superworkflow.infra.orchestration.deployment import FlowDeployment, Registered, ensure_pool, reached_server
from superworkflow.infra.orchestration.liveness import enter_flow
from superworkflow.infra.orchestration.pruning import Pruner
from superworkflow.infra.orchestration.server import page
from superworkflow.infra.storage.store import Store
from superworkflow.infra.tracking.pruning import Keep
from superworkflow.infra.tracking.uris import default_tracking_uri

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


def register_pruning(deployment: FlowDeployment) -> Registered:
    """Create or update a deployment of the flow, of which one run at a time is in progress.

    Raises:
        UserError: no server, a pool of another type, or what the server refuses.
    """
    made_flow, own = make_pruning_flow(), replace(deployment, concurrency_limit=1)
    with reached_server() as client:
        _, pool_created = ensure_pool(client, own.pool, own.pool_type, False)
        made = own.create(client, FLOW, made_flow.description, made_flow.parameters)
    return Registered(str(made), page(f"deployments/deployment/{made}"), True, pool_created)
