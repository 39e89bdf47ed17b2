"""Stages of subgraphs that are killed, run out of disk, or lose their bucket, and are run again: the same files."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage import retry, s3
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.lease import LeaseClaim
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import WHOLE_FOLDER
from superworkflow.infra.storage.retry import Unreachable
from superworkflow.infra.storage.store import Store
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.generators.mag import generate_mag
from tests.s3_proxy import S3Proxy

KILLED_AFTER = 3
KILLED = f"""
import os, signal, sys
from superworkflow.__main__ import main
from superworkflow.infra.storage.attempt_marker import DatasetAttempt
note, notes = DatasetAttempt.note, []
def noted(self, entry):
    note(self, entry)
    notes.append(entry)
    if len(notes) == {KILLED_AFTER}:
        os.kill(os.getpid(), signal.SIGKILL)
DatasetAttempt.note = noted
main(sys.argv[1:])
"""
PARAMS: Mapping[str, dict[str, Any]] = {
    "heterograph": {},
    "sample": {"repeats": 2, "sizes": {"paper->field_of_study": 2, "author->paper": 2}},
    "records": {"shards": 4},
}


class Made(NamedTuple):
    """Inputs of each stage, and the dataset that it makes undisturbed."""

    inputs: dict[str, dict[str, str]]
    wanted: dict[str, Dataset]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("faults")
    mag = generate_mag(0.001, folder / "mag", 3)
    inputs: dict[str, dict[str, str]] = {"heterograph": {"graph": str(mag)}}
    wanted: dict[str, Dataset] = {}
    for name in PARAMS:
        if wanted:
            inputs[name] = {"graph": wanted["heterograph"].uri}
            inputs[name] |= {"spec": f"{mag}/spec.pbtxt"} if name == "sample" else {"subgraphs": wanted["sample"].uri}
        wanted[name] = _run(name, inputs[name], folder / name)[0]
    return Made(inputs, wanted)


def _run(name: str, inputs: dict[str, str], output: Any, claim: LeaseClaim = LeaseClaim()) -> tuple[Dataset, str]:  # noqa: B008
    """The dataset that a stage makes, and its log."""
    logged = io.StringIO()
    done = execute(
        load_stage(name), PARAMS[name], inputs, str(output), Resources(cpu=2, memory=1 << 30),
        Progress(name, stream=logged), claim=claim,
    )  # fmt: skip
    return done.dataset, logged.getvalue()


def _command(
    name: str, inputs: dict[str, str], output: str, program: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    given = [word for key, uri in inputs.items() for word in ("--input", f"{key}={uri}")]
    return subprocess.run(
        [sys.executable, *program, "stage", name, "--params-json", json.dumps(PARAMS[name]), *given,
         "--output", output, "--threads", "2", "--holder", "first"],
        capture_output=True, text=True, timeout=300, env=os.environ,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "place"), [("sample", "here"), ("records", "here"), ("records", "s3")])
def test_killed_and_resumed(made: Made, tmp_path: Path, s3_store: Store, name: str, place: str) -> None:
    output = Location.of(tmp_path / "out") if place == "here" else s3_store.root.join("out")
    killed = _command(name, made.inputs[name], output.uri, ("-c", KILLED))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert Dataset.find(output) is None
    whole = {path.removesuffix(".json") for path in output.join(WHOLE_FOLDER).walk_files()}
    assert len(whole) >= KILLED_AFTER
    before = {path: output.join(path).fingerprint() for path in whole}
    damaged = sorted(path for path in whole if "-of-" in path or path.startswith("subgraphs-"))[0]
    bytes_there = output.join(damaged).open().read()
    with output.join(damaged).open("wb") as stream:  # of the same size: only its bytes differ
        stream.write(bytes_there[:-1] + bytes([bytes_there[-1] ^ 1]))
    dataset, logged = _run(name, made.inputs[name], output.uri, LeaseClaim("second", ("first",)))
    assert dataset.manifest.files == made.wanted[name].manifest.files
    dataset.verify("content")
    assert dataset.stats == made.wanted[name].stats
    assert "shards are from an earlier attempt" in logged
    kept = {path for path in whole - {damaged} if path.endswith((".parquet", ".tfrecord"))}
    assert kept
    assert {path: output.join(path).fingerprint() for path in kept} == {path: before[path] for path in kept}
    assert not [path for path in output.walk_files() if path.startswith("_")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a small file system of a given size in bytes, or resizes it."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def sized(size: int) -> Path:
        again = ["-o", f"remount,size={size}"] if folder.is_mount() else ["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
        if (
            shutil.which("mount") is None
            or subprocess.run(["mount", *again, str(folder)], capture_output=True).returncode
        ):
            pytest.skip("mounting is not permitted here")
        return folder

    yield sized
    if folder.is_mount():
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", ["heterograph", "records"])
def test_full_disk(made: Made, disk: Callable[[int], Path], name: str) -> None:
    """In a process of its own: a page of a mapped file that the disk has no room for would end it without a word."""
    output = disk(made.wanted[name].manifest.bytes * 6 // 10) / "out"
    full = _command(name, made.inputs[name], str(output), ("-m", "superworkflow"))
    assert full.returncode == 2, (full.returncode, full.stderr)
    assert "cannot write: " in full.stderr
    assert "complete stages are kept" in full.stderr
    assert "Traceback" not in full.stderr
    assert Dataset.find(output) is None
    disk(made.wanted[name].manifest.bytes * 2 + (1 << 20))
    dataset, logged = _run(name, made.inputs[name], output)
    assert dataset.manifest.files == made.wanted[name].manifest.files
    assert ("shards are from an earlier attempt" in logged) == (name != "heterograph")


def test_bucket_that_goes_away(made: Made, s3_store: Store, s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for, then named; the next attempt takes over what was whole."""
    monkeypatch.setattr(retry, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(s3, "HURRIED_SECONDS", 0.5)
    name, output = "sample", s3_store.root.join("out").uri
    s3_proxy.trip = (b"/out/subgraphs-train-00003", "refuse", 3600.0)
    with pytest.raises((UserError, Unreachable), match="has not answered for 1 s") as raised:
        _run(name, made.inputs[name], output, LeaseClaim("first"))
    assert s3_proxy.tripped.is_set()
    assert "complete stages are kept" in str(raised.value)
    s3_proxy.set("pass")
    dataset, logged = _run(name, made.inputs[name], output, LeaseClaim("second", ("first",)))
    assert dataset.manifest.files == made.wanted[name].manifest.files
    assert "shards are from an earlier attempt" in logged
