"""Requeue flow runs whose worker ended before they did: they continue, with the same id, once a worker is there.

Finished stages of such a run are in the store, so that it resumes where it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas import State
from prefect.client.schemas.filters import FlowRunFilter, WorkPoolFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry, Cancelled, Crashed

from superworkflow.infra.orchestration.deployed_run import skip_due
from superworkflow.infra.orchestration.liveness import close_task_runs
from superworkflow.infra.process.heartbeat import is_alive

WORKER_LABEL = "prefect.worker.name"
"""Label of a run: name of the worker that started it."""
MOST_STARTS = 3
"""Starts of a run whose worker died each time, after which it is not started again."""
_OPEN = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


def resume_left(client: SyncPrefectClient, pool: str, worker: str) -> list[UUID]:
    """On start-up, requeue the runs that the previous worker of this name left behind.

    No two workers of a pool may have this name at a time. A run that has outlived its worker on this machine is left
    to itself.

    Returns:
        Ids of the requeued runs.
    """
    try:
        client.read_work_pool(pool)
    except ObjectNotFound:  # its first start makes the pool
        return []
    names = {each.name for each in client.read_workers_for_work_pool(pool)}
    found = client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": _OPEN}}}),
        work_pool_filter=WorkPoolFilter.model_validate({"name": {"any_": [pool]}}),
    )
    alone = names <= {worker}  # a run is claimed a moment before it is labelled
    ours = [run for run in found if run.labels.get(WORKER_LABEL, worker if alone else "") == worker]
    return _requeue(client, [run for run in ours if not is_alive(run.labels)])


def hand_back(client: SyncPrefectClient, runs: Iterable[UUID]) -> list[UUID]:
    """Before a requested shutdown, requeue the runs that this worker interrupted.

    Returns:
        Ids of the requeued runs; those that have ended by themselves are not among them.
    """
    left = [client.read_flow_run(run) for run in runs]
    return _requeue(client, [run for run in left if run.state_type in (*_OPEN, StateType.CRASHED)], requested=True)


def _requeue(client: SyncPrefectClient, runs: Iterable[FlowRun], requested: bool = False) -> list[UUID]:
    resumed = []
    for run in runs:
        close_task_runs(client, run.id, "The worker of this run ended.")
        if run.state_type == StateType.CANCELLING:
            state: State[None] = Cancelled(message="It was being cancelled when its worker ended.")
        elif run.run_count >= MOST_STARTS and not requested:
            state = Crashed(message=f"Its worker died each of the {run.run_count} times that it was started.")
        else:
            state = AwaitingRetry(message="Its worker ended; what it has finished is cached.")
            resumed.append(run.id)
        client.set_flow_run_state(run.id, state, force=True)
        if run.id in resumed:
            skip_due(client, run, later=True)
    return resumed
