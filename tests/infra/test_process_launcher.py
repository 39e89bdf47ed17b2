"""Stages as processes: what they tell, how they end, and that they end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from superworkflow.infra.dataset import Dataset
from superworkflow.infra.digest import dataset_digest, file_sha256
from superworkflow.infra.errors import StageFailed, UserError
from superworkflow.infra.filesystem import Location
from superworkflow.infra.launch import forked
from superworkflow.infra.launch.base import Event, Launched, StageCall
from superworkflow.infra.launch.exit_status import Reason
from superworkflow.infra.launch.process import ProcessLauncher
from superworkflow.infra.lock import exclusive
from superworkflow.infra.profile import Placement
from superworkflow.infra.resources import Resources
from superworkflow.tasks.index import STAGE as INDEX

FOREVER = {"num_walks": 100_000}
"""Parameters with which the walks take minutes."""


@pytest.fixture(scope="module", params=["fresh", "forked"], autouse=True)
def start(request: pytest.FixtureRequest) -> Iterator[str]:
    """How stages are started; every promise of the launcher is held to both ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forked, "_shared", None)
        if request.param == "forked":
            ProcessLauncher().prepare(["index", "walk"])
        server = forked.shared()
        assert (server is not None) == (request.param == "forked")
        yield request.param
        if server is not None:
            server.close()


@pytest.fixture(scope="module")
def graph(start: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """URI of a small graph, made by a launched stage."""
    folder = tmp_path_factory.mktemp("graph")
    pairs = np.random.default_rng(0).integers(0, 500, (4000, 2))
    (folder / "edges.csv").write_text("".join(f"{u},{v}\n" for u, v in pairs))
    launched, _ = _launch(_call("index", {"edges": str(folder / "edges.csv")}, folder / "graph"))
    assert not launched.reused
    return str(folder / "graph")


def _call(stage: str, inputs: dict[str, str], output: Path, params: dict[str, Any] | None = None) -> StageCall:
    placement = Placement(resources=Resources(cpu=1, memory=1 << 30))
    return StageCall(f"my-{stage}", stage, params or {}, inputs, str(output), placement)


def _launch(call: StageCall, on_event: Callable[[Event], None] = lambda event: None) -> tuple[Launched, list[Event]]:
    events: list[Event] = []

    def both(event: Event) -> None:
        events.append(event)
        on_event(event)

    return ProcessLauncher().launch(call, both), events


def test_the_engine_reaches_the_stage(graph: str, tmp_path: Path) -> None:
    call = _call("holdout", {"graph": graph}, tmp_path / "output")
    placement = call.placement.model_copy(update={"engine": "spark"})
    with pytest.raises(UserError, match=r"--engine: stage holdout does not run on this engine \(got 'spark'\)"):
        _launch(replace(call, placement=placement))
    assert not (tmp_path / "output").exists()


def _writers(output: Path) -> list[psutil.Process]:
    """Processes that were started to write to `output`."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if str(output) in line and "stage" in line:
            found.append(process)
    return found


def _nothing_complete(output: Path) -> bool:
    return not list(output.glob("manifest.json")) and not _writers(output)


def test_events_and_measurements(graph: str, tmp_path: Path) -> None:
    call = _call("walk", {"graph": graph}, tmp_path / "walks", {"num_walks": 2, "walk_length": 10})
    launched, events = _launch(call)
    dataset = Dataset.open(Location.of(tmp_path / "walks"))
    dataset.verify()
    assert launched.measured == dataset.manifest.measured
    assert launched.measured.rows == 1000
    assert 0 < launched.measured.runtime_s <= launched.seconds + 0.5
    assert 0 < launched.measured.cpu_s < 600
    assert (30 << 20) < launched.measured.peak_memory_bytes < (8 << 30)
    assert {event["event"] for event in events} <= {"progress", "log"}
    assert all(event["stage"] == "walk" for event in events)
    last = [event for event in events if event["event"] == "progress"][-1]
    assert last["done"] == last["total"] == 1000


def test_reuses_what_is_there(graph: str) -> None:
    edges = Path(graph).with_name("edges.csv")
    launched, _ = _launch(_call("index", {"edges": str(edges)}, Path(graph)))
    assert launched.reused


def test_other_lines_are_log(graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # the interpreter's own lines on standard error
    call = _call("walk", {"graph": graph}, tmp_path / "walks", {"num_walks": 1, "walk_length": 2})
    _, events = _launch(call)
    assert any(event["event"] == "log" and event["message"].startswith("import time:") for event in events)


def test_bad_input_is_passed_on_as_the_stage_said_it(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("a,b\nc\n")
    arguments = ["index", "--input", f"edges={tmp_path}/edges.csv", "--output", f"{tmp_path}/graph"]
    alone = subprocess.run([sys.executable, "-m", "superworkflow", "stage", *arguments], capture_output=True, text=True)
    assert alone.returncode == 2
    with pytest.raises(UserError) as raised:
        _launch(_call("index", {"edges": f"{tmp_path}/edges.csv"}, tmp_path / "graph"))
    assert f"{tmp_path}/edges.csv" in str(raised.value)
    assert alone.stderr.splitlines()[-1] == f"error: {raised.value}"
    assert _nothing_complete(tmp_path / "graph")


@pytest.mark.parametrize(
    ("stage", "params", "message"),
    [
        ("walk", {"p": -1}, r"walk.p: .*\(got -1\)"),
        ("walk", {"walk_lenght": 5}, r"walk.walk_lenght: unknown parameter. Did you mean walk.walk_length\?"),
        ("wlak", {}, r"wlak: no such stage. Did you mean walk\?"),
    ],
)
def test_bad_call(graph: str, tmp_path: Path, stage: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        _launch(_call(stage, {"graph": graph}, tmp_path / "walks", params))
    assert _nothing_complete(tmp_path / "walks")


def test_source_edited_after_planning(tmp_path: Path) -> None:
    """The digest that was planned reaches the stage, which holds what it reads against it."""
    edges = tmp_path / "edges.csv"
    edges.write_text("1,2\n2,3\n")
    planned = dataset_digest("index", INDEX.version, INDEX.params().identity(), {"edges": file_sha256(edges)})
    call = replace(_call("index", {"edges": str(edges)}, tmp_path / "graph"), digest=planned)
    edges.write_text("1,2\n2,4\n")
    with pytest.raises(UserError, match=r"is not what the run was planned with.*Run again") as raised:
        _launch(call)
    assert str(edges) in str(raised.value)
    assert not (tmp_path / "graph").exists()
    edges.write_text("1,2\n2,3\n")
    _launch(call)
    assert Dataset.open(Location.of(tmp_path / "graph")).digest == planned


def test_killed_stage(graph: str, tmp_path: Path) -> None:
    output = tmp_path / "walks"

    def kill(event: Event) -> None:
        for process in _writers(output):
            process.kill()

    with pytest.raises(StageFailed, match=r"stage my-walk failed: the process was killed \(SIGKILL\)") as raised:
        _launch(_call("walk", {"graph": graph}, output, FOREVER), kill)
    assert raised.value.status == -signal.SIGKILL
    (attempt,) = raised.value.attempts
    assert (attempt.reason, attempt.resources.memory) == (Reason.KILLED, 1 << 30)
    assert attempt.seconds > 0
    assert "superworkflow plan" in raised.value.resolution
    assert list(output.iterdir())  # it was in the middle of its work
    assert _nothing_complete(output)


def test_runs_to_its_end_after_a_killed_one(graph: str, tmp_path: Path) -> None:
    output, params = tmp_path / "walks", {"num_walks": 2000}

    def kill(event: Event) -> None:
        for process in _writers(output):
            process.kill()

    with pytest.raises(StageFailed):
        _launch(_call("walk", {"graph": graph}, output, params), kill)
    launched, _ = _launch(_call("walk", {"graph": graph}, output, params))
    assert not launched.reused
    dataset = Dataset.open(Location.of(output))
    dataset.verify()
    on_disk = {path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()}
    assert on_disk == {*dataset.files(), "manifest.json"}


def test_cancel(graph: str, tmp_path: Path) -> None:
    launcher = ProcessLauncher()
    call = _call("walk", {"graph": graph}, tmp_path / "walks", FOREVER)
    told: list[Event] = []

    def cancel(event: Event) -> None:
        if not told:
            threading.Thread(target=launcher.cancel).start()
        told.append(event)

    with pytest.raises(StageFailed, match="SIGTERM") as raised:
        launcher.launch(call, cancel)
    assert [attempt.reason for attempt in raised.value.attempts] == [Reason.CANCELLED]
    assert _nothing_complete(tmp_path / "walks")
    launcher.cancel()  # once more is no error
    with pytest.raises(StageFailed, match="cancelled before the stage began"):
        launcher.launch(call, told.append)


def test_stage_ends_when_its_listener_fails(graph: str, tmp_path: Path) -> None:
    def fail(event: Event) -> None:
        raise RuntimeError("the listener")

    with pytest.raises(RuntimeError, match="the listener"):
        _launch(_call("walk", {"graph": graph}, tmp_path / "walks", FOREVER), fail)
    assert _nothing_complete(tmp_path / "walks")


PARENT = """
import json, sys
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.exit_status import Reason
from superworkflow.infra.launch.process import ProcessLauncher
from superworkflow.infra.profile import Placement
start, stage, params, inputs, output = json.loads(sys.argv[1])
call = StageCall(stage, stage, params, inputs, output, Placement())
launcher = ProcessLauncher()
launcher.prepare([stage] if start == "forked" else [])
launcher.launch(call, lambda event: print(json.dumps(event), flush=True))
"""


def test_stage_that_waits_ends_with_its_parent(start: str, graph: str, tmp_path: Path) -> None:
    """It writes nothing that could fail; only the pipe from its parent tells it."""
    output = tmp_path / "walks"
    given = json.dumps([start, "walk", {}, {"graph": graph}, str(output)])
    with exclusive(Location.of(output)):
        parent = subprocess.Popen([sys.executable, "-c", PARENT, given], stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        assert "waiting" in json.loads(parent.stdout.readline())["message"]
        (stage,) = _writers(output)
        parent.kill()
        parent.communicate()
        stage.wait(timeout=10)


def test_stage_ends_with_its_parent(start: str, graph: str, tmp_path: Path) -> None:
    """However the parent dies; here it has no chance to do anything."""
    output = tmp_path / "walks"
    given = json.dumps([start, "walk", FOREVER, {"graph": graph}, str(output)])
    parent = subprocess.Popen([sys.executable, "-c", PARENT, given], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    while json.loads(parent.stdout.readline())["event"] != "progress":
        pass
    (stage,) = _writers(output)
    parent.kill()
    parent.communicate()
    stage.wait(timeout=10)
    assert _nothing_complete(output)
