"""Runs and sweeps without a server that get a signal as from a terminal: the whole process group at once."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from superworkflow.infra.tracking.history import find_run
from tests.flows.command_line import CommandLine
from tests.sweeps.commands import SweepCommands

AT_ONCE = 100
"""Seconds; alone on a machine it takes four. Before, Prefect's client asked its dead server for 150."""
LONG = ("--set", "walk.num_walks=20000", "node2vec.link_prediction=false")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With neither servers nor a home of Prefect."""
    return {"PREFECT_API_URL": "", "MLFLOW_TRACKING_URI": "", "PREFECT_HOME": str(tmp_path / "prefect")}


@pytest.fixture
def runs(tmp_path: Path, graph_files: tuple[Path, Path], environment: dict[str, str]) -> CommandLine:
    return CommandLine(tmp_path / "store", *graph_files, environment)


@pytest.fixture
def sweeps(tmp_path: Path, graph_files: tuple[Path, Path], environment: dict[str, str]) -> SweepCommands:
    return SweepCommands(tmp_path / "store", *graph_files, environment)


def _at_stage(process: subprocess.Popen[str], output: str) -> list[psutil.Process]:
    """All that a command has started, once one of them writes to `output`."""
    for _ in range(6000):
        assert process.poll() is None, process.communicate()
        found = psutil.Process(process.pid).children(recursive=True)
        for child in found:
            try:
                if "stage" in child.cmdline() and any(output in word for word in child.cmdline()):
                    return found
            except psutil.Error:
                continue
        time.sleep(0.02)
    raise AssertionError(f"no stage wrote to {output}")


def _stop(process: subprocess.Popen[str], number: signal.Signals, twice: bool = False) -> str:
    """What the command said after its group got the signal."""
    os.killpg(process.pid, number)
    if twice:
        time.sleep(0.2)
        os.killpg(process.pid, number)
    began = time.monotonic()
    _, err = process.communicate(timeout=AT_ONCE)
    assert time.monotonic() - began < AT_ONCE
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err, err
    return err


def _all_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []


def _records(store: Path) -> dict[str, tuple[str, str]]:
    """Status of each top-level MLflow run by name, and why it ended."""
    with sqlite3.connect(store / "mlflow" / "mlflow.db") as database:
        found = database.execute(
            "SELECT name, status, (SELECT value FROM tags WHERE run_uuid = runs.run_uuid "
            "AND key = 'superworkflow.error') "
            "FROM runs WHERE run_uuid NOT IN (SELECT run_uuid FROM tags WHERE key = 'superworkflow.stage')"
        ).fetchall()
    return {name: (status, reason or "") for name, status, reason in found}


@pytest.mark.parametrize(
    ("number", "twice"),
    [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGTERM, True),
     (signal.SIGHUP, False)],
)  # fmt: skip
def test_run(runs: CommandLine, number: signal.Signals, twice: bool) -> None:
    process = runs.start("run", "--name", "mine", *LONG, alone=True)
    started = _at_stage(process, "/walk/")
    err = _stop(process, number, twice)
    _all_gone(started)
    assert "interrupted" in err
    assert "superworkflow run node2vec" in err.split("To resume from there:")[1]
    status, reason = _records(runs.store)["mine"]
    assert (status, reason.split()[0]) == ("KILLED", "interrupted")
    walk = find_run(f"sqlite:///{runs.store}/mlflow/mlflow.db", "mine").stages["walk"]
    assert walk["failed"] == 1
    assert walk["cost_usd"] > 0
    with sqlite3.connect(Path(runs.environment["PREFECT_HOME"], "prefect.db")) as database:
        assert database.execute("SELECT name, state_type FROM flow_run").fetchall() == [("mine", "CRASHED")]
    states = {stage["name"]: stage["state"] for stage in json.loads(runs("plan", "--json").out)}
    assert states["index"] == "cached"


def test_the_server_gets_the_signal_too(runs: CommandLine) -> None:
    """As from a service manager that ends every process of a unit."""
    process = runs.start("run", "--name", "mine", *LONG, alone=True)
    started = _at_stage(process, "/walk/")
    (server,) = (child for child in started if "prefect.server.api.server:create_app" in child.cmdline())
    server.kill()
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)
    assert "To resume from there:" in _stop(process, signal.SIGTERM)
    _all_gone(started)
    assert _records(runs.store)["mine"][0] == "KILLED"


def test_killed_run_leaves_no_process_and_the_next_one_closes_its_records(runs: CommandLine) -> None:
    process = runs.start("run", "--name", "killed", *LONG, alone=True)
    started = _at_stage(process, "/walk/")
    process.kill()
    process.communicate()
    _all_gone(started)
    assert _records(runs.store) == {"killed": ("RUNNING", "")}
    runs("run", "--name", "next", "--set", "node2vec.link_prediction=false")
    assert _records(runs.store) == {"killed": ("FAILED", "its process died"), "next": ("FINISHED", "")}
    with sqlite3.connect(Path(runs.environment["PREFECT_HOME"], "prefect.db")) as database:
        states = dict(database.execute("SELECT name, state_type FROM flow_run").fetchall())
        assert states == {"killed": "CRASHED", "next": "COMPLETED"}
        tasks = database.execute("SELECT DISTINCT state_type FROM task_run").fetchall()
    assert {state for (state,) in tasks} <= {"COMPLETED", "CRASHED"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sweep(sweeps: SweepCommands, number: signal.Signals) -> None:
    space = sweeps.space("walk: {p: [0.5, 2]}")
    process = sweeps.start(
        "node2vec", "--space", space, "--sampler", "grid", "--parallel", "2", "--study", "mine",
        settings=["walk.num_walks=20000"], alone=True,
    )  # fmt: skip
    started = _at_stage(process, "/walk/")
    err = _stop(process, number)
    _all_gone(started)
    assert "interrupted" in err
    assert "superworkflow sweep resume mine" in err.split("To resume:")[1]
    records = _records(sweeps.store)
    assert len(records) >= 2
    for status, reason in records.values():
        assert (status, reason.split()[0]) == ("KILLED", "interrupted")
    counts = sweeps("status", "mine", "--json").document["counts"]
    assert set(counts) == {"waiting"}, "they are gone on with, and did not fail"
