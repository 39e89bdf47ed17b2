"""Classes and numbers of edges: what is hidden, what is learned, and that the registered model has the same answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import baselines, heterograph, holdout_edges, infer, publish_predictions, score, train
from superworkflow.tasks.baselines.edge_scores import class_model, mean_model
from superworkflow.tasks.holdout_edges.splits import named_splits
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.objective.edge_labels import EdgeLabels, read_edge_labels
from superworkflow.tasks.lib.gnn.objective.edge_prediction import EdgeRegression
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.publish import serving
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

PEOPLE, THINGS, RATINGS = 40, 30, 700
FAST = {"hidden": 16, "epochs": 30, "batch": 64, "learning_rate": 0.01, "patience": 0}


def ratings(folder: Path, header: bool = True) -> Path:
    """Rows of person, thing, rating, verdict, time and part; half of the people like what the others do not."""
    rng = np.random.default_rng(3)
    person, thing = rng.integers(0, PEOPLE, RATINGS), rng.integers(0, THINGS, RATINGS)
    liked = (person % 2) == (thing % 2)
    rating = np.where(liked, 2.0, -1.0) + 0.25 * rng.integers(-2, 3, RATINGS)
    rows = [
        f"p{p},t{t},{r},{'good' if r > 0.5 else 'bad'},{1_600_000_000 + 60 * i},{('train', 'val', 'test', '')[i % 4]}"
        for i, (p, t, r) in enumerate(zip(person, thing, rating, strict=True))
    ]
    path = folder / "ratings.csv"
    path.write_text("\n".join(["source,target,rating,verdict,time,part"] * header + rows) + "\n")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Dataset]:
    folder = tmp_path_factory.mktemp("ratings")
    file = ratings(folder)
    return file, run_stage(heterograph.STAGE, {}, {"edges": str(file)}, folder / "graph")


def held_out(made: tuple[Path, Dataset], folder: Path, **params: Any) -> HeteroGraph:
    given = {"label": "rating", "task": "edge_regression"} | params
    inputs = {"graph": made[1].uri, "edges": str(made[0])}
    return HeteroGraph.open(run_stage(holdout_edges.STAGE, given, inputs, folder / "held"))


def pairs_of(graph: HeteroGraph, edges: str) -> set[tuple[int, int]]:
    rows = graph.rows(edges)
    sources = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    return set(zip(sources.tolist(), rows.indices.tolist(), strict=True))


def test_judged_edges_are_not_in_the_graph(made: tuple[Path, Dataset], tmp_path: Path) -> None:
    graph = held_out(made, tmp_path)
    labels, given = read_edge_labels(graph), pd.read_csv(made[0])
    names = np.array(graph.ids("node").to_pylist())
    assert names[labels.pairs].tolist() == given[["source", "target"]].to_numpy().tolist()
    np.testing.assert_allclose(labels.values, given["rating"])
    judged = {tuple(pair) for pair in labels.pairs[labels.splits > 0].tolist()}
    left = pairs_of(graph, "edge")
    assert judged
    assert not left & (judged | {pair[::-1] for pair in judged})
    trained = {tuple(pair) for pair in labels.pairs[labels.splits == 0].tolist()}
    assert left == trained | {pair[::-1] for pair in trained}  # all edges between two nodes are in one split
    assert 0.5 < (labels.splits == 0).mean() < 0.7


def test_edges_of_a_step_pass_no_messages_in_it(made: tuple[Path, Dataset], tmp_path: Path) -> None:
    graph = held_out(made, tmp_path)
    labels = read_edge_labels(graph)
    task = EdgeRegression(graph, labels, 8)
    items = labels.items("train")[:20]
    rows = graph.rows("edge")
    sources = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    wanted = {tuple(sorted(pair)) for pair in labels.pairs[items].tolist()}
    lost = task.lost(items, (random_streams.TRAINING, 0, 0))[0]
    there = {tuple(sorted((int(sources[place]), int(rows.indices[place])))) for place in lost}
    assert there == wanted
    assert len(lost) == 2 * len(wanted)
    assert not task.lost(items, (random_streams.VALIDATION, 0, 0))


def test_directed_edges_back_stay(tmp_path: Path) -> None:
    names = [f"n{i}" for i in range(12)]
    rows = [(a, b) for a in names for b in names if a != b]
    kinds = ["up" if a < b else "down" for a, b in rows]
    tables = {
        "likes": Edges("node", "node", sorted(rows), {"kind": kinds, "other": np.arange(len(rows))}),
        "liked": Edges("node", "node", reversed_of="likes"),
    }
    whole = write_heterograph(tmp_path / "whole", {"node": Nodes(names)}, tables)
    given = {"label": "likes.kind", "task": "edge_classification"}
    graph = HeteroGraph.open(run_stage(holdout_edges.STAGE, given, {"graph": whole.uri}, tmp_path / "held"))
    labels = read_edge_labels(graph)
    assert labels.directed
    assert labels.classes == ("down", "up")
    judged = {tuple(pair) for pair in labels.pairs[labels.splits > 0].tolist()}
    every = pairs_of(HeteroGraph.open(whole), "likes")
    assert pairs_of(graph, "likes") == every - judged
    assert pairs_of(graph, "liked") == {pair[::-1] for pair in every - judged}
    assert [each.name for each in graph.edge_sets["likes"].features] == ["other"]  # labels are no features


def test_labels_that_another_set_has_are_a_warning(tmp_path: Path) -> None:
    rows = sorted((f"u{i}", f"i{i * k % 7}") for i in range(12) for k in (1, 2))
    tables = {
        "rates": Edges("user", "item", rows, {"stars": [f"s{n % 2}" for n in range(len(rows))]}),
        "rated": Edges("item", "user", [pair[::-1] for pair in rows]),
    }
    nodes = {"user": Nodes([f"u{i}" for i in range(12)]), "item": Nodes([f"i{i}" for i in range(7)])}
    whole = write_heterograph(tmp_path / "whole", nodes, tables)
    given = {"label": "rates.stars", "task": "edge_classification"}
    stats = run_stage(holdout_edges.STAGE, given, {"graph": whole.uri}, tmp_path / "held").stats
    assert "rated: an edge set has the held-out links the other way round" in stats["input_warning.1"]


@pytest.mark.parametrize("task", ["edge_classification", "edge_regression"])
def test_a_network_beats_what_both_ends_say(task: str, made: tuple[Path, Dataset], tmp_path: Path) -> None:
    label = "verdict" if task == "edge_classification" else "rating"
    graph = held_out(made, tmp_path, task=task, label=label)
    inputs = {"graph": graph.dataset.uri}
    network = run_stage(train.STAGE, FAST, inputs, tmp_path / "train")
    found = run_stage(infer.STAGE, {}, inputs | {"network": network.uri}, tmp_path / "infer")
    simple = run_stage(baselines.STAGE, {}, inputs, tmp_path / "simple")
    given = {"predictions": found.uri, "baselines": simple.uri}
    metrics = run_stage(score.STAGE, {}, given, tmp_path / "score").json("metrics.json")
    others = simple.json("metrics.json")
    if task == "edge_classification":
        assert metrics["accuracy@test"] > 0.95 > others["end_classes_accuracy@test"]
    else:
        assert metrics["rmse@test"] < 0.7 < others["end_means_rmse@test"]
    table = found.table("predictions.parquet").to_pandas()
    assert table[["source", "target"]].equals(pd.read_csv(made[0])[["source", "target"]])
    given = {"predictions": found.uri, "network": network.uri, "graph": graph.dataset.uri}
    bundle = run_stage(publish_predictions.STAGE, {}, given, tmp_path / "bundle")
    model = serving.load(Path(bundle.uri))
    answers = model.predict(table[["source", "target"]].head(50), {})
    assert (answers["error"] == "").all()
    if task == "edge_classification":
        assert answers["predicted"].tolist() == table["predicted"].head(50).tolist()
        np.testing.assert_allclose(answers["probability"], table["probability"].head(50), atol=1e-5)
    else:
        np.testing.assert_allclose(answers["predicted"], table["predicted"].head(50), atol=1e-4)
    request = pd.DataFrame({"source": ["new", "p1", "p2"], "target": ["t1", "nobody", "p4"],
                          "source_neighbors": [["t1", "t3"], None, None]})  # fmt: skip
    errors = model.predict(request, {})["error"].tolist()
    assert errors[0] == ""
    assert "nobody" in errors[1]
    assert errors[2] == ""


def test_splits_by_time_and_by_a_column(made: tuple[Path, Dataset], tmp_path: Path) -> None:
    timed = read_edge_labels(held_out(made, tmp_path / "time", split_by="time"))
    assert (np.diff(timed.splits) >= 0).all()
    assert np.bincount(timed.splits).tolist() == [420, 140, 140]
    own = read_edge_labels(held_out(made, tmp_path / "own", split_by="part"))
    parts = pd.read_csv(made[0])["part"].dropna()
    assert own.splits.tolist() == [("train", "val", "test").index(each) for each in parts]


@pytest.mark.parametrize(("params", "words"), [
    ({"label": "stars"}, "no such column"),
    ({"label": "source"}, "source of the edges"),
    ({"label": "verdict"}, "no finite number"),
    ({"split_by": "verdict"}, "neither splits nor times"),
    ({"label": "part", "task": "edge_classification", "split_by": "part"}, "no edge to train on"),
])  # fmt: skip
def test_refusals(params: dict[str, str], words: str, made: tuple[Path, Dataset], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        held_out(made, tmp_path, **params)


def test_one_class_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "edges.csv"
    file.write_text("source,target,kind\na,b,x\nb,c,x\nc,d,\n")
    graph = run_stage(heterograph.STAGE, {}, {"edges": str(file)}, tmp_path / "graph")
    with pytest.raises(UserError, match="labels of two kinds"):
        held_out((file, graph), tmp_path, label="kind", task="edge_classification")


def test_edges_of_one_time_are_in_one_split() -> None:
    texts = pa.array(["3", "1", "2", "2", "2", "4"], pa.large_string())
    splits = named_splits(texts, (0.34, 0.33), "column")
    assert splits.tolist() == [2, 0, 1, 1, 1, 2]
    with pytest.raises(UserError, match="the same"):
        named_splits(pa.array(["5", "5"], pa.large_string()), (0.6, 0.2), "column")


def labels_with(values: np.ndarray, classes: tuple[str, ...]) -> EdgeLabels:
    pairs = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    return EdgeLabels("edge", "label", True, classes, pairs, values, np.array([0, 0, 0, 1], np.int8))


def test_baselines_of_both_ends_by_their_formulas() -> None:
    number = mean_model(labels_with(np.array([4.0, 1.0, 1.0, 9.0]), ()), (2, 2), False)
    targets = np.array([(2.0 - 1.0) / 7, -1.0 / 6])
    sources = np.array([(2.0 - targets[0] - 1.0 - targets[1]) / 7, (-1.0 - targets[0]) / 6])
    np.testing.assert_allclose(number(np.array([[1, 1]])), [2.0 + sources[1] + targets[1]])
    scores = class_model(labels_with(np.array([1, 0, 0, 1]), ("a", "b")), (2, 2), False)(np.array([[0, 1]]))
    prior = np.array([2 / 3, 1 / 3])
    shares = [(np.array([1, 1]) + 5 * prior) / 7, (np.array([1, 0]) + 5 * prior) / 6]
    np.testing.assert_allclose(scores[0], np.log(shares[0]) + np.log(shares[1]) - np.log(prior))
