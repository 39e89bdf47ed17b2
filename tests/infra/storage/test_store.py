"""Datasets and stores: the same contract on a local folder and on S3."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from blake3 import blake3

from superworkflow.infra.base.errors import DataFileGone, DatasetDamaged, UserError
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.digest import dataset_digest
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import ATTEMPT_NAME, MANIFEST_NAME, InputEntry, Manifest, Measurement
from superworkflow.infra.storage.s3 import PatientS3
from superworkflow.infra.storage.store import Store

pytestmark = pytest.mark.usefixtures("scratch")


def _digest(stage: str = "count", skip: int = 0) -> str:
    return dataset_digest(stage, "1", {"skip": skip}, {"text": "f" * 64})


DIGEST = _digest()


def _commit(writer: DatasetWriter, stage: str = "count", skip: int = 0) -> Dataset:
    return writer.commit(
        stage=stage,
        version="1",
        params={"skip": skip},
        inputs={"text": InputEntry(digest="f" * 64)},
        stats={"lines": 5},
        measured=Measurement(runtime_s=1.5, cpu_s=1, peak_memory_bytes=1 << 20, rows=5, bytes=writer.bytes_written),
        software={"python": "3"},
    )


def _make(store: Store, stage: str = "count", skip: int = 0) -> Dataset:
    writer = DatasetWriter(store.location(stage, _digest(stage, skip)))
    writer.array("values.npy", np.arange(1000))
    writer.json("facts/small.json", {"a": [1, 2.5, None]})
    writer.table("table.parquet", pa.table({"node": ["x", "y"], "rank": [1, 2]}))
    return _commit(writer, stage, skip)


def _overwrite(location: Location, content: bytes) -> None:
    if location.local_path is not None:
        location.local_path.write_bytes(content)
    else:
        with location.open("wb") as stream:
            stream.write(content)


def _bytes(location: Location) -> bytes:
    with location.open() as stream:
        return stream.read()


def test_what_is_written_is_read(store: Store) -> None:
    _make(store)
    dataset = store.find("count", DIGEST)
    assert dataset is not None
    assert dataset.files() == ["facts/small.json", "table.parquet", "values.npy"]
    assert dataset.files("*.npy") == ["values.npy"]
    assert "values.npy" in dataset
    assert "nothing.npy" not in dataset
    assert np.array_equal(dataset.array("values.npy"), np.arange(1000))
    assert np.array_equal(dataset.array("values.npy", mmap=False), np.arange(1000))
    assert dataset.json("facts/small.json") == {"a": [1, 2.5, None]}
    assert dataset.table("table.parquet").to_pydict() == {"node": ["x", "y"], "rank": [1, 2]}
    assert dataset.table("table.parquet", ["node"]).to_pydict() == {"node": ["x", "y"]}
    assert dataset.parquet("table.parquet").read()["node"].to_pylist() == ["x", "y"]
    assert dataset.stats == {"lines": 5}
    assert dataset.manifest.rows == 5
    sizes = [dataset.location.join(name).size() or 0 for name in dataset.files()]
    assert dataset.manifest.bytes == sum(sizes) == dataset.manifest.measured.bytes
    dataset.verify()
    dataset.close()


def test_finding_leaves_no_copies(store: Store, scratch: Path) -> None:
    _make(store)
    assert store.find("count", DIGEST) is not None
    _overwrite(store.location("count", DIGEST).join("table.parquet"), b"altered")
    with pytest.raises(DatasetDamaged):
        store.find("count", DIGEST)
    assert list(scratch.iterdir()) == []


def test_reads_again_after_release_and_close(store: Store) -> None:
    dataset = _make(store)
    for _ in range(2):
        assert dataset.array("values.npy", mmap=False)[7] == 7
        dataset.release("values.npy")
    dataset.close()
    assert dataset.array("values.npy", mmap=False)[7] == 7
    dataset.close()


def test_threads_may_ask_for_one_file_at_once(s3_store: Store) -> None:
    """The second must not take what the first has fetched half."""
    uri = _make(s3_store).uri
    for _ in range(5):
        dataset, together = Dataset.open(uri), threading.Barrier(4)

        def read(_: int, dataset: Dataset = dataset, together: threading.Barrier = together) -> int:
            together.wait()
            return len(dataset.array("values.npy", mmap=False))

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(read, range(4))) == [1000] * 4
        dataset.close()


def test_scratch_of_a_remote_dataset_is_bounded_and_removed(s3_store: Store) -> None:
    dataset = _make(s3_store)
    path = dataset.local("values.npy")
    assert path.exists()
    dataset.release("values.npy")
    assert not path.exists()
    dataset.local("values.npy")
    dataset.close()
    assert not path.parent.exists()


def test_does_not_exist_before_its_manifest(store: Store) -> None:
    location = store.location("count", DIGEST)
    writer = DatasetWriter(location)
    writer.array("values.npy", np.arange(3))
    assert location.walk_files() == [ATTEMPT_NAME, "values.npy"]
    assert store.find("count", DIGEST) is None
    assert list(store.datasets("count")) == []
    with pytest.raises(UserError, match=r"no complete dataset here \(no manifest.json\)"):
        Dataset.open(location)
    _commit(writer)
    assert store.find("count", DIGEST) is not None


@pytest.mark.parametrize("name", ["values.npy", "facts/small.json"])
def test_truncated_file_is_named(store: Store, name: str) -> None:
    location = _make(store).location.join(name)
    _overwrite(location, _bytes(location)[:-1])
    with pytest.raises(DatasetDamaged, match="truncated or altered") as raised:
        store.find("count", DIGEST)
    assert location.uri in str(raised.value)
    assert "Delete the folder" in str(raised.value)


def test_altered_file_of_the_same_length_is_named(store: Store) -> None:
    location = _make(store).location.join("values.npy")
    content = bytearray(_bytes(location))
    content[500] ^= 1
    _overwrite(location, bytes(content))
    Dataset.open(store.location("count", DIGEST)).verify("size")
    with pytest.raises(DatasetDamaged, match="SHA-256") as raised:
        store.find("count", DIGEST)
    assert location.uri in str(raised.value)
    with pytest.raises(DatasetDamaged, match="SHA-256"):
        Dataset.open(store.location("count", DIGEST)).array("values.npy")


def test_large_file_is_summed_by_blake3(store: Store) -> None:
    """Versions that know SHA-256 alone refuse the manifest by its format; those of other datasets have format 2."""
    writer, content = DatasetWriter(store.location("count", DIGEST)), np.random.default_rng(1).bytes(5_000_001)
    with writer.stream("large", kept=False) as stream:
        stream.write(content)
    writer.json("small.json", 1)
    made = _commit(writer)
    large, small = made.manifest.files
    assert (large.blake3, large.sha256) == (blake3(content).hexdigest(), None)
    assert (small.blake3, small.sum[0]) == (None, "sha256")
    place = made.location.join(MANIFEST_NAME)
    document = json.loads(place.read_text())
    assert document["format"] == 3
    assert [sorted(entry) for entry in document["files"]] == [["blake3", "bytes", "path"], ["bytes", "path", "sha256"]]
    found = Dataset.open(made.location)
    assert found.manifest.files == made.manifest.files
    found.verify()
    found.close()
    assert json.loads(_make(store, skip=1).location.join(MANIFEST_NAME).read_text())["format"] == 2
    with pytest.raises(ValueError, match="format 2 knows no BLAKE3"):
        Manifest.model_validate(made.manifest.model_dump() | {"format": 2})
    _overwrite(made.location.join("large"), content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DatasetDamaged, match="its BLAKE3 differs"):
        Dataset.open(made.location).local("large")


def test_a_dataset_without_one_of_its_files_is_a_miss(store: Store) -> None:
    location = _make(store).location.join("table.parquet")
    assert store.has("count", DIGEST)
    location.delete()
    assert store.find("count", DIGEST) is None
    assert not store.has("count", DIGEST)
    dataset = Dataset.open(store.location("count", DIGEST))
    for use in (dataset.verify, lambda: dataset.parquet("table.parquet")):
        with pytest.raises(DataFileGone, match=r"file is missing.*Run again") as raised:
            use()
        assert location.uri in str(raised.value)


@pytest.mark.parametrize(("content", "message"), [(b"short", "truncated or altered"), (b"x" * 8128, "SHA-256")])
def test_altered_bytes_are_an_error_also_where_another_file_is_gone(store: Store, content: bytes, message: str) -> None:
    location = _make(store).location
    location.join("facts/small.json").delete()
    _overwrite(location.join("values.npy"), content)
    with pytest.raises(DatasetDamaged, match=message):
        store.find("count", DIGEST)
    assert store.has("count", DIGEST) is False


@pytest.mark.parametrize("content", [b"", b"{}", b'{"stage": "count"', b"\xff\xfe\x00binary", b"[1, 2]"])
def test_bad_manifest_is_named(store: Store, content: bytes) -> None:
    _make(store)
    other = _make(store, skip=1)
    location = store.location("count", DIGEST).join(MANIFEST_NAME)
    _overwrite(location, content)
    with pytest.raises(DatasetDamaged, match="the manifest cannot be read") as raised:
        store.find("count", DIGEST)
    assert location.uri in str(raised.value)
    assert [dataset.digest for dataset in store.datasets("count")] == [other.digest]


def test_unknown_file_of_a_dataset(store: Store) -> None:
    with pytest.raises(UserError, match=r"the dataset has no file walks.npy.*It has: facts/small.json"):
        _make(store).local("walks.npy")


def test_lists_the_datasets_of_one_stage(store: Store) -> None:
    assert list(store.datasets("count")) == []
    for stage, skip in (("count", 1), ("count", 2), ("scale", 3)):
        _make(store, stage, skip)
    assert [dataset.digest for dataset in store.datasets("count")] == sorted([_digest(skip=1), _digest(skip=2)])
    assert store.find("scale", _digest(skip=1)) is None


def test_no_pickle_at_rest(store: Store) -> None:
    writer = DatasetWriter(store.location("count", DIGEST))
    with pytest.raises(ValueError, match="allow_pickle"):
        writer.array("objects.npy", np.array([{"a": 1}], dtype=object))
    writer.close()


def test_no_secret_in_what_is_written(s3_store: Store) -> None:
    dataset = _make(s3_store)
    written = b"".join(_bytes(dataset.location.join(name)) for name in dataset.location.walk_files())
    assert os.environ["AWS_SECRET_ACCESS_KEY"].encode() not in written
    assert os.environ["AWS_ACCESS_KEY_ID"].encode() not in written


def test_writable_store_is_left_empty(store: Store) -> None:
    store.check_writable()
    assert store.root.walk_files() == []


@pytest.mark.parametrize("place", ["file", "file/below/it"])
def test_store_below_a_file_cannot_be_written(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match="the store cannot be written") as raised:
        Store(tmp_path / place).check_writable()
    assert str(tmp_path / place) in str(raised.value)


def test_missing_bucket_cannot_be_written(s3_server: str) -> None:
    with pytest.raises(UserError, match="cannot be written: FileNotFoundError") as raised:
        Store("s3://no-such-bucket/prefix").check_writable()
    assert "--store" in str(raised.value)


def test_server_that_is_down(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    PatientS3.clear_instance_cache()
    try:
        with pytest.raises(UserError, match=r"the store cannot be read: EndpointConnectionError.*127\.0\.0\.1:9"):
            Store("s3://bucket/prefix").find("count", DIGEST)
    finally:
        PatientS3.clear_instance_cache()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_leaves_nothing_that_looks_complete(tiny_disk: Path) -> None:
    store = Store(tiny_disk)
    writer = DatasetWriter(store.location("count", DIGEST))
    writer.array("small.npy", np.zeros(1000))
    with pytest.raises(OSError, match=r"No space left|requested and"):
        writer.array("large.npy", np.zeros(1 << 20))
    assert store.find("count", DIGEST) is None


def test_full_disk_is_said_at_the_start(tiny_disk: Path) -> None:
    (tiny_disk / "filler").write_bytes(bytes(1 << 20))
    with pytest.raises(UserError, match="No space left"):
        Store(tiny_disk / "store").check_writable()
