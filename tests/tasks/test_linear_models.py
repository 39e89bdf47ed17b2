"""Lasso and support vector machines against scikit-learn, their figures on held-out samples, and what is refused."""

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import (
    dump_svmlight_file,
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_wine,
    make_classification,
)
from sklearn.linear_model import Lasso
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from superworkflow.flows import load_superworkflow
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Resources, Stage
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.feature_graph import STAGE as GRAPH
from superworkflow.tasks.lasso import STAGE as LASSO
from superworkflow.tasks.publish_coefficients import STAGE as PUBLISH
from superworkflow.tasks.score_samples import STAGE as SCORE
from superworkflow.tasks.svm import STAGE as SVM
from tests.benchmarks.peers.word_samples import word_samples
from tests.tasks.index_helpers import run_stage


def written(matrix: np.ndarray, labels: np.ndarray, path: Path) -> str:
    dump_svmlight_file(matrix, labels, str(path), zero_based=True)
    return str(path)


def solved(
    stage: Stage[Any], samples: str, folder: Path, read: dict[str, Any], cpu: int = 1, **params: Any
) -> tuple[Dataset, Dataset]:
    """Datasets of the graph and of the program."""
    graph = run_stage(GRAPH, read, {"samples": samples}, folder / "graph", 1, io.StringIO())
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, folder / "colours", 1, io.StringIO())
    inputs = {"graph": graph.uri, "colours": colours.uri}
    return graph, run_stage(stage, params, inputs, folder / stage.name, cpu, io.StringIO())


def published(graph: Dataset, values: Dataset, folder: Path, width: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Coefficients [problems, width], 0 of features that do not occur, and the model's facts."""
    made = run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, folder / "published", 1, io.StringIO())
    rows = made.table("coefficients.parquet").to_pylist()
    classes = list(dict.fromkeys(row.get("class") for row in rows))
    found = np.zeros((len(classes), width))
    for row in rows:
        found[classes.index(row.get("class")), row["feature"]] = row["coefficient"]
    return found, made.json("model.json")


def sparse_samples(samples: int, features: int, density: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    matrix = np.where(rng.random((samples, features)) < density, rng.normal(1, 1, (samples, features)), 0)
    weights = np.where(rng.random(features) < 0.2, rng.normal(0, 3, features), 0)
    return matrix, matrix @ weights + 5 + rng.normal(0, 0.3, samples)


@pytest.mark.parametrize(("density", "intercept"), [(0.1, True), (1.0, True), (0.3, False)])
def test_lasso(density: float, intercept: bool, tmp_path: Path) -> None:
    matrix, labels = sparse_samples(150, 60, density)
    samples = written(matrix, labels, tmp_path / "s.svm")
    graph, values = solved(LASSO, samples, tmp_path, {"intercept": intercept}, tolerance=1e-14)
    found, facts = published(graph, values, tmp_path, 60)
    oracle = Lasso(alpha=facts["alpha"], fit_intercept=intercept, tol=1e-14, max_iter=100_000).fit(matrix, labels)
    assert np.abs(found[0] - oracle.coef_).max() < 1e-6
    assert abs(facts["intercept"] - oracle.intercept_) < 1e-6
    assert 3 <= np.count_nonzero(found) < 60
    assert facts["relative_gap"] < 1e-13
    centred = labels - labels.mean() * intercept
    assert facts["alpha"] == pytest.approx(0.03 * np.abs(matrix.T @ centred).max() / 150, rel=1e-9)
    assert values.stats["objective"] == pytest.approx(
        np.mean((labels - matrix @ found[0] - facts["intercept"]) ** 2) / 2 + facts["alpha"] * np.abs(found).sum()
    )


def test_constant_features_between_the_others(tmp_path: Path) -> None:
    """One for four values of a sample, each after an equal share of the values; they save most steps."""
    matrix, labels = word_samples(400, 300, 60)
    samples = written(matrix, labels, tmp_path / "s.svm")
    graph, values = solved(LASSO, samples, tmp_path, {}, strength=0.02)
    indptr, side = graph.array("indptr.npy"), graph.array("side.npy")
    features, constants = np.flatnonzero(side == 1), np.flatnonzero(side == 2)
    shares = matrix.nnz // (4 * 400)
    assert len(constants) == shares > 10
    colour = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "colours").array("colour.npy")
    turns = colour[constants]
    assert (np.diff(turns) > 0).all()
    assert turns[-1] > colour[features].max()
    degree = np.diff(indptr)
    before = [int(degree[features][colour[features] < turn].sum()) for turn in turns]
    largest = np.bincount(colour[features], weights=degree[features]).max()
    for number, found in enumerate(before, 1):
        assert 0 <= found - matrix.nnz * number / shares < largest + 1
    assert len(set(turns) | set(colour[features])) == colour[0] == colour.max()
    assert values.stats["steps"] < 100
    found, facts = published(graph, values, tmp_path, 300)
    assert facts["nonzero"] == np.count_nonzero(found) > 100
    oracle = Lasso(alpha=facts["alpha"], tol=1e-6, max_iter=100_000).fit(matrix, labels)
    assert facts["objective"] - _objective(matrix, labels, oracle) < 1e-6 * labels.var()


def _objective(matrix: Any, labels: np.ndarray, model: Lasso) -> float:
    return float(np.mean((labels - model.predict(matrix)) ** 2) / 2 + model.alpha * np.abs(model.coef_).sum())


def test_compressed_sensing(tmp_path: Path) -> None:
    """Fewer equations than unknowns: the sparse signal is what comes back."""
    rng = np.random.default_rng(0)
    matrix, signal = rng.normal(size=(60, 200)) / 8, np.zeros(200)
    signal[rng.choice(200, 6, replace=False)] = [3, -2, 1.5, 4, -3, 2]
    samples = written(matrix, matrix @ signal, tmp_path / "s.svm")
    graph, values = solved(LASSO, samples, tmp_path, {"intercept": False}, strength=1e-4, tolerance=1e-12)
    found, _ = published(graph, values, tmp_path, 200)
    assert np.abs(found[0] - signal).max() < 5e-3


@pytest.mark.parametrize(("classes", "squared"), [(3, True), (2, True), (2, False)])
def test_svm(classes: int, squared: bool, tmp_path: Path) -> None:
    matrix, labels = load_digits(n_class=classes, return_X_y=True)
    matrix, labels = matrix[:200] / 16, labels[:200] * 2 + 1
    samples = written(matrix, labels, tmp_path / "s.svm")
    graph, values = solved(SVM, samples, tmp_path, {"labels": "classes"}, cost=0.1, squared=squared, tolerance=1e-8)
    found, facts = published(graph, values, tmp_path, 64)
    loss = "squared_hinge" if squared else "hinge"
    oracle = LinearSVC(C=0.1, loss=loss, tol=1e-9, max_iter=1_000_000).fit(matrix, labels)
    problems = len(found)
    assert problems == (1 if classes == 2 else 3)

    def objective(weights: np.ndarray, intercepts: np.ndarray) -> float:
        total = 0.0
        for problem in range(problems):
            signs = np.where(labels == (labels.max() if problems == 1 else 2 * problem + 1), 1, -1)
            losses = np.maximum(0, 1 - signs * (matrix @ weights[problem] + intercepts[problem]))
            total += 0.1 * (losses**2 if squared else losses).sum() + weights[problem] @ weights[problem] / 2
            total += intercepts[problem] ** 2 / 2
        return total

    best = objective(oracle.coef_, oracle.intercept_)
    assert objective(found, np.array(facts["intercept"])) == pytest.approx(best, rel=1e-6)
    assert facts["objective"] == pytest.approx(best, rel=1e-6)
    assert facts["relative_gap"] <= 1e-8
    if squared:
        assert np.abs(found - oracle.coef_).max() < 1e-4
    assert facts["classes"] == [str(2 * number + 1) for number in range(classes)]


def test_svm_that_is_far_from_the_best(tmp_path: Path) -> None:
    """Features of unlike scales end at max_steps, as a warning says; scaled, as by default, there is none."""
    samples = written(*load_breast_cancer(return_X_y=True), tmp_path / "s.svm")
    for name, read in (("raw", {"scale": False}), ("scaled", {})):
        _, values = solved(SVM, samples, tmp_path / name, {"labels": "classes", **read}, max_steps=1000)
        assert (values.stats["relative_gap"] > 0.01) == (name == "raw")
        assert ("the coefficients are not the best ones" in str(values.stats)) == (name == "raw")


def test_features_of_other_units_give_one_lasso(tmp_path: Path) -> None:
    """By default as scikit-learn's of values divided by their deviation, with coefficients in the file's units."""
    matrix, labels = sparse_samples(150, 20, 0.6)
    units = 10.0 ** (np.arange(20) % 5)
    graph, values = solved(LASSO, written(matrix * units, labels, tmp_path / "s.svm"), tmp_path, {}, tolerance=1e-14)
    assert "each is scaled" in str(graph.stats)
    found, facts = published(graph, values, tmp_path, 20)
    scaled = matrix / matrix.std(axis=0)
    oracle = Lasso(alpha=facts["alpha"], tol=1e-14, max_iter=100_000).fit(scaled, labels)
    assert np.abs(found[0] * units * matrix.std(axis=0) - oracle.coef_).max() < 1e-6
    assert abs(facts["intercept"] - oracle.intercept_) < 1e-6


def test_studies_search_the_penalty_that_has_no_unit() -> None:
    """A given alpha leaves strength without effect, and its range would depend on the labels' units."""
    searched = [
        name for name, field in LASSO.params.model_fields.items() if "search" in (field.json_schema_extra or {})
    ]
    assert searched == ["strength"]


def test_samples_that_are_doubted(tmp_path: Path) -> None:
    """Labels that are rather numbers than classes, and features of unlike sizes; of digits neither."""
    numbers, classes = {"labels": "numbers"}, {"labels": "classes"}
    matrix, labels = load_digits(return_X_y=True)
    cases = {
        "digits": (matrix, labels, classes, []),
        "pixels": (matrix, np.round(matrix @ np.arange(64.0)), classes, ["look like numbers"]),
        "as numbers": (matrix, np.round(matrix @ np.arange(64.0)), numbers, []),
        "raw": (*load_breast_cancer(return_X_y=True), classes, ["of unlike sizes"]),
    }
    for name, (features, targets, read, words) in cases.items():
        samples = written(features[:400], targets[:400], tmp_path / f"{name}.svm")
        stats = run_stage(GRAPH, read, {"samples": samples}, tmp_path / name, 1, io.StringIO()).stats
        assert [word for word in ("look like numbers", "of unlike sizes") if word in str(stats)] == words


def test_colours_of_features_and_threads(tmp_path: Path) -> None:
    """Features of one colour share no sample, however many threads there are, nothing changes; 5,000 rare features."""
    rng = np.random.default_rng(3)
    lines = [f"{rng.normal():.6f} {i}:1.5 {5000 + i % 7}:{rng.random():.6f}" for i in range(5000)]
    path = tmp_path / "s.svm"
    path.write_text("\n".join(lines))
    params: dict[str, Any] = {"strength": 0.01, "max_steps": 12, "tolerance": 0}
    graph, one = solved(LASSO, str(path), tmp_path / "1", {}, 1, **params)
    _, two = solved(LASSO, str(path), tmp_path / "2", {}, 2, **params)
    assert one.array("coefficient-00000.npy").tobytes() == two.array("coefficient-00000.npy").tobytes()
    colour = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "1" / "colours").array("colour.npy")
    indptr, indices = graph.array("indptr.npy"), graph.array("indices.npy")
    assert len(np.unique(colour)) <= 4
    for sample in range(5000):
        around = colour[indices[indptr[sample] : indptr[sample + 1]]]
        assert len(set(around)) == len(around)


def test_figures_on_held_out_samples(tmp_path: Path) -> None:
    matrix, labels = sparse_samples(120, 30, 0.5)
    samples = written(matrix[:80], labels[:80], tmp_path / "s.svm")
    wider = np.hstack([matrix[80:], np.ones((40, 1))])  # the last feature is new
    test = written(wider, labels[80:], tmp_path / "t.svm")
    graph, values = solved(LASSO, samples, tmp_path, {})
    found, facts = published(graph, values, tmp_path, 30)
    inputs, log = {"graph": graph.uri, "values": values.uri, "test": test}, io.StringIO()
    scored = run_stage(SCORE, {}, inputs, tmp_path / "score", 1, log)
    error = matrix[80:] @ found[0] + facts["intercept"] - labels[80:]
    assert scored.stats["metrics.rmse@test"] == pytest.approx(np.sqrt((error**2).mean()))
    assert scored.stats["metrics.r2@test"] == pytest.approx(1 - (error**2).mean() / labels[80:].var())
    assert scored.stats["metrics.mean_rmse@test"] == pytest.approx(
        np.sqrt(((labels[:80].mean() - labels[80:]) ** 2).mean())
    )
    assert scored.stats["unknown_values"] == 40
    assert "40 of" in log.getvalue()


def test_accuracy_on_held_out_samples(tmp_path: Path) -> None:
    matrix, labels = load_digits(n_class=3, return_X_y=True)
    matrix = matrix / 16 + np.random.default_rng(0).normal(0, 0.6, matrix.shape)
    samples = written(matrix[:300], labels[:300], tmp_path / "s.svm")
    test = tmp_path / "t.svm.gz"
    plain = Path(written(matrix[300:500], labels[300:500], tmp_path / "t.svm"))
    test.write_bytes(gzip.compress(plain.read_bytes() + b"77 1:1 # no such class\n"))
    graph, values = solved(SVM, samples, tmp_path, {"labels": "classes"}, tolerance=1e-4)
    log = io.StringIO()
    inputs = {"graph": graph.uri, "values": values.uri, "test": str(test)}
    scored = run_stage(SCORE, {}, inputs, tmp_path / "score", 1, log)
    oracle = LinearSVC(tol=1e-6, max_iter=100_000).fit(matrix[:300], labels[:300])
    expected = (oracle.predict(matrix[300:500]) == labels[300:500]).sum() / 201
    assert abs(scored.stats["metrics.accuracy@test"] - expected) < 0.011
    assert scored.stats["metrics.accuracy@test"] > 0.8
    assert scored.stats["metrics.majority_accuracy@test"] < 0.4
    assert "1 held-out samples are of classes that the model does not have" in log.getvalue()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 1:2\n\n# note\nx 2:3\n", r"line 4: a label is a finite number .got 'x'"),
        ("1 1:2\n2 1:nan\n", r"line 2: a feature is an index, a colon, and a finite number .got '1:nan'"),
        ("1 1:2\ninf 1:2\n", r"line 2: a label is a finite number .got 'inf'"),
        ("1 1:2 a:1\n", r"line 1: a feature is .* .got 'a:1'"),
        ("1 -1:2\n", r"line 1: a feature is .* .got '-1:2'"),
        ("1 1:2\n2 3:1 2:1\n", r"line 2: the indices of a line ascend .got '2 after 3'"),
        ("1 1:2\n2 3:1 3:1\n", r"line 2: the indices of a line ascend .got '3 after 3'"),
        ("1 1:2\n2 7\n", r"line 2: a feature is .* .got '7'"),
        ("1 99999999999:2\n", r"line 1: a feature is .* .got '99999999999:2'"),
        ("# nothing\n", r"the file has no samples"),
        ("1\n2\n", r"no sample has a feature"),
        ("source,target\na,b\n", r"the format of a table is not clear from its name .got 's\.svm'"),
    ],
)
def test_lines_that_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "s.svm"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        run_stage(GRAPH, {}, {"samples": str(path)}, tmp_path / "g", 1, io.StringIO())


def test_labels_and_graphs_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.svm"
    path.write_text("1 qid:3 1:2 2:0\n1 2:1\n")
    with pytest.raises(UserError, match=r"the labels do not differ .got 1\.0"):
        solved(LASSO, str(path), tmp_path / "a", {})
    with pytest.raises(UserError, match=r"labels are 2 to 1000 classes .got 1"):
        solved(SVM, str(path), tmp_path / "b", {"labels": "classes"})
    path.write_text("1 1:2\n2 2:1\n")
    with pytest.raises(UserError, match=r"program svm: .* samples whose labels are classes"):
        solved(SVM, str(path), tmp_path / "c", {})
    with pytest.raises(UserError, match=r"program lasso: .* samples whose labels are numbers"):
        solved(LASSO, str(path), tmp_path / "d", {"labels": "classes"})


def wines(rows: slice, path: Path) -> str:
    """Rows of Wine with names of the cultivars in the middle, missing values, categories, and columns of no use."""
    table = load_wine(as_frame=True).frame.sample(frac=1, random_state=1)
    grown = table.pop("target").map({0: "alba", 1: "barolo", 2: "cava"})
    table.insert(3, "Class", grown)
    table["region"] = np.where(grown == "cava", "south", "north")
    table.loc[table.index[::7], ["ash", "region"]] = None
    table["bottled"], table["constant"], table["cork"] = "2024-05-01", 2020.5, table["hue"] > 1
    if rows.start:
        table.loc[table.index[rows.start], "region"] = "west"
    table[rows].to_csv(path)
    return str(path)


def test_tables_of_samples(tmp_path: Path) -> None:
    """As well as scikit-learn's pipeline, by names of columns and classes; further tables need no encoding."""
    samples, test = wines(slice(0, 120), tmp_path / "s.csv"), wines(slice(120, None), tmp_path / "t.csv")
    graph, values = solved(SVM, samples, tmp_path, {"labels": "classes"})
    for words in ("column without a name", "column bottled: a column of dates", "ash: 18, region: 18"):
        assert words in str(graph.stats)
    made = run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, tmp_path / "p", 1, io.StringIO())
    rows = made.table(
        "coefficients.parquet",
    ).to_pylist()
    assert {row["class"] for row in rows} == {"alba", "barolo", "cava"}
    names = {row["feature"] for row in rows}
    assert names == {*load_wine().feature_names, "region=north", "region=south", "cork"}
    log, inputs = io.StringIO(), {"graph": graph.uri, "values": values.uri, "test": test}
    scored = run_stage(SCORE, {}, inputs, tmp_path / "score", 1, log)
    assert "warning: 17 values are missing or of categories" in log.getvalue()
    assert scored.stats["metrics.accuracy@test"] > 0.95
    assert set(scored.table("predictions.parquet").column("predicted").to_pylist()) == {"alba", "barolo", "cava"}


@pytest.mark.parametrize("stage", [LASSO, SVM])
def test_samples_without_a_label_are_predicted_alone(tmp_path: Path, stage: Any) -> None:
    """The same predictions with all labels, with those of every second row, and without the column."""
    table = load_wine(as_frame=True).frame.sample(frac=1, random_state=1)
    labels = table["target"].map({0: "alba", 1: "barolo", 2: "cava"}) if stage is SVM else table.pop("ash")
    table = table.drop(columns="target")
    table.assign(label=labels)[:120].to_csv(tmp_path / "s.csv", index=False)
    graph, values = solved(stage, str(tmp_path / "s.csv"), tmp_path, {"labels": "classes"} if stage is SVM else {})
    held, found, scores, log = table[120:], {}, {}, io.StringIO()
    some = labels[120:].where(np.arange(len(held)) % 2 == 0)
    for name, given in (("all", held.assign(label=labels)), ("some", held.assign(label=some)), ("none", held)):
        log.truncate(0)
        given.to_parquet(tmp_path / f"{name}.parquet")
        inputs = {"graph": graph.uri, "values": values.uri, "test": str(tmp_path / f"{name}.parquet")}
        made = run_stage(SCORE, {}, inputs, tmp_path / name, 1, log)
        found[name], scores[name] = made.table("predictions.parquet"), made.json("metrics.json")
        lacking = found[name]["label"].null_count
        assert (f"{lacking} samples have no label" in log.getvalue()) == bool(lacking)
    assert found["all"]["predicted"] == found["some"]["predicted"] == found["none"]["predicted"]
    assert [each.as_py() for each in found["some"]["label"]] == [None if pd.isna(each) else each for each in some]
    assert found["none"]["label"].null_count == len(held)
    assert not scores["none"]
    if stage is SVM:
        right = np.array(found["some"]["predicted"].to_pylist())[::2] == some.to_numpy()[::2]
        assert scores["some"]["accuracy@test"] == pytest.approx(right.mean())
    else:
        error = np.array(found["some"]["predicted"])[::2] - some.to_numpy()[::2]
        assert scores["some"]["rmse@test"] == pytest.approx(np.sqrt((error**2).mean()))


def test_lasso_of_a_table(tmp_path: Path) -> None:
    """Scikit-learn's of standardised columns, with coefficients in the table's units; the last column is predicted."""
    matrix, labels = load_diabetes(return_X_y=True, scaled=False)
    matrix[:, 1] += 1e4
    frame = pd.DataFrame(matrix, columns=list("abcdefghij")).assign(progress=labels + 1e4)
    frame.to_parquet(tmp_path / "s.parquet")
    graph, values = solved(LASSO, str(tmp_path / "s.parquet"), tmp_path, {}, tolerance=1e-12)
    assert "the last one is what is predicted (got progress)" in str(graph.stats)
    made = run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, tmp_path / "p", 1, io.StringIO())
    facts, deviation = made.json("model.json"), matrix.std(axis=0)
    oracle = Lasso(alpha=facts["alpha"], tol=1e-12).fit((matrix - matrix.mean(axis=0)) / deviation, labels)
    found = {row["feature"]: row["coefficient"] for row in made.table("coefficients.parquet").to_pylist()}
    assert np.abs([found[name] for name in "abcdefghij"] * deviation - oracle.coef_).max() < 1e-3
    predicted = matrix @ [found[name] for name in "abcdefghij"] + facts["intercept"]
    shifted = oracle.predict((matrix - matrix.mean(axis=0)) / deviation) + 1e4
    assert np.abs(predicted - shifted).max() < 0.01


def test_svm_of_features_with_large_means(tmp_path: Path) -> None:
    """Their means are no part of what is scaled: 0.67 of these were right when they were."""
    matrix, labels = make_classification(800, 20, n_informative=6, random_state=1)
    matrix += np.linspace(0, 1000, 20)
    samples, test = (written(matrix[rows], labels[rows], tmp_path / f"{rows.start}.svm")
                     for rows in (slice(0, 600), slice(600, 800)))  # fmt: skip
    graph, values = solved(SVM, samples, tmp_path, {"labels": "classes"})
    inputs = {"graph": graph.uri, "values": values.uri, "test": test}
    scored = run_stage(SCORE, {}, inputs, tmp_path / "score", 1, io.StringIO())
    oracle = make_pipeline(StandardScaler(), LinearSVC()).fit(matrix[:600], labels[:600])
    assert scored.stats["metrics.accuracy@test"] > oracle.score(matrix[600:], labels[600:]) - 0.01


@pytest.mark.parametrize(
    ("text", "read", "words"),
    [
        ("a,y\n1,2\n3,\n", {}, r"row 2, column y: a label is missing"),
        ("a,y\n1,2\n3,x\n", {}, r"row 2, column y: a label is no number .got 'x'.* Run svm"),
        ("a,y\n1,2\n3,inf\n", {}, r"row 2, column y: a label is a finite number"),
        ("a,y\n1,2\ninf,3\n", {}, r"row 2: a feature is not finite .got 'a'"),
        ("a,y\n1,2\n1,3\n", {"label": "z"}, r"feature_graph\.label: the table has no such column .got 'z'"),
        ("a,y\n1,2\n1,3\n", {"leave_out": "a"}, r"no column of the table is a feature"),
        ("a,a,y\n1,2,3\n", {}, r"columns of a table have names"),
        ("a,y\n", {}, r"the table has no rows"),
    ],
)
def test_tables_that_are_refused(text: str, read: dict[str, str], words: str, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        run_stage(GRAPH, read, {"samples": str(path)}, tmp_path / "g", 1, io.StringIO())


@pytest.mark.parametrize("name", ["lasso", "svm"])
def test_superworkflows(name: str) -> None:
    stages = [stage.name for stage in load_superworkflow(name).stages]
    assert stages == ["feature_graph", "colour", name, "publish_coefficients", "score_samples"]


@pytest.mark.parametrize("form", ["csv", "parquet", "svm"])
def test_plans_know_the_values_of_samples(tmp_path: Path, form: str) -> None:
    """A row has one value of a text, however many categories there are, and zeros are none."""
    rng, rows, file = np.random.default_rng(6), 500, tmp_path / f"s.{form}"
    kinds = np.array([f"k{number:02}" for number in range(40)])[rng.permutation(np.arange(rows) % 40)]
    number, label = np.arange(rows) % 4 * 1.5, rng.integers(0, 2, rows)
    if form == "svm":
        written(np.stack([number, np.ones(rows)], axis=1), label, file)
    else:
        frame = pd.DataFrame({"kind": kinds, "number": number, "label": [f"c{each}" for each in label]})
        frame.to_csv(file, index=False) if form == "csv" else frame.to_parquet(file, index=False)
    predicted = GRAPH.estimate(GRAPH.params(labels="classes"), {"samples": GRAPH.inputs["samples"].stats_of(
        Source.of(file))}, Resources(cpu=1)).stats  # fmt: skip
    made = run_stage(GRAPH, {"labels": "classes"}, {"samples": str(file)}, tmp_path / "graph", 1, io.StringIO())
    assert int(predicted["samples"] or 0) == pytest.approx(rows, rel=0.01)
    assert int(predicted["edges"] or 0) == pytest.approx(int(made.stats["edges"] or 0), rel=0.25)
    assert int(predicted["features"] or 0) == pytest.approx(int(made.stats["features"] or 0), abs=3)


def test_missing_categories_are_the_shares_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("kind,label\na,1\na,2\nb,3\n,4\n")
    read = {"scale": False, "intercept": False}
    made = run_stage(GRAPH, read, {"samples": str(tmp_path / "s.csv")}, tmp_path / "graph", 1, io.StringIO())
    indptr, found = made.array("value_indptr.npy"), made.array("value.npy")
    assert found[indptr[4] : indptr[5]].tolist() == pytest.approx([1, 1, 2 / 3])
    assert found[indptr[5] : indptr[6]].tolist() == pytest.approx([1, 1 / 3])
    assert made.json("table.json")["means"] == pytest.approx([2 / 3, 1 / 3])
