"""Typed graphs from an edge list, features and labels: what comes out, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.heterograph import STAGE
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.index_helpers import run_stage

EDGES = "source,target\nb,a\na,b\nb,c\nc,c\nd,b\n"
ROWS = {"a": ["b"], "b": ["a", "c", "d"], "c": ["b"], "d": ["b"]}


def made(folder: Path, **texts: str) -> HeteroGraph:
    inputs = {}
    for name, text in texts.items():
        path = folder / f"{name}.csv"
        path.write_text(text)
        inputs[name] = str(path)
    return HeteroGraph.open(run_stage(STAGE, {}, inputs, folder / "graph"))


def rows_of(graph: HeteroGraph) -> dict[str, list[str]]:
    ids = graph.ids("node").to_pylist()
    indptr, indices = graph.rows("edge")
    return {ids[i]: [ids[j] for j in indices[indptr[i] : indptr[i + 1]]] for i in range(len(ids))}


def test_edges_alone(tmp_path):
    graph = made(tmp_path, edges=EDGES)
    assert rows_of(graph) == ROWS
    assert graph.dataset.stats["nodes.node"] == 4
    assert graph.dataset.stats["edges.edge"] == 6


def test_a_table_of_features_lists_the_nodes(tmp_path):
    with gzip.open(tmp_path / "edges.txt.gz", "wt") as stream:
        stream.write("b a\nb c\nd b\n")
    vectors = pa.array([[4.0, 5.0], [0.5, 1.0], [2.0, 3.0], [6.0, 7.0], [8.0, 9.0]])
    table = pa.table({"x": [1, 2, 3, 4, 5], "node": ["c", "e", "b", "a", "d"], "vector": vectors})
    pq.write_table(table, tmp_path / "features.parquet", row_group_size=2)
    (tmp_path / "labels.csv").write_text("node,label,split\nd,red,test\na,blue,train\ne,red,val\nb,blue,\n")
    inputs = {"edges": "edges.txt.gz", "features": "features.parquet", "labels": "labels.csv"}
    given = {name: str(tmp_path / file) for name, file in inputs.items()}
    graph = HeteroGraph.open(run_stage(STAGE, {}, given, tmp_path / "graph"))
    assert rows_of(graph) == {**ROWS, "e": []}
    wanted = [[4, 6, 7], [3, 2, 3], [1, 4, 5], [5, 8, 9], [2, 0.5, 1]]
    assert graph.node_feature("node", "features").tolist() == wanted
    assert graph.node_feature("node", "label").to_pylist() == [b"blue", b"blue", b"", b"red", b"red"]
    assert graph.node_feature("node", "split").to_pylist() == [b"train", b"", b"", b"test", b"validation"]
    assert graph.dataset.stats["labelled"] == 4


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"features": "node,x\na,1\nb,2\nc,3\n"}, ["edges name nodes without features, such as 'd'", "features.csv"]),
        ({"features": "node,x\na,1\nb,\nc,3\nd,4\n"}, ["features.csv, row 2"]),
        ({"features": "node,x\na,1\nb,nan\nc,3\nd,4\n"}, ["features.csv, row 2", "not a finite number"]),
        ({"features": "node,x\na,1\nb,2\nb,3\nc,3\nd,4\n"}, ["features.csv, row 3", "'b'"]),
        ({"features": "node,x\na,1\nb,2,5\nc,3\nd,4\n"}, ["features.csv"]),
        ({"features": "node,x\na,1\nb,red\nc,3\nd,4\n"}, ["features.csv, row 2", "'red'"]),
        ({"features": "node\na\nb\nc\nd\n"}, ["no features"]),
        ({"labels": "a,red\ne,blue\n"}, ["labels.csv:2", "'e' on line 2"]),
        ({"labels": "a,red,train\nb,red,\na,blue,test\n"}, ["labels.csv:3", "'a' is in a second split", "'test'"]),
        ({"labels": "node,label,split\na,red,tset\n"}, ["labels.csv:2", "no such split", "'tset'"]),
        ({"edges": "a,a\n"}, ["self-loop"]),
    ],
)
def test_refused(tmp_path, texts, words):
    with pytest.raises(UserError) as refused:
        made(tmp_path, **{"edges": EDGES, **texts})
    for word in words:
        assert word in str(refused.value)


def test_lists_of_different_lengths_are_refused(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    pq.write_table(
        pa.table({"node": list("abcd"), "x": [[1.0, 2.0], [3.0], [4.0, 5.0], [6.0, 7.0]]}), tmp_path / "f.parquet"
    )
    given = {"edges": str(tmp_path / "edges.csv"), "features": str(tmp_path / "f.parquet")}
    with pytest.raises(UserError, match=r"f.parquet, row 2.* 2 values, by its shape"):
        run_stage(STAGE, {}, given, tmp_path / "graph")


def test_two_forms_at_once_are_refused(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "schema.pbtxt").write_text(
        'node_sets { key: "a" value { } } '
        'edge_sets { key: "e" value { source: "a" target: "a" metadata { filename: "edges.csv" } } }'
    )
    given = {"graph": str(tmp_path / "schema.pbtxt"), "edges": str(tmp_path / "edges.csv")}
    for inputs in (given, {}):
        with pytest.raises(UserError, match="either graph, or edges"):
            run_stage(STAGE, {}, inputs, tmp_path / "graph")


def test_splits_take_a_third_column_where_they_are_asked_for(tmp_path):
    graph = made(tmp_path, edges=EDGES, labels="a 1 train\nb 2 test\n".replace(" ", "\t"))
    assert np.array(graph.node_feature("node", "split").to_pylist()).tolist() == [b"train", b"test", b"", b""]
