"""Runs and sweeps without a server that get a signal as from a terminal: the whole process group at once."""

import json
import os
import signal
import sqlite3
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from superworkflow.infra.tracking.history import find_run
from tests.flows.command_line import CommandLine, await_stage
from tests.flows.deployments import ask
from tests.prefect_server import copy_tables, prefect_server
from tests.sweeps.commands import SweepCommands

AT_ONCE = 100
"""Seconds; alone on a machine it takes four. Before, Prefect's client asked its dead server for 150."""
LONG = ("--set", "walk.num_walks=20000", "node2vec.link_prediction=false")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Without servers; one home of Prefect for all, whose database is made once."""
    home = tmp_path_factory.mktemp("prefect")
    copy_tables(home)
    return {"PREFECT_API_URL": "", "MLFLOW_TRACKING_URI": "", "PREFECT_HOME": str(home)}


@pytest.fixture
def runs(tmp_path: Path, graph_files: tuple[Path, Path], environment: dict[str, str]) -> CommandLine:
    return CommandLine(tmp_path / "store", *graph_files, environment)


@pytest.fixture
def sweeps(tmp_path: Path, graph_files: tuple[Path, Path], environment: dict[str, str]) -> SweepCommands:
    return SweepCommands(tmp_path / "store", *graph_files, environment)


def _stop(process: subprocess.Popen[str], number: signal.Signals, twice: bool = False) -> str:
    """Output of the command after its group got the signal."""
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


def _flow_runs(runs: CommandLine | SweepCommands) -> dict[str, str]:
    with sqlite3.connect(Path(runs.environment["PREFECT_HOME"], "prefect.db")) as database:
        return dict(database.execute("SELECT name, state_type FROM flow_run").fetchall())


def _records(store: Path) -> dict[str, tuple[str, str]]:
    """Status of each top-level MLflow run by name, and why it ended."""
    with sqlite3.connect(store / "mlflow" / "mlflow.db") as database:
        found = database.execute(
            "SELECT name, status, (SELECT value FROM tags WHERE run_uuid = runs.run_uuid "
            "AND key = 'superworkflow.error') "
            "FROM runs WHERE run_uuid NOT IN (SELECT run_uuid FROM tags WHERE key = 'superworkflow.stage')"
        ).fetchall()
    return {name: (status, reason or "") for name, status, reason in found}


def test_run(runs: CommandLine) -> None:
    """Sweeps below show SIGHUP, a run whose server is gone SIGTERM."""
    process = runs.start("run", "--name", "mine", *LONG, alone=True)
    started = await_stage(process, runs.store, "walk")
    err = _stop(process, signal.SIGINT, twice=True)
    _all_gone(started)
    assert "interrupted" in err
    assert "superworkflow run node2vec" in err.split("To resume from there:")[1]
    status, reason = _records(runs.store)["mine"]
    assert (status, reason.split()[0]) == ("KILLED", "interrupted")
    walk = find_run(f"sqlite:///{runs.store}/mlflow/mlflow.db", "mine").stages["walk"]
    assert walk["cost_usd"] > 0
    assert _flow_runs(runs) == {}, "no server is named, so there is none"
    states = {stage["name"]: stage["state"] for stage in json.loads(runs.here("plan", "--json").out)}
    assert states["index"] == "cached"


@pytest.mark.slow
def test_the_server_is_gone(runs: CommandLine, tmp_path: Path) -> None:
    """As where a service manager ends all processes at once."""
    with prefect_server("127.0.0.1", tmp_path) as api:
        served = replace(runs, environment={**runs.environment, "PREFECT_API_URL": api})
        process = served.start("run", "--name", "cut-off", *LONG, alone=True)
        started = await_stage(process, runs.store, "walk")
    assert "To resume from there:" in _stop(process, signal.SIGTERM)
    _all_gone(started)
    assert _records(runs.store)["cut-off"][0] == "KILLED"


@pytest.mark.slow
@pytest.mark.parametrize("server", [False, True])
def test_killed_run_leaves_no_process_and_the_next_one_closes_its_records(
    runs: CommandLine, server: bool, prefect_api: str
) -> None:
    if server:
        runs = replace(runs, environment={**runs.environment, "PREFECT_API_URL": prefect_api})
    process = runs.start("run", "--name", "killed", *LONG, alone=True)
    started = await_stage(process, runs.store, "walk")
    process.kill()
    process.communicate()
    _all_gone(started)
    assert _records(runs.store) == {"killed": ("RUNNING", "")}
    runs("run", "--name", "next", "--set", "node2vec.link_prediction=false")
    assert _records(runs.store) == {"killed": ("FAILED", "its process died"), "next": ("FINISHED", "")}
    names = {"flow_runs": {"name": {"any_": ["killed", "next"]}}}
    found = ask("POST", f"{prefect_api}/flow_runs/filter", names)
    flow_runs = {run["name"]: run["state_type"] for run in found.json()}
    assert flow_runs == ({"killed": "CRASHED", "next": "COMPLETED"} if server else {})
    tasks = ask("POST", f"{prefect_api}/task_runs/filter", names).json()
    assert {task["state_type"] for task in tasks} <= ({"COMPLETED", "CRASHED"} if server else set())


@pytest.mark.slow
def test_sweep(sweeps: SweepCommands) -> None:
    space = sweeps.space("walk: {p: [0.5, 2]}")
    process = sweeps.start(
        "node2vec", "--space", space, "--sampler", "grid", "--parallel", "2", "--study", "mine",
        settings=["walk.num_walks=20000"], alone=True,
    )  # fmt: skip
    started = await_stage(process, sweeps.store, "walk")
    err = _stop(process, signal.SIGHUP)
    _all_gone(started)
    assert "interrupted" in err
    assert "superworkflow sweep resume mine" in err.split("To resume:")[1]
    records = _records(sweeps.store)
    assert len(records) >= 2
    for status, reason in records.values():
        assert (status, reason.split()[0]) == ("KILLED", "interrupted")
    counts = sweeps("status", "mine", "--json").document["counts"]
    assert set(counts) == {"waiting"}, "they can be resumed, and did not fail"
    assert _flow_runs(sweeps) == {}, "no server is named, so there is none"
