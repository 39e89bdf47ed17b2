"""Dead launchers and billing, without a cluster."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from superworkflow.infra.config.usage import Holding, held
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.base import Attempt
from superworkflow.infra.launch.kubernetes import ownership
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.billing_ledger import FOLDER, BillingLedger, LedgerEntry
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.storage.store import Store

UID = "01234567-89ab-cdef-0123-456789abcdef"
ENTRY = LedgerEntry(uid=UID, job="sw-walk-1", launcher="l1", process="{}", resources=Resources(cpu=2, memory=1 << 30))


class _Api:
    """Answers with one heartbeat after another, each as late as it says; the last for ever."""

    def __init__(self, *answers: tuple[str | None, float]):
        self._answers = list(answers)
        self.asked = 0

    async def items(self, path: str, **query: str) -> list[Json]:
        beat, late = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self.asked += 1
        await asyncio.sleep(late)
        return [] if beat is None else [{"metadata": {"name": "j", "annotations": {ownership.HEARTBEAT: beat}}}]

    jobs = "/jobs"


@pytest.mark.parametrize(
    ("answers", "dead"),
    [
        ([("1", 0)], True),
        ([("1", 0), ("1", 0), ("2", 0)], False),
        ([(None, 0)], True),
        ([(None, 0), ("1", 0)], False),
        ([("1", 0), ("1", 2), ("2", 0)], False),  # the API was away for longer than a dead one is silent
    ],
)
def test_dead_is_who_was_seen_to_be_silent(answers: list[Any], dead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "DEAD_SECONDS", 1.0)
    monkeypatch.setattr(ownership, "LOOK_SECONDS", 0.1)
    api = _Api(*answers)
    assert asyncio.run(ownership.is_dead(cast("KubernetesApi", api), "l", "")) is dead
    assert api.asked >= (6 if dead else len(answers))  # each look counts for no more than two pauses


def test_each_job_is_booked_once(store: Store) -> None:
    store.root.make()
    ledger = BillingLedger(store.location("walk", "d" * 32).uri)
    assert ledger.debts() == []
    ledger.write(ENTRY)
    assert ledger.debts() == [ENTRY]
    assert not ledger.booked(UID)
    ended = ENTRY.model_copy(update={"seconds": 2.5, "reason": Reason.OUT_OF_MEMORY})
    ledger.write(ended)
    assert ledger.debts() == [ended]
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(lambda _: ledger.book(UID), range(8))) == [False] * 7 + [True]
    assert ledger.booked(UID)
    assert ledger.debts() == []
    ledger.write(ended)
    assert ledger.debts() == []


def test_what_members_held_is_in_the_ledger(store: Store) -> None:
    store.root.make()
    ledger = BillingLedger(store.location("walk", "d" * 32).uri)
    member = Holding(role="executor", resources=Resources(cpu=4), begin_s=12, end_s=80, count=2)
    ended = ENTRY.model_copy(update={"seconds": 90.0, "holdings": (*held(ENTRY.resources, 90), member)})
    ledger.write(ended)
    assert ledger.debts() == [ended]


def test_entries_of_versions_without_holdings_are_paid_for_in_full(store: Store) -> None:
    """As they were written: all that the Job asked for, for as long as its own pod ran."""
    resources = {"cpu": 1.0, "memory": 2 << 30, "gpu": {"count": 0, "type": None}, "ephemeral_storage": 0, "shm": 0,
                 "executors": {"count": 2, "cpu": 4.0, "memory": 8 << 30}}  # fmt: skip
    old = {"uid": UID, "job": "sw-walk-1", "launcher": "l1", "process": "", "resources": resources, "seconds": 90.0,
           "reason": None}  # fmt: skip
    store.root.make()
    store.root.join(FOLDER, "walk", "d" * 32).make()
    store.root.join(FOLDER, "walk", "d" * 32, f"{UID}.json").write_atomic(json.dumps(old))
    (entry,) = BillingLedger(store.location("walk", "d" * 32).uri).debts()
    assert entry.seconds == 90
    attempt = Attempt(entry.resources, entry.seconds, entry.reason, entry.uid, entry.holdings)
    assert [(each.role, each.count, each.seconds) for each in attempt.holdings] == [("", 1, 90), ("executor", 2, 90)]


@pytest.mark.parametrize(
    "changed",
    [{"job": "../../pods/x"}, {"uid": "x"}, {"uid": UID.replace("0", "1")}, {"seconds": -1}, {"seconds": "Infinity"},
     {"seconds": 1e12}, {"resources": {"cpu": -1}}, {"reason": "none-such"}, {"launcher": "a/b"},
     {"holdings": [{"resources": {}, "end_s": "Infinity"}]}, {"holdings": [{"resources": {}, "end_s": 1}] * 10_001}],
)  # fmt: skip
def test_entries_that_somebody_edited_are_nothing(store: Store, changed: dict[str, Any]) -> None:
    store.root.make()
    ledger = BillingLedger(store.location("walk", "d" * 32).uri)
    ledger.write(ENTRY)
    place = store.root.join(FOLDER, "walk", "d" * 32, f"{UID}.json")
    place.write_atomic(json.dumps({**ENTRY.model_dump(mode="json"), **changed}))
    assert ledger.debts() == []
    place.write_atomic("nonsense")
    assert ledger.debts() == []
