"""Names, sizes and digests that a store holds are checked before anything is done with them."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import (
    ATTEMPT_NAME,
    CHECKPOINT_FOLDER,
    MANIFEST_NAME,
    FileEntry,
    InputEntry,
    Manifest,
)
from superworkflow.infra.storage.safe_names import fault_of, is_digest
from superworkflow.infra.storage.store import Store
from tests.toy_stages import COUNT, SCALE

ILLEGAL = (
    "", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", ".", "./a", "a/./b", "a//b", "a/", "//a", "a\0b", "a\nb",
    "..\\x", "C:\\x", "\ud800", "a" * 1025, "\x7f",
)  # fmt: skip
LEGAL = ("a", "a/b.npy", "walks-00000.npy", ".hidden", "a b", "a%20b", "a?b", "a#b", "..a", "a..", "...", "日本", "a:b")


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_names(name: str, tmp_path: Path) -> None:
    assert fault_of(name) is not None
    with pytest.raises(UserError, match="a file's name"):
        Location.of(tmp_path).join(name)
    with pytest.raises(UserError, match="a file's name"):
        Location("s3://bucket/store").join("index", name)
    with pytest.raises(ValidationError):
        FileEntry(path=name, bytes=1, sha256="0" * 64)


@pytest.mark.parametrize("name", LEGAL)
def test_legal_names(name: str, tmp_path: Path) -> None:
    assert Location.of(tmp_path).join(name).uri == f"{tmp_path}/{name}"
    assert Location("/").join(name).uri == f"/{name}"
    assert FileEntry(path=name, bytes=0, sha256="0" * 64).path == name


@given(st.text(alphabet="./\\\0ab", max_size=8))
def test_joined_names_stay_inside(name: str) -> None:
    if fault_of(name) is None:
        inside = Path("/store/folder") / name
        assert inside.is_relative_to("/store/folder")
        assert ".." not in inside.parts


@pytest.mark.parametrize(
    "values",
    [
        {"bytes": -1},
        {"sha256": ""},
        {"sha256": "0" * 63},
        {"sha256": "G" * 64},
        {"sha256": "0" * 64 + "\n"},
        {"sha256": None},
        {"sha256": None, "blake3": "0" * 63},
        {"sha256": None, "blake3": "blake3:" + "0" * 57},
        {"blake3": "0" * 64},
        {"path": 1},
    ],
)
def test_illegal_entries(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FileEntry.model_validate({"path": "a", "bytes": 1, "sha256": "0" * 64} | values)


@pytest.mark.parametrize("digest", ["", "abc", "../../x", "0" * 31, "0" * 33, "0" * 65, "0" * 31 + "G"])
def test_illegal_digests(digest: str) -> None:
    assert not is_digest(digest)
    with pytest.raises(ValidationError):
        InputEntry(digest=digest)


@pytest.fixture
def counted(store: Store, tmp_path: Path, scratch: Path) -> Dataset:
    """A dataset of the store, where its digest says."""
    (tmp_path / "text.txt").write_text("line\n" * 5)
    progress, given = Progress("count", stream=io.StringIO()), {"text": str(tmp_path / "text.txt")}
    made = execute(COUNT, {}, given, store.root.join("first").uri, Resources(), progress).dataset
    place = store.location("count", made.digest).uri
    return execute(COUNT, {}, given, place, Resources(), progress).dataset


def rewrite(dataset: Dataset, **values: Any) -> None:
    """Change fields of a manifest, whose sum is then as it should be: by one who means it."""
    document = json.loads(dataset.location.join(MANIFEST_NAME).read_text()) | values
    del document["sha256"]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    document["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    dataset.location.join(MANIFEST_NAME).write_atomic(json.dumps(document))


@pytest.mark.parametrize("name", ["{elsewhere}/victim", "../../../../victim", "a/../../../../../victim"])
def test_manifest_that_leads_out_of_the_store(counted: Dataset, store: Store, tmp_path: Path, name: str) -> None:
    """On a store of objects, whose keys may hold anything, reading would write it there."""
    elsewhere, content = tmp_path / "elsewhere", b"* * * * * evil"
    elsewhere.mkdir()
    name = name.format(elsewhere=elsewhere)
    entry = {"path": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    if store.root.local_path is None:
        fsspec.filesystem("s3").pipe_file(f"{counted.uri.removeprefix('s3://')}/{name}", content)
    rewrite(counted, files=[entry])
    with pytest.raises(DatasetDamaged, match=r"files.0.path: the name .* (is absolute|has an empty part)"):
        store.find("count", counted.digest)
    assert list(store.datasets("count")) == []
    assert list(elsewhere.iterdir()) == []
    assert not list(tmp_path.rglob("victim"))


@pytest.mark.parametrize("name", [MANIFEST_NAME, ATTEMPT_NAME, f"{CHECKPOINT_FOLDER}/a", "_parts/a"])
def test_manifest_that_names_the_platforms_own_files(counted: Dataset, name: str) -> None:
    rewrite(counted, files=[{"path": name, "bytes": 1, "sha256": "0" * 64}])
    with pytest.raises(DatasetDamaged, match="is the name of no data file"):
        Dataset.find(counted.location)


@pytest.mark.parametrize(
    "values",
    [
        {"stage": "../count"}, {"stage": ""}, {"digest": "/etc"}, {"inputs": {"text": {"digest": ".."}}},
        {"files": 1},
        {"inputs": {"text": {"digest": "f" * 64, "stage": "/"}}}, {"measured": {}}, {"format": 0}, {"stats": {"a": []}},
    ],
)  # fmt: skip
def test_manifest_with_illegal_values(counted: Dataset, values: dict[str, Any]) -> None:
    rewrite(counted, **values)
    with pytest.raises(DatasetDamaged, match="the manifest cannot be read"):
        Dataset.find(counted.location)


def test_manifest_that_names_a_file_twice(counted: Dataset) -> None:
    entry = counted.manifest.files[0].model_dump()
    rewrite(counted, files=[entry, entry])
    with pytest.raises(DatasetDamaged, match="named twice"):
        Dataset.find(counted.location)


def test_checkpoint_that_leads_out_of_its_folder(s3_store: Store, tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "text.txt").write_text("line\n")
    (tmp_path / "victim").write_text("mine")
    progress, fs = Progress("count", stream=io.StringIO()), fsspec.filesystem("s3")
    number = execute(
        COUNT, {}, {"text": str(tmp_path / "text.txt")}, s3_store.root.join("count").uri, Resources(), progress
    )
    for key in (f"//{tmp_path}/victim".replace("///", "//"), "/../../../../victim"):
        place = s3_store.root.join("scale", str(len(key)))
        place.join(ATTEMPT_NAME).write_atomic("{}")
        fs.pipe_file(f"{place.uri.removeprefix('s3://')}/{CHECKPOINT_FOLDER}{key}", b"theirs")
        with pytest.raises(UserError, match="may lie outside this folder"):
            execute(SCALE, {}, {"number": number.dataset.uri}, place.uri, Resources(), progress)
    assert (tmp_path / "victim").read_text() == "mine"


def test_listing_with_names_that_lead_elsewhere(s3_store: Store) -> None:
    fs, root = fsspec.filesystem("s3"), s3_store.uri.removeprefix("s3://")
    for key in (
        "index/../x/manifest.json",
        "index//y/manifest.json",
        f"index/{'a' * 32}/z",
        "index/b/z",
        "index/folder/",
    ):
        fs.pipe_file(f"{root}/{key}", b"{}")
    assert s3_store.root.join("index").folders() == ["a" * 32, "b", "folder"]
    assert list(s3_store.datasets("index")) == []
    with pytest.raises(UserError, match="may lie outside"):
        s3_store.root.join("index").walk_files()
    s3_store.root.join("index").delete(recursive=True)
    assert [key for key in fs.find(root) if not key.endswith("/")] == []


def test_nul_in_a_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a path or URI"):
        Location.of(f"{tmp_path}/a\0b")


def test_manifest_as_text_is_what_it_was(counted: Dataset) -> None:
    text = counted.location.join(MANIFEST_NAME).read_text()
    assert Manifest.parse(text).text() == text
