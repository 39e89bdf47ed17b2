"""Runs that are killed, run again, or run at the same time; records that cannot be kept."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.flows.command_line import STAGES, CommandLine


def _await_stage(process: subprocess.Popen[str], output: str) -> psutil.Process:
    """The stage process below `process` that writes to `output`."""
    watched = psutil.Process(process.pid)
    for _ in range(6000):
        assert process.poll() is None, "the run ended before the stage began"
        for child in watched.children(recursive=True):
            try:
                if any(output in part for part in child.cmdline()):
                    return child
            except psutil.Error:
                continue
        time.sleep(0.01)
    raise AssertionError(f"no stage process wrote to {output}")


def _outputs(command_line: CommandLine) -> dict[str, str]:
    return {stage["name"]: stage["output"] for stage in json.loads(command_line("plan", "--json").out)}


def test_each_stage_killed_in_turn_then_resumed(command_line: CommandLine) -> None:
    """Every run goes on where the last one was killed, and is killed one stage later."""
    outputs = _outputs(command_line)
    victims = [name for name in STAGES if not name.startswith("holdout-")]
    for victim in victims:
        process = command_line.start("run", "--no-tracking", "--json")
        _await_stage(process, outputs[victim]).kill()
        _, err = process.communicate(timeout=120)
        assert process.returncode == 1, err
        assert f"stage {victim} failed" in err
        assert "SIGKILL" in err
        assert "superworkflow run node2vec" in err.split("To resume from there:")[1]
        assert not Path(outputs[victim], "manifest.json").exists()
        done = STAGES[: STAGES.index(victim)]
        assert all(Path(outputs[name], "manifest.json").exists() for name in done)
    states = command_line("run", "--no-tracking", "--json").states()
    assert states == dict.fromkeys(STAGES[:-1], "cached") | {"publish": "ran"}


def test_killed_orchestrator_leaves_no_stage_running(command_line: CommandLine) -> None:
    outputs = _outputs(command_line)
    process = command_line.start(
        "run", "--no-tracking", "--set", "walk.num_walks=20000", "node2vec.link_prediction=false"
    )
    stage = _await_stage(process, "/walk/")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    stage.wait(timeout=20)
    assert outputs["index"]
    states = command_line("run", "--no-tracking", "--json").states()
    assert states["index"] == "cached"


def _interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


def _terminate(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("stop", [_interrupt, _terminate])
def test_stopped_run_ends_its_stage(command_line: CommandLine, stop: Callable[[subprocess.Popen[str]], None]) -> None:
    process = command_line.start("run", "--no-tracking", "--set", "walk.num_walks=20000")
    stage = _await_stage(process, "/walk/")
    stop(process)
    _, err = process.communicate(timeout=60)
    assert process.returncode not in (0, None), err
    stage.wait(timeout=20)


def test_two_runs_at_once_compute_each_dataset_once(command_line: CommandLine) -> None:
    processes = [command_line.start("run", "--no-tracking", "--json") for _ in range(2)]
    ended = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended[0][1] + ended[1][1]
    states = [{s["name"]: s["state"] for s in json.loads(out)["stages"]} for out, _ in ended]
    for name in STAGES:
        assert sorted([states[0][name], states[1][name]]) == ["cached", "ran"], name


def test_tracker_down_is_said_before_any_work(command_line: CommandLine) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command_line.environment["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{port}"
    answer = command_line("run", expect=2)
    assert "MLflow cannot be reached" in answer.err
    assert "Traceback" not in answer.err
    assert not (command_line.store / "index").exists()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_missing_gpu_is_said_before_any_work(command_line: CommandLine) -> None:
    done = command_line("run", "--no-tracking", "--set", "embed.device=cuda", expect=2)
    assert "embed.device: no CUDA device is available" in done.err
    assert list(command_line.store.glob("*/*")) == []


def test_damaged_dataset_is_named(command_line: CommandLine) -> None:
    outputs = _outputs(command_line)
    command_line("run", "--no-tracking")
    target = f"{outputs['walk']}/walks-00000.npy"
    with open(target, "r+b") as stream:
        stream.seek(200)
        stream.write(b"\x07\x07\x07")
    answer = command_line("run", "--no-tracking", expect=2)
    assert target in answer.err
    assert "altered" in answer.err
