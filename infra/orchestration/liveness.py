"""Liveness of flow runs: a process prepares itself, sends heartbeats, and closes the runs of dead processes.

A run whose process died without reporting to Prefect is closed by a later run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import StateType
from prefect.states import Crashed

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.base.masking import mask_log
from superworkflow.infra.orchestration.deployed_run import current_flow_run
from superworkflow.infra.process.heartbeat import Heartbeat, is_dead, last_sign, sign, signature
from superworkflow.infra.process.interrupt import take_signals_back


def enter_flow() -> None:
    """Prepare a flow's process: take back the signals that Prefect's engine has taken, and guard its log."""
    take_signals_back()
    for name in ("prefect", "prefect.flow_runs", "prefect.task_runs"):
        for handler in logging.getLogger(name).handlers:
            handler.addFilter(_as_sentence)
        mask_log(name)


def _as_sentence(record: logging.LogRecord) -> bool:
    """Log an error of this project, which says what to do, without the traceback that Prefect adds."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, SuperworkflowError) and error.__cause__ is None:
        record.msg, record.args, record.exc_info = str(error), (), None
    return True


@contextlib.contextmanager
def signs_of_life() -> Iterator[None]:
    """Send heartbeats of the current flow run to the server, and close the runs of dead processes."""
    run = current_flow_run()
    own, outermost = run.id, run.parent_task_run_id is None

    def first() -> None:
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(own, dict(signature()))
            if outermost:
                close_dead_flow_runs(client)

    def beat() -> None:
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(own, dict(sign()))

    heart = Heartbeat(beat, first)
    try:
        yield
    finally:
        heart.stop()


def close_dead_flow_runs(client: SyncPrefectClient) -> list[UUID]:
    """Close what dead processes have left running; ids of those flow runs."""
    running = FlowRunFilter.model_validate({"state": {"type": {"any_": [StateType.RUNNING]}}})
    found = client.read_flow_runs(flow_run_filter=running)
    dead = {run.id: _died(last_sign(run.labels)) for run in found if is_dead(run.labels)}
    for run, died in dead.items():
        close_task_runs(client, run, died)
        client.set_flow_run_state(run, Crashed(message=died), force=True)
    return list(dead)


def close_task_runs(client: SyncPrefectClient, run: UUID, why: str) -> None:
    """Close those of a flow run's tasks that its process has left open."""
    tasks = client.read_task_runs(
        flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [run]}}),
        task_run_filter=TaskRunFilter.model_validate(
            {"state": {"type": {"any_": [StateType.RUNNING, StateType.PENDING]}}}
        ),
    )
    for task in tasks:
        client.set_task_run_state(task.id, Crashed(message=why), force=True)


def _died(last: float | None) -> str:
    """Message of their state. The server takes the time of the report for their end, and lets no client set it."""
    if last is None:
        return "Its process died."
    return f"Its process died; it was last seen at {datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M:%S} UTC."
