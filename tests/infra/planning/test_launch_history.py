"""Records of launches in a store."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.planning.launch_history import FOLDER, KEPT, RECORD_BYTES, History, LaunchRecord
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.store import Store

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def launch_record(**more: Any) -> LaunchRecord:
    """A record of the stage `scale`."""
    given: dict[str, Any] = {
        "version": "3", "engine": "in-process", "launcher": "process", "processor": "P", "resources": Resources(),
        "params": {}, "inputs": {"number": {"lines": 5}}, "cpu_s": 2.0, "runtime_s": 3.0, "wait_s": 0.1,
        "memory_bytes": 1000,
    }  # fmt: skip
    return LaunchRecord(**(given | more))


def test_records_of_versions_without_members_are_read(tmp_path: Path) -> None:
    old = launch_record().model_dump(mode="json", by_alias=True, exclude={"members"})
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "scale.json").write_text(json.dumps({"format": 1, "records": [old]}))
    (found,) = History(Location.of(tmp_path)).records("scale")
    assert found.members == {}
    assert found.model_dump(mode="json", by_alias=True, exclude={"members"}) == old


def test_newest_first_and_no_more_than_are_kept(tmp_path: Path) -> None:
    history = History(Location.of(tmp_path))
    assert history.records("scale") == ()
    for number in range(KEPT + 5):
        History(Location.of(tmp_path)).add("scale", launch_record(at=BEGIN + timedelta(hours=number), cpu_s=number))
    found = History(Location.of(tmp_path)).records("scale")
    assert [record.cpu_s for record in found] == list(range(KEPT + 4, 4, -1))
    assert found[0] == launch_record(at=BEGIN + timedelta(hours=KEPT + 4), cpu_s=KEPT + 4)
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["scale.json"]
    assert history.records("other") == ()


def test_what_was_added_is_read(tmp_path: Path) -> None:
    history = History(Location.of(tmp_path))
    assert history.records("scale") == ()
    history.add("scale", launch_record())
    assert len(history.records("scale")) == 1


def test_a_very_long_record_is_not_kept(tmp_path: Path) -> None:
    history = History(Location.of(tmp_path))
    history.add("walk", launch_record(params={"start_vertices": ["x" * 8] * RECORD_BYTES}))
    assert history.records("walk") == ()


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "7", "null", '{"records": 3}', '{"records": {"a": 1}}', '{"other": []}', '{"records": [1, "x"]}',
        "[" * 100_000, '{"records": [' + "[" * 900 + "]" * 900 + "]}", "\x00\xff",
    ],
)  # fmt: skip
def test_a_file_that_is_none_of_ours(tmp_path: Path, text: str) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "scale.json").write_text(text, encoding="latin-1")
    history = History(Location.of(tmp_path))
    assert history.records("scale") == ()
    history.add("scale", launch_record())
    assert len(History(Location.of(tmp_path)).records("scale")) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cpu_s", float("nan")), ("cpu_s", float("inf")), ("runtime_s", -1), ("wait_s", 1e99), ("cpu_s", "many"),
        ("memory_bytes", -5), ("memory_bytes", 1 << 60), ("resources", {"cpu": 0}), ("params", []),
        ("inputs", {"a": 3}), ("at", "yesterday"), ("at", "2026-01-01T00:00:00"), ("processor", "p" * 9999),
    ],
)  # fmt: skip
def test_odd_records_among_good_ones(tmp_path: Path, key: str, value: Any) -> None:
    good = json.loads(launch_record().model_dump_json(by_alias=True))
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "scale.json").write_text(json.dumps({"format": 1, "records": [good | {key: value}, good]}))
    assert History(Location.of(tmp_path)).records("scale") == (LaunchRecord.model_validate(good),)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    with (tmp_path / FOLDER / "scale.json").open("wb") as stream:
        stream.truncate(1 << 40)
    assert History(Location.of(tmp_path)).records("scale") == ()


def test_on_object_storage(s3_store: Store) -> None:
    History(s3_store.root).add("scale", launch_record())
    History(s3_store.root).add("scale", launch_record(cpu_s=7))
    assert [record.cpu_s for record in History(s3_store.root).records("scale")] == [7, 2]
    assert History(s3_store.root.join("absent")).records("scale") == ()
