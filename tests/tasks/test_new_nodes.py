"""New nodes that a registered model predicts: a known node that comes as a new one has the answer of stage infer."""

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import heterograph, holdout_links, infer, publish_predictions, train
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.publish import serving
from superworkflow.tasks.publish_predictions.model import card
from tests.tasks.gnn_graphs import one_kind, two_kinds
from tests.tasks.index_helpers import run_stage

FAST = {"epochs": 2, "hidden": 16, "batch": 32}
MODELS: list[dict[str, Any]] = [
    {"model": "sage"}, {"model": "sage", "layers": 3, "fanouts": "5,5,5"},
    {"model": "sage", "layers": 1, "fanouts": "5"},
    {"model": "sage", "aggregator": "pool"}, {"model": "gcn"}, {"model": "gat", "heads": 2}, {"model": "rgcn"},
    {"model": "sage", "weight": "weight"}, {"model": "sage", "aggregator": "pool", "weight": "weight"},
    {"model": "gcn", "weight": "weight"}, {"model": "gcn", "norm": "batch", "residual": True},
    {"model": "sage", "norm": "batch", "residual": True, "jumping_knowledge": "cat"},
    {"model": "gatv2", "heads": 2}, {"model": "gin"}, {"model": "gin", "weight": "weight"},
    {"model": "gat", "heads": 2, "norm": "layer", "residual": True, "jumping_knowledge": "max"},
]  # fmt: skip
OF_EMBEDDINGS = [MODELS[0], MODELS[4], MODELS[5], MODELS[11]]
"""One of each kind of layer: rows of embeddings are read as those of features are."""
TYPED: list[dict[str, Any]] = [
    {"model": "rgcn", "bases": 2, "layers": 3, "fanouts": "5,5,5"}, {},
    {"model": "rgat", "heads": 2}, {"model": "rgcn", "norm": "layer", "residual": True, "jumping_knowledge": "last"},
]  # fmt: skip


def published(graph: Dataset, folder: Path, params: dict, log: io.StringIO | None = None, **publish: Any) -> Any:
    """Predictions and bundle of a network that is trained on a graph."""
    network = run_stage(train.STAGE, FAST | params, {"graph": graph.uri}, folder / "train")
    given = {"graph": graph.uri, "network": network.uri}
    found = run_stage(infer.STAGE, {}, given, folder / "infer")
    bundle = run_stage(
        publish_predictions.STAGE, publish, {"predictions": found.uri, **given}, folder / "bundle", log=log
    )
    return found, bundle


def served(bundle: Dataset) -> Any:
    return serving.load(Path(bundle.uri))


def neighbours_of(graph: HeteroGraph, edge_set: str, row: int) -> tuple[list[str], list[float]]:
    """Names of a node's neighbours, and weights of its edges to them."""
    edges, (indptr, indices) = graph.edge_sets[edge_set], graph.rows(edge_set)
    span = slice(int(indptr[row]), int(indptr[row + 1]))
    names = graph.ids(edges.target).to_pylist()
    weights = [1.0] * (span.stop - span.start)
    if any(each.name == "weight" for each in edges.features):
        weights = np.asarray(graph.edge_feature(edge_set, "weight")).reshape(-1)[span].tolist()
    return [names[i] for i in indices[span]], weights


def from_files(folder: Path, columns: str = "abcdefghijkl", seed: int = 3) -> Dataset:
    """A graph of 90 nodes and three classes, from an edge list and a table of features."""
    rng, numbers = np.random.default_rng(seed), range(90)
    pairs = sorted({(int(u), int(v)) for u, v in rng.integers(0, 90, (900, 2)) if u < v and (u - v) % 3 == 0})
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"n{u:03},n{v:03}\n" for u, v in pairs))
    values = rng.normal(size=(90, len(columns))) + (np.arange(90) % 3)[:, None]
    rows = [",".join([f"n{i:03}", *(f"{x:.4f}" for x in values[i])]) for i in numbers]
    (folder / "features.csv").write_text(f"node,{','.join(columns)}\n" + "\n".join(rows))
    (folder / "labels.csv").write_text("node,label\n" + "".join(f"n{i:03},k{i % 3}\n" for i in numbers))
    given = {name: str(folder / f"{name}.csv") for name in ("edges", "features", "labels")}
    return run_stage(heterograph.STAGE, {}, given, folder / "graph")


def rows_of(found: Dataset) -> list[dict[str, Any]]:
    return found.table("predictions.parquet").to_pylist()


def check_answers(answer: pd.DataFrame, found: Dataset, rows: list[int], nodes: list[str]) -> None:
    """Compare answers with the predictions of these rows of stage infer."""
    wanted, likely = rows_of(found), found.array("probabilities.npy")
    assert answer["error"].tolist() == [""] * len(rows)
    assert answer["node"].tolist() == nodes
    for place, row in enumerate(rows):
        assert answer["predicted"][place] == wanted[row]["predicted"]
        assert answer["probability"][place] == pytest.approx(wanted[row]["probability"], abs=1e-4)
        assert list(answer["probabilities"][place].values()) == pytest.approx(likely[row].tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("model", "features"), [*((each, True) for each in MODELS), *((each, False) for each in OF_EMBEDDINGS)], ids=str
)
def test_a_known_node_that_comes_as_a_new_one(tmp_path, model, features):
    weighted = "weight" in model
    made = one_kind(tmp_path / "graph", features, weights=weighted)
    found, bundle = published(made, tmp_path, model)
    graph, model_served, rows = HeteroGraph.open(made), served(bundle), [3, 0, 89]
    names = graph.ids("node").to_pylist()
    near = [neighbours_of(graph, "edge", row) for row in rows]
    given = {"neighbors": [each for each, _ in near], "weights": [each for _, each in near]}
    table = pd.DataFrame({"node": [names[row] for row in rows], **given})
    check_answers(model_served.predict(table, {}), found, rows, [names[row] for row in rows])
    check_answers(model_served.predict(table[["node"]], {}), found, rows, [names[row] for row in rows])
    if features:
        values = np.asarray(graph.node_feature("node", "features"))
        table = pd.DataFrame({"node": ["x", "y", "z"], "features": [values[row].tolist() for row in rows], **given})
        check_answers(model_served.predict(table, {}), found, rows, ["x", "y", "z"])
        alone = pd.DataFrame({"node": ["x"], "features": [values[3].tolist()], "neighbors": [[]]})
        answer = model_served.predict(alone, {})
        assert answer["error"].tolist() == [""]
        assert sum(answer["probabilities"][0].values()) == pytest.approx(1)


@pytest.mark.parametrize("model", TYPED, ids=str)
def test_neighbours_by_edge_set(tmp_path, model):
    made = two_kinds(tmp_path / "graph")
    found, bundle = published(made, tmp_path, {"label": "paper.venue", "fanouts": "5,5", **model})
    graph, rows = HeteroGraph.open(made), [0, 17]
    values = np.asarray(graph.node_feature("paper", "numbers"))
    near = [{name: neighbours_of(graph, name, row)[0] for name in ("cites", "written")} for row in rows]
    table = pd.DataFrame({"node": ["x", 7], "features": [values[row].tolist() for row in rows], "neighbors": near})
    model_served = served(bundle)
    check_answers(model_served.predict(table, {}), found, rows, ["x", "7"])
    # A new author has the mean of all authors, since papers have features instead of embeddings.
    more = pd.DataFrame({
        "node": ["q", "new"], "node_set": ["author", None], "features": [None, values[0].tolist()],
        "neighbors": [{"writes": ["p00"]}, {"written": ["q", "a03"], "cites": []}],
    })  # fmt: skip
    answer = model_served.predict(more, {})
    assert answer["error"].tolist() == ["", ""]
    assert answer["predicted"][0] is None
    assert set(answer["probabilities"][1]) == {"0", "1"}
    answer = model_served.predict(pd.DataFrame({"node": ["x"], "features": [[1.0] * 5], "neighbors": [["p00"]]}), {})
    assert answer["error"][0] == "neighbors of node 'x' must be lists by edge set: cites, written"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A graph of an edge list, predictions and bundle."""
    folder = tmp_path_factory.mktemp("sage")
    graph = from_files(folder)
    return graph, *published(graph, folder, {"model": "sage"})


def test_new_nodes_may_be_neighbours_of_each_other(made):
    """An edge between two of them counts at both, wherever it is given, and once."""
    model, features = served(made[2]), [[1.0] * 12, [0.0] * 12]
    once = pd.DataFrame({"node": ["x", "y"], "features": features, "neighbors": [["y", "n001"], ["n002"]]})
    twice = pd.DataFrame({"node": ["x", "y"], "features": features, "neighbors": [["y", "n001", "y"], ["x", "n002"]]})
    alone = pd.DataFrame({"node": ["x", "y"], "features": features, "neighbors": [["n001"], ["n002"]]})
    first, second, apart = (model.predict(each, {}) for each in (once, twice, alone))
    assert first["error"].tolist() == ["", ""]
    pd.testing.assert_frame_equal(first, second)
    assert all(first["probability"] != apart["probability"])


def test_features_by_name(made):
    """As a mapping in any order, and as columns of their own, the forms that tables of features have."""
    model, values = served(made[2]), dict(zip("abcdefghijkl", np.linspace(-1, 1, 12).tolist(), strict=True))
    row = {"node": "x", "neighbors": ["n001", "n002"]}
    listed = model.predict(pd.DataFrame([row | {"features": list(values.values())}]), {})
    backwards = dict(reversed(values.items()))
    for given in (backwards, np.array(backwards, object)):  # the second is what MLflow's server makes of `inputs`
        pd.testing.assert_frame_equal(listed, model.predict(pd.DataFrame([row | {"features": given}]), {}))
    table = pd.DataFrame([row | backwards, {"node": "n003"}])
    answer = model.predict(table, {})
    pd.testing.assert_frame_equal(listed, answer[:1])
    assert answer["error"][1] == ""
    means = made[2].json("network.json")["sets"]["node"]["scaling"]["fill"]
    table = pd.DataFrame([row | backwards | {"c": means[2]}, row | backwards | {"c": None}])
    pd.testing.assert_frame_equal(*(model.predict(table[i : i + 1].reset_index(), {}) for i in range(2)))
    answer = model.predict(table.drop(columns="c"), {})
    assert answer["error"][0] == "node 'x' lacks c; the model reads 12 numbers (a, b, c, d, e, …)"


@pytest.mark.parametrize("scaling", ["standard", "quantile", "piecewise", "row"])
def test_features_are_scaled_as_those_of_training(tmp_path, scaling):
    """A known node's row of the table, as it is there, gives the answer of the node."""
    from_files(tmp_path)
    lines = (tmp_path / "features.csv").read_text().splitlines()
    colors = ["red", "green", "blue"]
    rows = [f"{line},{1000 + 7 * i},{colors[i % 2]}" for i, line in enumerate(lines[1:])]
    (tmp_path / "features.csv").write_text("\n".join([f"{lines[0]},size,color", *rows]))
    given = {name: str(tmp_path / f"{name}.csv") for name in ("edges", "features", "labels")}
    made = run_stage(heterograph.STAGE, {"scaling": scaling}, given, tmp_path / "scaled")
    found, bundle = published(made, tmp_path, {"model": "sage"})
    graph = HeteroGraph.open(made)
    near = neighbours_of(graph, "edge", 3)[0]
    names = lines[0].split(",")[1:]
    values = dict(zip(names, map(float, lines[4].split(",")[1:]), strict=True)) | {"size": 1021.0, "color": "green"}
    table = pd.DataFrame([{"node": "x", "features": values, "neighbors": near}])
    model = served(bundle)
    check_answers(model.predict(table, {}), found, [3], ["x"])
    table = pd.DataFrame([{"node": "x", "features": values | {"color": "black"}, "neighbors": near}])
    assert model.predict(table, {})["error"].tolist() == [
        "color of node 'x' is 'black', and the model knows green, red"
    ]
    network = str((tmp_path / "train").absolute())
    given = {"edges": given["edges"], "features": given["features"], "network": network}
    again = run_stage(heterograph.STAGE, {"scaling": "none"}, given, tmp_path / "again")
    values = [np.asarray(HeteroGraph.open(each).node_feature("node", "features")) for each in (made, again)]
    np.testing.assert_array_equal(*values)


def test_what_is_wrong_with_a_row_does_not_hinder_others(made):
    rows = [
        {"node": "n003"}, {"node": "w"}, {"node": None},
        {"node": "a", "neighbors": ["n001"]},
        {"node": "b", "features": [1.0, 2.0], "neighbors": ["n001"]},
        {"node": "c", "features": [1.0] * 12, "neighbors": ["n001", "lost"]},
        {"node": "d", "features": [1.0] * 12, "neighbors": ["c"]},
        {"node": "e", "features": [1.0] * 12, "neighbors": "n001"},
        {"node": "f", "features": {"a": 1.0, "q": 1.0}, "neighbors": []},
        {"node": "n004", "features": [1.0] * 12},
        {"node": "g", "features": [1.0] * 11 + [float("inf")], "neighbors": ["n001"]},
        {"node": "h", "features": [1.0] * 12, "neighbors": []},
        {"features": [1.0] * 12, "neighbors": ["n001"]},
        {"node": "i", "features": [1.0] * 12, "neighbors": ["n001"]},
        {"node": "i", "features": [2.0] * 12, "neighbors": ["n001"]},
        {"node": "j", "features": [1.0] * 12, "neighbors": ["n001"], "weights": [1, 2]},
    ]  # fmt: skip
    answer = served(made[2]).predict(pd.DataFrame(rows), {})
    errors = dict(enumerate(answer["error"]))
    assert [place for place, text in errors.items() if not text] == [0, 11, 12]
    assert errors[1] == "node 'w' is not among the 90 nodes: give its features and neighbors"
    assert errors[2] == "no `node` is given"
    assert errors[3] == "node 'a' needs features: 12 numbers (a, b, c, d, e, …)"
    assert errors[4] == "node 'b' has 2 features, and the model reads 12 numbers (a, b, c, d, e, …)"
    assert errors[5].startswith("a neighbor is unknown: node 'lost' is not among the 90 nodes")
    assert errors[6].startswith("its neighbor 'c' has no answer either")
    assert errors[7] == "neighbors of node 'e' must be a list, and not 'n001'"
    assert errors[8].startswith("node 'f' lacks b, c, d, e, f and has q, which the model does not read")
    assert "give its neighbors too" in errors[9]
    assert errors[10] == "a feature of node 'g' is not a finite number"
    assert errors[13] == errors[14] == "node 'i' is described in two ways"
    assert errors[15] == "node 'j' has 2 weights of 1 neighbors"
    assert answer["predicted"][1] is None
    assert answer["probabilities"][1] is None
    json.dumps(answer.to_dict(orient="records"), allow_nan=False)
    with pytest.raises(ValueError, match="needs a column `node`"):
        served(made[2]).predict(pd.DataFrame({"person": ["n001"]}), {})


def test_a_misspelt_column_is_refused(made):
    """Without it the answer would be that of another node; other columns are left out."""
    row = {"node": "new", "features": [1.0] * 12, "neighbors": ["n001"]}
    model = served(made[2])
    assert model.predict(pd.DataFrame([row | {"comment": "?", "weight": 3}]), {})["error"][0] == ""
    for wrong, right in (("neighbours", "neighbors"), ("neighbor", "neighbors"), ("feature", "features")):
        given = {wrong if name == right else name: value for name, value in row.items()}
        with pytest.raises(ValueError, match=f"has a column `{wrong}`: write `{right}`"):
            model.predict(pd.DataFrame([given]), {})


def test_runs_where_only_numpy_and_pandas_are(made, tmp_path):
    """The code that is kept with a model, copied: a process that can import neither this project nor torch."""
    bundle = made[2]
    shutil.copytree(Path(serving.__file__).parent, tmp_path / "kept", ignore=shutil.ignore_patterns("__pycache__"))
    row = {"node": "x", "features": [0.5] * 12, "neighbors": ["n001", "n002"]}
    program = (
        "import sys, json, pandas as pd\n"
        "for name in ('superworkflow', 'torch', 'pyarrow', 'safetensors', 'numba'): sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from pathlib import Path\nimport kept\n"
        f"model = kept.load(Path({bundle.uri!r}))\n"
        f"print(model.predict(pd.DataFrame([json.loads({json.dumps(row)!r})]), {{}}).to_json(orient='records'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    (answer,) = json.loads(done.stdout)
    wanted = served(bundle).predict(pd.DataFrame([row]), {})
    assert answer["error"] == ""
    assert answer["probability"] == pytest.approx(wanted["probability"][0])


def test_sizes_and_left_out(made, tmp_path):
    graph, found, bundle = made
    network = bundle.manifest.inputs["network"].digest
    assert network
    given = {
        "predictions": found.uri,
        "graph": graph.uri,
        "network": str(Path(found.uri).parent / "train"),
    }
    assert bundle.array("rows-0-0.npy").dtype == bundle.array("rows-1-0.npy").dtype == np.float32
    weights = (Path(bundle.uri) / "network.safetensors").stat().st_size
    log = io.StringIO()
    room = 4 * 90 * 3 + weights + 2 * 90 * (12 + 16)
    half = run_stage(publish_predictions.STAGE, {"most_bytes": room}, given, tmp_path / "half", log=log)
    assert half.array("rows-0-0.npy").dtype == half.array("rows-1-0.npy").dtype == np.float16
    row = pd.DataFrame({"node": ["x"], "features": [[0.5] * 12], "neighbors": [["n001", "n002"]]})
    assert served(half).predict(row, {})["probability"][0] == pytest.approx(
        served(bundle).predict(row, {})["probability"][0], abs=2e-3
    )
    left = run_stage(publish_predictions.STAGE, {"most_bytes": room - 1}, given, tmp_path / "left", log=log)
    assert "network.json" not in left
    assert "publish_predictions.most_bytes leaves" in log.getvalue()
    answer = served(left).predict(pd.concat([row, pd.DataFrame({"node": ["n003"]})], ignore_index=True), {})
    assert "publish_predictions.most_bytes leaves" in answer["error"][0]
    assert answer["error"][1] == ""
    assert [column["name"] for column in card(left).columns] == ["node"]
    assert [column["name"] for column in card(bundle).columns] == ["node", "features", "neighbors"]
    off = run_stage(publish_predictions.STAGE, {"inductive": False}, given, tmp_path / "off")
    assert "network.json" not in off
    other = one_kind(tmp_path / "other", seed=2)
    with pytest.raises(UserError, match="the predictions are of another graph"):
        run_stage(publish_predictions.STAGE, {}, given | {"graph": other.uri}, tmp_path / "refused")


@pytest.mark.parametrize(
    ("model", "features"), [({"model": "sage"}, True), ({"model": "gcn", "decoder": "distmult"}, False)], ids=str
)
def test_links_of_new_nodes(tmp_path, model, features):
    whole = one_kind(tmp_path / "whole", features)
    held = run_stage(holdout_links.STAGE, {}, {"graph": whole.uri}, tmp_path / "graph")
    _, bundle = published(held, tmp_path, model)
    graph, answers = HeteroGraph.open(held), served(bundle)
    names = graph.ids("node").to_pylist()
    near = neighbours_of(graph, "edge", 5)[0]
    given: dict[str, Any] = {"source": ["new", "new"], "target": ["n001", "n044"], "source_neighbors": [near, None]}
    if features:
        values = np.asarray(graph.node_feature("node", "features"))[5].tolist()
        given["source_features"] = [values, None]
    else:
        given["source"] = [names[5], names[5]]
    found = answers.predict(pd.DataFrame(given), {})
    wanted = answers.predict(pd.DataFrame({"source": [names[5]] * 2, "target": ["n001", "n044"]}), {})
    assert found["error"].tolist() == ["", ""]
    assert found["score"].tolist() == pytest.approx(wanted["score"].tolist(), abs=1e-4)
    partly = answers.predict(pd.DataFrame({"source": ["new"], "target": ["n001"]}), {})
    assert "'new' is not among the 90 nodes" in partly["error"][0]
