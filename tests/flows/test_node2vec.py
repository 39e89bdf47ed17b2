"""The Node2Vec superworkflow end to end: real stages, a real MLflow store, a real Prefect server process."""

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient

from superworkflow.flows import load_superworkflow
from superworkflow.infra.config.request import build_request
from tests.flows.command_line import STAGES, CommandLine

REGISTER = ("--register", "node2vec-embeddings")


def test_diagram_without_link_prediction_or_labels(graph_files: tuple[Path, Path]) -> None:
    superworkflow = load_superworkflow("node2vec")
    sources = {"edges": str(graph_files[0])}
    without = build_request(superworkflow, sources=sources, assignments=["node2vec.link_prediction=false"])
    assert list(without.diagram.nodes) == ["index", "walk", "prepare", "embed", "publish"]
    links = build_request(superworkflow, sources=sources)
    assert list(links.diagram.nodes) == [name for name in STAGES if name != "label"]
    both = build_request(superworkflow, sources=sources | {"labels": str(graph_files[1])})
    assert list(both.diagram.nodes) == STAGES
    assert [node.name for node in both.diagram.nodes["label"].upstream] == ["index"]
    assert both.diagram.nodes["embed"].digest == without.diagram.nodes["embed"].digest


def test_run_then_cached_then_changed_window(command_line: CommandLine) -> None:
    first = command_line("run", "--json", "--name", "first", "--export", "word2vec", *REGISTER).document
    assert [stage["name"] for stage in first["stages"]] == STAGES
    assert {stage["state"] for stage in first["stages"]} == {"ran"}
    for stage in first["stages"]:
        assert stage["runtime_s"] > 0
        assert stage["cpu_s"] > 0
        assert stage["peak_memory_bytes"] > 1 << 20
        assert stage["cost_usd"] > 0
        assert stage["rows"] > 0
        assert Path(stage["output"], "manifest.json").exists()
    assert first["metrics"]["evaluate.micro_f1@0.5"] > 0.8  # four planted communities are easy
    assert first["metrics"]["evaluate.link_auc@hadamard"] > 0.6
    _check_embeddings(first)
    _check_mlflow(command_line.store, first)
    _check_prefect(command_line.environment["PREFECT_API_URL"], first, "Completed")

    second = command_line("run", "--json", "--name", "second", *REGISTER)
    assert set(second.states().values()) == {"cached"}
    assert second.document["totals"]["cost_usd"] == 0
    assert second.document["totals"]["saved_by_cache_usd"] > 0
    assert second.document["metrics"] == first["metrics"]
    _check_prefect(command_line.environment["PREFECT_API_URL"], second.document, "Cached")
    versions = _client(command_line.store).search_model_versions("name = 'node2vec-embeddings'")
    assert len(versions) == 1, "the same bundle is registered once"
    (decision,) = second.document["promotion"]
    assert (decision["verdict"], decision["why"]) == ("current", "the champion already")
    assert json.loads(versions[0].tags["superworkflow.decision"])["verdict"] == "promoted", "it says why it is in use"

    explained = command_line.here("explain", "--set", "embed.window=2").out
    lines = {line.split()[0]: line for line in explained.splitlines()}
    assert list(lines) == STAGES
    changed = {"embed", "holdout-embed", "evaluate", "publish"}
    for name, line in lines.items():
        assert ("will run" if name in changed else "cached") in line
    assert "embed.window: 4 → 2" in lines["embed"]
    assert "input embeddings differs" in lines["publish"]

    planned = json.loads(command_line.here("plan", "--set", "embed.window=2", "--json").out)
    assert {stage["name"] for stage in planned if stage["state"] == "run"} == changed

    third = command_line("run", "--json", "--name", "third", "--set", "embed.window=2")
    assert third.document["promotion"] == []
    assert len(_client(command_line.store).search_model_versions("name = 'node2vec-embeddings'")) == 1
    assert {name for name, state in third.states().items() if state == "ran"} == changed

    planned = json.loads(command_line.here("plan", "--initial", "first", "--json").out)
    assert {stage["name"] for stage in planned if stage["state"] == "run"} == {"embed", "evaluate", "publish"}

    compared = json.loads(command_line.here("compare", "first", "third", "--json").out)
    assert compared["params"] == {"embed.window": ["4", "2"]}
    assert compared["seconds"]["embed"][1] > 0
    assert compared["cost_usd"]["walk"][1] == 0
    assert "evaluate.micro_f1@0.5" in compared["metrics"]
    shown = command_line.here("compare", "first", "third").out
    assert "embed.window" in shown
    assert "macro_f1@0.5" in shown
    listed = command_line.here("runs").out
    assert all(name in listed for name in ("first", "second", "third"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,label\nno1,red\nno2,blue\n", "all labels are for nodes that are not in the graph: 'no1' on line 2"),
        ("node,label\nv0,red\nv1\n", "labels.csv:3: 1 column instead of 2"),
    ],
    ids=["unknown nodes", "malformed"],
)
def test_labels_that_cannot_be_used_end_the_run_before_the_walks(
    command_line: CommandLine, tmp_path: Path, text: str, message: str
) -> None:
    """Labels are matched right after index: nobody waits for training to learn of a wrong file."""
    command_line.labels = tmp_path / "labels.csv"
    command_line.labels.write_text(text)
    failed = command_line("run", "--no-tracking", expect=2)
    assert message in failed.err
    assert "To resume" not in failed.err  # the same command would fail again
    assert failed.err.rstrip().endswith("Complete stages are kept.")
    assert [line.split()[1] for line in failed.err.splitlines() if "failed after" in line] == ["label"]
    made = {path.parent.parent.name for path in command_line.store.glob("*/*/manifest.json")}
    assert made == {"index"}
    begun = {path.name for path in command_line.store.iterdir()} & {"walk", "prepare", "embed", "holdout", "evaluate"}
    assert not begun


def _check_embeddings(document: dict[str, Any]) -> None:
    table = pq.read_table(document["embeddings"])
    assert table.column_names == ["node", "vector"]
    assert str(table.schema.field("vector").type) == "fixed_size_list<element: float>[16]"
    nodes = table.column("node").to_pylist()
    assert "v0" in nodes
    lines = Path(document["export_word2vec"]).read_text().splitlines()
    assert lines[0].split() == [str(len(nodes)), "16"]
    assert len(lines) == len(nodes) + 1


def _client(store: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{store}/mlflow/mlflow.db")


def _check_mlflow(store: Path, document: dict[str, Any]) -> None:
    client = _client(store)
    parent = client.get_run(document["run_id"])
    assert parent.info.status == "FINISHED"
    assert parent.data.params["embed.window"] == "4"
    embed = next(stage for stage in document["stages"] if stage["name"] == "embed")
    assert parent.data.metrics["runtime/embed_s"] == embed["runtime_s"]
    assert parent.data.metrics["cost/embed_usd"] == embed["cost_usd"]
    assert parent.data.metrics["quality/evaluate.micro_f1_at_0.5"] == document["metrics"]["evaluate.micro_f1@0.5"]
    assert parent.data.metrics["cost/total_usd"] == document["totals"]["cost_usd"]
    children = client.search_runs([parent.info.experiment_id], f"tags.mlflow.parentRunId = '{document['run_id']}'")
    assert sorted(run.info.run_name for run in children) == sorted(STAGES)
    walk = next(run for run in children if run.info.run_name == "walk")
    assert walk.data.params["walk_length"] == "20"
    assert {"seconds", "cpu_seconds", "peak_memory_bytes", "rows", "bytes", "rows_per_second", "cost_usd"} <= set(
        walk.data.metrics
    )
    pictures = {artifact.path for artifact in client.list_artifacts(document["run_id"], "pictures")}
    assert pictures == {"pictures/stages.png", "pictures/evaluate-projection.png"}
    assert {artifact.path for artifact in client.list_artifacts(document["run_id"])} == {
        "logs", "panels", "pictures", "report.html"
    }  # fmt: skip
    version = client.get_model_version_by_alias("node2vec-embeddings", "current")
    assert version.run_id == document["run_id"]


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _check_prefect(api: str, document: dict[str, Any], state: str) -> None:
    chosen = {"flow_runs": {"id": {"any_": [document["flow_run_id"]]}}}
    [flow_run] = _post(f"{api}/flow_runs/filter", chosen)
    assert flow_run["state"]["type"] == "COMPLETED"
    assert flow_run["name"] == document["name"]
    tasks = _post(f"{api}/task_runs/filter", chosen)
    assert sorted(run["name"] for run in tasks) == sorted(STAGES)
    assert {run["state"]["name"] for run in tasks} == {state}
    artifacts = _post(f"{api}/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [document["flow_run_id"]]}}})
    by_key = {artifact["key"]: artifact for artifact in artifacts}
    assert "tracking-run" in by_key
    rows = json.loads(by_key["stages"]["data"])
    assert [row["stage"] for row in rows] == [*STAGES, "total"]
    assert rows[-1]["runtime (s)"] == round(document["totals"]["seconds"], 2)
    words = by_key["stages"]["description"]
    assert "`evaluate.micro_f1@0.5` " in words
    assert f"[on the dashboard](http://127.0.0.1:8060/run/{document['run_id']})" in words
    assert re.search(rf"\[in MLflow\]\(http://127.0.0.1:5000/#/experiments/\d+/runs/{document['run_id']}\?", words)
