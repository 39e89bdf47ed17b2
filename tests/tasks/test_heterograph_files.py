"""The reader of heterographs: what it gives, and what it refuses of files that somebody has changed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, Feature, HeteroGraph, NodeSet, Ragged
from tests.datasets import commit
from tests.tasks.heterographs import Edges, Nodes, write_heterograph

STRANGE = "né/../*"


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    nodes = {
        "paper": Nodes(
            ["p9", "p10", "é", "z"],
            {
                "feat": np.arange(8, dtype=np.float32).reshape(4, 2),
                "words": Ragged(np.arange(6), np.array([0, 2, 2, 5, 6])),
                "title": ["nine", "ten", "e", b"\xff"],
                "tags": [["a"], [], ["b", "c"], ["d"]],
            },
        ),
        STRANGE: Nodes(["a1", "a0"]),
    }
    rows = [("a1", "z"), ("a0", "é"), ("a1", "p9"), ("a1", "z")]
    edges = {
        "writes": Edges(STRANGE, "paper", rows, {"weight": np.float32([1, 2, 3, 4])}),
        "cites": Edges("paper", "paper", []),
        "written": Edges("paper", STRANGE, reversed_of="writes"),
    }
    return write_heterograph(tmp_path / "graph", nodes, edges, {"year": np.array([2026])})


def test_what_is_written_is_read(dataset: Dataset) -> None:
    graph = HeteroGraph.open(dataset)
    feat, words = Feature("feat", "float", (2,)), Feature("words", "int64", (None,))
    title, tags = Feature("title", "string", ()), Feature("tags", "string", (None,))
    weight = (Feature("weight", "float", ()),)
    assert list(graph.node_sets.values()) == [NodeSet(STRANGE, 2, ()), NodeSet("paper", 4, (feat, tags, title, words))]
    assert list(graph.edge_sets.values()) == [
        EdgeSet("cites", "paper", "paper", 0, None, ()),
        EdgeSet("writes", STRANGE, "paper", 4, None, weight),
        EdgeSet("written", "paper", STRANGE, 4, "writes", weight),
    ]
    assert graph.ids("paper").to_pylist() == ["p10", "p9", "z", "é"]
    assert [part.tolist() for part in graph.rows("writes")] == [[0, 1, 4], [3, 1, 2, 2]]
    assert isinstance(graph.rows("writes").indices, np.memmap)
    assert graph.origin("writes") is None
    assert graph.edge_feature("writes", "weight").tolist() == [2, 3, 1, 4]
    assert [part.tolist() for part in graph.rows("written")] == [[0, 0, 1, 3, 4], [1, 1, 1, 0]]
    assert graph.origin("written").tolist() == [1, 2, 3, 0]
    assert graph.edge_feature("written", "weight").tolist() == [3, 1, 4, 2]
    assert graph.table_rows("writes").tolist() == [1, 2, 0, 3]
    assert graph.table_rows("written").tolist() == [2, 0, 3, 1]
    assert graph.node_feature("paper", "feat").tolist() == [[2, 3], [0, 1], [6, 7], [4, 5]]
    values, starts = graph.node_feature("paper", "words")
    assert (values.tolist(), starts.tolist()) == ([0, 1, 5, 2, 3, 4], [0, 0, 2, 3, 6])
    assert graph.node_feature("paper", "title").to_pylist() == [b"ten", b"nine", b"\xff", b"e"]
    assert graph.node_feature("paper", "tags").to_pylist() == [[], [b"a"], [b"d"], [b"b", b"c"]]
    assert graph.context_feature("year").tolist() == [2026]
    assert dataset.stats["nodes.0"] == 2
    assert dataset.stats["edges.writes"] == 4
    for ask in (graph.ids, graph.rows):
        with pytest.raises(UserError, match=r"no such (node|edge) set"):
            ask("sofa")
    with pytest.raises(UserError, match="no such feature"):
        graph.node_feature("paper", "sofa")


def _changed(dataset: Dataset, folder: Path, files: dict[str, Any]) -> HeteroGraph:
    """The graph with other files, of which the manifest says that they are right."""
    writer = DatasetWriter(folder)
    for name in dataset.files():
        with writer.file(name) as path:
            path.write_bytes(dataset.local(name).read_bytes())
            if isinstance(files.get(name), np.ndarray):
                np.save(path, files[name])
            elif name in files:
                path.write_text(files[name])
    return HeteroGraph.open(commit(writer, "heterograph", {"name": folder.name}))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda graph: graph.update(format=2), "format 2"),
        (lambda graph: graph.pop("context"), "context"),
        (lambda graph: graph["node_sets"].reverse(), "not sorted"),
        (lambda graph: graph["node_sets"][0].update(count=-1), "-1 is no size"),
        (lambda graph: graph["node_sets"][1].update(count=0), "no nodes"),
        (lambda graph: graph["node_sets"][1]["features"][0].update(shape=[2, None]), "ragged in another"),
        (lambda graph: graph["node_sets"][1]["features"][0].update(dtype="object"), "unknown type 'object'"),
        (lambda graph: graph["edge_sets"][0].update(source="sofa"), "no node set"),
        (lambda graph: graph["edge_sets"][2].update(reversed_of="written"), "no set that has a table"),
        (lambda graph: graph["edge_sets"][2].update(reversed_of="cites"), "is not 'cites' reversed"),
        (lambda graph: graph["edge_sets"][0].update(name=7), "a name is no text"),
    ],
)
def test_a_graph_file_that_cannot_be(dataset: Dataset, tmp_path: Path, change: Any, error: str) -> None:
    graph = dataset.json("graph.json")
    change(graph)
    with pytest.raises(DatasetDamaged, match=rf"graph\.json.*{error}"):
        _changed(dataset, tmp_path / "changed", {"graph.json": json.dumps(graph)})


@pytest.mark.parametrize(
    ("name", "values", "read"),
    [
        ("edges-1-indptr.npy", np.array([0, 1]), lambda graph: graph.rows("writes")),
        ("edges-1-indptr.npy", np.array([0, 9, 4]), lambda graph: graph.rows("writes")),
        ("edges-1-indices.npy", np.array([3, 1, 2, 4], np.int32), lambda graph: graph.rows("writes")),
        ("edges-1-indices.npy", np.array([3, 1, 2, 2]), lambda graph: graph.rows("writes")),
        ("edges-2-origin.npy", np.array([0, 1, 2, 4]), lambda graph: graph.edge_feature("written", "weight")),
        ("edges-1-row.npy", np.array([0, 1, 2, -1], np.int32), lambda graph: graph.table_rows("written")),
        ("edges-1-row.npy", np.array([0, 1, 2], np.int32), lambda graph: graph.table_rows("writes")),
        ("nodes-1-feature-0.npy", np.zeros((4, 3), np.float32), lambda graph: graph.node_feature("paper", "feat")),
        ("nodes-1-feature-3-starts.npy", np.array([0, 2, 1, 5, 6]), lambda graph: graph.node_feature("paper", "words")),
        ("nodes-1-feature-2.parquet", "PAR1", lambda graph: graph.node_feature("paper", "title")),
        ("nodes-1-ids.parquet", "PAR1", lambda graph: graph.ids("paper")),
        ("edges-1-feature-0.npy", "no array", lambda graph: graph.edge_feature("writes", "weight")),
    ],
)
def test_files_that_do_not_fit(dataset: Dataset, tmp_path: Path, name: str, values: Any, read: Any) -> None:
    graph = _changed(dataset, tmp_path / "changed", {name: values})
    with pytest.raises(DatasetDamaged, match=name):
        read(graph)


def test_another_dataset(tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path / "other")
    writer.array("indptr.npy", np.zeros(1, np.int64))
    with pytest.raises(UserError, match="it is no heterograph"):
        HeteroGraph.open(commit(writer, "index", {"name": "other"}))
