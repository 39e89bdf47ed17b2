"""Stage `label` as a whole, and what evaluate makes of label datasets that do not fit."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks import evaluate, label
from superworkflow.tasks.label.table import Labels, open_labels
from tests.datasets import commit
from tests.tasks.index_helpers import run_index

EDGES = "a,b\nb,c\nc,d\nd,e\ne,a\n"
TABLE = {
    "vertices": np.array([0, 2, 4]),
    "offsets": np.array([0, 1, 3, 4]),
    "kinds": np.array([1, 0, 1, 0], np.int32),
}


@pytest.fixture
def graph(tmp_path: Path) -> Dataset:
    (tmp_path / "edges.csv").write_text(EDGES)
    return run_index(tmp_path / "edges.csv", header=False).dataset


def _label(folder: Path, graph: Dataset, text: str, name: str = "labels", **params: float) -> Dataset:
    (folder / f"{name}.csv").write_text(text)
    inputs = {"graph": graph.uri, "labels": str(folder / f"{name}.csv")}
    progress = Progress("label", stream=io.StringIO())
    return execute(label.STAGE, params, inputs, str(folder / name), Resources(cpu=1), progress).dataset


def test_the_table_of_a_file(tmp_path: Path, graph: Dataset) -> None:
    nodes = graph.table("vertices.parquet", ["node"])["node"].to_pylist()
    text = "node,label\nc,10\na,9\nc,9\nzz,8\nc,9\nzz,8\nb,x\n"
    made = _label(tmp_path, graph, text, max_unknown=0.3)
    assert made.files() == ["kinds.npy", "names.json", "offsets.npy", "vertices.npy"]
    assert dict(made.stats) == {
        "labelled_nodes": 3, "labels": 3, "unknown_labels": 2, "drift.labels_unknown_share": 2 / 7,
        "bytes": made.manifest.bytes,
    }  # fmt: skip
    assert made.manifest.rows == 4
    table = open_labels(made, graph, len(nodes))
    assert table.names == ["9", "10", "x"]
    found = {
        nodes[vertex]: [table.names[kind] for kind in np.flatnonzero(row)]
        for vertex, row in zip(table.vertices, table.matrix, strict=True)
    }
    assert found == {"a": ["9"], "b": ["x"], "c": ["9", "10"]}
    estimate = label.STAGE.estimate(label.LabelParams(), {"graph": graph.stats, "labels": {"bytes": 60}}, Resources())
    assert made.manifest.bytes < estimate.output_bytes


def test_the_order_of_the_rows_is_no_matter(tmp_path: Path, graph: Dataset) -> None:
    rows = ["a,x\n", "b,y\n", "b,x\n", "c,y\n"]
    one, two = (_label(tmp_path, graph, "".join(order), f"n{i}") for i, order in enumerate([rows, rows[::-1]]))
    assert one.manifest.files == two.manifest.files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v1,x\nv2,y\n", r"labels.csv:1: all labels are for nodes that are not in the graph: 'v1' on line 1, 'v2' on"),
        (
            "a,x\nzz,y\n",
            r"labels.csv:2: 50.0% of the labels are for nodes.*'zz' on line 2.* label.max_unknown=0.5",
        ),
        ("a,x\nb,x\n", "all nodes have the same label"),
        ("a,x\nb\n", "labels.csv:2: 1 column instead of 2"),
    ],
)
def test_labels_that_cannot_be_used(tmp_path: Path, graph: Dataset, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _label(tmp_path, graph, text)
    assert not (tmp_path / "labels" / "manifest.json").exists()


def test_labels_of_another_graph_are_refused(tmp_path: Path, graph: Dataset) -> None:
    """Also of one of the same size, whose vertices would be other nodes."""
    (tmp_path / "others.csv").write_text("v,w\nw,x\nx,y\ny,z\n")
    made = _label(tmp_path, graph, "a,x\nb,y\n")
    other = run_index(tmp_path / "others.csv", header=False).dataset
    assert other.stats["vertices"] == graph.stats["vertices"] == 5
    with pytest.raises(UserError, match="these labels were matched with the nodes of another graph"):
        open_labels(made, other, 5)
    moved = shutil.copytree(graph.uri, tmp_path / "moved")
    assert len(open_labels(made, Dataset.open(moved), 5).vertices) == 2


def _table(folder: Path, names: object = ("x", "y"), **changed: np.ndarray) -> Dataset:
    """A label dataset without the graph's identity."""
    writer = DatasetWriter(folder)
    for name, values in (TABLE | changed).items():
        writer.array(f"{name}.npy", values)
    writer.json("names.json", list(names) if isinstance(names, tuple) else names)
    return commit(writer, "label", {"name": folder.name}, {"labelled_nodes": 3, "labels": 2}, 4)


def test_a_table_that_fits(tmp_path: Path, graph: Dataset) -> None:
    found: Labels = open_labels(_table(tmp_path / "table"), graph, 5)
    assert found.matrix.tolist() == [[False, True], [True, True], [True, False]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"vertices": np.array([-1, 2, 4])}, r"a vertex is below 0 \(got -1\)"),
        ({"vertices": np.array([0, 4, 2])}, "ascending"),
        ({"vertices": np.array([0, 2, 2])}, "ascending"),
        ({"vertices": np.array([0.0, 2.0, 4.0])}, "int64"),
        ({"offsets": np.array([0, 1, 4])}, "3 vertices by vertices.npy"),
        ({"offsets": np.array([1, 2, 3, 4])}, "3 vertices by vertices.npy"),
        ({"offsets": np.array([0, 3, 1, 4])}, "a vertex has no label"),
        ({"offsets": np.array([0, 1, 3, 5])}, "5 labels by offsets.npy"),
        ({"kinds": np.array([1, 0, 1, 2], np.int32)}, r"a label is none of 2 in names.json \(got 2\)"),
        ({"kinds": np.array([1, 0, 1, -1], np.int32)}, r"a label is none of 2 in names.json \(got -1\)"),
        ({"kinds": np.array([1.0, 0.0, 1.0, 1.0])}, "4 labels by offsets.npy"),
        ({"names": {"x": 0, "y": 1}}, "a list of texts"),
        ({"names": [1, 2]}, "a list of texts"),
    ],
)
def test_a_table_that_does_not_fit_itself(
    tmp_path: Path, graph: Dataset, changed: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(DatasetDamaged, match=message):
        open_labels(_table(tmp_path / "table", **changed), graph, 5)


def test_evaluate_refuses_vertices_that_the_graph_does_not_have(tmp_path: Path, graph: Dataset) -> None:
    table = _table(tmp_path / "table", vertices=np.array([0, 2, 5]))
    inputs = {"graph": graph.uri, "embeddings": graph.uri, "labels": table.uri}
    with pytest.raises(UserError, match=r"a labelled vertex is not in the graph of 5 vertices \(got 5\).*matched with"):
        execute(evaluate.STAGE, {}, inputs, str(tmp_path / "out"), Resources(cpu=1), Progress("evaluate"))
