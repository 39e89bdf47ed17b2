"""Stage `baselines`: known values on graphs of which labels, features and edges say a known share."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import baselines, train
from superworkflow.tasks.lib.gnn.objective.label_lists import many_targets_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.gnn_graphs import KINDS, NODES, one_kind, two_kinds
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage


def _run(graph: Dataset, folder: Path, params: dict[str, Any] | None = None, cpu: int = 1) -> tuple[Any, str]:
    log = io.StringIO()
    given = {"graph": graph.uri}
    return run_stage(baselines.STAGE, params or {}, given, folder, cpu, log), log.getvalue()


def _split(name: str) -> np.ndarray:
    """Numbers of the nodes of `one_kind` in a split."""
    number = ("train", "validation", "test").index(name)
    return np.flatnonzero((np.arange(NODES) // KINDS) % 3 == number)


def test_figures_are_those_of_scikit_learn(tmp_path: Path) -> None:
    made = one_kind(tmp_path / "graph")
    graph = HeteroGraph.open(made)
    found, log = _run(made, tmp_path / "baselines")
    truth, (trained, valid, test) = np.arange(NODES) % KINDS, map(_split, ("train", "validation", "test"))
    metrics = found.metrics
    # Each class is as frequent as any other one: the first is predicted.
    assert metrics["majority_accuracy@test"] == pytest.approx((truth[test] == 0).mean())
    assert metrics["majority_macro_f1@test"] == pytest.approx(
        f1_score(truth[test], np.zeros(len(test)), average="macro")
    )
    values = np.array(graph.node_feature("node", "features"))
    scaler = StandardScaler().fit(values[trained])
    models = [
        LogisticRegression(C=c, max_iter=1000).fit(scaler.transform(values[trained]), truth[trained])
        for c in (0.1, 1, 10, 100)
    ]
    best = max(models, key=lambda each: each.score(scaler.transform(values[valid]), truth[valid]))
    assert metrics["features_accuracy@test"] == pytest.approx(best.score(scaler.transform(values[test]), truth[test]))
    rows = graph.rows("edge")
    matrix = sp.csr_matrix((np.ones(len(rows.indices)), rows.indices, rows.indptr), shape=(NODES, NODES))
    labels = np.full(NODES, -1)
    labels[trained] = truth[trained]
    # scikit-learn's Laplacian has no loops, and its alpha is the share of what spreads.
    spread = LabelSpreading(kernel=lambda x, y: matrix.toarray(), alpha=0.9, max_iter=50, tol=0)
    spread.fit(np.arange(NODES)[:, None], labels)
    for split, nodes in (("validation", valid), ("test", test)):
        wanted = spread.transduction_[nodes]
        assert metrics[f"label_propagation_accuracy@{split}"] == pytest.approx(accuracy_score(truth[nodes], wanted))
        assert metrics[f"label_propagation_macro_f1@{split}"] == pytest.approx(
            f1_score(truth[nodes], wanted, average="macro")
        )
    assert metrics["label_propagation_accuracy@test"] > 0.8 > metrics["features_accuracy@test"]
    assert "label propagation: accuracy" in log


def test_splits_are_those_of_training(tmp_path: Path) -> None:
    """Labels without splits are divided by the hash that training divides them by, of the parameters of training."""
    rng = np.random.default_rng(3)
    names = [f"n{i:03}" for i in range(200)]
    kinds = rng.permutation([0] * 140 + [1] * 60)
    rows = sorted({(names[u], names[v]) for u, v in rng.integers(0, 200, (900, 2)) if u != v})
    rows = sorted({*rows, *((v, u) for u, v in rows)})
    given = Nodes(names, {"label": [f"k{k}" for k in kinds]})
    graph = write_heterograph(tmp_path / "graph", {"node": given}, {"edge": Edges("node", "node", rows)})
    params = {"train_share": 0.3, "validation_share": 0.3, "seed": 7}
    found, log = _run(graph, tmp_path / "baselines", params)
    network = {"epochs": 1, "hidden": 8, "fanouts": "2,2", **params}
    trained = run_stage(train.STAGE, network, {"graph": str(tmp_path / "graph")}, tmp_path / "train")
    splits = trained.array("splits.npy")
    for number, split in ((1, "validation"), (2, "test")):
        wanted = (kinds[splits == number] == 0).mean()
        assert found.metrics[f"majority_accuracy@{split}"] == pytest.approx(wanted)
    assert "features: left out, since nodes of node have no features" in log
    assert not [name for name in found.metrics if name.startswith("features")]


def test_typed_graph_and_paths_of_two_edges(tmp_path: Path) -> None:
    """Labels go over the edges within the set; without any, through another set."""
    found, _ = _run(two_kinds(tmp_path / "typed"), tmp_path / "within", {"label": "paper.venue"})
    assert "label_propagation_accuracy@test" in found.metrics
    papers, authors = [f"p{i:02}" for i in range(40)], [f"a{i}" for i in range(8)]
    # An author has papers of one venue only.
    rows = sorted((authors[i % 8], papers[i]) for i in range(40))
    venue = np.arange(40) % 2
    nodes = {"paper": Nodes(papers, {"venue": venue}), "author": Nodes(authors)}
    graph = write_heterograph(tmp_path / "paths", nodes, {"writes": Edges("author", "paper", rows)})
    found, log = _run(graph, tmp_path / "through", {"label": "paper.venue"})
    assert found.metrics["label_propagation_accuracy@test"] == 1.0
    assert "over paths paper - other set - paper" in log


def test_sparse_features_are_not_standardised_and_threads_change_nothing(tmp_path: Path) -> None:
    """Words of a class, with others that are rare: as text classifiers do, rows are divided by their length."""
    rng = np.random.default_rng(5)
    count, words = 600, 400
    kinds = np.arange(count) % 4
    values = (rng.random((count, words)) < 0.01).astype(np.float32)
    values[np.arange(count), kinds * 3 + rng.integers(0, 3, count)] = 1
    names = [f"n{i:03}" for i in range(count)]
    rows = sorted({(names[u], names[v]) for u, v in rng.integers(0, count, (1200, 2))})
    nodes = Nodes(names, {"label": [f"k{k}" for k in kinds], "words": values})
    graph = write_heterograph(tmp_path / "graph", {"node": nodes}, {"edge": Edges("node", "node", rows)})
    found = [_run(graph, tmp_path / f"with-{cpu}", cpu=cpu)[0].metrics for cpu in (1, 2)]
    assert found[0] == found[1]
    assert found[0]["features_accuracy@test"] > 0.9
    assert found[0]["label_propagation_accuracy@test"] < 0.5
    assert not any(name.startswith("forest") for name in found[0])


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_forest_finds_what_a_line_does_not(task: str, tmp_path: Path) -> None:
    """The label is where two numbers have the same sign, in any scale; the same for any number of threads."""
    rng = np.random.default_rng(7)
    values = rng.normal(size=(900, 3)).astype(np.float32) * [1, 100, 1]
    label = values[:, 0] * values[:, 1] > 0
    names = [f"n{i:03}" for i in range(len(values))]
    rows = sorted({(names[u], names[v]) for u, v in rng.integers(0, len(values), (1500, 2))})
    labels = label.astype(np.int64) if task == "regression" else [f"k{each:d}" for each in label]
    nodes = Nodes(names, {"label": labels, "x": values.astype(np.float32)})
    graph = write_heterograph(tmp_path / "graph", {"node": nodes}, {"edge": Edges("node", "node", rows)})
    params = {"label": "node.label", "task": task}
    found = [_run(graph, tmp_path / f"with-{cpu}", params, cpu=cpu)[0].metrics for cpu in (1, 2)]
    assert found[0] == found[1]
    if task == "classification":
        assert found[0]["forest_accuracy@test"] > 0.9 > 0.6 > found[0]["features_accuracy@test"]
    else:
        assert found[0]["forest_r2@test"] > 0.7 > 0.1 > found[0]["features_r2@test"]


def test_several_labels(tmp_path: Path) -> None:
    """A node with k labels is given the k of highest score, by features of which each says one label."""
    rng = np.random.default_rng(6)
    count, kinds = 150, 4
    has = np.zeros((count, kinds), bool)
    has[np.arange(count), np.minimum(rng.integers(0, 6, count), kinds - 1)] = True
    has[np.arange(count), rng.integers(0, kinds, count)] = True
    names = [f"n{i:03}" for i in range(count)]
    pairs = [(u, v) for u, v in rng.integers(0, count, (4000, 2)).tolist() if u < v and (has[u] == has[v]).all()]
    rows = sorted({(names[u], names[v]) for u, v in pairs})
    values = (has + 0.3 * rng.normal(size=has.shape)).astype(np.float32)
    labels = [[f"l{kind}" for kind in np.flatnonzero(each)] for each in has]
    given = {"label": labels, "x": values}
    graph = write_heterograph(tmp_path / "graph", {"node": Nodes(names, given)}, {"edge": Edges("node", "node", rows)})
    found, log = _run(graph, tmp_path / "baselines", {"label": "node.label"})
    targets = many_targets_of(HeteroGraph.open(graph), "node.label", (0.6, 0.2), 42)
    tested = targets.nodes("test")
    chosen = np.concatenate([targets.nodes("train"), targets.nodes("validation")])
    order = np.argsort(-has[chosen].sum(axis=0), kind="stable")
    guess = np.zeros_like(has[tested])
    for row, node in enumerate(tested):
        guess[row, order[: has[node].sum()]] = True
    for figure in ("micro", "macro"):
        wanted = f1_score(has[tested], guess, average=figure)
        assert found.metrics[f"majority_{figure}_f1@test"] == pytest.approx(wanted)
    assert found.metrics["majority_accuracy@test"] == pytest.approx((guess == has[tested]).all(axis=1).mean())
    assert found.metrics["features_micro_f1@test"] > 0.95 > found.metrics["majority_micro_f1@test"] + 0.2
    assert found.metrics["label_propagation_micro_f1@test"] > 0.9
    assert "features: micro_f1" in log
