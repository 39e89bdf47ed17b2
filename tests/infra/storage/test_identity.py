"""A digest names what was read: a dataset's folder, manifest and content agree, or it does not exist."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.contract.stage import Output, Progress, Resources, StageRun
from superworkflow.infra.launch.run_stage import Executed, execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.digest import dataset_digest, file_sha256
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import FORMAT, MANIFEST_NAME
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.store import Store
from tests.infra.storage.test_safe_names import rewrite
from tests.toy_stages import COUNT, CountParams

pytestmark = pytest.mark.usefixtures("scratch")


def _planned(text: str, **params: Any) -> str:
    return dataset_digest("count", "1", CountParams(**params).identity(), {"text": Source.of(text).digest})


@pytest.fixture
def text(store: Store) -> Location:
    """A text of five lines in the store, written long ago."""
    store.root.make()
    place = store.root.join("text.txt")
    place.write_atomic("line\n" * 5)
    if place.local_path is not None:
        os.utime(place.local_path, (1e9, 1e9))
    return place


@pytest.fixture
def run(store: Store, text: Location) -> Callable[..., Executed]:
    """Runs `count` on the text, as a run's launcher does where `expected` is given."""

    def run(expected: str = "", stage: Any = COUNT) -> Executed:
        output = store.location("count", expected or _planned(text.uri)).uri
        progress = Progress("count", stream=io.StringIO())
        return execute(stage, {}, {"text": text.uri}, output, Resources(), progress, expected=expected)

    return run


def _edit(manifest: Location, old: str, new: str) -> None:
    before = manifest.read_text()
    assert before.count(old) >= 1
    manifest.write_atomic(before.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new"),
    [('"rows": 5', '"rows": 6'), ('"lines": 5', '"lines": 7'), ('"bytes": 136', '"bytes": 137'), ('"stats"', '"stat"'),
     ('"engine": "in-process"', '"engine": "Spark"'), ('"format": 2', '"format": 1'), ('"skip": 0', '"skip": 1')],
)  # fmt: skip
def test_manifest_that_was_altered(run: Callable[..., Executed], old: str, new: str) -> None:
    made = run().dataset
    _edit(made.location.join(MANIFEST_NAME), old, new)
    with pytest.raises(DatasetDamaged, match="it was altered: its SHA-256 is not that of its content"):
        Dataset.open(made.location)


def test_manifest_whose_digest_is_of_something_else(run: Callable[..., Executed], store: Store) -> None:
    made = run().dataset
    rewrite(made, params={"skip": 1})
    with pytest.raises(DatasetDamaged, match="is not that of its parameters and inputs"):
        store.find("count", made.digest)


def test_manifest_of_the_first_format(run: Callable[..., Executed], store: Store) -> None:
    """It has no sum; its digest, names and files are held against it all the same."""
    made = run().dataset
    place = made.location.join(MANIFEST_NAME)
    document = json.loads(place.read_text()) | {"format": 1}
    del document["sha256"]
    place.write_atomic(json.dumps(document))
    found = store.find("count", made.digest)
    assert found is not None
    assert found.manifest.rows == 5
    place.write_atomic(json.dumps(document | {"version": "2"}))
    with pytest.raises(DatasetDamaged, match="is not that of its parameters"):
        store.find("count", made.digest)
    del document["format"]
    place.write_atomic(json.dumps(document))
    with pytest.raises(DatasetDamaged, match="it was altered"):
        store.find("count", made.digest)


def test_manifest_of_a_later_format(run: Callable[..., Executed]) -> None:
    made = run().dataset
    rewrite(made, format=FORMAT + 1)
    with pytest.raises(
        DatasetDamaged, match=r"the dataset was made by a newer version of this program.*Use that version"
    ):
        Dataset.open(made.location)


def test_files_of_another_dataset_are_not_used(run: Callable[..., Executed], store: Store, text: Location) -> None:
    made = run().dataset
    other = _planned(text.uri, skip=1)
    store.location("count", other).make()
    for name in made.location.walk_files():
        with made.location.join(name).open() as stream, store.location("count", other).join(name).open("wb") as copy:
            shutil.copyfileobj(stream, copy)
    with pytest.raises(DatasetDamaged, match="another dataset than its name says") as raised:
        store.find("count", other)
    assert made.digest in str(raised.value)
    with pytest.raises(DatasetDamaged):
        store.open("count", other)
    assert [dataset.uri for dataset in store.datasets("count")] == [made.uri]


def test_source_edited_after_planning(run: Callable[..., Executed], store: Store, text: Location) -> None:
    planned = _planned(text.uri)
    text.write_atomic("LINE\n" * 5)
    with pytest.raises(UserError, match="is not what the run was planned with") as raised:
        run(planned)
    assert text.uri in str(raised.value)
    assert "Run again" in str(raised.value)
    assert store.root.walk_files() == ["text.txt"]
    assert run(_planned(text.uri)).dataset.digest != planned


def _write(path: Path, content: str) -> None:
    """In place, as editors and `cat >` do."""
    with path.open("r+") as stream:
        stream.write(content)


def _write_and_set_back(path: Path, content: str) -> None:
    status = path.stat()
    _write(path, content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _exchange(path: Path, content: str) -> None:
    status = path.stat()
    other = path.with_name("other")
    other.write_text(content)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


EDITS = {"write": _write, "set back": _write_and_set_back, "exchange": _exchange}


def altering(edit: str, job: StageRun[CountParams]) -> Output:
    """Counts, while somebody writes the file."""
    source = job.sources["text"]
    lines = len(source.local(job.scratch).read_text().splitlines())
    if source.location.local_path is not None:
        EDITS[edit](source.location.local_path, "LINE\n" * 5)
    else:
        source.location.write_atomic("LINE\n" * 5)
    job.output.json("lines.json", lines)
    return Output(rows=lines)


def write(job: StageRun[CountParams]) -> Output:
    """See `altering`."""
    return altering("write", job)


def set_back(job: StageRun[CountParams]) -> Output:
    """See `altering`."""
    return altering("set back", job)


def exchange(job: StageRun[CountParams]) -> Output:
    """See `altering`."""
    return altering("exchange", job)


def touch(job: StageRun[CountParams]) -> Output:
    """The file gets a second name, as from a backup; its content stays."""
    path = job.sources["text"].location.local_path
    if path is not None:
        os.link(path, path.with_name("backup"))
    return Output(rows=5)


@pytest.mark.parametrize("name", ["write", "set_back", "exchange"])
def test_source_edited_while_the_stage_reads_it(run: Callable[..., Executed], store: Store, name: str) -> None:
    with pytest.raises(UserError, match="was changed while the stage read it"):
        run(stage=replace(COUNT, run=f"tests.infra.storage.test_identity:{name}"))
    assert list(store.datasets("count")) == []
    assert not [name for name in store.root.walk_files() if name.endswith(MANIFEST_NAME)]


def test_source_edited_within_one_tick_of_the_clock(run: Callable[..., Executed], store: Store, text: Location) -> None:
    """The file's time says nothing where it was written a moment before."""
    if text.local_path is None:
        pytest.skip("objects have tags of their content")
    os.utime(text.local_path)
    with pytest.raises(UserError, match="was changed while the stage read it"):
        run(stage=replace(COUNT, run="tests.infra.storage.test_identity:set_back"))


def test_source_that_only_got_another_name(run: Callable[..., Executed]) -> None:
    assert not run(stage=replace(COUNT, run="tests.infra.storage.test_identity:touch")).reused


def test_remote_source_is_checked_when_it_is_fetched(s3_store: Store, tmp_path: Path) -> None:
    place = s3_store.root.join("text.txt")
    place.write_atomic("one\n")
    source = Source.of(place.uri)
    assert source.digest == hashlib.sha256(b"one\n").hexdigest()
    place.write_atomic("two\n")
    with pytest.raises(UserError, match="was changed while the stage read it"):
        source.local(tmp_path)


class TestKeep:
    """Copies of source files in the store."""

    def test_altered_copy_is_replaced(self, store: Store, tmp_path: Path) -> None:
        (tmp_path / "edges.csv").write_text("1,2\n")
        kept = Location.of(store.keep_source(Source.of(tmp_path / "edges.csv")))
        kept.write_atomic("1,3\n")
        assert store.keep_source(Source.of(tmp_path / "edges.csv")) == kept.uri
        assert kept.read_text() == "1,2\n"

    def test_copy_is_used_again(self, store: Store, tmp_path: Path) -> None:
        (tmp_path / "edges.csv").write_text("1,2\n")
        kept = Location.of(store.keep_source(Source.of(tmp_path / "edges.csv")))
        before = kept.fingerprint()
        assert store.keep_source(Source.of(tmp_path / "edges.csv")) == kept.uri
        assert kept.fingerprint() == before
        assert Path(kept.uri).parent.name == file_sha256(tmp_path / "edges.csv")

    def test_copy_of_which_nothing_is_known_is_sent_again(self, s3_store: Store, tmp_path: Path) -> None:
        (tmp_path / "edges.csv").write_text("1,2\n")
        sha256 = file_sha256(tmp_path / "edges.csv")
        s3_store.root.join(".sources", sha256, "edges.csv").write_atomic("1,3\n")
        assert Location.of(s3_store.keep_source(Source.of(tmp_path / "edges.csv"))).read_text() == "1,2\n"

    def test_names_that_no_store_takes(self, store: Store, tmp_path: Path) -> None:
        (tmp_path / "a\\b\n.csv").write_text("1,2\n")
        kept = store.keep_source(Source.of(tmp_path / "a\\b\n.csv"))
        assert kept.endswith("/a_b_.csv")
        assert Location.of(kept).read_text() == "1,2\n"
