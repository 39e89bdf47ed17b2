"""Pruning of stores of both kinds, with records in MLflow."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.orchestration.pruning import Pruner
from superworkflow.infra.storage import holds
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.digest import dataset_digest
from superworkflow.infra.storage.holds import Hold, condemning, holding
from superworkflow.infra.storage.lock import exclusive
from superworkflow.infra.storage.manifest import ATTEMPT_NAME, MANIFEST_NAME, InputEntry, Measurement
from superworkflow.infra.storage.store import Store
from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker
from superworkflow.infra.tracking.models import ModelRegistry
from superworkflow.infra.tracking.pruning import Keep
from superworkflow.infra.tracking.records import RunRecord
from superworkflow.infra.tracking.registry import DIGEST_TAG
from superworkflow.infra.tracking.uris import EXPERIMENT
from tests.infra.tracking.tracked import staged

DAY = 86_400


def _made(store: Store, number: int, size: int = 1000, rows: int = 5) -> Dataset:
    """A dataset of the stage `count`."""
    inputs = {"text": "f" * 64}
    writer = DatasetWriter(store.location("count", dataset_digest("count", "1", {"number": number}, inputs)))
    writer.array("values.npy", np.zeros(size, dtype=np.uint8))
    writer.json("deep/facts.json", {"number": number})
    measured = Measurement(runtime_s=1, cpu_s=1, peak_memory_bytes=1, rows=rows, bytes=writer.bytes_written)
    return writer.commit(
        stage="count", version="1", params={"number": number}, inputs={"text": InputEntry(digest="f" * 64)}, stats={},
        measured=measured, software={},
    )  # fmt: skip


def _record(uri: str, store: Store, dataset: Dataset, days: float, status: str = "FINISHED") -> str:
    """Id of a run of that many days ago which has made this dataset, with an artifact."""
    tracker = MlflowTracker(uri)
    run_id = tracker.begin(f"run of {days} days ago", "toy", {}, {})
    tracker.stage(replace(staged("count", 1.0), digest=dataset.digest))
    client, _ = tracker.handle()
    client.log_text(run_id, "x" * 5000, "report.html")
    if status == "FINISHED":
        tracker.finish(RunRecord(run_id, "flow", store.uri, "run", "toy"))
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE runs SET start_time = start_time - ? WHERE run_uuid = ?",
                         (int(days * DAY * 1000), run_id))  # fmt: skip
    return run_id


def _version(uri: str, run_id: str, digest: str, days: float) -> int:
    client = MlflowClient(uri)
    if not client.search_registered_models():
        client.create_registered_model("toy-model")
    found = client.create_model_version("toy-model", "file:///nowhere", run_id, tags={DIGEST_TAG: digest})
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE model_versions SET creation_time = creation_time - ? WHERE version = ?",
                         (int(days * DAY * 1000), int(found.version)))  # fmt: skip
    return int(found.version)


def _there(store: Store) -> set[str]:
    return {each.digest for each in store.datasets("count")}


def test_what_nothing_kept_refers_to_goes(store: Store, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/records/mlflow.db"
    (tmp_path / "records").mkdir()
    old, young, champion, earlier, alone, living, held = (_made(store, number) for number in range(7))
    runs = {
        name: _record(uri, store, dataset, days)
        for name, dataset, days in [("old", old, 40), ("young", young, 3), ("champion", champion, 60),
                                    ("earlier", earlier, 70), ("rejected", old, 50)]
    }  # fmt: skip
    _record(uri, store, living, 45, status="RUNNING")
    for name, dataset, days in [("earlier", earlier, 70), ("champion", champion, 60), ("rejected", old, 50)]:
        _version(uri, runs[name], dataset.digest, days)
    registry = ModelRegistry(uri)
    registry.promote("toy-model", 1, "first")
    registry.promote("toy-model", 2, "better")
    unfinished = store.location("count", "a" * 32)
    DatasetWriter(unfinished, "a" * 32).array("half.npy", np.zeros(10))
    foreign = store.location("count", "b" * 32)
    foreign.make()
    foreign.join("notes.txt").write_atomic("mine, not a stage's")
    source = tmp_path / "edges.csv"
    source.write_text("a,b\n")
    store.keep(source, ".sources")

    pruner = Pruner(store, uri, Keep.parse("champions,30d"), recent_s=0)
    with holding(store.root, "another-run") as hold:
        hold.add([f"count/{held.digest}"])
        seen = pruner.look()
        assert {each.digest for each in seen.datasets} == {old.digest, alone.digest}
        assert len(_there(store)) == 7, "looking removes nothing"
        done = pruner.remove()
    assert _there(store) == {young.digest, champion.digest, earlier.digest, living.digest, held.digest}
    assert {kind: number for kind, number, _ in done.rows}["versions of models"] == 1
    assert not unfinished.walk_files()
    assert foreign.walk_files() == ["notes.txt"], "what no stage has made stays"
    assert any("b" * 32 in note for note in done.notes)
    assert not store.root.join(".sources").walk_files()
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    left = client.search_runs([experiment.experiment_id], max_results=100)
    assert {runs["young"], runs["champion"], runs["earlier"]} <= {run.info.run_id for run in left}
    assert not {runs["old"], runs["rejected"]} & {run.info.run_id for run in left}
    assert {each.version for each in registry.versions("toy-model")} == {1, 2}
    assert not list((tmp_path / "records" / "artifacts").rglob(f"{runs['old']}/artifacts/*"))
    assert store.find("count", champion.digest) is not None
    again = Pruner(store, uri, Keep.parse("champions,30d"), recent_s=0).remove()
    assert {each.digest for each in again.datasets} == {held.digest}, "its run has ended"
    assert not again.references.old_runs


def test_a_run_that_cannot_be_removed_is_named(store: Store, tmp_path: Path) -> None:
    uri, lines = f"sqlite:///{tmp_path}/mlflow.db", list[str]()
    run = _record(uri, store, _made(store, 1), 40)
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("CREATE TRIGGER refuse BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'no right'); END")
    done = Pruner(store, uri, Keep.parse("champions")).remove(lines.append)
    assert any("cannot be removed: (sqlite3.IntegrityError) no right" in note for note in done.notes), done.notes
    assert str(done).startswith("nothing: ")
    assert not [line for line in lines if "run" in line]
    assert MlflowClient(uri).get_run(run).info.lifecycle_stage == "active"


def test_a_young_dataset_of_no_run_stays(store: Store, tmp_path: Path) -> None:
    _made(store, 1)
    found = Pruner(store, f"sqlite:///{tmp_path}/none.db", Keep.parse("champions")).remove()
    assert not found.datasets
    assert "1 datasets that nothing refers to" in found.notes[0]
    assert len(_there(store)) == 1


def test_records_of_a_copied_store_remove_nothing_of_the_original(store: Store, tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    _record(f"sqlite:///{tmp_path}/records/mlflow.db", store, _made(store, 1), days=40)
    shutil.copytree(tmp_path / "records", tmp_path / "copy" / "records")
    with pytest.raises(UserError, match="the store was moved or copied"):
        Pruner(store, f"sqlite:///{tmp_path}/copy/records/mlflow.db", Keep.parse("champions"), recent_s=0)
    assert list((tmp_path / "records" / "artifacts").rglob("report.html"))


def test_records_of_other_stores_do_not_show_what_to_keep(store: Store, tmp_path: Path) -> None:
    """As of a shell that lacks MLFLOW_TRACKING_URI: all would go, the models in use too."""
    (tmp_path / "records").mkdir()
    other, keep = f"sqlite:///{tmp_path}/records/mlflow.db", Keep.parse("champions")
    _record(other, Store(tmp_path / "other"), _made(Store(tmp_path / "other"), 1), days=40)
    dataset = _made(store, 2)
    for uri in (other, f"sqlite:///{tmp_path}/none.db"):
        for act in (Pruner(store, uri, keep, recent_s=0).look, Pruner(store, uri, keep, recent_s=0).remove):
            with pytest.raises(UserError, match="no run in these records has used this store"):
                act()
    assert _there(store) == {dataset.digest}
    _record(other, store, dataset, days=40)
    Pruner(store, other, keep, recent_s=0).remove()
    assert not _there(store)


def test_records_of_runs_on_other_stores_stay(store: Store, tmp_path: Path) -> None:
    """A team's server has those of all stores."""
    other, uri = Store(tmp_path / "other"), f"sqlite:///{tmp_path}/mlflow.db"
    runs = [_record(uri, each, _made(each, number), days=40) for number, each in enumerate((store, other))]
    versions = [_version(uri, run, "e" * 32, days=40) for run in runs]
    done = Pruner(store, uri, Keep.parse("champions"), recent_s=0).remove()
    assert [run.info.run_id for run in done.references.old_runs] == runs[:1]
    assert [each.version for each in ModelRegistry(uri).versions("toy-model")] == versions[1:]
    assert (_there(store), len(_there(other))) == (set(), 1)
    assert MlflowClient(uri).get_run(runs[1]).info.status == "FINISHED"


def test_one_that_a_stage_writes_stays(store: Store, tmp_path: Path) -> None:
    dataset = _made(store, 1)
    _record(uri := f"sqlite:///{tmp_path}/mlflow.db", store, dataset, days=40)
    with exclusive(store.location("count", dataset.digest)):
        done = Pruner(store, uri, Keep.parse("champions"), recent_s=0).remove()
    assert "a stage writes it" in done.notes[0]
    assert _there(store) == {dataset.digest}


def test_a_run_that_starts_waits_for_what_is_being_removed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run sees the list of the condemned after its own hold; the pruning has not seen the hold."""
    dataset = _made(store, 1)
    name, waited = f"count/{dataset.digest}", threading.Event()
    hold = Hold(store.root, "late")

    def run() -> None:
        hold.add([name])
        waited.set()

    with condemning(store.root) as place:
        place.write_atomic(json.dumps([name]))
        thread = threading.Thread(target=run)
        thread.start()
        assert not waited.wait(1.0)
        with pytest.raises(UserError, match="another process prunes"), condemning(store.root):
            pass
    assert waited.wait(30)
    thread.join()
    hold.add(["count/" + "c" * 32])  # one that is not condemned waits for no pruning
    assert holds.held_datasets(store.root) == {name, "count/" + "c" * 32}
    hold.end()
    assert not holds.held_datasets(store.root)


def test_holds_of_dead_processes_hold_nothing(store: Store) -> None:
    store.root.make()
    marks = {"superworkflow.owner": "elsewhere/1/1/abc", "superworkflow.beat": str(int(time.time()) - 10_000)}
    place = store.root.join(holds.FOLDER, "dead.json")
    store.root.join(holds.FOLDER).make()
    place.write_atomic(json.dumps({"marks": marks, "datasets": ["count/" + "d" * 32]}))
    assert not holds.held_datasets(store.root)
    assert place.size() is None
    place.write_atomic("{")
    with pytest.raises(UserError, match="cannot be read"):
        holds.held_datasets(store.root)


@pytest.mark.slow
def test_killed_in_the_middle(tmp_path: Path) -> None:
    """Whatever was left when the process was killed is whole or marked, and goes with the next pruning."""
    store = Store(tmp_path / "store")
    for number in range(150):
        _made(store, number)
    kept = _made(store, 150)
    _record(uri := f"sqlite:///{tmp_path}/mlflow.db", store, kept, days=0, status="RUNNING")
    code = (
        "import sys; from superworkflow.infra.orchestration.pruning import Pruner, Store, Keep; "
        "Pruner(Store(sys.argv[1]), sys.argv[2], Keep.parse('champions'), recent_s=0).remove()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, store.uri, uri], env=os.environ | {"PREFECT_API_URL": ""})
    folder = tmp_path / "store" / "count"
    while process.poll() is None and len(list(folder.glob("[0-9a-f]*"))) > 140:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL

    def filled() -> list[Path]:
        folders = [each for each in folder.glob("[0-9a-f]*") if each.name != kept.digest]
        return [each for each in folders if any(path.is_file() for path in each.rglob("*"))]

    left = filled()
    assert 0 < len(left) < 150
    for each in left:
        if (each / MANIFEST_NAME).exists():
            store.open("count", each.name).verify("content")
        else:
            assert (each / ATTEMPT_NAME).exists(), "what has no manifest is marked as ours"
    (left[0] / f".{ATTEMPT_NAME}.77.tmp").write_text("{")  # as of one that was killed while it wrote a marker
    with holding(store.root, "next") as hold:  # no pruning is in progress: its lock went with it
        hold.add([f"count/{left[-1].name}"])
        Pruner(store, uri, Keep.parse("champions"), recent_s=0).remove()
        assert filled() in ([left[-1]], [])
    done = Pruner(store, uri, Keep.parse("champions"), recent_s=0).remove()
    assert len(done.datasets) + len(done.attempts) <= 1
    assert not filled()
    assert not Pruner(store, uri, Keep.parse("champions"), recent_s=0).look().bytes


@pytest.mark.parametrize("text", ["", "30", "30days", "champions,-1d", "all"])
def test_what_to_keep_is_said_in_full(text: str) -> None:
    with pytest.raises(UserError, match="--keep"):
        Keep.parse(text)
