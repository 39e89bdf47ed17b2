"""One stage run in this process: the same contract on a local folder and on S3."""

import contextlib
import errno
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.contract.progress import Progress, parse_event
from superworkflow.infra.contract.stage import Resources, Stage
from superworkflow.infra.launch.run_stage import Executed, _folders, _store_errors, execute
from superworkflow.infra.process.resource_usage import process_age_seconds
from superworkflow.infra.storage import retry, s3
from superworkflow.infra.storage.attempt_marker import DatasetAttempt
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.digest import dataset_digest
from superworkflow.infra.storage.lease import Lease, LeaseClaim
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import LeaseLost, Right, exclusive
from superworkflow.infra.storage.manifest import ATTEMPT_NAME, CHECKPOINT_FOLDER, MANIFEST_NAME
from superworkflow.infra.storage.retry import Unreachable
from superworkflow.infra.storage.s3 import PatientS3
from superworkflow.infra.storage.scratch import PREFIX
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.store import Store
from tests.datasets import commit
from tests.s3_proxy import S3Proxy
from tests.toy_stages import COUNT, SCALE

Run = Callable[..., Executed]


@pytest.fixture(autouse=True)
def nothing_left(scratch: Path) -> Iterator[None]:
    """No temporary folder may be left behind."""
    yield
    assert list(scratch.iterdir()) == []


@pytest.fixture
def text(store: Store) -> str:
    """URI of a text of five lines in the store."""
    store.root.make()
    store.root.join("text.txt").write_atomic("line\n" * 5)
    return store.root.join("text.txt").uri


@pytest.fixture
def run(store: Store, text: str) -> Run:
    """Runs a stage on the text or on the dataset `count` of it, at the place that its digest names."""

    def run(stage: Stage[Any], stream: io.StringIO | None = None, **params: Any) -> Executed:
        inputs = {"text": text} if stage is COUNT else {"number": _number(store).uri}
        location = store.location(stage.name, _digest(stage, store, text, params))
        progress = Progress(stage.name, events=True, stream=stream or io.StringIO())
        return execute(stage, params, inputs, location.uri, Resources(cpu=2), progress)

    return run


def _number(store: Store) -> Dataset:
    return next(store.datasets("count"))


def _digest(stage: Stage[Any], store: Store, text: str, params: dict[str, Any]) -> str:
    inputs = {"text": Source.of(text).digest} if stage is COUNT else {"number": _number(store).digest}
    return dataset_digest(stage.name, stage.version, stage.params(**params).identity(), inputs)


def test_removes_what_a_killed_stage_left(run: Run, scratch: Path) -> None:
    left = scratch / f"{PREFIX}stage-killed"
    (left / "spill").mkdir(parents=True)
    os.utime(left, (1e9, 1e9))
    run(COUNT)
    assert not left.exists()


def test_makes_the_dataset(run: Run, store: Store) -> None:
    counted = run(COUNT, skip=1)
    assert not counted.reused
    assert counted.manifest.rows == 4
    assert counted.manifest.params == {"skip": 1}
    assert counted.manifest.inputs["text"].stage is None
    scaled = run(SCALE, factor=0.5)
    found = store.find("scale", scaled.dataset.digest)
    assert found is not None
    assert found.json("scaled/value.json") == {"value": 2.0}
    assert found.manifest.params == {"factor": 0.5}
    assert found.manifest.inputs["number"].model_dump() == {"digest": counted.dataset.digest, "stage": "count"}
    assert found.stats["resumed"] is False
    assert found.manifest.software["python"] == sys.version.split()[0]
    assert found.location.walk_files() == ["before.json", MANIFEST_NAME, "scaled/value.json"]
    found.close()


def test_measures(run: Run) -> None:
    measured = run(COUNT).manifest.measured
    assert measured.rows == 5
    assert measured.bytes == 136  # of a NumPy file: 128 of header, 8 of value
    assert measured.cpu_s > 0
    assert 0 < measured.runtime_s < 24 * 3600
    assert (10 << 20) < measured.peak_memory_bytes < (64 << 30)


def test_runtime_is_without_the_wait_for_another_run(run: Run, store: Store, text: str) -> None:
    release = threading.Event()
    stack = contextlib.ExitStack()

    class Waited(io.StringIO):
        """Releases the lock a second after the stage has logged that it waits."""

        def write(self, line: str) -> int:
            if "another run is making this dataset" in line:
                threading.Timer(1.0, release.set).start()
            return super().write(line)

    def hold() -> None:
        with stack:
            release.wait(30)

    stack.enter_context(exclusive(store.location("count", _digest(COUNT, store, text, {}))))
    holder = threading.Thread(target=hold)
    holder.start()
    measured = run(COUNT, Waited()).manifest.measured
    holder.join()
    assert measured.runtime_s <= process_age_seconds() - 1.0


@pytest.fixture
def number(s3_store: Store) -> str:
    """URI of a dataset `count` on S3."""
    s3_store.root.join("text.txt").write_atomic("line\n")
    place, text = s3_store.location("count", "x" * 32).uri, s3_store.root.join("text.txt").uri
    execute(COUNT, {}, {"text": text}, place, Resources(), Progress("count", stream=io.StringIO()))
    return place


def test_run_that_lost_its_lease_does_not_complete(s3_store: Store, number: str) -> None:
    output, log, lost = s3_store.location("scale", "0" * 32), io.StringIO(), list[LeaseLost]()
    other = Lease(s3_store.root.join("scale", f".{output.name}.lease"), LeaseClaim(supersedes=["first"]))

    def take_over() -> None:
        while output.join("before.json").size() is None:
            time.sleep(0.02)
        assert other.acquire()

    thread = threading.Thread(target=take_over)
    thread.start()
    with pytest.raises(LeaseLost, match="another took over the dataset"):
        execute(
            SCALE, {"seconds": 2.0}, {"number": number}, output.uri, Resources(), Progress("x", stream=log),
            on_lost=lost.append, claim=LeaseClaim("first"),
        )  # fmt: skip
    thread.join()
    assert Dataset.find(output) is None
    assert other.renew()


def test_store_away_during_a_checkpoint(
    s3_store: Store, s3_proxy: S3Proxy, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is given up, with a warning; what the stage makes later is waited for."""
    monkeypatch.setattr(s3, "HURRIED_SECONDS", 1.0)
    output, log = s3_store.location("scale", "0" * 32), io.StringIO()
    s3_proxy.trip = (b"/_checkpoint/half.txt", "refuse", 4.0)
    with retry.log_to(lambda message: print(message, file=log)):
        done = execute(SCALE, {}, {"number": number}, output.uri, Resources(), Progress("x", stream=log))
    assert s3_proxy.tripped.is_set()
    assert "warning: the checkpoint could not be sent to the store" in log.getvalue()
    assert "trying again with the next one" in log.getvalue()
    assert f"waiting: the store at {s3_proxy.url} does not answer" in log.getvalue()
    done.dataset.verify()
    done.dataset.close()
    assert output.walk_files() == ["before.json", MANIFEST_NAME, "scaled/value.json"]


def test_checkpoint_that_was_not_sent_leaves_the_one_before(
    s3_store: Store, s3_proxy: S3Proxy, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are sent as they were written, the one that names the others last."""
    monkeypatch.setattr(s3, "HURRIED_SECONDS", 0.5)
    output, log = s3_store.location("scale", "0" * 32), io.StringIO()
    with _folders(output, Right(), Progress("x", stream=log)) as folders:

        def write(tag: str) -> None:
            for path in folders.checkpoint.glob("*.npy"):
                path.unlink()
            (folders.checkpoint / f"table-{tag}.npy").write_text(tag)
            (folders.checkpoint / "a-state.json").write_text(tag)  # its name is before that of the table
            folders.save()

        write("1")
        s3_proxy.trip = (b"table-2.npy", "refuse", 1.5)
        write("2")
        assert "warning" in log.getvalue()
        kept = output.join(CHECKPOINT_FOLDER)
        assert kept.walk_files() == ["a-state.json", "table-1.npy"]
        assert kept.join("a-state.json").read_text() == "1"
        write("3")
        assert kept.walk_files() == ["a-state.json", "table-3.npy"]
        assert kept.join("a-state.json").read_text() == "3"


STOPPED = """
import sys
from superworkflow.infra.process import shutdown
from superworkflow.infra.storage import lease
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.lease import LeaseClaim
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from tests.toy_stages import SCALE
lease.RENEW_SECONDS = 3600.0  # it wakes up in the middle of its work, not in its keeper
def lost(error):
    shutdown.end_process(1)
execute(SCALE, {"seconds": 3.0, "factor": 7.0}, {"number": sys.argv[1]}, sys.argv[2], Resources(),
        Progress("scale"), on_lost=lost, claim=LeaseClaim("stopped"))
"""


@pytest.mark.slow
def test_stopped_writer_that_continues_changes_nothing(s3_store: Store, number: str, tmp_path: Path) -> None:
    """A laptop that slept, a process that was stopped: by then another has made the dataset, or is about to."""
    output = s3_store.location("scale", "0" * 32)
    writer = subprocess.Popen([sys.executable, "-c", STOPPED, number, output.uri], stderr=subprocess.PIPE, text=True)
    try:
        while output.join(CHECKPOINT_FOLDER, "half.txt").size() is None:
            assert writer.poll() is None
            time.sleep(0.02)
        os.kill(writer.pid, signal.SIGSTOP)
        progress = Progress("x", stream=io.StringIO())
        done = execute(
            SCALE, {}, {"number": number}, output.uri, Resources(), progress, claim=LeaseClaim("", {"stopped"})
        )
    finally:
        os.kill(writer.pid, signal.SIGCONT)
    _, said = writer.communicate(timeout=60)
    assert writer.returncode == 1
    assert "another took over the dataset" in said
    after = Dataset.open(output)
    assert after.manifest == done.manifest
    after.verify()
    after.close()
    assert done.dataset.stats["value"] == 2.0


class _Held(Right):
    def confirm(self, *, patient: bool = True) -> None: ...


class _Lost(Right):
    def confirm(self, *, patient: bool = True) -> None:
        raise LeaseLost("another took over the dataset")


def test_late_manifest_and_late_file_lose(s3_store: Store, tmp_path: Path) -> None:
    """The writer slept between its last look at its lease and its next write."""
    location = s3_store.location("scale", "0" * 32)

    def write(writer: DatasetWriter, value: int) -> Dataset:
        writer.json("value.json", value)
        return commit(writer, "scale", stats={"value": value})

    early, late = DatasetWriter(location, right=_Held()), DatasetWriter(location, right=_Lost())
    write(early, 1)
    with pytest.raises(LeaseLost):
        late.json("value.json", 2)  # refused, since there is one
    with pytest.raises(LeaseLost):
        write(late, 2)
    late.close()
    assert Dataset.open(location).stats == {"value": 1}

    # The other way round: what came late lies there when the holder of the right writes.
    location = s3_store.location("scale", "1" * 32)
    holder = DatasetWriter(location, right=_Held())
    location.join("value.json").write_atomic("3")
    location.join(MANIFEST_NAME).write_atomic("{}")
    write(holder, 4)
    found = Dataset.open(location)
    found.verify()
    assert found.stats == {"value": 4}
    assert found.json("value.json") == 4
    found.close()


@pytest.mark.parametrize("output", ["s3://no-such-bucket/count/x", "s3://superworkflow-tests/count/{digest}"])
def test_store_that_refuses_is_named(
    s3_server: str, tmp_path: Path, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bucket; no credentials. Neither is waited for."""
    (tmp_path / "text").write_text("line")
    if "{digest}" in output:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("HOME", str(tmp_path))
        PatientS3.clear_instance_cache()
    try:
        with pytest.raises(UserError, match=r"cannot read or write: .*([bB]ucket|credentials)") as raised:
            execute(COUNT, {}, {"text": f"{tmp_path}/text"}, output, Resources(), Progress("x", stream=io.StringIO()))
    finally:
        PatientS3.clear_instance_cache()
    assert "Check that the store can be reached" in str(raised.value)


def test_tells_progress(run: Run) -> None:
    stream = io.StringIO()
    run(COUNT, stream)
    assert parse_event(stream.getvalue()) == {
        "event": "progress", "stage": "count", "done": 5, "total": 5, "unit": "lines", "facts": {"per_line": 1},
    }  # fmt: skip


def test_reuses_what_is_there(run: Run) -> None:
    first, second = run(COUNT), run(COUNT)
    assert second.reused
    assert second.manifest == first.manifest


def test_truncated_dataset_is_not_reused(run: Run, store: Store) -> None:
    dataset = run(COUNT).dataset
    dataset.location.join("lines.npy").write_atomic("short")
    with pytest.raises(DatasetDamaged, match="truncated or altered"):
        run(COUNT)


def test_a_dataset_of_which_a_file_is_gone_is_made_again(run: Run, store: Store) -> None:
    """A bucket's lifecycle rule may remove it; the other files are the attempt's own, so that they are replaced."""
    first = run(COUNT)
    first.dataset.location.join("lines.npy").delete()
    log = io.StringIO()
    second = run(COUNT, log)
    assert not second.reused
    assert "one of its files is gone" in log.getvalue()
    assert second.manifest.files == first.manifest.files
    second.dataset.verify()
    second.dataset.close()
    assert sorted(second.dataset.location.walk_files()) == ["lines.npy", MANIFEST_NAME]
    assert run(COUNT).reused


def test_refuses_the_place_of_another_dataset(run: Run, store: Store, text: str) -> None:
    there = run(COUNT).dataset
    with pytest.raises(UserError, match="another dataset is already here") as raised:
        execute(COUNT, {"skip": 3}, {"text": text}, there.uri, Resources(), Progress("count", stream=io.StringIO()))
    assert there.digest in str(raised.value)
    assert Dataset.open(there.location).manifest == there.manifest


@pytest.mark.parametrize(("end", "error"), [("bug", RuntimeError), ("bad-input", UserError)])
def test_failure_leaves_a_checkpoint_and_no_dataset(run: Run, store: Store, end: str, error: type[Exception]) -> None:
    run(COUNT)
    with pytest.raises(error):
        run(SCALE, end=end)
    assert list(store.datasets("scale")) == []
    (folder,) = store.root.join("scale").folders()
    location = store.location("scale", folder)
    assert sorted(location.walk_files()) == [ATTEMPT_NAME, f"{CHECKPOINT_FOLDER}/half.txt", "before.json"]
    again = run(SCALE)
    assert again.dataset.stats["resumed"] is True
    assert again.dataset.location.walk_files() == ["before.json", MANIFEST_NAME, "scaled/value.json"]


def test_replaced_checkpoint_does_not_come_back(run: Run, store: Store, text: str) -> None:
    run(COUNT)
    digest = _digest(SCALE, store, text, {})
    store.location("scale", digest).make()
    DatasetAttempt(store.location("scale", digest), digest).begin()
    older = store.location("scale", digest).join(CHECKPOINT_FOLDER, "older.txt")
    if older.local_path is not None:
        older.local_path.parent.mkdir()
    older.write_atomic("of the epoch before")
    with pytest.raises(RuntimeError):
        run(SCALE, end="bug")
    assert store.location("scale", digest).join(CHECKPOINT_FOLDER).walk_files() == ["half.txt"]


@pytest.mark.parametrize(
    ("stage", "params", "inputs", "message"),
    [
        (COUNT, {"skip": -1}, {}, r"count.skip: .*greater than or equal to 0 \(got -1\). Lines to skip, 0 or more"),
        (COUNT, {"skpi": 1}, {}, r"count.skpi: unknown parameter. Did you mean count.skip\?"),
        (COUNT, {}, {}, r"text: stage count needs this input \(a text\). Give it with --input text=URI"),
        (COUNT, {}, {"tex": "x"}, r"tex: stage count has no such input. Did you mean text\?"),
        (COUNT, {}, {"text": "{root}/none.txt"}, "none.txt: no such file"),
        (SCALE, {}, {"number": "{root}/none"}, "none: no complete dataset here"),
    ],
)
def test_bad_input(
    store: Store, stage: Stage[Any], params: dict[str, Any], inputs: dict[str, str], message: str
) -> None:
    uris = {name: uri.format(root=store.uri) for name, uri in inputs.items()}
    progress = Progress(stage.name, stream=io.StringIO())
    with pytest.raises(UserError, match=message):
        execute(stage, params, uris, store.location(stage.name, "0" * 32).uri, Resources(), progress)
    assert store.root.join(stage.name).walk_files() == []


def test_damaged_input_is_named(run: Run) -> None:
    number = run(COUNT).dataset.location.join("lines.npy")
    number.write_atomic("x" * 136)
    with pytest.raises(DatasetDamaged, match="SHA-256") as raised:
        run(SCALE)
    assert number.uri in str(raised.value)


def test_output_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("one\n")
    progress = Progress("count", stream=io.StringIO())
    with pytest.raises(UserError, match="cannot write") as raised:
        execute(COUNT, {}, {"text": f"{tmp_path}/text"}, f"{tmp_path}/text/count/x", Resources(), progress)
    assert f"{tmp_path}/text" in str(raised.value)


def test_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "tiny"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        (tmp_path / "text").write_text("one\n")
        store, progress = Store(disk), Progress("count", stream=io.StringIO())
        number = store.location("count", "c")
        execute(COUNT, {}, {"text": f"{tmp_path}/text"}, number.uri, Resources(), progress)
        place = store.location("scale", "s").uri
        with pytest.raises(UserError, match="cannot write") as raised:
            execute(SCALE, {"end": "no-space"}, {"number": number.uri}, place, Resources(), progress)
        assert "B are free there" in str(raised.value) or "No space left" in str(raised.value)
        assert "complete stages are kept" in str(raised.value)
        assert list(store.datasets("scale")) == []
        assert Dataset.find(number) is not None
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_store_that_does_not_answer_for_too_long(
    tmp_path: Path, s3_store: Store, s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says so; it is no matter of space."""
    monkeypatch.setattr(retry, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(s3, "HURRIED_SECONDS", 0.5)
    (tmp_path / "text").write_text("one\n")
    output, progress = s3_store.root.join("count", "c").uri, Progress("count", stream=io.StringIO())
    s3_proxy.trip = (b"lines.npy", "refuse", 3600.0)
    with pytest.raises(Unreachable, match="has not answered for 1 s") as raised:
        execute(COUNT, {}, {"text": f"{tmp_path}/text"}, output, Resources(), progress)
    assert "can be reached" in str(raised.value)
    assert "complete stages are kept" in str(raised.value)
    assert "space" not in str(raised.value)


SECOND = """
import sys
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from tests.toy_stages import SCALE
done = execute(SCALE, {"seconds": 2.0}, {"number": sys.argv[1]}, sys.argv[2], Resources(), Progress("scale"))
print(done.reused)
"""


def test_two_processes_compute_once(run: Run, store: Store, text: str) -> None:
    number = run(COUNT).dataset
    place = store.location("scale", _digest(SCALE, store, text, {})).uri
    command = [sys.executable, "-c", SECOND, number.uri, place]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ended = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    assert sorted(out for out, _ in ended) == ["False\n", "True\n"]
    dataset = store.find("scale", Path(place).name)
    assert dataset is not None
    assert dataset.stats["resumed"] is False
    dataset.close()


@pytest.mark.parametrize(("number", "remedy"), [(errno.EACCES, "Check its permissions"), (errno.ENOSPC, "Free space")])
def test_what_to_do_about_a_store_that_cannot_be_written(tmp_path: Path, number: int, remedy: str) -> None:
    with pytest.raises(UserError, match=f"{remedy} or choose another store"), _store_errors(Location.of(tmp_path)):
        raise OSError(number, os.strerror(number))
