"""Flow runs whose worker ended, on a real Prefect server: some are requeued, others closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas import State
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Completed, Crashed, Pending, Running

from superworkflow.infra.orchestration.leases import ConcurrencyLeaseStorage
from superworkflow.infra.orchestration.requeue import MOST_STARTS, WORKER_LABEL, hand_back, resume_left
from superworkflow.infra.process.heartbeat import GRACE_SECONDS, signature


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


def test_a_place_outlasts_a_server_that_is_away_for_minutes(tmp_path: Path) -> None:
    async def renewed() -> timedelta:
        lease = await ConcurrencyLeaseStorage(tmp_path).create_lease([uuid4()], timedelta(seconds=1))
        again = ConcurrencyLeaseStorage(tmp_path)  # of a server that was restarted
        assert await again.renew_lease(lease.id, timedelta(seconds=300))
        found = await again.read_lease(lease.id)
        assert found is not None
        return found.expiration - lease.expiration

    assert asyncio.run(renewed()) > timedelta(seconds=GRACE_SECONDS - 10)
