"""What is recorded of a stage that took several attempts."""

from __future__ import annotations

import pytest

from infra.cost import load_prices
from infra.diagram import Node
from infra.launch.base import Attempt, Launched
from infra.launch.exit_status import Reason
from infra.manifest import Manifest, Measurement
from infra.records import RunRecord, stage_record
from infra.resources import Resources
from tests.toy_stages import SCALE

MEASURED = Measurement(runtime_s=8, cpu_s=4, peak_memory_bytes=1 << 20, rows=1, bytes=8)
NODE = Node("scale", SCALE, SCALE.params(), {}, "d" * 32)
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


def test_compiling_kernels_is_told_and_not_priced() -> None:
    prices = load_prices()
    measured = MEASURED.model_copy(update={"compile_s": 41.0})
    manifest = MANIFEST.model_copy(update={"measured": measured})
    here = stage_record(NODE, manifest, "/store/scale/d", SMALL, prices, Launched(measured, False, 50))
    assert (here.runtime_s, here.compile_s) == (9, 41)
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


def test_what_another_run_made_costs_nothing() -> None:
    launched = Launched(MEASURED, True, 90, (Attempt(SMALL, 90),))
    record = stage_record(NODE, MANIFEST, "/store/scale/d", SMALL, load_prices(), launched)
    assert record.state == "cached"
    assert record.cost_usd == 0


def test_one_attempt_on_the_resources_of_the_profile() -> None:
    prices = load_prices()
    record = stage_record(NODE, MANIFEST, "/store/scale/d", SMALL, prices, Launched(MEASURED, False, 10))
    assert record.cost_usd == pytest.approx(prices.cost(SMALL, 10))
    assert record.attempts == ()
