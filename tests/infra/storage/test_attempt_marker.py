"""An attempt removes the files of the one before it, and never any others: in a local folder and on S3."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.attempt_marker import DatasetAttempt
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import (
    ATTEMPT_NAME,
    CHECKPOINT_FOLDER,
    MANIFEST_NAME,
    PARTS_FOLDER,
    WHOLE_FOLDER,
    FileEntry,
)
from superworkflow.infra.storage.store import Store
from tests.datasets import commit
from tests.toy_stages import COUNT

pytestmark = pytest.mark.usefixtures("scratch")


@pytest.fixture
def folder(store: Store) -> Location:
    """Folder in which a dataset is made."""
    return store.root.join("output")


def _put(location: Location, text: str = "not theirs") -> None:
    if (path := location.local_path) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    location.write_atomic(text)


def _mark(folder: Location, *names: str, digest: str = "") -> None:
    _put(folder.join(ATTEMPT_NAME), json.dumps({"format": 1, "digest": digest, "files": names}))


def _count(folder: Location, tmp_path: Path) -> Dataset:
    (tmp_path / "text.txt").write_text("line\n" * 5)
    progress = Progress("count", stream=io.StringIO())
    return execute(COUNT, {}, {"text": str(tmp_path / "text.txt")}, folder.uri, Resources(), progress).dataset


@pytest.mark.parametrize(
    "name", ["thesis.tex", "deep/er/thesis.tex", "lines.npy", f"{CHECKPOINT_FOLDER}/mine", ".hidden"]
)
def test_folder_of_somebody_is_left_alone(folder: Location, tmp_path: Path, name: str) -> None:
    _put(folder.join(name))
    with pytest.raises(UserError, match=r"no attempt at a dataset made.*nothing was removed") as raised:
        _count(folder, tmp_path)
    assert raised.value.value == name
    assert folder.walk_files() == [name]
    assert folder.join(name).read_text() == "not theirs"


def test_files_beside_those_of_an_attempt_are_left_alone(folder: Location, tmp_path: Path) -> None:
    _mark(folder, "lines.npy")
    for name in ("lines.npy", "notes.txt", f"{PARTS_FOLDER}/1"):
        _put(folder.join(name))
    with pytest.raises(UserError) as raised:
        _count(folder, tmp_path)
    assert raised.value.value == "notes.txt"
    assert folder.walk_files() == sorted([ATTEMPT_NAME, "lines.npy", "notes.txt", f"{PARTS_FOLDER}/1"])


def test_what_an_attempt_left_is_removed_and_its_checkpoint_kept(folder: Location) -> None:
    _mark(folder, "half.npy", "deep/half.npy", "never-begun.npy")
    left = ("half.npy", "deep/half.npy", f".{MANIFEST_NAME}.17.tmp", f".{ATTEMPT_NAME}.9.tmp", f"{PARTS_FOLDER}/a/b")
    for name in (*left, f"{CHECKPOINT_FOLDER}/epoch.npy"):
        _put(folder.join(name))
    DatasetWriter(folder).close()
    assert folder.walk_files() == [ATTEMPT_NAME, f"{CHECKPOINT_FOLDER}/epoch.npy"]
    assert json.loads(folder.join(ATTEMPT_NAME).read_text())["files"] == []


def test_checkpoint_of_another_dataset_is_removed(folder: Location) -> None:
    """Another attempt with other parameters in the same folder must not resume from it."""
    _mark(folder, digest="a" * 32)
    _put(folder.join(CHECKPOINT_FOLDER, "epoch.npy"))
    DatasetWriter(folder, "b" * 32).close()
    assert folder.walk_files() == [ATTEMPT_NAME]


def test_complete_dataset_loses_nothing_to_a_writer(folder: Location, tmp_path: Path) -> None:
    _count(folder, tmp_path)
    with pytest.raises(UserError):
        DatasetWriter(folder)
    _mark(folder, "lines.npy")
    with pytest.raises(UserError) as raised:
        DatasetWriter(folder)
    assert raised.value.value == MANIFEST_NAME
    assert folder.walk_files() == [ATTEMPT_NAME, "lines.npy", MANIFEST_NAME]


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../victim", "a/../../victim", "", ".", "a//b", "a\\b", "a\0b", 7, None]
)
def test_marker_that_leads_out_of_the_folder(folder: Location, store: Store, name: object) -> None:
    _put(store.root.join("victim"))
    _put(folder.join(ATTEMPT_NAME), json.dumps({"files": ["half.npy", name]}))
    _put(folder.join("half.npy"))
    with pytest.raises(UserError, match="the marker of an earlier attempt cannot be used"):
        DatasetWriter(folder)
    assert store.root.walk_files() == [f"output/{ATTEMPT_NAME}", "output/half.npy", "victim"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"files": 1}', '{"format": 2}', "[" * 100_000])
def test_marker_that_is_none(folder: Location, text: str) -> None:
    _put(folder.join(ATTEMPT_NAME), text)
    with pytest.raises(UserError, match="cannot be used"):
        DatasetWriter(folder)
    assert folder.walk_files() == [ATTEMPT_NAME]


@pytest.mark.parametrize("place", ["values.npy", CHECKPOINT_FOLDER, f"{CHECKPOINT_FOLDER}/1", PARTS_FOLDER])
def test_links_in_an_unfinished_dataset_are_not_followed(tmp_path: Path, place: str) -> None:
    """No attempt makes any; one that points elsewhere would have files written or removed there."""
    folder, elsewhere = Location.of(tmp_path / "output"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.tex").write_text("not theirs")
    _mark(folder, "values.npy")
    (tmp_path / "output" / place).parent.mkdir(exist_ok=True)
    (tmp_path / "output" / place).symlink_to(elsewhere)
    with pytest.raises(UserError) as raised:
        DatasetWriter(folder)
    assert raised.value.value == place
    assert (elsewhere / "thesis.tex").read_text() == "not theirs"


def test_files_are_claimed_before_they_are_there(folder: Location) -> None:
    writer, seen = DatasetWriter(folder), []

    def claimed() -> list[str]:
        return list(json.loads(folder.join(ATTEMPT_NAME).read_text())["files"])

    writer.claim(["c.npy"])
    seen.append(claimed())
    with writer.file("a/b.json") as path:
        seen.append(claimed())
        path.write_text("{}")
    with writer.stream("d.bin"):
        seen.append(claimed())
    assert seen == [["c.npy"], ["a/b.json", "c.npy"], ["a/b.json", "c.npy", "d.bin"]]
    writer.close()


def test_tasks_write_what_was_claimed_and_nothing_else(folder: Location) -> None:
    writer, entry = DatasetWriter(folder), FileEntry(path="a.npy", bytes=10, sha256="0" * 64)
    _put(folder.join("a.npy"))
    with pytest.raises(ValueError, match="was not claimed"):
        writer.adopt([entry])
    writer.claim(["a.npy"])
    writer.adopt([entry])
    with pytest.raises(ValueError, match="is absolute"):
        writer.adopt([FileEntry.model_construct(path="/etc/passwd", bytes=10, sha256="0" * 64)])
    writer.close()


@pytest.mark.parametrize("name", ["/abs", "../up", MANIFEST_NAME, ATTEMPT_NAME, f"{CHECKPOINT_FOLDER}/x", PARTS_FOLDER])
def test_names_that_no_data_file_has(folder: Location, name: str) -> None:
    writer = DatasetWriter(folder)
    with pytest.raises(ValueError, match="no name for a data file"), writer.file(name):
        pass
    writer.close()


def _half(folder: Location, digest: str = "d" * 32) -> list[str]:
    """An attempt that has written `a/1` and `b` of three files when it ends; the names of what it leaves."""
    writer = DatasetWriter(folder, digest)
    writer.claim(["a/1", "b", "c"], resumable=True)
    for name in ("a/1", "b"):
        with writer.file(name) as path:
            path.write_text(f"content of {name}")
    writer.wait_for_checksums()
    writer.close()
    return folder.walk_files()


def _go_on(folder: Location) -> dict[str, str | None]:
    """The next attempt: what it takes over; it writes the rest and completes the dataset."""
    writer, found = DatasetWriter(folder, "d" * 32), dict[str, str | None]()
    writer.claim(["a/1", "b", "c"], resumable=True)
    for name in ("a/1", "b", "c"):
        with writer.left_whole(name) as path:
            found[name] = None if path is None else path.read_text()
        if found[name] is None:
            with writer.file(name) as path:
                path.write_text(f"content of {name}")
    made = commit(writer, "count")
    assert made.files() == ["a/1", "b", "c"]
    made.verify()
    made.close()
    assert folder.walk_files() == ["a/1", "b", "c", MANIFEST_NAME]
    return found


def test_whole_files_are_taken_over(folder: Location, scratch: Path) -> None:
    assert _half(folder) == [ATTEMPT_NAME, f"{WHOLE_FOLDER}/a/1.json", f"{WHOLE_FOLDER}/b.json", "a/1", "b"]
    before = folder.join("b").state()
    assert _go_on(folder) == {"a/1": "content of a/1", "b": "content of b", "c": None}
    assert folder.join("b").state() == before
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("content", ["content of B", "content of b and more", ""])
def test_files_that_were_altered_are_not_taken_over(folder: Location, content: str) -> None:
    _half(folder)
    _put(folder.join("b"), content)
    assert _go_on(folder) == {"a/1": "content of a/1", "b": None, "c": None}


@pytest.mark.parametrize("note", ["", "{}", '{"path": "../b", "bytes": 12, "sha256": "0"}', "[" * 100_000])
def test_notes_that_are_none(folder: Location, note: str) -> None:
    _half(folder)
    _put(folder.join(WHOLE_FOLDER, "b.json"), note)
    assert _go_on(folder) == {"a/1": "content of a/1", "b": None, "c": None}


def test_whole_files_of_another_dataset_are_removed(folder: Location) -> None:
    _half(folder, "e" * 32)
    assert _go_on(folder) == {"a/1": None, "b": None, "c": None}


def test_whole_files_that_are_not_taken_over_are_removed(folder: Location) -> None:
    _half(folder)
    writer = DatasetWriter(folder, "d" * 32)
    writer.claim(["a/1", "b"])
    assert folder.walk_files() == [ATTEMPT_NAME]
    writer.close()
    _half(folder)
    writer = DatasetWriter(folder, "d" * 32)
    writer.claim(["b"], resumable=True)
    with writer.left_whole("b"):
        pass
    made = commit(writer, "count")
    assert folder.walk_files() == ["b", MANIFEST_NAME]
    assert made.files() == ["b"]


KILLED = """
import json, os, signal, sys
from superworkflow.infra.storage.attempt_marker import DatasetAttempt
from superworkflow.infra.storage.dataset import DatasetWriter
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import CHECKPOINT_FOLDER, InputEntry, Measurement

steps = last = 0

def step(frame, event, argument):
    # At each line of ours in turn: whatever has been done by then stays.
    global steps
    name = frame.f_code.co_filename
    if not name.endswith(("infra/storage/attempt_marker.py", "infra/storage/dataset.py", "infra/storage/location.py")):
        return None
    if event == "line":
        steps += 1
        if steps == last:
            os.kill(os.getpid(), signal.SIGKILL)
    return step

import superworkflow.infra.storage.scratch
uri, count = sys.argv[1], int(sys.argv[2])
if "s3:" in uri:
    import s3fs

def work(name):
    location = Location.of(f"{uri}/{name}")
    sys.settrace(step)
    writer = DatasetWriter(location, "d" * 32)
    checkpoint = location.join(CHECKPOINT_FOLDER, "epoch")
    if (path := checkpoint.local_path) is not None:
        path.parent.mkdir(exist_ok=True)
    checkpoint.write_atomic("1")
    with writer.file("deep/a.json") as path:
        path.write_text("{}")
    with writer.stream("b.bin") as stream:
        stream.write(b"bytes")
    writer.commit(stage="count", version="1", params={}, inputs={}, stats={}, software={},
                  measured=Measurement(runtime_s=0, cpu_s=0, peak_memory_bytes=0, rows=0, bytes=0))
    sys.settrace(None)

def forked(at, name):
    # A process that is killed at this line: its exit status, and the lines that it has passed.
    global last
    last = at
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        work(name)
        os.write(writing, str(steps).encode())
        os._exit(0)
    os.close(writing)
    passed = os.read(reading, 64)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), int(passed or 0)

status, lines = forked(-1, "whole")
assert status == 0
killed = {at: forked(at, f"killed-{at}")[0] for at in (1 + (lines - 1) * n // (count - 1) for n in range(count))}
print(json.dumps(killed))
"""


def test_killed_at_any_point(store: Store) -> None:
    """SIGKILL at lines spread over the whole work: the next attempt begins, or the dataset is complete."""
    complete, count = 0, 12 if store.root.local_path is not None else 5
    command = [sys.executable, "-c", KILLED, store.root.uri, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    assert list(ended.values()) == [-signal.SIGKILL] * count
    for step in ended:
        folder = store.root.join(f"killed-{step}")
        if Dataset.find(folder) is not None:
            complete += 1
            continue
        DatasetWriter(folder, "d" * 32).close()
        assert set(folder.walk_files()) <= {ATTEMPT_NAME, f"{CHECKPOINT_FOLDER}/epoch"}
        _put(folder.join("thesis.tex"))
        with pytest.raises(UserError):
            DatasetWriter(folder, "d" * 32)
    assert 0 < complete < count


def test_marker_beside_a_manifest_goes_with_the_next_use(folder: Location, tmp_path: Path) -> None:
    """An attempt was killed after its manifest: the dataset exists, and nothing of the attempt is needed."""
    _count(folder, tmp_path)
    _mark(folder, "lines.npy")
    for name in (f"{CHECKPOINT_FOLDER}/epoch", f"{PARTS_FOLDER}/1"):
        _put(folder.join(name))
    _count(folder, tmp_path)
    assert folder.walk_files() == ["lines.npy", MANIFEST_NAME]


def test_attempts_by_command(tmp_path: Path) -> None:
    """`superworkflow stage` on the folder of somebody: refused, exit status 2, everything as it was."""
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    (tmp_path / "mine" / "deep" / "thesis.tex").write_text("years")
    (tmp_path / "edges.csv").write_text("1,2\n2,3\n")
    command = [sys.executable, "-m", "superworkflow", "stage", "index", "--input", f"edges={tmp_path}/edges.csv"]
    done = subprocess.run([*command, "--output", str(tmp_path / "mine")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "deep/thesis.tex" in done.stderr
    assert [path.name for path in (tmp_path / "mine").rglob("*") if path.is_file()] == ["thesis.tex"]
    assert os.listdir(tmp_path / "mine") == ["deep"]  # noqa: PTH208


def test_second_attempt_object_begins_anew(folder: Location) -> None:
    folder.make()
    first = DatasetAttempt(folder)
    first.begin()
    first.claim(["a"])
    _put(folder.join("a"))
    second = DatasetAttempt(folder)
    second.begin()
    assert "a" in first
    assert "a" not in second
    assert folder.walk_files() == [ATTEMPT_NAME]
