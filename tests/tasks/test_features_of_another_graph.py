"""A network on a graph whose features have other values, scalings, categories and columns than those it has learned."""

from pathlib import Path

import numpy as np
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import WARNING_PREFIX
from superworkflow.tasks import heterograph, infer, train
from superworkflow.tasks.lib.gnn.edge_features import scaled
from superworkflow.tasks.lib.gnn.learned_features import unread
from superworkflow.tasks.lib.gnn.model.config import read_shape
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.index_helpers import run_stage

NODES, FEATURES = 60, "nodes-0-feature-0.npy"
PLAIN = {"a": 1.0, "b": 2.0}
"""Columns of numbers, and their deviations."""


def tables_of(folder, seed, colours, columns=("a", "b", "colour"), shift=0.0):
    """Two communities with numbers and a colour of each node; the edges are the same for all seeds."""
    folder.mkdir()
    u, v = np.random.default_rng(0).integers(0, NODES, (2, 10 * NODES))
    pairs = sorted({(a, b) for a, b in zip(u.tolist(), v.tolist(), strict=True) if a < b and (a - b) % 2 == 0})
    (folder / "edges.csv").write_text("".join(f"n{a:02},n{b:02}\n" for a, b in pairs))
    rng = np.random.default_rng(seed)
    values = {name: shift + rng.normal(size=NODES) * scale + np.arange(NODES) % 2 for name, scale in PLAIN.items()}
    texts = {name: [f"{x:.4f}" for x in found] for name, found in values.items()} | {"extra": ["7.5"] * NODES}
    texts["colour"] = [colours[each] for each in rng.integers(0, len(colours), NODES)]
    rows = [",".join([f"n{i:02}", *(texts[name][i] for name in columns)]) for i in range(NODES)]
    (folder / "features.csv").write_text("\n".join([f"node,{','.join(columns)}", *rows]))
    labels = [f"n{i:02},{i % 2},{('train', 'validation', 'test')[i // 2 % 3]}\n" for i in range(NODES)]
    (folder / "labels.csv").write_text("node,label,split\n" + "".join(labels))
    return {name: str(folder / f"{name}.csv") for name in ("edges", "features", "labels")}


def graph_of(folder, tables, params=None, **more):
    if more:
        tables = {name: path for name, path in tables.items() if name != "labels"} | more
    return run_stage(heterograph.STAGE, params or {}, tables, folder)


@pytest.fixture(scope="module", params=["none", "standard", "quantile", "piecewise", "row"])
def learned(request, tmp_path_factory):
    """A network, and the scaling of its features."""
    folder = tmp_path_factory.mktemp(request.param)
    graph = graph_of(folder / "graph", tables_of(folder / "in", 1, ["blue", "green"]), {"scaling": request.param})
    params = {"hidden": 8, "epochs": 3, "batch": 16, "fanouts": "5,5"}
    return run_stage(train.STAGE, params, {"graph": graph.uri}, folder / "network").uri, request.param


def warnings_of(graph):
    return [str(value) for name, value in graph.stats.items() if name.startswith(WARNING_PREFIX)]


def probabilities(folder, network, graph):
    return run_stage(infer.STAGE, {}, {"graph": graph.uri, "network": network}, folder).array("probabilities.npy")


@pytest.mark.parametrize("scaling", ["none", "standard", "quantile", "piecewise", "row"])
def test_a_graph_scaled_by_itself_is_predicted_by_the_networks_scaling(learned, scaling, tmp_path):
    network, kind = learned
    tables = tables_of(tmp_path / "in", 2, ["blue", "green"], shift=4.0)
    own = graph_of(tmp_path / "own", tables, {"scaling": scaling})
    if scaling == "row" != kind:
        with pytest.raises(UserError, match=f"not divided by their sums.*Set heterograph.scaling={kind}"):
            probabilities(tmp_path / "infer", network, own)
        return
    wanted = probabilities(tmp_path / "wanted", network, graph_of(tmp_path / "theirs", tables, network=network))
    found = probabilities(tmp_path / "infer", network, own)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("colours", [["green", "violet"], ["violet", "blue", "amber", "green"], ["blue"]])
@pytest.mark.parametrize("columns", [("a", "b", "colour"), ("colour", "extra", "b", "a")])
def test_columns_and_categories_of_a_graph_of_its_own_are_found_by_name(learned, colours, columns, tmp_path):
    """As where the graph is made for the network: others are left out, and a new category is a missing value."""
    network, kind = learned
    tables = tables_of(tmp_path / "in", 2, colours, columns)
    wanted = probabilities(tmp_path / "wanted", network, graph_of(tmp_path / "theirs", tables, network=network))
    own = graph_of(tmp_path / "own", tables, {"scaling": kind})
    found = probabilities(tmp_path / "infer", network, own)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    said = unread(HeteroGraph.open(own), read_shape(Dataset.open(network)))
    assert any("does not read are left out: extra" in each for each in said) == ("extra" in columns)
    assert any("no such categories of colour" in each and "violet" in each for each in said) == ("violet" in colours)


def test_a_column_of_another_kind_is_refused_on_a_graph_of_its_own(learned, tmp_path):
    network, kind = learned
    lacks = graph_of(tmp_path / "lacks", tables_of(tmp_path / "in", 2, ["green"], ("b", "colour")), {"scaling": kind})
    with pytest.raises(UserError, match=r"this one lacks a.*Give these features: a, b, colour \(2 values\)"):
        probabilities(tmp_path / "infer-lacks", network, lacks)
    numbers = graph_of(tmp_path / "numbers", tables_of(tmp_path / "also", 2, ["1.5", "2.5"]), {"scaling": kind})
    with pytest.raises(UserError, match="of another kind or width: colour"):
        probabilities(tmp_path / "infer-numbers", network, numbers)
    tables = tables_of(tmp_path / "third", 2, ["blue", "green"])
    lines = [line.split(",") for line in Path(tables["features"]).read_text().splitlines()]
    for line in lines[1:]:
        line[1] = "high"  # one category, as wide as a number
    Path(tables["features"]).write_text("\n".join(map(",".join, lines)))
    texts = graph_of(tmp_path / "texts", tables, {"scaling": kind})
    with pytest.raises(UserError, match="of another kind or width: a"):
        probabilities(tmp_path / "infer-texts", network, texts)


@pytest.mark.parametrize("columns", [("colour", "b", "a"), ("extra", "a", "b", "colour")])
def test_columns_are_found_by_name(learned, columns, tmp_path):
    network, _ = learned
    found = graph_of(tmp_path / "graph", tables_of(tmp_path / "in", 2, ["blue", "green"], columns), network=network)
    usual = graph_of(tmp_path / "usual", tables_of(tmp_path / "also", 2, ["blue", "green"]), network=network)
    np.testing.assert_array_equal(found.array(FEATURES), usual.array(FEATURES))
    assert bool(warnings_of(found)) == ("extra" in columns)
    assert all("does not read are left out (got extra)" in each for each in warnings_of(found))


def test_categories_are_those_of_the_network(learned, tmp_path):
    """The alphabet of two colours, of which one is new, has the same width; the new one is a missing value."""
    network, kind = learned
    tables = tables_of(tmp_path / "in", 2, ["green", "violet"])
    graph = graph_of(tmp_path / "graph", tables, network=network)
    assert any("no such categories" in each and "(got violet)" in each for each in warnings_of(graph))
    size = 16 if kind == "piecewise" else 1
    assert graph.json("columns.json") == {"node": [["a", size], ["b", size], ["colour", 2]]}
    if kind == "none":
        green = [line.endswith("green") for line in Path(tables["features"]).read_text().splitlines()[1:]]
        means = read_shape(Dataset.open(network)).scaling["node"]["fill"][2:]
        assert sum(means) == pytest.approx(1)
        np.testing.assert_allclose(graph.array(FEATURES)[:, 2:], [[0, 1] if each else means for each in green])


def test_missing_values_are_the_means_of_training_whatever_else_is_in_the_file(learned, tmp_path):
    network, kind = learned
    tables = tables_of(tmp_path / "in", 2, ["blue", "green"])
    lines = [line.split(",") for line in Path(tables["features"]).read_text().splitlines()]
    for line in lines[1:-1]:
        line[2] = ""
    lines[1][3], lines[-1][2] = "", "1000"
    Path(tables["features"]).write_text("\n".join(map(",".join, lines)))
    graph = graph_of(tmp_path / "graph", tables, network=network)
    assert any("the means of their columns in training" in each for each in warnings_of(graph))
    scaling = read_shape(Dataset.open(network)).scaling["node"]
    wanted = scaled(np.array([[float(lines[1][1]), *scaling["fill"][1:]]]), scaling)
    np.testing.assert_allclose(graph.array(FEATURES)[:1], wanted, rtol=1e-5, atol=1e-6)
    own = slice(16, 32) if kind == "piecewise" else slice(1, 2)
    assert kind == "row" or len(np.unique(graph.array(FEATURES)[:-1, own], axis=0)) == 1


def test_columns_that_lack_or_are_text_are_refused(learned, tmp_path):
    with pytest.raises(UserError, match=r"lacks features that the network reads \(got 'a'\)"):
        graph_of(tmp_path / "lacks", tables_of(tmp_path / "in", 2, ["green"], ("b", "colour")), network=learned[0])
    tables = tables_of(tmp_path / "texts", 2, ["green"])
    lines = [line.split(",") for line in Path(tables["features"]).read_text().splitlines()]
    for line in lines[1:]:
        line[1] = "high"
    Path(tables["features"]).write_text("\n".join(map(",".join, lines)))
    with pytest.raises(UserError, match=r"column a: a column has text, and the network reads numbers \(got 'high'\)"):
        graph_of(tmp_path / "text", tables, network=learned[0])
