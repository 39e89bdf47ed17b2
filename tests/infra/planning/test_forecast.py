"""Forecasts from records that are given, and from those that real launches leave."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.config.profile import Placement, Profile
from superworkflow.infra.config.request import Request, build_request
from superworkflow.infra.contract.resources import Executors, Gpu, Resources
from superworkflow.infra.contract.stage import Estimate, Input, Stage, Stats
from superworkflow.infra.engines.spark import _BEGINNING, _JAVA_BYTES
from superworkflow.infra.launch.base import Event
from superworkflow.infra.launch.local import fork_client
from superworkflow.infra.launch.local.launcher import ProcessLauncher
from superworkflow.infra.orchestration.run_node import run_node
from superworkflow.infra.planning.forecast import (
    CONTAINER_SHARE,
    FORK_S,
    FORKED_BYTES,
    FORKED_START,
    Forecast,
    Forecaster,
)
from superworkflow.infra.planning.launch_history import FOLDER, History, LaunchRecord
from superworkflow.infra.planning.plan import plan
from superworkflow.infra.process.resource_usage import processor
from superworkflow.infra.storage.location import Location
from tests.infra.planning.test_launch_history import launch_record
from tests.toy_stages import SCALE

MIB = 1 << 20
HERE = Profile(name="here")
CLUSTER = Profile.model_validate({"name": "cluster", "launcher": "kubernetes", "kubernetes": {"pod_start_s": 7}})
ON_TWO = Placement(resources=Resources(cpu=2, memory=1 << 30))


def _estimate(params: Any, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """A second of start and one for each line, half of it parallel; 100 MiB and one for each line."""
    lines = int(inputs["number"]["lines"] or 0)
    return Estimate(
        memory_bytes=(100 + lines) * MIB, cpu_s=1.0 + lines, output_bytes=lines * MIB, parallel=0.5, start_s=1.0,
        base_bytes=100 * MIB, kind="odd" if inputs["number"].get("odd") else "",
    )  # fmt: skip


STAGE: Stage[Any] = Stage(
    "scale", "no:where", {"number": Input("count dataset")}, SCALE.params, "3", estimate=_estimate
)


def _record(lines: int = 10, *, factor: float = 2.0, **more: Any) -> LaunchRecord:
    """A launch that took `factor` times as long as a process should: a tenth of its start, and a second a line."""
    cpu_s = factor * (FORKED_START + lines)
    given = {
        "processor": processor(), "resources": Resources(cpu=2), "inputs": {"number": {"lines": lines}},
        "cpu_s": cpu_s, "runtime_s": factor * (FORKED_START + 0.75 * lines), "wait_s": 0.2,
        "memory_bytes": FORKED_BYTES + 2 * lines * MIB,
    }  # fmt: skip
    return launch_record(**(given | more))


def _forecast(
    folder: Path, *records: LaunchRecord, lines: int = 20, profile: Profile = HERE, placement: Placement = ON_TWO
) -> Forecast:
    for record in records:
        History(Location.of(folder)).add("scale", record)
    forecaster = Forecaster(History(Location.of(folder)), profile, ["scale", "scale", "count"])
    return forecaster.of(STAGE, SCALE.params(), {"number": {"lines": lines}}, placement)


def test_built_in(tmp_path: Path) -> None:
    here = _forecast(tmp_path)
    assert here.runs == 0
    assert here.cpu_s == pytest.approx(FORKED_START + 20)
    assert here.runtime_s == pytest.approx(FORKED_START + 15)
    assert here.wait_s == FORK_S
    assert here.memory_bytes == here.needed_bytes == FORKED_BYTES + 20 * MIB
    there = _forecast(tmp_path, profile=CLUSTER)
    assert (there.runs, there.cpu_s, there.runtime_s, there.wait_s) == (0, 21, 16, 7)
    # of the process's 100 MiB, then what it computes with and what it writes
    assert there.memory_bytes == CONTAINER_SHARE * 100 * MIB + 40 * MIB


def test_from_records_of_other_sizes(tmp_path: Path) -> None:
    records = [_record(lines) for lines in (0, 1, 5, 40)]
    found = _forecast(tmp_path, *records)
    assert found.runs == 4
    assert found.cpu_s == pytest.approx(2 * (FORKED_START + 20))
    assert found.runtime_s == pytest.approx(2 * (FORKED_START + 15))
    assert found.wait_s == 0.2
    assert found.memory_bytes == pytest.approx(FORKED_BYTES + 40 * MIB)
    small = _forecast(tmp_path, lines=0)
    assert small.cpu_s == pytest.approx(2 * FORKED_START)


@pytest.mark.parametrize(
    "other",
    [
        {"processor": "another"}, {"launcher": "kubernetes"}, {"engine": "spark"}, {"version": "2"},
        {"resources": Resources(gpu=Gpu(count=1))}, {"inputs": {"number": {"lines": 20, "odd": True}}},
        {"inputs": {}}, {"inputs": {"number": {"lines": "x"}}}, {"params": {"factor": -1}}, {"params": {"no": 1}},
    ],
)  # fmt: skip
def test_records_of_something_else(tmp_path: Path, other: Any) -> None:
    found = _forecast(tmp_path, _record(20, factor=9, **other))
    assert found.runs == 0
    assert found.cpu_s == pytest.approx(FORKED_START + 20)


def test_threads_are_those_of_now(tmp_path: Path) -> None:
    one = ON_TWO.model_copy(update={"resources": Resources(cpu=1)})
    assert _forecast(tmp_path, *map(_record, (0, 1, 5, 20)), placement=one).runtime_s == pytest.approx(
        2 * (FORKED_START + 20)
    )


def test_a_busy_machine_says_nothing_of_time(tmp_path: Path) -> None:
    busy = [_record(lines, runtime_s=500.0, delayed_s=200.0) for lines in (0, 5, 10, 40)]
    alone = _forecast(tmp_path, *busy)
    assert alone.cpu_s == pytest.approx(2 * (FORKED_START + 20))
    assert alone.runtime_s == pytest.approx(alone.cpu_s * (FORKED_START + 15) / (FORKED_START + 20))
    beside = _forecast(tmp_path, *(_record(lines, delayed_s=0.01) for lines in (0, 5, 10, 40)))
    assert (beside.runs, beside.runtime_s) == (8, pytest.approx(2 * (FORKED_START + 15)))


def test_a_run_that_compiled_says_nothing_of_memory(tmp_path: Path) -> None:
    compiled = [_record(lines, compile_s=30.0, memory_bytes=9 << 30) for lines in (10, 20, 30)]
    found = _forecast(tmp_path, *compiled, _record(20))
    assert found.runs == 4
    assert found.memory_bytes == pytest.approx(FORKED_BYTES + 40 * MIB, rel=0.01)
    assert found.cpu_s == pytest.approx(2 * (FORKED_START + 20))


@pytest.mark.parametrize(("runs", "memory"), [(1, FORKED_BYTES + 20 * MIB), (3, 9 << 30)])
def test_a_machine_on_which_every_run_compiles(tmp_path: Path, runs: int, memory: int) -> None:
    found = _forecast(tmp_path, *[_record(20, compile_s=30.0, memory_bytes=9 << 30)] * runs)
    assert (found.runs, found.memory_bytes) == (runs, pytest.approx(memory, rel=0.01))


def test_start_by_cluster_and_image(tmp_path: Path) -> None:
    def there(wait: float, image: str, cluster: str = "cluster") -> LaunchRecord:
        return _record(launcher="kubernetes", cluster=cluster, image=image, wait_s=wait)

    records = [there(1.0, "cpu:1@sha256:a"), there(1.2, "cpu:1@sha256:b"), there(50, "cpu:1"), there(30, "torch:1")]
    in_cpu = ON_TWO.model_copy(update={"image": "cpu:1"})
    assert _forecast(tmp_path, *records, profile=CLUSTER, placement=in_cpu).wait_s == 1.2
    assert _forecast(tmp_path, profile=CLUSTER).wait_s == pytest.approx((1.2 + 30) / 2)
    elsewhere = CLUSTER.model_copy(update={"name": "elsewhere"})
    assert _forecast(tmp_path, profile=elsewhere, placement=in_cpu).wait_s == 1.2  # better than nothing
    History(Location.of(tmp_path)).add("count", there(3.0, "cpu:1", "elsewhere"))
    assert _forecast(tmp_path, profile=elsewhere, placement=in_cpu).wait_s == 3.0


def test_written_files_are_cached_up_to_the_limit(tmp_path: Path) -> None:
    """The container's peak counts them, but they do not make a stage run out of memory."""
    found = _forecast(tmp_path, lines=1000, profile=CLUSTER)
    assert found.needed_bytes == CONTAINER_SHARE * 100 * MIB + 1000 * MIB
    assert found.memory_bytes == max(found.needed_bytes, 1 << 30)
    roomy = ON_TWO.model_copy(update={"resources": Resources(memory=8 << 30)})
    assert _forecast(tmp_path, lines=1000, profile=CLUSTER, placement=roomy).memory_bytes == 2050 * MIB


ON_SPARK = Placement(
    engine="spark",
    resources=Resources(cpu=1, memory=2 << 30, executors=Executors(count=4, cpu=2, memory=200 * MIB + _JAVA_BYTES)),
)


def test_members_do_the_work(tmp_path: Path) -> None:
    """Width and memory are those of the executors, and the driver is expected to wait."""
    found = _forecast(tmp_path, lines=80, profile=CLUSTER, placement=ON_SPARK)
    assert (found.width, found.runs) == (8, 0)
    work_s = 80 * (0.5 + 0.5 / 8)
    own_s, member_s = (_BEGINNING.own_share * _BEGINNING.own_cpu_s, _BEGINNING.member_share * _BEGINNING.member_cpu_s)
    start_s = 1 + own_s + _BEGINNING.wait_s + (1 + member_s) / 2
    assert (found.start_s, found.runtime_s) == (pytest.approx(start_s), pytest.approx(start_s + work_s))
    assert found.cpu_s == pytest.approx(1 + _BEGINNING.own_cpu_s)
    assert found.memory_bytes == CONTAINER_SHARE * 100 * MIB + _JAVA_BYTES
    executors = found.groups["executor"]
    assert executors.cpu_s == pytest.approx(80 + 4 * (1 + _BEGINNING.member_cpu_s))
    assert executors.memory_bytes == CONTAINER_SHARE * 100 * MIB + _JAVA_BYTES + 80 * MIB
    wide = ON_SPARK.resources.model_copy(update={"executors": Executors(count=16, cpu=2, memory=1 << 30)})
    wider = _forecast(tmp_path, lines=80, profile=CLUSTER, placement=ON_SPARK.model_copy(update={"resources": wide}))
    assert wider.runtime_s == pytest.approx(start_s + 80 * (0.5 + 0.5 / 32))


def test_members_by_what_they_took_before(tmp_path: Path) -> None:
    def there(lines: int, **more: Any) -> LaunchRecord:
        took = {"cpu_s": 2 * (lines + 4 * (1 + _BEGINNING.member_cpu_s)), "memory_bytes": (700 + 3 * lines) * MIB}
        return _record(
            lines, launcher="kubernetes", cluster="cluster", engine="spark", resources=ON_SPARK.resources,
            cpu_s=2 * (1 + _BEGINNING.own_cpu_s), runtime_s=20 + lines / 2, memory_bytes=600 * MIB,
            **({"members": {"executor": took}} | more),
        )  # fmt: skip

    records = [there(lines) for lines in (10, 50, 200)]
    found = _forecast(tmp_path, *records, there(100, members={}), lines=100, profile=CLUSTER, placement=ON_SPARK)
    assert found.runs == 4
    assert found.cpu_s == pytest.approx(2 * (1 + _BEGINNING.own_cpu_s))
    assert found.memory_bytes == pytest.approx(600 * MIB)
    assert found.runtime_s == pytest.approx(70, rel=0.1)
    executors = found.groups["executor"]
    assert executors.cpu_s == pytest.approx(2 * (100 + 4 * (1 + _BEGINNING.member_cpu_s)))
    assert executors.memory_bytes == pytest.approx(1000 * MIB)
    alone = ON_SPARK.model_copy(update={"resources": ON_SPARK.resources.only()})
    assert _forecast(tmp_path, lines=100, profile=CLUSTER, placement=alone).runs == 0


@pytest.fixture
def edges(tmp_path: Path) -> list[Path]:
    """Three small edge lists."""
    paths = []
    for vertices in (30, 60, 120):
        paths.append(tmp_path / f"{vertices}.csv")
        paths[-1].write_text("".join(f"{i},{(i * 7 + k) % vertices}\n" for i in range(vertices) for k in (1, 2)))
    return paths


def _request(folder: Path, edges: Path) -> Request:
    from superworkflow.flows import load_superworkflow

    return build_request(
        load_superworkflow("node2vec"), sources={"edges": str(edges)}, store=str(folder / "store"),
        assignments=["node2vec.link_prediction=false", "walk.walk_length=5", "embed.dimensions=8"],
    )  # fmt: skip


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessLauncher]:
    """As a run makes one: its stages are forked, as plans expect, and not started anew."""
    monkeypatch.setattr(fork_client, "_shared", None)
    launcher = ProcessLauncher()
    launcher.prepare(("index", "walk"))
    server = fork_client.shared()
    assert server is not None
    yield launcher
    server.close()


def test_real_launches_leave_records_that_forecast_the_next(
    tmp_path: Path, edges: list[Path], launcher: ProcessLauncher
) -> None:
    """A graph of the same size as those that ran is expected to take what these took: no less and no more."""
    events: list[Event] = []
    for path in edges:
        request = _request(tmp_path, path)
        for name in ("index", "walk"):
            run_node(request.diagram.nodes[name], request, launcher, events.append, {})
            run_node(request.diagram.nodes[name], request, launcher, events.append, {})  # cached: no record
    assert not [event for event in events if "not kept" in str(event)]
    history = History(request.store.root)
    between = tmp_path / "between.csv"
    between.write_text("".join(f"{i},{(i * 11 + k) % 80}\n" for i in range(80) for k in (1, 2, 3)))
    for stage in plan(_request(tmp_path, between))[:2]:
        records = history.records(stage.name)
        assert [record.wait_s >= 0 for record in records] == [True] * 3
        assert {record.processor for record in records} == {processor()}
        assert stage.basis == "3 runs"
        # A tenth of a second of CPU time is at the mercy of what else this machine does.
        for value, name, apart in ((stage.cpu_s, "cpu_s", 2.0), (stage.memory_bytes, "memory_bytes", 1.1)):
            took = sorted(getattr(record, name) for record in records)
            assert took[0] / apart <= value <= apart * took[-1]
    vertices = {record.inputs["graph"]["vertices"] for record in history.records("walk")}
    assert vertices == {30, 60, 120}
    assert {record.inputs["edges"]["rows"] for record in history.records("index")} == {60, 120, 240}


def test_hostile_records_do_not_break_a_plan(tmp_path: Path, edges: list[Path]) -> None:
    request = _request(tmp_path, edges[0])
    (tmp_path / "store" / FOLDER).mkdir(parents=True)
    record = json.loads(_record(inputs={"edges": {"bytes": 10**400}}).model_dump_json())
    odd = [record | {"version": "1", "inputs": {"edges": {"rows": value}}} for value in (-5, 10**300, "a", 1e308, None)]
    (tmp_path / "store" / FOLDER / "index.json").write_text(json.dumps({"records": [record, *odd]}))
    assert all(0 < stage.seconds < 1e6 for stage in plan(request))


def test_cpu_seconds_of_workers_on_this_machine_are_in_those_of_their_stage(tmp_path: Path) -> None:
    """A record of both together corrects both."""
    resources = Resources.model_validate({"cpu": 1, "workers": {"count": 2, "cpu": 1, "memory": "1Gi"}})
    placement = Placement(engine="workers", resources=resources)

    def total(*records: LaunchRecord) -> float:
        found = _forecast(tmp_path, *records, lines=10, placement=placement)
        return found.cpu_s + sum(group.cpu_s for group in found.groups.values())

    builtin = total()
    assert builtin > 10
    more = {"engine": "workers", "resources": resources, "runtime_s": 4.0}
    assert total(_record(cpu_s=builtin / 2, **more)) == pytest.approx(builtin / 2, rel=0.01)


def test_a_stage_that_expects_to_take_nothing(tmp_path: Path) -> None:
    nothing = replace(
        STAGE, estimate=lambda params, inputs, resources: Estimate(memory_bytes=1, cpu_s=0, output_bytes=0)
    )
    found = Forecaster(History(Location.of(tmp_path)), HERE, ["scale"]).of(
        nothing, STAGE.params(), {"number": {}}, ON_TWO
    )
    assert (found.cpu_s, found.runtime_s, found.groups) == (0, 0, {})
