"""Locations: the same contract on a local folder and on S3."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.store import Store


@pytest.fixture
def root(store: Store) -> Location:
    store.root.make()
    return store.root


def _write(location: Location, text: str) -> None:
    if (path := location.local_path) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    location.write_atomic(text)


def test_normalises_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Location.of("a/b/") == Location(str(tmp_path / "a" / "b"))
    assert Location.of(f"file://{tmp_path}/x") == Location(str(tmp_path / "x"))
    assert Location.of("~/x") == Location(str(tmp_path / "x"))
    assert Location.of("/") == Location("/")
    assert Location.of("s3://bucket/prefix/") == Location("s3://bucket/prefix")
    assert Location.of("s3://bucket/prefix").local_path is None


def test_keeps_the_name_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Location.of(tmp_path / "link").uri == str(tmp_path / "link")


def test_unknown_protocol() -> None:
    with pytest.raises(UserError, match=r"unknown protocol \(got 's4'\)"):
        Location.of("s4://bucket/prefix")


def test_write_read_size(root: Location) -> None:
    file = root.join("folder", "file.txt")
    _write(file, "grüße")
    assert file.read_text() == "grüße"
    assert file.size() == 7
    assert file.name == "file.txt"
    with file.open() as stream:
        assert stream.read() == "grüße".encode()


def test_overwrite_leaves_one_file(root: Location) -> None:
    file = root.join("file.txt")
    _write(file, "one")
    _write(file, "two")
    assert file.read_text() == "two"
    assert root.walk_files() == ["file.txt"]


def test_fingerprint_changes_with_the_file(root: Location) -> None:
    file = root.join("file.txt")
    _write(file, "one")
    first = file.fingerprint()
    assert first == root.join("file.txt").fingerprint()
    _write(file, "two")
    assert file.fingerprint() != first


def test_what_is_missing(root: Location) -> None:
    missing = root.join("missing")
    assert missing.size() is None
    assert missing.walk_files() == []
    assert missing.folders() == []
    missing.delete()
    missing.delete(recursive=True)
    with pytest.raises(FileNotFoundError):
        missing.read_text()


def test_below_a_file_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileNotFoundError):
        Location.of(tmp_path / "file").join("manifest.json").read_text()


def test_folders_and_files(root: Location) -> None:
    for name in ("b/1.txt", "a/2.txt", "a/deep/3.txt", "4.txt"):
        _write(root.join(name), name)
    assert root.folders() == ["a", "b"]
    assert root.walk_files() == ["4.txt", "a/2.txt", "a/deep/3.txt", "b/1.txt"]
    assert root.join("a").walk_files() == ["2.txt", "deep/3.txt"]


def test_delete_leaves_siblings_that_begin_alike(root: Location) -> None:
    for name in ("ab/1.txt", "ab/deep/2.txt", "abc/3.txt", "ab.txt"):
        _write(root.join(name), name)
    root.join("ab").delete(recursive=True)
    assert root.walk_files() == ["ab.txt", "abc/3.txt"]
    root.join("ab.txt").delete()
    assert root.walk_files() == ["abc/3.txt"]


ODD = ("a?b", "a%20b", "a b", "a#b", "a*", "[ab]", "a::b", "versionId=1", "é", "a+b&c")


@pytest.mark.parametrize("name", ODD)
def test_odd_letters_are_letters(root: Location, name: str) -> None:
    """`?`, `*` and `[` stand for nothing else, `::` and `#` begin nothing, and `%20` is no blank."""
    folder, others = root.join(name), ("aXb", "ab", "a", "b", "a b c", "abc")
    for other in others:
        _write(root.join(other, "_checkpoint", "file"), "another's")
    file = folder.join("_checkpoint", name)
    _write(file, name)
    assert file.read_text() == name
    assert file.size() == len(name.encode())
    assert folder.walk_files() == [f"_checkpoint/{name}"]
    assert folder.folders() == ["_checkpoint"]
    assert name in root.folders()
    assert Location.of(file.uri).fingerprint() == file.fingerprint()
    with file.open() as stream:
        assert stream.read() == name.encode()
    folder.join("_checkpoint").delete(recursive=True)
    assert folder.walk_files() == []
    _write(folder.join("file"), "x")
    folder.join("file").delete()
    assert root.walk_files() == sorted(f"{other}/_checkpoint/file" for other in others)


def test_odd_letters_in_file_uris(tmp_path: Path) -> None:
    path = tmp_path / "a?b %20#c"
    assert Location.of(path.as_uri()) == Location.of(path) == Location(str(path))


def test_folder_of_objects_has_no_size(s3_store: Store) -> None:
    s3_store.root.join("folder", "file").write_atomic("x")
    assert s3_store.root.join("folder").size() is None


def test_delete_removes_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    Location.of(tmp_path / "link").delete(recursive=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "real"]


def test_upload_and_download(root: Location, tmp_path: Path) -> None:
    if root.local_path is not None:
        pytest.skip("local files are used in place")
    content = os.urandom(3 << 20)
    (tmp_path / "up").write_bytes(content)
    root.join("x", "y").upload(tmp_path / "up")
    root.join("x", "y").download(tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == content


def test_conditional_puts(s3_store: Store) -> None:
    file = s3_store.root.join("lease")
    assert file.create_exclusive("first")
    assert not file.create_exclusive("second")
    assert file.read_text() == "first"
    tag = file.tag()
    assert file.replace_tagged("third", tag) == file.tag()
    assert file.replace_tagged("fourth", tag) is None
    assert file.read_text() == "third"
    assert s3_store.root.join("none").replace_tagged("x", tag) is None


def test_conditional_delete(s3_store: Store) -> None:
    file = s3_store.root.join("lease")
    first = file.create_exclusive("first")
    assert first is not None
    second = file.replace_tagged("second", first)
    assert second is not None
    file.delete_tagged(first)  # another's by now
    assert file.read_text() == "second"
    file.delete_tagged(second)
    assert file.size() is None
    file.delete_tagged(second)


def test_one_of_many_creates(s3_store: Store) -> None:
    """Leases depend on it; also a test of the server that stands for S3."""
    for number in range(20):
        file = s3_store.root.join(f"{number}")
        with ThreadPoolExecutor(8) as pool:
            assert sum(tag is not None for tag in pool.map(file.create_exclusive, "abcdefgh")) == 1


def test_conditional_put_passes_other_errors_on(s3_server: str) -> None:
    with pytest.raises(FileNotFoundError):
        Location.of("s3://no-such-bucket/lease").create_exclusive("x")
