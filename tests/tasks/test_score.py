"""Stage `score`: figures of scikit-learn, of predictions by a trained network."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    precision_recall_fscore_support,
    roc_auc_score,
)

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks import baselines, infer, score, train
from superworkflow.tasks.lib.baseline_warnings import class_warnings
from superworkflow.tasks.score.numbers import trained_by
from tests.datasets import commit
from tests.tasks.gnn_graphs import one_kind
from tests.tasks.index_helpers import run_stage

SPLITS = ("validation", "test")


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    """A graph, and predictions that are often wrong."""
    folder = tmp_path_factory.mktemp("score")
    graph = one_kind(folder / "graph")
    params = {"epochs": 2, "hidden": 4, "fanouts": "3,3", "batch": 8}
    network = run_stage(train.STAGE, params, {"graph": graph.uri}, folder / "train")
    given = {"graph": graph.uri, "network": network.uri}
    return graph, run_stage(infer.STAGE, {}, given, folder / "infer")


def _rows(dataset: Dataset, name: str) -> list[dict[str, Any]]:
    return list(dataset.table(name).to_pylist())


def test_figures_are_those_of_scikit_learn(predicted: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    _, found = predicted
    likely, names = found.array("probabilities.npy"), found.json("classes.json")
    rows = _rows(found, "predictions.parquet")
    assert (likely.dtype, likely.shape) == (np.float32, (len(rows), len(names)))
    assert likely.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert [row["predicted"] for row in rows] == [names[number] for number in likely.argmax(axis=1)]
    assert [row["probability"] for row in rows] == pytest.approx(likely.max(axis=1).tolist())
    scored = run_stage(score.STAGE, {}, {"predictions": found.uri}, tmp_path / "score")
    classes, confusion, bins = (_rows(scored, f"{name}.parquet") for name in ("classes", "confusion", "calibration"))
    for split in SPLITS:
        judged = np.flatnonzero([row["split"] == split for row in rows])
        truth = np.array([names.index(rows[i]["label"]) for i in judged])
        given = likely[judged].argmax(axis=1)
        one_hot = np.eye(len(names))[truth]
        table = [row for row in classes if row["split"] == split]
        assert [row["class"] for row in table] == names
        wanted = precision_recall_fscore_support(truth, given, labels=range(len(names)))
        for name, values in zip(("precision", "recall", "f1", "support"), wanted, strict=True):
            assert [row[name] or 0 for row in table] == pytest.approx(values)
        for name, function in (("roc_auc", roc_auc_score), ("average_precision", average_precision_score)):
            assert [row[name] for row in table] == pytest.approx(function(one_hot, likely[judged], average=None))
            assert scored.metrics[f"{name}@{split}"] == pytest.approx(function(one_hot, likely[judged]))
        matrix = np.zeros((len(names), len(names)), int)
        for row in confusion:
            if row["split"] == split:
                matrix[names.index(row["label"]), names.index(row["predicted"])] = row["nodes"]
        assert (matrix == confusion_matrix(truth, given, labels=range(len(names)))).all()
        own = [row for row in bins if row["split"] == split]
        assert sum(row["nodes"] for row in own) == len(judged)
        error, best = 0.0, likely[judged].max(axis=1)
        for row in own:
            here = (best > row["low"]) & (best <= row["high"])
            assert here.sum() == row["nodes"]
            error += abs((given == truth)[here].mean() - best[here].mean()) * here.mean()
        assert scored.metrics[f"calibration_error@{split}"] == pytest.approx(error, abs=1e-6)


def test_a_simpler_method_that_is_better_is_a_warning(predicted: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    graph, found = predicted
    simple = run_stage(baselines.STAGE, {}, {"graph": graph.uri}, tmp_path / "baselines")
    log = io.StringIO()
    given = {"predictions": found.uri, "baselines": simple.uri}
    scored = run_stage(score.STAGE, {}, given, tmp_path / "score", log=log)
    assert simple.metrics["label_propagation_accuracy@test"] > scored.metrics["accuracy@test"] + 0.2
    warnings = [str(value) for name, value in scored.stats.items() if name.startswith("input_warning.")]
    assert any("labels spread over the edges classify better than the network" in each for each in warnings)
    assert all(f"warning: {each}" in log.getvalue() for each in warnings)


def test_warnings_name_parameters_of_the_stage_that_trained(predicted: tuple[Dataset, Dataset]) -> None:
    own, simple = {"accuracy@test": 0.5}, {"label_propagation_accuracy@test": 0.9, "majority_accuracy@test": 0.6}
    texts = [str(each) for each in class_warnings(own, simple, {"test": 1000}, "accuracy", "train_full")]
    assert "look at train_full's losses: set train_full.learning_rate lower" in texts[0].lower()
    assert "Set train_full.epochs higher, or train_full.dropout lower" in texts[1]
    assert trained_by(predicted[1]) == "train"


def _relabelled(found: Dataset, folder: Path, name_of: Callable[[int, str | None], str | None]) -> Dataset:
    """The same predictions of nodes with other labels, by row and label."""
    table = found.table("predictions.parquet")
    labels = [name_of(row, label) for row, label in enumerate(table["label"].to_pylist())]
    output = DatasetWriter(folder)
    changed = table.set_column(table.column_names.index("label"), "label", pa.array(labels, pa.string()))
    output.table("predictions.parquet", changed)
    output.array("probabilities.npy", found.array("probabilities.npy"))
    output.json("classes.json", found.json("classes.json"))
    return commit(output, "infer", {"name": folder.name}, {"nodes": len(labels), "classes": 3}, len(labels))


def test_a_class_that_the_network_does_not_know(predicted: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    """Such as on a later graph: it counts as never predicted, without a curve."""
    _, found = predicted
    first = found.table("predictions.parquet")["split"].to_pylist().index("test")
    later = _relabelled(found, tmp_path / "later", lambda row, label: "new" if row == first else label)
    scored = run_stage(score.STAGE, {}, {"predictions": later.uri}, tmp_path / "score")
    (row,) = [row for row in _rows(scored, "classes.parquet") if (row["split"], row["class"]) == ("test", "new")]
    assert (row["support"], row["predicted"], row["recall"], row["precision"], row["roc_auc"]) == (
        1,
        0,
        0.0,
        None,
        None,
    )


def test_the_model_in_use_has_other_classes(predicted: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    """Labels that are none of its classes and classes without a label are named; names that became numbers end it."""
    _, found = predicted
    classes, log = found.json("classes.json"), io.StringIO()
    output = DatasetWriter(tmp_path / "nobody")
    output.table("predictions.parquet", found.table("predictions.parquet").slice(0, 0))
    nobody = commit(output, "infer", {"name": "nobody"}, {"nodes": 0, "classes": 3}, 0)
    renamed = _relabelled(found, tmp_path / "one", lambda row, label: "new" if label == classes[0] else label)
    run_stage(score.STAGE, {}, {"predictions": renamed.uri, "seen": nobody.uri}, tmp_path / "score", log=log)
    assert "warning: labels that the network has no classes for, and gets wrong: new\n" in log.getvalue()
    assert f"warning: classes of the network that no node has any more: {classes[0]}\n" in log.getvalue()
    numbers = _relabelled(found, tmp_path / "all", lambda row, label: label and f"{classes.index(label)}.0")
    with pytest.raises(UserError, match=r"no label is a class of the network, which has .* \(got '0\.0, 1\.0"):
        run_stage(score.STAGE, {}, {"predictions": numbers.uri, "seen": nobody.uri}, tmp_path / "other")
