"""Runs that are killed, run again, or run at the same time; records that cannot be kept."""

import json
import socket
from pathlib import Path

import pytest

from tests.flows.command_line import STAGES, CommandLine, await_stage


def _outputs(command_line: CommandLine) -> dict[str, str]:
    return {stage["name"]: stage["output"] for stage in json.loads(command_line.here("plan", "--json").out)}


@pytest.mark.slow
def test_stages_killed_in_turn_then_resumed(command_line: CommandLine) -> None:
    """Every run resumes where the last one was killed, and is killed some stages later."""
    outputs = _outputs(command_line)
    for victim in ("index", "embed", "publish"):
        process = command_line.start("run", "--no-tracking", "--json")
        dataset = str(Path(outputs[victim]).relative_to(command_line.store))
        await_stage(process, command_line.store, dataset)[-1].kill()
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
