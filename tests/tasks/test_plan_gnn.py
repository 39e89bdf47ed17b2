"""Plans of gnn against what its stages take: compressed tables, the size of a training's steps, two earlier runs."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.flows import load_superworkflow
from superworkflow.infra.config.request import Request, build_request
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.local.launcher import ProcessLauncher
from superworkflow.infra.orchestration.run_node import run_node
from superworkflow.infra.planning.launch_history import History
from superworkflow.infra.planning.plan import plan
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import load_stage
from superworkflow.tasks.node_labels.split_stats import label_stats

GRAPH = {
    "nodes": 200_000, "edges": 4_000_000, "nodes.node": 200_000, "values.nodes.node": 100, "bytes": 120_000_000,
    "labelled": 100_000, "edge_sets": 1, "edges.edge": 4_000_000,
    "edges.edge.source": "node", "edges.edge.target": "node",
}  # fmt: skip


def _work_s(graph: dict[str, object] = GRAPH, **params: object) -> float:
    stage = load_stage("train")
    found = stage.estimate(stage.params(epochs=4, patience=0, **params), {"graph": graph}, Resources())
    return found.cpu_s - found.start_s


def test_training_takes_what_its_steps_do() -> None:
    usual = _work_s()
    assert _work_s(hidden=512) > 1.7 * usual
    assert _work_s(fanouts="40,all") > 1.6 * usual
    assert _work_s(GRAPH | {"values.nodes.node": 1000}) > 2 * usual
    assert _work_s(GRAPH | {"bytes": 10**10}) == usual  # bytes of edges, labels and names are no features
    assert 0.4 * usual < _work_s(GRAPH | {"labelled": 50_000}) < 0.6 * usual
    steps = [_work_s(batch=size, validation_share=0.0) for size in (1024, 102_400)]
    assert 2 * steps[1] < steps[0]  # neighbours that targets share are computed once
    links = {"links": 100_000, "validation_links": 5000, "test_links": 10_000}
    assert _work_s(GRAPH | links) > usual


def test_training_that_ends_early_is_expected_to() -> None:
    stage = load_stage("train")
    times = [
        stage.estimate(stage.params(epochs=200, patience=patience), {"graph": GRAPH}, Resources()).cpu_s
        for patience in (0, 5, 10)
    ]
    assert times[1] < times[2] < times[0] / 3


def test_splits_of_labels_say_how_many_are_trained_on(tmp_path: Path) -> None:
    splits = ["train"] * 30 + ["valid"] * 50 + ["test"] * 100 + [""] * 20
    (tmp_path / "l.csv").write_text("node,label,split\n" + "".join(f"{i},a,{each}\n" for i, each in enumerate(splits)))
    (tmp_path / "l.txt").write_text("".join(f"{i} a\n" for i in range(200)))
    pq.write_table(pa.table({"node": range(200), "label": ["a"] * 200, "split": splits}), tmp_path / "l.parquet")
    for name in ("l.csv", "l.parquet"):
        found = label_stats(Source.of(tmp_path / name), 1 << 20)
        assert (found["train_nodes"], found["validation_nodes"]) == (30, 50)
    assert "train_nodes" not in label_stats(Source.of(tmp_path / "l.txt"), 1 << 20)
    stage = load_stage("node_labels")
    stats = stage.estimate(stage.params(), {"labels": found, "graph": {"nodes": 200}}, Resources()).stats
    assert (stats["train_nodes"], stats["validation_nodes"]) == (30, 50)


@pytest.mark.slow
def test_a_compressed_table_takes_the_memory_of_its_columns(tmp_path: Path) -> None:
    nodes, width = 60_000, 1000
    values = np.repeat(np.random.default_rng(0).integers(0, 4, (nodes // 500, width)).astype(np.float32), 500, axis=0)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)
    features, edges, output = tmp_path / "f.parquet", tmp_path / "e.parquet", tmp_path / "graph"
    pq.write_table(pa.table({"node": np.arange(nodes), "feat": lists}), features, compression="zstd")
    pq.write_table(pa.table({"a": np.arange(nodes), "b": np.roll(np.arange(nodes), 1)}), edges)
    assert features.stat().st_size < values.nbytes / 50
    del values, lists
    resources, stage = Resources(cpu=2, memory=4 << 30), load_stage("heterograph")
    given = {"edges": edges, "features": features}
    command = [sys.executable, "-P", "-m", "superworkflow", "stage", "heterograph", "--output", str(output)]
    command += ["--params-json", "{}", "--resources-json", resources.model_dump_json()]
    subprocess.run(
        [*command, *(part for name, path in given.items() for part in ("--input", f"{name}={path}"))],
        check=True, capture_output=True,
    )  # fmt: skip
    measured = Dataset.open(output).manifest.measured
    stats = {name: stage.inputs[name].stats_of(Source.of(path)) for name, path in given.items()}
    assert stats["features"]["width"] == width
    found = stage.estimate(stage.params(), stats, resources)
    assert found.memory_bytes == pytest.approx(measured.peak_memory_bytes, rel=0.2)
    assert found.output_bytes == pytest.approx(4 * nodes * width, rel=0.05)


def _request(folder: Path, seed: int) -> Request:
    return build_request(
        load_superworkflow("gnn"), sources={name: str(folder / f"{name}.csv") for name in ("edges", "labels")},
        store=str(folder / "store"),
        assignments=["train.epochs=6", "train.patience=0", "train.hidden=16", f"train.seed={seed}"],
    )  # fmt: skip


@pytest.mark.slow
def test_two_runs_correct_a_plan(tmp_path: Path) -> None:
    """Time within a quarter and memory within a fifth of what the two took."""
    random = np.random.default_rng(1)
    (tmp_path / "edges.csv").write_text("".join(f"{a},{b}\n" for a, b in random.integers(0, 300, (1500, 2))))
    (tmp_path / "labels.csv").write_text("".join(f"{node},{node % 3}\n" for node in range(300)))
    launcher = ProcessLauncher()
    for seed in (1, 2):
        request = _request(tmp_path, seed)
        for name in ("heterograph", "node_labels", "train"):
            run_node(request.diagram.nodes[name], request, launcher, lambda event: None, {})
    records = History(request.store.root).records("train")
    assert [json.loads(each.model_dump_json())["inputs"]["labels"]["labelled"] for each in records] == [300, 300]
    found = next(stage for stage in plan(_request(tmp_path, 3)) if stage.name == "train")
    assert found.basis == "2 runs"
    for value, name, share in ((found.cpu_s, "cpu_s", 0.25), (found.memory_bytes, "memory_bytes", 0.2)):
        took = sorted(getattr(each, name) for each in records)
        assert (1 - share) * took[0] <= value <= (1 + share) * took[1]
