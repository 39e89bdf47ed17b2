"""Temporary folders outlive their process no longer than until the next stage starts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import superworkflow.infra.storage.scratch
from superworkflow.infra.storage.scratch import Scratch, remove_abandoned

HOLDER = """
import pathlib, sys, tempfile
from superworkflow.infra.storage.scratch import Scratch
tempfile.tempdir = sys.argv[1]
folder = Scratch("stage").path
(folder / "spill" / "part").mkdir(parents=True)
(folder / "spill" / "part" / "rows").write_text("some")
print(folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(scratch: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that holds a folder, and that folder."""
    command = [sys.executable, "-c", HOLDER, str(scratch)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def _age(folder: Path) -> None:
    """As if it had been made long ago."""
    os.utime(folder, (1e9, 1e9))


def test_folder_of_a_killed_process_goes_and_that_of_a_living_one_stays(
    holder: tuple[subprocess.Popen[str], Path],
) -> None:
    process, folder = holder
    _age(folder)
    remove_abandoned()
    assert (folder / "spill" / "part" / "rows").read_text() == "some"
    process.kill()
    process.wait()
    remove_abandoned()
    assert not folder.exists()


def test_new_folder_stays(holder: tuple[subprocess.Popen[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been made a moment ago by a process that has not locked it yet."""
    process, folder = holder
    process.kill()
    process.wait()
    remove_abandoned()
    assert folder.exists()
    monkeypatch.setattr(superworkflow.infra.storage.scratch, "FRESH_SECONDS", -60.0)
    remove_abandoned()
    assert not folder.exists()


def test_own_folders_stay_until_they_are_removed(scratch: Path) -> None:
    with Scratch("stage") as folder:
        other = Scratch("output")
        for each in (folder, other.path):
            _age(each)
        remove_abandoned()
        assert folder.exists()
        assert other.path.exists()
        other.remove()
        other.remove()
    assert list(scratch.iterdir()) == []


def test_other_folders_are_left_alone(scratch: Path) -> None:
    target = scratch / "elsewhere"
    target.mkdir()
    (scratch / "superworkflow-pictures-1").mkdir()
    (scratch / f"{superworkflow.infra.storage.scratch.PREFIX}link").symlink_to(target)
    (scratch / f"{superworkflow.infra.storage.scratch.PREFIX}file").write_text("")
    for path in scratch.iterdir():
        os.utime(path, (1e9, 1e9), follow_symlinks=False)
    remove_abandoned()
    assert len(list(scratch.iterdir())) == 4
