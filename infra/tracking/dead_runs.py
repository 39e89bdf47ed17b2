"""Runs in MLflow whose process died without closing them: closed by those that come after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from superworkflow.infra.process.heartbeat import BEAT, is_dead, last_sign, sign
from superworkflow.infra.tracking.tags import ERROR_TAG, PARENT_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

DIED = "its process died"


def close_dead_runs(client: MlflowClient, experiment: str) -> list[str]:
    """Close what dead processes have left running; ids of those runs."""
    open_runs = _search(client, experiment, f"tags.`{BEAT}` != ''")
    dead = [run.info.run_id for run in open_runs if is_dead(run.data.tags)]
    for run in open_runs:
        if run.info.run_id in dead:
            _close(client, run)
            for stage in _search(client, experiment, f"tags.`{PARENT_TAG}` = '{run.info.run_id}'"):
                if BEAT not in stage.data.tags:
                    _close(client, stage, last_sign(run.data.tags))
    return dead


def give_sign(client: MlflowClient, run_id: str) -> None:
    """Record a heartbeat of a run, and reopen it where another run has closed it as dead."""
    for name, value in sign().items():
        client.set_tag(run_id, name, value)
    run = client.get_run(run_id)
    if run.info.status != "RUNNING" and run.data.tags.get(ERROR_TAG) == DIED:
        client.update_run(run_id, status="RUNNING")
        client.delete_tag(run_id, ERROR_TAG)


def _search(client: MlflowClient, experiment: str, which: str) -> list[Run]:
    return list(client.search_runs([experiment], f"attributes.status = 'RUNNING' and {which}"))


def _close(client: MlflowClient, run: Run, last: float | None = None) -> None:
    from superworkflow.infra.tracking.concurrent_writes import among_rivals  # imports MLflow

    when = last_sign(run.data.tags) or last
    among_rivals(lambda: client.set_tag(run.info.run_id, ERROR_TAG, DIED))
    # Signs are in whole seconds: the first of a run that died at once is older than its start.
    end = None if when is None else max(int(when * 1000), run.info.start_time)
    client.set_terminated(run.info.run_id, status="FAILED", end_time=end)
