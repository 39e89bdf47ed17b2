"""Parts of the Kubernetes launcher, without a cluster: log positions, sizes, visible files, cgroups, records."""

from pathlib import Path

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.kubernetes.job_follower import parse_duration
from superworkflow.infra.launch.kubernetes.pod_log import LogCursor
from superworkflow.infra.launch.kubernetes.stage_inputs import make_visible
from superworkflow.infra.launch.memory_history import Sizing
from superworkflow.infra.process.resource_usage import container_usage
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.store import Store

LINES = [
    "2026-01-02T03:04:05.1Z one",
    "2026-01-02T03:04:05.1Z two",
    "2026-01-02T03:04:05.100000001Z three",
    "2026-01-02T03:04:05.100000001Z three",
    "2026-01-02T03:04:06Z ",
]


def _read(cursor: LogCursor, lines: list[str]) -> list[str]:
    cursor.reopen()
    return [text for line in lines if (text := cursor.feed(line)) is not None]


@pytest.mark.parametrize("broken", range(len(LINES) + 1))
def test_each_line_once_wherever_the_connection_broke(broken: int) -> None:
    cursor = LogCursor()
    before = _read(cursor, LINES[:broken])
    again = _read(cursor, LINES)
    assert before + again == ["one", "two", "three", "three", ""]
    assert _read(cursor, LINES) == []


@pytest.mark.parametrize("broken", range(4))
def test_lines_whose_stamps_are_out_of_order_are_not_lost(broken: int) -> None:
    """Standard error was stamped later, and written to the log first."""
    lines = [LINES[0], "2026-01-02T03:04:06.000001Z warns", "2026-01-02T03:04:05.999999Z prints"]
    cursor = LogCursor()
    assert _read(cursor, lines[:broken]) + _read(cursor, lines) == ["one", "warns", "prints"]
    assert _read(cursor, [*lines, *LINES[-1:]]) == [""]


def test_log_is_asked_for_from_a_second_before_its_last_line() -> None:
    cursor = LogCursor()
    assert cursor.since is None
    _read(cursor, LINES[:3])
    assert cursor.since == "2026-01-02T03:04:04Z"
    _read(cursor, ["2026-01-01T00:00:00.5+02:00 of a new year"])
    assert cursor.since == "2026-01-02T03:04:04Z"
    other = LogCursor()
    _read(other, ["2026-01-01T00:00:00.5+02:00 of a new year"])
    assert other.since == "2025-12-31T23:59:59+02:00"


def test_words_of_the_server_are_no_log() -> None:
    assert _read(LogCursor(), ["unable to retrieve container logs for containerd://abc", LINES[0]]) == ["one"]


@pytest.mark.parametrize(("text", "seconds"), [("1.5s", 1.5), ("830ms", 0.83), ("1m2.5s", 62.5), ("1h2m3s", 3723)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


def test_sizing(store: Store) -> None:
    sizing = Sizing(store.root)
    assert sizing.memory("walk", 1000) == 0
    sizing.remember("walk", 1000, 64)
    sizing.remember("walk", 5000, 256)
    assert sizing.memory("walk", 600) == 64  # within the same doubling
    assert sizing.memory("walk", 500) == 0
    assert sizing.memory("walk", 2000) == 64
    assert sizing.memory("walk", 10**9) == 256
    assert sizing.memory("index", 10**9) == 0
    sizing.remember("walk", 1000, 128)
    assert sizing.memory("walk", 1000) == 128
    store.root.join(".memory", "walk-9.json").write_atomic("edited")
    assert sizing.memory("walk", 1000) == 0


def test_sizing_without_an_estimate(store: Store) -> None:
    sizing = Sizing(store.root)
    sizing.remember("walk", 0, 64)
    assert store.root.join(".memory").walk_files() == []
    sizing.remember("walk", 1, 64)
    assert sizing.memory("walk", 0) == 0


def _call(store: Store, **inputs: str) -> StageCall:
    return StageCall("index", "index", {}, inputs, store.location("index", "0" * 32).uri, Placement())


def test_local_sources_are_copied_to_the_store(store: Store, tmp_path: Path) -> None:
    store.root.make()
    source = tmp_path / "edges.csv"
    source.write_text("a,b\n")
    volumes = [{"mount_path": store.uri, "host_path": store.uri}] if store.root.local_path else []
    settings = KubernetesSettings.model_validate({"volumes": volumes})
    call = make_visible(_call(store, edges=str(source), graph="s3://elsewhere/x"), settings)
    assert call.inputs["graph"] == "s3://elsewhere/x"
    copied = Location.of(call.inputs["edges"])
    assert copied.uri.startswith(f"{store.uri}/.sources/")
    assert copied.name == "edges.csv"
    assert copied.read_text() == "a,b\n"
    assert make_visible(_call(store, edges=str(source)), settings).inputs["edges"] == copied.uri
    source.write_text("c,d\n")
    assert make_visible(_call(store, edges=str(source)), settings).inputs["edges"] != copied.uri
    assert Dataset.find(copied) is None


def test_visible_files_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("a,b\n")
    settings = KubernetesSettings.model_validate(
        {"volumes": [{"mount_path": str(tmp_path), "host_path": str(tmp_path)}]}
    )
    call = _call(Store(tmp_path / "store"), edges=f"{tmp_path}/edges.csv")
    assert make_visible(call, settings) == call


def test_store_that_pods_do_not_see(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this folder is not visible to pods"):
        make_visible(_call(Store(tmp_path)), KubernetesSettings())


def test_cgroup_v2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (tmp_path / "memory.peak").write_text("4096\n")
    monkeypatch.delenv("SUPERWORKFLOW_IN_CONTAINER", raising=False)
    assert container_usage(tmp_path) == (None, None)
    monkeypatch.setenv("SUPERWORKFLOW_IN_CONTAINER", "1")
    assert container_usage(tmp_path) == (2.5, 4096)
    (tmp_path / "memory.peak").unlink()  # kernels before 5.19 have none
    assert container_usage(tmp_path) == (2.5, None)


def test_cgroup_v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERWORKFLOW_IN_CONTAINER", "1")
    for folder, name, value in (("cpuacct", "cpuacct.usage", 1500000000), ("memory", "memory.max_usage_in_bytes", 77)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(f"{value}\n")
    assert container_usage(tmp_path) == (1.5, 77)
    assert container_usage(tmp_path / "none") == (None, None)
