"""Node regression: from rows of a file to a model that answers with numbers, in the labels' unit."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import baselines, heterograph, infer, publish_predictions, score, tabulate
from superworkflow.tasks.lib.gnn.objective.number_targets import number_targets_of
from superworkflow.tasks.lib.gnn.objective.real_labels import class_doubts
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.publish.serving import load
from superworkflow.tasks.train import STAGE
from tests.tasks.index_helpers import run_stage

NODES = 120
TRAIN = {"task": "regression", "hidden": 16, "batch": 32, "epochs": 60, "dropout": 0.0}


def _files(folder: Path, labels: dict[str, Any]) -> dict[str, str]:
    """Nodes on a ring with chords; a node has noise and its own share of the number as features."""
    rng = np.random.default_rng(3)
    pairs = {(i, (i + step) % NODES) for i in range(NODES) for step in (1, 2, 3)}
    (folder / "edges.csv").write_text("".join(f"n{u:03},n{v:03}\n" for u, v in sorted(pairs)))
    values = np.stack([np.sin(np.arange(NODES) / 9), rng.normal(size=NODES)], 1)
    rows = "".join(f"n{i:03},{a:.6f},{b:.6f}\n" for i, (a, b) in enumerate(values))
    (folder / "features.csv").write_text("node,a,b\n" + rows)
    (folder / "labels.csv").write_text("node,label\n" + "".join(f"{node},{value}\n" for node, value in labels.items()))
    return {name: str(folder / f"{name}.csv") for name in ("edges", "features", "labels")}


@pytest.fixture(scope="module")
def truth() -> dict[str, float]:
    """A number of the neighbourhood, from about -1000 to 3000; one is whole and below 0, every tenth is missing."""
    own = np.sin(np.arange(NODES) / 9)
    around = sum(np.roll(own, step) for step in (-3, -2, -1, 1, 2, 3)) / 6
    values = {f"n{i:03}": round(1000 + 2000 * float(around[i]), 3) for i in range(NODES) if i % 10}
    return values | {"n041": -7.0}


@pytest.fixture(scope="module")
def graph(truth: dict[str, float], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("numbers")
    labels = {node: f"{value:g}" if value == -7 else value for node, value in truth.items()}
    return run_stage(heterograph.STAGE, {}, _files(folder, labels), folder / "graph")


def test_from_rows_to_a_model_that_answers(graph: Dataset, truth: dict[str, float], tmp_path: Path) -> None:
    given = {"graph": graph.uri}
    made = run_stage(STAGE, TRAIN, given, tmp_path / "train")
    assert made.stats["task"] == "node_regression"
    trained = given | {"network": made.uri}
    found = run_stage(infer.STAGE, {}, trained, tmp_path / "infer")
    rows = found.table("predictions.parquet").to_pylist()
    assert {row["node"]: row["label"] for row in rows if row["label"] is not None} == pytest.approx(truth)
    simple = run_stage(baselines.STAGE, {"task": "regression"}, given, tmp_path / "baselines")
    inputs = {"predictions": found.uri, "baselines": simple.uri}
    scored = run_stage(score.STAGE, {}, inputs, tmp_path / "score")
    tested = [row for row in rows if row["split"] == "test"]
    both = [[row[key] for row in tested] for key in ("label", "predicted")]
    for name, figure in (("rmse", root_mean_squared_error), ("mae", mean_absolute_error), ("r2", r2_score)):
        assert scored.stats[f"metrics.{name}@test"] == pytest.approx(figure(*both))
    assert scored.stats["metrics.rmse@test"] < 0.5 * simple.stats["metrics.mean_rmse@test"]
    table = run_stage(tabulate.STAGE, {}, {"predictions": inputs["predictions"]}, tmp_path / "table")
    assert table.table("predictions.parquet").to_pylist() == [
        {key: row[key] for key in ("node", "predicted")} for row in rows
    ]
    published = trained | {"predictions": inputs["predictions"], "scores": scored.uri}
    bundle = run_stage(publish_predictions.STAGE, {}, published, tmp_path / "bundle")
    model = load(bundle.location.local_path)
    near = [f"n{(5 + step) % NODES:03}" for step in (-3, -2, -1, 1, 2, 3)]
    again = {"node": "new", "features": dict(zip("ab", _row(graph, 5), strict=True)), "neighbors": near}
    answer = model.predict(pd.DataFrame([{"node": "n005"}, again, {"node": "stranger"}]), {})
    assert answer.columns.tolist() == ["node", "predicted", "error"]
    assert answer["predicted"][0] == rows[5]["predicted"]
    assert answer["predicted"][1] == pytest.approx(rows[5]["predicted"], rel=1e-4)
    assert answer["predicted"][2] is None
    assert "stranger" in answer["error"][2]


def _row(graph: Dataset, node: int) -> list[float]:
    return [float(value) for value in HeteroGraph.open(graph).node_feature("node", "features")[node]]


def test_baselines_are_those_computed_by_hand(graph: Dataset, tmp_path: Path) -> None:
    simple = run_stage(baselines.STAGE, {"task": "regression"}, {"graph": graph.uri}, tmp_path / "baselines")
    targets = number_targets_of(HeteroGraph.open(graph), "", (0.6, 0.2), 42)
    trained, tested = targets.nodes("train"), targets.nodes("test")
    around = [
        [node for step in (-3, -2, -1, 1, 2, 3) if (node := (each + step) % NODES) in set(trained)] for each in tested
    ]
    means = [targets.values[near].mean() if near else targets.mean for near in around]
    wanted = root_mean_squared_error(targets.values[tested], means)
    assert simple.stats["metrics.neighbor_mean_rmse@test"] == pytest.approx(wanted)
    constant = np.full(len(tested), targets.values[trained].mean())
    assert simple.stats["metrics.mean_mae@test"] == pytest.approx(mean_absolute_error(targets.values[tested], constant))
    assert simple.stats["metrics.features_rmse@test"] < simple.stats["metrics.mean_rmse@test"]


def test_decimals_are_no_classes_unless_called_so(graph: Dataset, tmp_path: Path) -> None:
    given = {"graph": graph.uri}
    for stage in (STAGE, baselines.STAGE):
        with pytest.raises(UserError, match=r"numbers with decimals, not classes.*such as .*train.task=regression"):
            run_stage(stage, {}, given, tmp_path / stage.name)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"n005": "tall"}, "no finite number.*of node 'n005'.*tall"),
        ({"n005": "inf"}, "'n005'.*inf"),
        ({"n005": "3,5"}, "columns"),
        ({f"n{i:03}": "7" for i in range(NODES)}, "different numbers to train on"),
    ],
    ids=["text", "infinite", "comma", "constant"],
)
def test_refusals(labels: dict[str, str], message: str, tmp_path: Path) -> None:
    rows = {f"n{i:03}": str(i) for i in range(NODES)} | labels
    files = _files(tmp_path, rows)
    with pytest.raises(UserError, match=message):
        _trained(files, tmp_path)


def _trained(files: dict[str, str], folder: Path) -> Dataset:
    made = run_stage(heterograph.STAGE, {}, files, folder / "graph")
    return run_stage(STAGE, TRAIN, {"graph": made.uri}, folder / "train")


@pytest.mark.parametrize(
    ("names", "nodes", "doubted"),
    [
        ([str(i) for i in range(172)], 1000, False),
        ([str(i) for i in range(1900, 2100, 2)], 500, True),
        ([f"{i}.0" for i in range(80, 101)], 9627, True),
        ([str(i) for i in range(1, 11)], 500, False),
        ([str(i) for i in range(80, 85)], 500, False),
        (["0.5", "1.0", "1.5"], 500, True),
        (["0.0", "1.0"], 500, False),
        (["0.5", "b"], 500, False),
    ],
    ids=["codes", "years", "points", "from_1", "few", "ratings", "whole", "text"],
)
def test_classes_that_may_be_numbers(names: list[str], nodes: int, doubted: bool) -> None:
    assert bool(class_doubts(names, nodes, "node.label")) is doubted


def test_a_doubt_is_in_the_log_and_the_record(tmp_path: Path) -> None:
    rows, log = {f"n{i:03}": f"{0.5 + i % 3}" for i in range(NODES)}, io.StringIO()
    made = run_stage(heterograph.STAGE, {}, _files(tmp_path, rows), tmp_path / "graph")
    given = {"graph": made.uri}
    params = TRAIN | {"epochs": 1, "task": "auto"}
    trained = run_stage(STAGE, params, given, tmp_path / "train", log=log)
    assert "train.task=regression" in log.getvalue()
    assert any("taken for names of classes" in str(value) for value in trained.stats.values())
