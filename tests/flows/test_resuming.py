"""Flow runs whose worker ended, on a real Prefect server: some are requeued, others closed."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas import State
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Completed, Crashed, Pending, Running

from superworkflow.infra.orchestration.leases import ConcurrencyLeaseStorage
from superworkflow.infra.orchestration.requeue import MOST_STARTS, WORKER_LABEL, hand_back, resume_left
from superworkflow.infra.process.heartbeat import GRACE_SECONDS, signature
from tests.flows.deployments import eventually


@flow(name="left", persist_result=False)
def _left() -> None:
    """Never run."""


class Pool:
    """A work pool, and flow runs as workers leave them."""

    def __init__(self, client: SyncPrefectClient):
        self.client, self.name = client, f"pool-{uuid4().hex[:8]}"
        client.create_work_pool(WorkPoolCreate(name=self.name, type="process"))

    def appears(self, worker: str) -> None:
        body = {"name": worker, "heartbeat_interval_seconds": 30}
        self.client.request("POST", "/work_pools/{work_pool_name}/workers/heartbeat",
                            path_params={"work_pool_name": self.name}, json=body)  # fmt: skip

    def left(self, worker: str, *states: State[None]) -> UUID:
        """A flow run of this worker that has been in these states."""
        run = self.client.create_flow_run(_left, state=Pending(), work_pool_name=self.name).id
        if worker:
            self.client.update_flow_run_labels(run, {WORKER_LABEL: worker})
        for state in states:
            self.client.set_flow_run_state(run, state, force=True)
        return run

    def state(self, run: UUID) -> str:
        return str(self.client.read_flow_run(run).state_name)


@pytest.fixture
def pool(prefect_api: str) -> Iterator[Pool]:
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
        yield Pool(client)


def test_what_a_dead_worker_had_goes_on(pool: Pool) -> None:
    assert resume_left(pool.client, "no-such-pool", "w") == []
    pool.appears("w")
    running, claimed, unlabelled = pool.left("w", Running()), pool.left("w"), pool.left("")
    cancelling, done = pool.left("w", Running(), Cancelling()), pool.left("w", Running(), Completed())
    deadly = pool.left("w", *[Running(), Pending()] * (MOST_STARTS - 1), Running())
    alive = pool.left("w", Running())
    pool.client.update_flow_run_labels(alive, dict(signature()))
    assert set(resume_left(pool.client, pool.name, "w")) == {running, claimed, unlabelled}
    assert {pool.state(each) for each in (running, claimed, unlabelled)} == {"AwaitingRetry"}
    assert (pool.state(cancelling), pool.state(done), pool.state(deadly)) == ("Cancelled", "Completed", "Crashed")
    assert pool.state(alive) == "Running"
    assert resume_left(pool.client, pool.name, "w") == []


def test_what_other_workers_have_is_left_to_them(pool: Pool) -> None:
    for each in ("w", "other"):
        pool.appears(each)
    others = [pool.left("other", Running()), pool.left("")]
    assert resume_left(pool.client, pool.name, "w") == []
    assert [pool.state(each) for each in others] == ["Running", "Pending"]


def test_a_worker_that_is_told_to_end_hands_back_what_it_has_ended(pool: Pool) -> None:
    crashed, running = pool.left("w", Running(), Crashed()), pool.left("w", Running())
    ended = [pool.left("w", Running(), Completed()), pool.left("w", Running(), Cancelling())]
    assert hand_back(pool.client, [crashed, running, *ended]) == [crashed, running]
    assert [pool.state(each) for each in ended] == ["Completed", "Cancelled"]


def test_an_interrupted_run_keeps_its_place(pool: Pool) -> None:
    """The next scheduled run was claimed a moment after it had ended, and has the only slot."""
    flow_id = pool.client.create_flow_from_name("left")
    every = IntervalSchedule(interval=timedelta(seconds=10))
    deployment = pool.client.create_deployment(
        flow_id, f"nightly-{uuid4().hex[:6]}", work_pool_name=pool.name, concurrency_limit=1,
        concurrency_options=ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
        schedules=[DeploymentScheduleCreate(schedule=every)],
    )  # fmt: skip

    def due(limit: int) -> list[UUID]:
        which = {"deployment_id": {"any_": [deployment]}, "expected_start_time": {"before_": datetime.now(UTC)}}
        found = pool.client.read_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate(which), sort=FlowRunSort.EXPECTED_START_TIME_ASC, limit=limit
        )
        return [run.id for run in found if run.auto_scheduled]

    eventually(lambda: len(due(1)) == 1)
    (interrupted,) = due(1)
    for state in (Pending(), Running()):
        pool.client.set_flow_run_state(interrupted, state)
    eventually(lambda: len(due(2)) == 2)
    follower = due(2)[1]
    pool.client.set_flow_run_state(interrupted, Crashed())
    pool.client.set_flow_run_state(follower, Pending())
    assert pool.state(follower) == "Pending"
    assert hand_back(pool.client, [interrupted]) == [interrupted]
    assert (pool.state(interrupted), pool.state(follower)) == ("AwaitingRetry", "Skipped")
    pool.client.set_flow_run_state(interrupted, Pending())
    assert pool.state(interrupted) == "Pending", "its slot is free"
    pool.client.delete_deployment(deployment)


def test_a_place_outlasts_a_server_that_is_away_for_minutes(tmp_path: Path) -> None:
    async def renewed() -> timedelta:
        lease = await ConcurrencyLeaseStorage(tmp_path).create_lease([uuid4()], timedelta(seconds=1))
        again = ConcurrencyLeaseStorage(tmp_path)  # of a server that was restarted
        assert await again.renew_lease(lease.id, timedelta(seconds=300))
        found = await again.read_lease(lease.id)
        assert found is not None
        return found.expiration - lease.expiration

    assert asyncio.run(renewed()) > timedelta(seconds=GRACE_SECONDS - 10)
