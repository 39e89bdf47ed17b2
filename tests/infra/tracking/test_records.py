"""Records of stages that took several attempts."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import StageFailed
from superworkflow.infra.config.prices import load_prices
from superworkflow.infra.config.request import build_request
from superworkflow.infra.config.usage import Holding, held
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.base import Attempt, Event, Launched, Launcher, StageCall
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.orchestration.run_node import run_node
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.storage.manifest import Manifest, Measurement
from superworkflow.infra.tracking.records import RunRecord, failed_record, stage_record
from tests.toy_stages import COUNT, SCALE, TOY

MEASURED = Measurement(runtime_s=8, cpu_s=4, peak_memory_bytes=1 << 20, rows=1, bytes=8)
NODE = Node("scale", SCALE, SCALE.params(), {}, "d" * 32, "scale")
MANIFEST = Manifest(stage="scale", version="3", digest="d" * 32, params={}, inputs={}, files=(), measured=MEASURED)
SMALL, LARGE = Resources(memory=1 << 30), Resources(memory=4 << 30)


def test_each_attempt_costs() -> None:
    prices = load_prices()
    attempts = (Attempt(SMALL, 30, Reason.OUT_OF_MEMORY), Attempt(LARGE, 60))
    launched = Launched(MEASURED, False, 90, attempts, {"schedule_s": 0.5}, "cpu@sha256:1")
    record = stage_record(NODE, MANIFEST, "/store/scale/d", SMALL, prices, launched)
    assert record.cost_usd == pytest.approx(prices.cost(SMALL, 30) + prices.cost(LARGE, 60))
    assert record.resources == LARGE
    assert record.runtime_s == 90
    document = record.document()
    assert [attempt["reason"] for attempt in document["attempts"]] == ["out-of-memory", None]
    assert sum(attempt["cost_usd"] for attempt in document["attempts"]) == pytest.approx(record.cost_usd)
    assert document["figures"] == {"schedule_s": 0.5}
    assert document["image"] == "cpu@sha256:1"


def test_each_group_costs_for_as_long_as_it_was_held() -> None:
    prices = load_prices()
    small = Holding(role="executor", resources=SMALL, begin_s=10, end_s=25, count=4)
    first = (*held(LARGE, 30), small)
    attempts = (Attempt(LARGE, 30, Reason.OUT_OF_MEMORY, holdings=first), Attempt(LARGE, 60))
    record = stage_record(NODE, MANIFEST, "/store/scale/d", LARGE, prices, Launched(MEASURED, False, 90, attempts))
    assert record.cost_usd == pytest.approx(prices.cost(LARGE, 90) + 4 * prices.cost(SMALL, 15))
    assert [(each.role, each.begin_s, each.end_s) for each in record.holdings] == [
        ("", 0, 30), ("executor", 10, 25), ("", 30, 90),
    ]  # fmt: skip
    described = record.document()["holdings"]
    assert [Holding.model_validate(each) for each in described] == list(record.holdings)
    run = RunRecord("r", "f", "store", "name", "toy", [record])
    run.close(prices, 90)
    assert run.unified_usd == pytest.approx(prices.cost(LARGE, 90) + 4 * prices.cost(SMALL, 90))


def test_compiling_kernels_is_told_and_not_priced() -> None:
    prices = load_prices()
    measured = MEASURED.model_copy(update={"compile_s": 41.0})
    manifest = MANIFEST.model_copy(update={"measured": measured})
    here = stage_record(NODE, manifest, "/store/scale/d", SMALL, prices, Launched(measured, False, 50))
    assert (here.runtime_s, here.compile_s) == (9, 41)
    assert here.compile_usd == pytest.approx(here.cost_usd * 41 / 9)
    assert here.cost_usd == pytest.approx(prices.cost(SMALL, 9))
    attempts = (Attempt(SMALL, 30, Reason.OUT_OF_MEMORY), Attempt(LARGE, 60))  # the first one is not known to compile
    retried = stage_record(NODE, manifest, "/store/scale/d", SMALL, prices, Launched(measured, False, 90, attempts))
    assert retried.cost_usd == pytest.approx(prices.cost(SMALL, 30) + prices.cost(LARGE, 19))
    assert retried.document()["compile_s"] == 41
    run = RunRecord("r", "f", "store", "name", "toy", [here])
    assert (run.totals()["seconds"], run.totals()["compile_seconds"]) == (9, 41)
    cached = stage_record(NODE, manifest, "/store/scale/d", SMALL, prices, None)
    assert (cached.compile_s, cached.saved_s) == (0, 8)


def test_memory_is_the_containers_where_there_is_one() -> None:
    measured = MEASURED.model_copy(update={"container_peak_memory_bytes": 700 << 10})
    manifest = MANIFEST.model_copy(update={"measured": measured})
    launched = Launched(measured, False, 10)
    record = stage_record(NODE, manifest, "/store/scale/d", SMALL, load_prices(), launched)
    assert measured.memory_bytes == record.peak_memory_bytes == record.document()["peak_memory_bytes"] == 700 << 10
    assert MEASURED.memory_bytes == 1 << 20


def test_waiting_for_another_run_costs_what_was_held_meanwhile() -> None:
    prices = load_prices()
    for attempts in (Attempt(SMALL, 90, uid="u"),), ():
        record = stage_record(NODE, MANIFEST, "/store/scale/d", SMALL, prices, Launched(MEASURED, True, 90, attempts))
        assert record.state == "cached"
        assert record.cost_usd == pytest.approx(prices.cost(SMALL, 90))
        assert record.runtime_s == 90
        assert record.rows_per_s == 0


def test_what_was_there_costs_nothing() -> None:
    record = stage_record(NODE, MANIFEST, "/store/scale/d", SMALL, load_prices(), None)
    assert (record.state, record.cost_usd, record.runtime_s) == ("cached", 0, 0)


def test_a_failed_stage_costs_what_its_attempts_held() -> None:
    prices, error = load_prices(), StageFailed("scale", "it ran out of memory.")
    error.attempts = (Attempt(SMALL, 30, Reason.OUT_OF_MEMORY, "u1"), Attempt(LARGE, 60, Reason.OUT_OF_MEMORY, "u2"))
    record = failed_record(NODE, "/store/scale/d", SMALL, prices, error)
    assert (record.state, record.rows, record.runtime_s, record.resources) == ("failed", 0, 90, LARGE)
    assert record.cost_usd == pytest.approx(prices.cost(SMALL, 30) + prices.cost(LARGE, 60))
    assert [attempt["uid"] for attempt in record.attempts] == ["u1", "u2"]
    assert "out of memory" in record.error
    assert failed_record(NODE, "/store/scale/d", SMALL, prices, StageFailed("scale", "no image.")).cost_usd == 0


def test_one_attempt_on_the_resources_of_the_profile() -> None:
    prices = load_prices()
    record = stage_record(NODE, MANIFEST, "/store/scale/d", SMALL, prices, Launched(MEASURED, False, 10))
    assert record.cost_usd == pytest.approx(prices.cost(SMALL, 10))
    assert record.attempts == ()


class _Killed(Launcher):
    def launch(self, call: StageCall, on_event: Callable[[Event], None]) -> Launched:
        error = StageFailed(call.node, "it was killed.")
        error.attempts = (Attempt(LARGE, 60, Reason.KILLED, "u"),)
        raise error

    def cancel(self) -> None: ...


def test_a_stage_that_fails_says_what_is_to_be_recorded(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("1\n2\n")
    request = build_request(TOY, sources={"text": str(tmp_path / "text")}, store=str(tmp_path / "store"))
    with pytest.raises(StageFailed) as raised:
        run_node(request.diagram.nodes["count"], request, _Killed(), lambda event: None, {})
    record = raised.value.record
    assert record is not None
    assert (record.name, record.state, record.digest) == ("count", "failed", request.diagram.nodes["count"].digest)
    assert record.cost_usd == pytest.approx(request.prices.cost(LARGE, 60))


class _Debts(Launcher):
    """Runs nothing, and has these attempts of runs that died."""

    def __init__(self, *attempts: Attempt):
        self._attempts = attempts

    def launch(self, call: StageCall, on_event: Callable[[Event], None]) -> Launched:
        raise AssertionError("its dataset is there")

    def claim_orphans(self, output: str) -> tuple[Attempt, ...]:
        return self._attempts

    def cancel(self) -> None: ...


@pytest.mark.parametrize(("reason", "state"), [(None, "ran"), (Reason.OUT_OF_MEMORY, "cached")])
def test_what_ran_for_a_run_that_died_is_recorded_by_the_next(
    tmp_path: Path, reason: Reason | None, state: str
) -> None:
    (tmp_path / "text").write_text("1\n2\n")
    request = build_request(TOY, sources={"text": str(tmp_path / "text")}, store=str(tmp_path / "store"))
    node = request.diagram.nodes["count"]
    output = request.store.location("count", node.digest).uri
    progress = Progress("count", stream=io.StringIO())
    execute(COUNT, {}, {"text": str(tmp_path / "text")}, output, SMALL, progress)
    launcher = _Debts(Attempt(LARGE, 60, reason, "u"))
    record = run_node(node, request, launcher, lambda event: None, {})
    assert (record.state, record.runtime_s, record.resources) == (state, 60, LARGE)
    assert record.cost_usd == pytest.approx(request.prices.cost(LARGE, 60))
    assert (record.saved_usd > 0) == (state == "cached")
    assert run_node(node, request, _Debts(), lambda event: None, {}).cost_usd == 0
