"""Correct and Smooth: against the formulas on dense matrices, in a pipeline, and in a served model."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import correct, heterograph, infer, publish_predictions, score, train
from superworkflow.tasks.correct import LEAST_SHARE, SHARES, STEPS, STILL, WEIGHTS
from superworkflow.tasks.correct.neighbor_means import NeighborMeans
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.publish.serving import load
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

NODES = 300
STEP = (1, 2)


def _made(folder: Path, kind: str, test_labels: str = "") -> dict[str, str]:
    """Graph, network and predictions of nodes on a ring, one of which is alone.

    Labels are a feature plus a curve along the ring that no feature shows; of classes its sign, of several labels also
    the curve's crests.
    """
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(7)
    own, curve = rng.normal(size=NODES), 2 * np.sin(np.arange(NODES) / 12)
    truth = own + curve
    pairs = [(i, (i + step) % (NODES - 1)) for i in range(NODES - 1) for step in STEP]
    (folder / "edges.csv").write_text("".join(f"n{u:03},n{v:03}\n" for u, v in pairs))
    (folder / "features.csv").write_text("node,a\n" + "".join(f"n{i:03},{own[i]:.6f}\n" for i in range(NODES)))
    splits = np.random.default_rng(1).permutation(np.repeat(["train", "validation", "test"], NODES // 3))
    labels = [f"{value:.4f}" if kind == "regression" else ("low", "high")[int(value > 0)] for value in truth]
    labels = [
        test_labels if test_labels and split == "test" else each for each, split in zip(labels, splits, strict=True)
    ]
    rows = [f"n{i:03},{each},{split}\n" for i, (each, split) in enumerate(zip(labels, splits, strict=True))]
    if kind == "several":
        rows += [f"n{i:03},crest,{split}\n" for i, split in enumerate(splits) if curve[i] > 1]
    (folder / "labels.csv").write_text("node,label,split\n" + "".join(rows))
    files = {name: str(folder / f"{name}.csv") for name in ("edges", "features", "labels")}
    graph = run_stage(heterograph.STAGE, {}, files, folder / "graph").uri
    params = {
        "task": "regression" if kind == "regression" else "auto",
        "hidden": 8,
        "epochs": 30,
        "dropout": 0.0,
        "seed": 1,
        "layers": 1,
        "fanouts": "all",
    }
    network = run_stage(train.STAGE, params, {"graph": graph}, folder / "train").uri
    predictions = run_stage(infer.STAGE, {}, {"graph": graph, "network": network}, folder / "infer").uri
    return {"graph": graph, "network": network, "predictions": predictions}


@pytest.fixture(scope="module", params=["regression", "classification", "several"])
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return _made(tmp_path_factory.mktemp(request.param), request.param)


def _rows(predictions: Dataset) -> tuple[NDArray[Any], NDArray[Any], pd.DataFrame]:
    """Predicted rows, labels as rows, and the table."""
    table = pd.DataFrame(predictions.table("predictions.parquet").to_pydict())
    if "probabilities.npy" not in predictions.files():
        return table["predicted"].to_numpy()[:, None], table["label"].to_numpy()[:, None], table
    classes = predictions.json("classes.json")
    lists = [np.atleast_1d(each) for each in table["label"]]
    truth = np.array([np.isin(classes, each) for each in lists], float)
    return predictions.array("probabilities.npy").astype(float), truth, table


def _by_hand(given: dict[str, str]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Corrected rows of all nodes, and terms, by dense matrices in float64."""
    graph = HeteroGraph.open(Dataset.open(given["graph"]))
    rows = graph.rows("edge")
    near = np.zeros((NODES, NODES))
    near[np.repeat(np.arange(NODES), np.diff(rows.indptr)), rows.indices] = 1
    alone = near.sum(axis=1) == 0
    near /= np.maximum(near.sum(axis=1, keepdims=True), 1)
    own, truth, table = _rows(Dataset.open(given["predictions"]))
    trained, judged = (table["split"].to_numpy() == name for name in ("train", "validation"))

    def spread(start: NDArray[Any], share: float, base: NDArray[Any] | None) -> NDArray[Any]:
        values = before = start
        for _ in range(STEPS):
            values = share * near @ values + (0 if base is None else (1 - share) * base)
            if base is not None:
                values[alone] = base[alone]
            values[trained] = start[trained]
            changed, before = values - before, values
            if np.linalg.norm(changed[~trained]) <= STILL * np.linalg.norm((before - changed)[~trained]):
                break
        return values

    def losses(found: NDArray[Any]) -> NDArray[Any]:
        return np.square((found - truth)[judged]).sum(axis=1)

    def best(tried: list[tuple[NDArray[Any], NDArray[Any]]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The rows with the least error, unless those of the first are within two standard errors."""
        found = min(tried, key=lambda each: losses(each[0]).mean())
        gains = losses(tried[0][0]) - losses(found[0])
        return found if gains.mean() > 2 * gains.std() / np.sqrt(len(gains)) else tried[0]

    errors = np.where(trained[:, None], truth - own, 0)
    corrections = [(own, 0 * own)]
    for share in SHARES:
        found = spread(errors, share, None)
        factor = float(np.clip((found * (truth - own))[judged].sum() / np.square(found[judged]).sum(), 0, 2))
        corrections.append((own + factor * found, factor * share * found))
    moved, of_errors = best(corrections)
    start = np.where(trained[:, None], truth, moved)
    smoothed = [(moved, of_errors)]
    for weight in WEIGHTS:
        found = spread(start, weight, moved)
        smoothed.append((found, (1 - weight) * of_errors + weight * found))
    rows_made, terms = best(smoothed)
    if own.shape[1] > 1:
        rows_made = _bounded(rows_made, own)
    return np.where(trained[:, None], own, rows_made), terms


def _bounded(rows: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
    """Probabilities that are near enough to the network's; they sum to 1 where its do."""
    rows = np.maximum(rows, LEAST_SHARE * own)
    if np.allclose(own.sum(axis=-1), 1):
        return rows / rows.sum(axis=-1, keepdims=True)
    return np.minimum(rows, 1 - LEAST_SHARE * (1 - own))


def test_it_is_what_the_formulas_say(given: dict[str, str], tmp_path: Path) -> None:
    """The same for one thread and two; nodes to train keep the network's predictions, labels and splits stay."""
    log = io.StringIO()
    made = run_stage(correct.STAGE, {}, given, tmp_path / "one", cpu=1, log=log)
    wanted, terms = _by_hand(given)
    found, _, table = _rows(made)
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    assert made.array("terms.npy") == pytest.approx(terms, rel=1e-4, abs=1e-5)
    chosen = made.json("correction.json")
    assert chosen["after"] < 0.7 * chosen["before"], "a curve that no feature shows"
    assert "of the nodes to validate on" in log.getvalue()
    own, _, before = _rows(Dataset.open(given["predictions"]))
    trained = table["split"] == "train"
    assert (found[trained] == own[trained]).all()
    assert (found[~trained] != own[~trained]).any(axis=1).sum() == (~trained).sum() - int(not trained.iloc[-1])
    assert table[["node", "label", "split"]].equals(before[["node", "label", "split"]])
    again = run_stage(correct.STAGE, {}, given, tmp_path / "two", cpu=2)
    assert [each.sha256 for each in again.manifest.files] == [each.sha256 for each in made.manifest.files]


def test_it_raises_the_figures_of_nodes_to_test(given: dict[str, str], tmp_path: Path) -> None:
    made = run_stage(correct.STAGE, {}, given, tmp_path / "made")
    figures = [
        run_stage(score.STAGE, {}, {"predictions": each}, tmp_path / str(number)).json("metrics.json")
        for number, each in enumerate([given["predictions"], made.uri])
    ]
    for name in ("r2@test", "accuracy@test", "macro_f1@validation"):
        assert made.stats.get(f"metrics.network_{name}") == pytest.approx(figures[0].get(name))
    name, least = ("r2@test", 0.2) if "r2@test" in figures[0] else ("accuracy@test", 0.05)
    assert figures[1][name] > figures[0][name] + least


def test_labels_of_nodes_to_test_are_not_read(tmp_path: Path) -> None:
    made = []
    for number, label in enumerate(("", "77.5")):
        given = _made(tmp_path / str(number), "regression", label)
        made.append(run_stage(correct.STAGE, {}, given, tmp_path / f"made{number}"))
    first, second = (each.table("predictions.parquet", ["node", "predicted"]) for each in made)
    assert first.equals(second)


@pytest.mark.parametrize(
    ("params", "labels", "why"),
    [
        (
            {"task": "regression"},
            lambda i: f"n{i:03},{np.random.default_rng(i).normal():.4f},{_split(i)}",
            "do not lower",
        ),
        ({}, lambda i: f"n{i:03},{'ab'[i % 2]},{'train' if i % 3 else 'test'}", "no node to train and to validate"),
    ],
    ids=["noise", "no_validation"],
)
def test_predictions_that_stay_as_they_are(params: dict[str, str], labels: Any, why: str, tmp_path: Path) -> None:
    _made(tmp_path, "regression")
    (tmp_path / "labels.csv").write_text("node,label,split\n" + "".join(f"{labels(i)}\n" for i in range(NODES)))
    files = {name: str(tmp_path / f"{name}.csv") for name in ("edges", "features", "labels")}
    given = {"graph": run_stage(heterograph.STAGE, {}, files, tmp_path / "graph2").uri}
    settings = {"hidden": 8, "epochs": 2} | params
    given["network"] = run_stage(train.STAGE, settings, given, tmp_path / "train2").uri
    found = run_stage(infer.STAGE, {}, given, tmp_path / "infer2")
    log = io.StringIO()
    made = run_stage(correct.STAGE, {}, given | {"predictions": found.uri}, tmp_path / "made", log=log)
    assert why in log.getvalue()
    digests = {each.path: each.sha256 for each in found.manifest.files}
    assert {each.path: each.sha256 for each in made.manifest.files} == {
        path: digests[path] for path in ("predictions.parquet", "probabilities.npy", "classes.json") if path in digests
    }


def _noise(i: int) -> float:
    return float(np.random.default_rng(i).normal())


def _split(i: int) -> str:
    return ("train", "validation", "test")[i % 3]


def test_predictions_of_another_graph_are_refused(given: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("a,b\nb,c\n")
    (tmp_path / "labels.csv").write_text("a,x\nb,y\n")
    files = {name: str(tmp_path / f"{name}.csv") for name in ("edges", "labels")}
    other = run_stage(heterograph.STAGE, {}, files, tmp_path / "graph")
    with pytest.raises(DatasetDamaged, match=r"predictions\.parquet"):
        run_stage(correct.STAGE, {}, given | {"graph": other.uri}, tmp_path / "made")


def test_a_served_model_corrects_new_nodes(given: dict[str, str], tmp_path: Path) -> None:
    """By their neighbours' terms; a node that the graph has keeps its corrected prediction."""
    made = run_stage(correct.STAGE, {}, given, tmp_path / "made")
    bundle = run_stage(publish_predictions.STAGE, {}, given | {"corrected": made.uri}, tmp_path / "bundle")
    plain = run_stage(publish_predictions.STAGE, {}, given, tmp_path / "plain")
    own, _, table = _rows(Dataset.open(given["predictions"]))
    corrected = _rows(made)[0]
    place = int(np.flatnonzero(table["split"] == "test")[5])
    near = [(place + step) % (NODES - 1) for step in (-2, -1, 1, 2)]
    value = pd.read_csv(Path(given["graph"]).parent / "features.csv")["a"][place]
    requests = pd.DataFrame([
        {"node": table["node"][place]},
        {"node": "new", "features": [float(value)], "neighbors": [table["node"][each] for each in near]},
        {"node": "alone", "features": [float(value)], "neighbors": []},
    ])  # fmt: skip
    answers, before = (load(each.location.local_path).predict(requests, {}) for each in (bundle, plain))
    shares = bundle.json("bundle.json")
    wanted = shares["own_share"] * own[place] + made.array("terms.npy")[near].mean(axis=0)
    if "probability" in answers:
        wanted = _bounded(wanted, own[place])
        classes = shares["classes"]
        found = np.array([[each[name] for name in classes] for each in answers["probabilities"]])
        alone = np.array([before["probabilities"][2][name] for name in classes])
    else:
        found, alone = answers["predicted"].to_numpy()[:, None], before["predicted"][2]
    assert found[0] == pytest.approx(corrected[place], rel=1e-4)
    assert found[1] == pytest.approx(wanted, rel=1e-3)
    assert found[1] == pytest.approx(corrected[place], rel=0.05, abs=0.02), "as of a node of the graph"
    assert found[2] == pytest.approx(alone), "no neighbours to learn from"


def test_means_over_paths_through_another_set(tmp_path: Path) -> None:
    """Users have no edges among each other: those count who share an item; a set without its reverse does not."""
    users, items = [f"u{i}" for i in range(6)], [f"i{i}" for i in range(4)]
    rows = [("u0", "i0"), ("u1", "i0"), ("u1", "i1"), ("u2", "i1"), ("u3", "i1"), ("u4", "i2")]
    graph = HeteroGraph.open(write_heterograph(
        tmp_path / "graph", {"user": Nodes(users), "item": Nodes(items)},
        {"has": Edges("user", "item", rows), "of": Edges("item", "user", reversed_of="has"),
         "seen": Edges("user", "item", [("u5", "i3")])},
    ))  # fmt: skip
    matrix = np.zeros((6, 4))
    for user, item in rows:
        matrix[int(user[1]), int(item[1])] = 1
    values = np.random.default_rng(2).normal(size=(6, 3)).astype(np.float32)
    across = matrix.T @ values / np.maximum(matrix.sum(axis=0), 1)[:, None]
    wanted = matrix @ across / np.maximum(matrix.sum(axis=1), 1)[:, None]
    nodes = np.array([1, 3, 4, 5])
    means = NeighborMeans(graph, "user", nodes)
    assert means.of(values) == pytest.approx(wanted[nodes], abs=1e-6)
    assert means.degrees.tolist() == [2, 1, 1, 0]
    assert not NeighborMeans(graph, "item", np.arange(4)).of(np.ones((4, 1), np.float32))[3].any()
