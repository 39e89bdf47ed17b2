"""Fields from a table of vertices, and label propagation on them."""

import io
import json
import os
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.label_propagation.program import PROGRAM
from superworkflow.tasks.lib.vertex.given import GivenFields, given_fields
from superworkflow.tasks.lib.vertex.program import VertexProgram
from tests.tasks.index_helpers import run_stage
from tests.tasks.planetoid import write_planetoid


def fields_of(edges: Path | Dataset, table: Path, folder: Path, **params: object) -> tuple[Dataset, Dataset]:
    """Graph of an edge list, or an index dataset; and the fields of the table."""
    graph = edges
    if isinstance(edges, Path):
        graph = run_stage(load_stage("index"), {}, {"edges": str(edges)}, folder / "index")
    assert isinstance(graph, Dataset)
    given = run_stage(load_stage("vertex_fields"), params, {"graph": graph.uri, "table": str(table)}, folder / "fields")
    return graph, given


def propagated(edges: Path | Dataset, table: Path, folder: Path, **params: object) -> dict[str, dict]:
    graph, given = fields_of(edges, table, folder)
    colours = run_stage(load_stage("colour"), {}, {"graph": graph.uri}, folder / "colour")
    inputs = {"graph": graph.uri, "colours": colours.uri, "table": given.uri}
    values = run_stage(load_stage("label_propagation"), params, inputs, folder / "values", 1, io.StringIO())
    made = run_stage(load_stage("publish_fields"), {}, {"graph": graph.uri, "values": values.uri}, folder / "published")
    return {row["node"]: row for row in made.table("vertices.parquet").to_pylist()}


def test_label_propagation_is_the_harmonic_function(tmp_path: Path) -> None:
    graph = nx.gnp_random_graph(60, 0.1, seed=1)
    graph.remove_nodes_from(list(nx.isolates(graph)))
    names, rng = list(graph), np.random.default_rng(0)
    labelled = dict(zip(names[:9], ["red", "green", "blue"] * 3, strict=True))
    rows = []
    for u, v in graph.edges:
        graph[u][v]["weight"] = float(np.float32(rng.uniform(0.5, 2)))
        rows.append(f"{u} {v} {graph[u][v]['weight']}\n")
    edges, table = tmp_path / "e.txt", tmp_path / "t.csv"
    edges.write_text("".join(rows))
    table.write_text("node,label\n" + "".join(f"{node},{label}\n" for node, label in labelled.items()))
    found = propagated(edges, table, tmp_path, threshold=1e-13)
    reached = [n for n in names if n not in labelled and any(nx.has_path(graph, n, k) for k in labelled)]
    matrix = nx.to_numpy_array(graph, [*reached, *labelled])
    size = len(reached)
    walks = (matrix / matrix.sum(axis=1, keepdims=True))[:size]
    one_hot = np.array([[label == each for each in ("blue", "green", "red")] for label in labelled.values()], float)
    expected = np.linalg.solve(np.eye(size) - walks[:, :size], walks[:, size:] @ one_hot)
    shares = np.array([found[str(node)]["share"] for node in reached])
    assert np.abs(shares - expected).max() < 1e-8
    best = np.array(["blue", "green", "red"])[(expected - expected.mean(axis=0)).argmax(axis=1)]
    assert [found[str(node)]["predicted"] for node in reached] == best.tolist()
    assert all(found[str(node)]["predicted"] == found[str(node)]["label"] == label for node, label in labelled.items())


def test_an_unreached_node_has_no_class(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("a b\nc d\n")
    (tmp_path / "t.csv").write_text("node,label\na,1\n")
    found = propagated(tmp_path / "e.txt", tmp_path / "t.csv", tmp_path)
    assert [found[node]["predicted"] for node in "abcd"] == ["1", "1", None, None]


@pytest.mark.skipif("SUPERWORKFLOW_TEST_DATA" not in os.environ, reason="needs real graphs")
@pytest.mark.parametrize(("name", "least"), [("cora", 0.71), ("citeseer", 0.48)])
def test_label_propagation_of_citations(tmp_path: Path, name: str, least: float) -> None:
    folder = write_planetoid(Path(os.environ["SUPERWORKFLOW_TEST_DATA"]) / "planetoid", name, tmp_path / name)
    labels = pq.read_table(folder / "paper.parquet")["label"].to_pylist()
    splits = [row.split(",") for row in (folder / "seeds.csv").read_text().split()[1:]]
    trained = [int(paper) for paper, split in splits if split == "train"]
    pq.write_table(pa.table({"node": trained, "label": [labels[paper] for paper in trained]}), tmp_path / "t.parquet")
    found = propagated(folder / "cites.parquet", tmp_path / "t.parquet", tmp_path)
    test = [paper for paper, split in splits if split == "test"]
    right = sum(paper in found and found[paper]["predicted"] == str(labels[int(paper)]) for paper in test)
    assert right / len(test) >= least


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A path of three nodes, indexed."""
    folder = tmp_path_factory.mktemp("path")
    (folder / "e.txt").write_text("a b\nb c\n")
    return run_stage(load_stage("index"), {}, {"edges": str(folder / "e.txt")}, folder / "index")


def typed(path: Dataset, tmp_path: Path, column: pa.Array, kind: str | tuple[str, int]) -> GivenFields:
    pq.write_table(pa.table({"node": ["c", "a"], "x": column}), tmp_path / "t.parquet")
    graph, table = fields_of(path, tmp_path / "t.parquet", tmp_path)
    nodes = graph.table("vertices.parquet")["node"]
    program = VertexProgram("some", {"x": kind}, update=print, given=("x",))
    made = given_fields(program, table, 3, lambda vertex: nodes[vertex].as_py())
    order = [nodes.to_pylist().index(node) for node in "abc"]
    return made._replace(values={name: values[order] for name, values in made.values.items()})


def test_numbers_and_vectors(path: Dataset, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    assert typed(path, tmp_path / "one", pa.array([3, 1]), "float32").values["x"].tolist() == [1.0, 0.0, 3.0]
    (tmp_path / "two").mkdir()
    lists = pa.array([[3.5, 4.5], [1.5, 2.5]], pa.list_(pa.float64(), 2))
    assert typed(path, tmp_path / "two", lists, ("float64", 2)).values["x"].tolist() == [[1.5, 2.5], [0, 0], [3.5, 4.5]]


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        (pa.array([1.0, float("nan")]), "float64", r"field x of vertex 'a': the value is no finite number .got nan"),
        (pa.array([1.0, None]), "float64", r"field x of vertex 'a': the value is missing"),
        (pa.array(["1", "two"]), "float64", r"field x of vertex 'a': the value is no float64 .got 'two'"),
        (pa.array([1.0, 2.5]), "int32", r"field x of vertex 'a': the value is no int32 .got 2\.5"),
        (pa.array([300, 1]), "int8", r"field x of vertex 'c': the value is no int8 .got 300"),
        (pa.array([[1], [2]]), "int32", r"the column has lists"),
        (pa.array([1, 2]), ("int32", 2), r"the column has no lists"),
        (pa.array([[1], [2, 3]]), ("int32", 2), r"field x of vertex 'c': the vector has not 2 values .got 1"),
    ],
)
def test_values_that_are_refused(
    path: Dataset, tmp_path: Path, column: pa.Array, kind: str | tuple[str, int], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        typed(path, tmp_path, column, kind)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,label\na,x\nz,y\n", r"t\.csv, row 2: 50\.0% of the rows are about .* lacks .got 'z'.*max_unknown=0\.5"),
        ("node,label\ny,x\nz,y\n", r"t\.csv, row 1: 100\.0% of the rows are about nodes .* such as 'b'\.$"),
        ("a,x\nb,y\n", r"first row names a node where its columns should be named .got 'a'"),
        ("node,label\na,x\na,y\n", r"t\.csv, row 2: a node has two rows .got 'a'"),
        ("node,label\n", r"the table has no rows"),
        ("node\na\n", r"only a column of nodes"),
        ("node,colour,size\na,x,1\n", r"field label: .* lacks a column .* it has colour, size"),
        ("node,label\na,\n", r"field label: no vertex has a class"),
    ],
)
def test_tables_that_are_refused(path: Dataset, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        propagated(path, tmp_path / "t.csv", tmp_path)


def test_rows_of_few_other_nodes_are_left_out(path: Dataset, tmp_path: Path) -> None:
    """And the only other column is that of classes, whatever its name."""
    (tmp_path / "t.csv").write_text("node,colour\nz,y\na,x\nc,y\n")
    _, table = fields_of(path, tmp_path / "t.csv", tmp_path, max_unknown=0.34)
    assert "33.3% of the rows are about nodes that the graph lacks, and are left out (got z)" in str(table.stats)
    made = given_fields(PROGRAM, table, 3, str)
    nodes = path.table("vertices.parquet")["node"].to_pylist()
    assert dict(zip(nodes, made.values["label"].tolist(), strict=True)) == {"a": 0, "b": -1, "c": 1}
    assert made.classes == {"label": ["x", "y"]}


def test_classes_of_shares_are_published(path: Dataset, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("node,label\na,y\nc,x\n")
    found = propagated(path, tmp_path / "t.csv", tmp_path)
    classes = json.loads((tmp_path / "published/classes.json").read_text())["label"]
    assert dict(zip(classes, found["a"]["share"], strict=True)) == {"x": 0.0, "y": 1.0}
