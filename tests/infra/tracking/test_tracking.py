"""Runs recorded in a real MLflow store and read back; the comparison of two."""

import dataclasses
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from superworkflow.dashboards.comparison import compare, print_comparison, print_runs
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.prices import load_prices
from superworkflow.infra.tracking.concurrent_writes import among_rivals
from superworkflow.infra.tracking.history import RecordedRun, annotate, find_run, recorded_runs
from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker, open_client
from superworkflow.infra.tracking.records import RunRecord, Used
from tests.infra.tracking.tracked import METRICS, recorded, staged


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An SQLite store, made when it is first looked at."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('records') / 'mlflow' / 'mlflow.db'}"
    with pytest.raises(UserError, match="nothing is recorded here"):
        recorded_runs(uri)
    assert recorded_runs_of_new_database(uri) == []
    return uri


def recorded_runs_of_new_database(uri: str) -> list[RecordedRun]:
    open_client(uri)
    return recorded_runs(uri)


def _edges(digest: str) -> tuple[Used, ...]:
    return (Used("edges", digest * 64, "s3://key:secret@bucket/my_edges.csv", facts={"bytes": 2048, "files": 1}),)


@pytest.fixture(scope="module")
def two(uri: str) -> tuple[str, str]:
    """Ids of two runs; the second has another parameter and found its first stage cached."""
    first = recorded(
        uri, "first", {"walk.p": 1.0, "walk.q": 2.0}, [staged("index", 3), staged("walk-1", 4)], _edges("a")
    )
    second = recorded(
        uri, "second", {"walk.p": 0.5, "walk.q": 2.0}, [staged("index", 3, cached=True), staged("walk-1", 8)],
        _edges("b"),
    )  # fmt: skip
    return first, second


def test_read_back(uri: str, two: tuple[str, str]) -> None:
    run = find_run(uri, "first")
    assert (run.run_id, run.superworkflow, run.status) == (two[0], "toy", "FINISHED")
    assert run.params == {"walk.p": "1.0", "walk.q": "2.0"}
    assert run.metrics == {"index.micro_f1@0.5": 0.4, "walk-1.micro_f1@0.5": 0.4}
    assert run.declared == METRICS
    assert run.stages == {
        "index": {"seconds": 3.0, "cost_usd": 0.03, "peak_memory_bytes": 1 << 20, "cached": 0.0},
        "walk-1": {"seconds": 4.0, "cost_usd": 0.04, "peak_memory_bytes": 1 << 20, "cached": 0.0},
    }
    assert run.totals["seconds"] == 7.0
    assert run.totals["cost_usd"] == pytest.approx(0.07)
    assert run.totals["wall_seconds"] == 12.0


def test_what_was_read_and_made_is_listed_as_datasets(uri: str, two: tuple[str, str]) -> None:
    client = MlflowClient(uri)
    run = client.get_run(two[0])
    (edges,) = run.inputs.dataset_inputs
    assert (edges.dataset.name, edges.dataset.digest) == ("edges", "a" * 32)
    assert json.loads(edges.dataset.profile) == {"bytes": 2048, "files": 1}
    assert "secret" not in edges.dataset.source
    children = client.search_runs([run.info.experiment_id], f"tags.mlflow.parentRunId = '{two[0]}'")
    index = next(child for child in children if child.info.run_name == "index")
    listed = {each.dataset.digest: (each.dataset.name, each.tags[0].value) for each in index.inputs.dataset_inputs}
    assert listed == {"c" * 32: ("graph", "input"), "d" * 32: ("index", "output")}
    readers = client.search_runs([run.info.experiment_id], f"dataset.digest = '{'b' * 32}'")
    assert [each.info.run_id for each in readers] == [two[1]]


def test_runs_that_do_the_same_at_once_each_are_recorded(tmp_path: Path) -> None:
    """As trials of a sweep do: the second one finds the dataset and the view of its superworkflow just added."""
    uri, count = f"sqlite:///{tmp_path}/mlflow.db", 6
    MlflowTracker(uri)
    for name in "ab":
        together = threading.Barrier(count)

        def record(run: str, name: str = name, together: threading.Barrier = together) -> str:
            tracker = MlflowTracker(uri)
            made = tracker.begin(run, name, {}, {})
            record = RunRecord(made, "flow", "/store", run, name)
            record.close(load_prices(), 1.0)
            together.wait()
            tracker.sources([Used(name, name * 64, f"/{name}.csv")])
            together.wait()
            tracker.finish(record)
            return made

        with ThreadPoolExecutor(count) as pool:
            runs = list(pool.map(record, [f"{name}-{number}" for number in range(count)]))
        client = MlflowClient(uri)
        found = [client.get_run(run) for run in runs]
        assert [each.info.status for each in found] == ["FINISHED"] * count
        for each in found:
            assert [listed.dataset.digest for listed in each.inputs.dataset_inputs] == [name * 32]
        assert f"mlflow.sharedViewState.superworkflow-{name}" in client.get_experiment(found[0].info.experiment_id).tags


def test_what_no_rival_has_done_is_not_tried_again(tmp_path: Path) -> None:
    """Only what the database refuses: MLflow has its own patience with servers, and a bad name stays one."""
    client, times = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db"), 0
    experiment = client.create_experiment("e")

    def work() -> None:
        nonlocal times
        times += 1
        client.set_experiment_tag(experiment, "a" * 10_000, "")

    with pytest.raises(MlflowException, match="exceed"):
        among_rivals(work)
    assert times == 1


def test_the_page_of_a_run_says_what_it_cost_and_reached(uri: str, two: tuple[str, str]) -> None:
    client = MlflowClient(uri)
    experiment = client.get_experiment(client.get_run(two[0]).info.experiment_id)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    note = client.get_run(two[1]).data.tags["mlflow.note.content"]
    link = "[this run in Prefect](https://prefect/runs/1)"
    assert note.startswith(f"walk-1.micro\\_f1@0.5 **0.4000**\n\n12.0 s, $0.080000, 1 of 2 stages cached, {link}\n\n")
    assert "| index | cached |  |  |  | $0 |" in note
    assert "| walk-1 | ran | 8.0 s | 16.0 s | 1.0 MiB | $0.080000 |" in note
    assert "| **total** |  | **8.0 s** | **16.0 s** | **1.0 MiB** | **$0.080000** |" in note
    assert "Cached stages saved $0.030000." in note
    assert "my\\_edges.csv (`bbbbbbbbbbbb`, 2.0 KiB, 1 file)" in note
    assert "secret" not in note


def test_an_experiment_of_an_earlier_version_gets_its_kind(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    made = open_client(uri).create_experiment("superworkflow")
    MlflowTracker(uri)
    assert MlflowClient(uri).get_experiment(made).tags["mlflow.experimentKind"] == "custom_model_development"


def test_figures_of_a_run_are_in_groups_and_cached_stages_have_none(uri: str, two: tuple[str, str]) -> None:
    run = MlflowClient(uri).get_run(two[1])
    assert {name: value for name, value in run.data.metrics.items() if not name.startswith("stages/")} == {
        "quality/index.micro_f1_at_0.5": 0.4,
        "quality/walk-1.micro_f1_at_0.5": 0.4,
        "cost/walk-1_usd": 0.08,
        "cost/total_usd": 0.08,
        "cost/saved_by_cache_usd": 0.03,
        "cost/unified_usd": 0.0,
        "cost/value": 1 / (8.0 * 0.08),
        "runtime/walk-1_s": 8.0,
        "runtime/total_s": 8.0,
        "runtime/wall_s": 12.0,
        "runtime/cpu_s": 16.0,
        "runtime/compile_s": 0.0,
        "memory/walk-1_bytes": 1 << 20,
        "memory/peak_bytes": 1 << 20,
    }
    assert json.loads(run.data.tags["superworkflow.cached"]) == ["index"]
    stages = find_run(uri, two[1]).stages
    assert stages["index"] == {"seconds": 0.0, "cost_usd": 0.0, "peak_memory_bytes": 0.0, "cached": 1.0}
    assert stages["walk-1"]["cached"] == 0.0


def test_loss_by_step_and_drift(shared_uri: str) -> None:
    uri = shared_uri
    points = ((0, 2.0), (500, 1.5), (1000, 1.25))
    trained = dataclasses.replace(staged("embed", 2), course={"loss": points})
    moved = dataclasses.replace(staged("shift", 1), stats={"drift.psi": 0.2, "drift.rows@a": 0.5})
    run_id = recorded(uri, "trained", {}, [trained, moved])
    client = MlflowClient(uri)
    assert [(each.step, each.value) for each in client.get_metric_history(run_id, "training/embed.loss")] == [*points]
    which = f"tags.`mlflow.parentRunId` = '{run_id}' and tags.`superworkflow.stage` = 'embed'"
    run = client.get_run(run_id)
    (stage,) = client.search_runs([run.info.experiment_id], which)
    assert [each.step for each in client.get_metric_history(stage.info.run_id, "loss")] == [0, 500, 1000]
    drift = {key: value for key, value in run.data.metrics.items() if key.startswith("drift/")}
    assert drift == {"drift/psi": 0.2, "drift/rows_at_a": 0.5}
    assert "Drift: psi 0.2, rows@a 0.5" in run.data.tags["mlflow.note.content"]
    assert find_run(uri, "trained").metrics == {"embed.micro_f1@0.5": 0.4}, "neither is quality"


def test_a_view_has_the_columns_that_people_look_for(shared_uri: str) -> None:
    """And one that somebody has changed on the page stays so."""
    uri, tag = shared_uri, "mlflow.sharedViewState.superworkflow-toy"
    client, experiment = MlflowTracker(uri).handle()
    if tag in client.get_experiment(experiment).tags:
        client.delete_experiment_tag(experiment, tag)

    def view() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(client.get_experiment(experiment).tags[tag])
        return found

    recorded(uri, "first", {}, [staged("index", 3)])
    assert "micro_f1" not in view()["state"]
    recorded(uri, "second", {}, [staged("walk-1", 3)])
    state = json.loads(view()["state"])
    assert state["searchFilter"] == "tags.`superworkflow.name` = 'toy'"
    assert state["selectedColumns"] == [
        "attributes.`Dataset`", "tags.`deployment`", "tags.`outcome`",
        "metrics.`quality/walk-1.micro_f1_at_0.5`", "metrics.`cost/total_usd`", "metrics.`cost/saved_by_cache_usd`",
        "metrics.`runtime/wall_s`",
    ]  # fmt: skip
    changed = json.dumps({**view(), "updatedAt": view()["updatedAt"] + 1, "state": json.dumps({"groupBy": None})})
    client.set_experiment_tag(experiment, tag, changed)
    recorded(uri, "third", {}, [staged("walk-1", 3)])
    assert client.get_experiment(experiment).tags[tag] == changed


def test_newest_first_and_limit(uri: str, two: tuple[str, str]) -> None:
    assert [run.run_id for run in recorded_runs(uri)][:2] == [two[1], two[0]]
    assert len(recorded_runs(uri, limit=1)) == 1


def test_nested_runs(uri: str, two: tuple[str, str]) -> None:
    client = MlflowClient(uri)
    experiment = client.get_run(two[0]).info.experiment_id
    children = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{two[0]}'")
    assert {run.info.run_name: run.info.status for run in children} == {"index": "FINISHED", "walk-1": "FINISHED"}
    index = next(run for run in children if run.info.run_name == "index").data
    assert index.metrics["rows_per_second"] == pytest.approx(40 / 3)
    assert index.metrics["stat/vertices"] == 7
    assert index.metrics["micro_f1_at_0.5"] == 0.4
    assert index.params["p"] == "0.5"
    assert index.params["resources.memory"] == str(2 << 30)
    assert index.tags["superworkflow.digest"] == "d" * 32


@pytest.mark.parametrize("length", [32, 12])
def test_found_by_id_and_by_its_beginning(uri: str, two: tuple[str, str], length: int) -> None:
    assert find_run(uri, two[1][:length]).name == "second"


def test_newest_of_a_name(uri: str, two: tuple[str, str]) -> None:
    ids = [recorded(uri, "same name", {}, []) for _ in range(2)]
    assert find_run(uri, "same name").run_id == ids[1]


def test_unknown_or_unclear_run(uri: str, two: tuple[str, str]) -> None:
    with pytest.raises(UserError, match=r"no such run \(got 'nobody'\). `superworkflow runs` lists them"):
        find_run(uri, "nobody")
    with pytest.raises(UserError, match="runs have an id that begins so"):
        find_run(uri, "")


def test_more_parameters_than_one_request_holds(uri: str) -> None:
    recorded(uri, "many", {f"stage.parameter_{number}": number for number in range(250)}, [])
    assert len(find_run(uri, "many").params) == 250


def test_picture(uri: str, tmp_path: Path) -> None:
    (tmp_path / "cost.png").write_bytes(b"picture")
    tracker = MlflowTracker(uri)
    run_id = tracker.begin("drawn", "toy", {}, {})
    tracker.picture(tmp_path / "cost.png")
    names = [each.path for each in MlflowClient(uri).list_artifacts(run_id, "pictures")]
    assert names == ["pictures/cost.png"]
    assert (Path(uri.removeprefix("sqlite:///")).parent / "artifacts").is_dir()


def test_comparison(uri: str, two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    found = compare(find_run(uri, two[0]), find_run(uri, two[1]))
    assert found.params == {"walk.p": ("1.0", "0.5")}
    assert found.metrics == {f"{node}.micro_f1@0.5": (0.4, 0.4) for node in ("index", "walk-1")}
    assert found.sources == {"edges": ("a" * 32, "b" * 32)}
    assert found.seconds == {"index": (3.0, 0.0), "walk-1": (4.0, 8.0)}
    assert found.cost_usd["walk-1"] == (0.04, 0.08)
    assert found.totals["full_cost_usd"] == pytest.approx((0.07, 0.11)), "with and without what was there already"
    print_comparison(found)
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    assert ["walk.p", "1.0", "0.5", ""] in rows
    assert ["edges", "a" * 12, "b" * 12, ""] in rows
    assert ["walk-1", "4.0 s", "8.0 s", "2.00"] in rows
    assert ["index", "3.0 s", "cached", ""] in rows
    never = dataclasses.replace(
        found, seconds=found.seconds | {"later": (None, 2.0)}, totals=found.totals | {"value": (1e4, 20.0)}
    )
    print_comparison(never)
    out = capsys.readouterr().out
    assert re.search(r"later +│ +- │ +2\.0 s │", out), "a stage that the failed run never reached is not cached"
    assert re.search(r"value, .* 1e\+04 │ +20 │ +0\.002 │", out)
    print_runs(recorded_runs(uri))
    (row,) = [line for line in capsys.readouterr().out.splitlines() if two[1][:8] in line]
    assert "second" in row
    assert "walk-1.micro" in row


def test_nothing_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    print_runs([])
    assert "no recorded runs here" in capsys.readouterr().out


def test_notes_and_tags_of_people_are_kept_apart_from_those_of_runs(uri: str, two: tuple[str, str]) -> None:
    assert find_run(uri, two[0]).own_tags == {}
    assert annotate(uri, two[0], "the long one", ["owner=ann", "keep"]) == (
        "the long one",
        {"owner": "ann", "keep": ""},
    )
    assert find_run(uri, two[0]).own_tags == {"owner": "ann", "keep": ""}
    for tags, removed in ((["outcome=mine"], []), ([], ["outcome"])):
        with pytest.raises(UserError, match="a tag that runs set themselves"):
            annotate(uri, two[0], None, tags, removed)
    assert annotate(uri, two[0], "", removed=["owner", "keep"]) == ("", {})
    assert find_run(uri, two[0]).tags["outcome"] == "finished"
