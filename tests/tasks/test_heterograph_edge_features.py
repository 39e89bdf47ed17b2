"""Columns of an edge list that are features of its edges."""

from pathlib import Path

import pandas as pd
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks import heterograph, infer, train
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.index_helpers import run_stage

ROWS = [("a", "b", 1.5, "red", True), ("c", "a", None, "blue", False), ("a", "b", 2.5, "red", True),
        ("b", "b", 9.0, "blue", True), ("b", "c", 4.0, None, False)]  # fmt: skip
COLUMNS = ["source", "target", "length", "colour", "open"]


def written(folder: Path, kind: str = "csv", rows: list = ROWS) -> Path:
    folder.mkdir(exist_ok=True)
    table, path = pd.DataFrame(rows, columns=COLUMNS), folder / f"edges.{kind}"
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    return path


def made(folder: Path, path: Path, **params: object) -> HeteroGraph:
    return HeteroGraph.open(run_stage(heterograph.STAGE, params, {"edges": str(path)}, folder))


def edges_of(graph: HeteroGraph, edge_set: str = "edge") -> list[tuple]:
    ids, (indptr, indices) = graph.ids("node").to_pylist(), graph.rows(edge_set)
    features = [graph.edge_feature(edge_set, each.name) for each in graph.edge_sets[edge_set].features]
    return [
        (ids[u], ids[indices[place]], *(round(float(each[place]), 4) for each in features))
        for u in range(len(ids)) for place in range(indptr[u], indptr[u + 1])
    ]  # fmt: skip


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_each_row_has_its_features(tmp_path, kind, directed):
    """A missing number is the mean of all rows, a missing text has the share of each; loops are left out."""
    graph = made(tmp_path / "graph", written(tmp_path, kind), edge_features="open,length,colour", directed=directed)
    assert [each.name for each in graph.edge_sets["edge"].features] == ["colour=blue", "colour=red", "length", "open"]
    there = [("a", "b", 0, 1, 1.5, 1), ("a", "b", 0, 1, 2.5, 1), ("b", "c", 0.5, 0.5, 4, 0), ("c", "a", 1, 0, 4.25, 0)]
    back = [(v, u, *values) for u, v, *values in there]
    assert sorted(edges_of(graph)) == sorted(there if directed else there + back)
    if directed:
        assert sorted(edges_of(graph, "reverse_edge")) == sorted(back)
    assert "features of edges are missing" in graph.dataset.stats["input_warning.1"]
    assert "input_warning.2" not in graph.dataset.stats


def test_a_column_that_is_not_used_is_named_with_what_uses_it(tmp_path):
    graph = made(
        tmp_path / "graph", written(tmp_path, rows=[(*row[:2], 1.5 + i, *row[3:]) for i, row in enumerate(ROWS)])
    )
    assert "heterograph.edge_features=length" in graph.dataset.stats["input_warning.1"]


@pytest.mark.parametrize(("text", "params", "message"), [
    ("source,target,size\na,b,1\n", {"edge_features": "length"}, "no such column"),
    ("source;target;size\na;b;1\n", {"edge_features": "size"}, "CSV with commas"),
    ("source,target,size,time\na,b,1,3\nb,c,2,9\n", {"edge_features": "size", "until": "5"}, "not read as edges"),
    ("source,target,size\na,b,1\nb,c,inf\n", {"edge_features": "size"}, "not a finite number"),
    ("source,target,weight\na,b,1\nb,c,2\n", {"edge_features": "weight"}, "of this name already"),
])  # fmt: skip
def test_refusals(tmp_path, text, params, message):
    (tmp_path / "edges.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        made(tmp_path / "graph", tmp_path / "edges.csv", **params)


def test_a_network_reads_them(tmp_path):
    """Labels that depend on the edges' column alone are learned by a network that reads it."""
    rows = []
    for i in range(60):
        rows += [(f"n{i:02}", f"n{(i + step) % 60:02}", float(i % 2), "red", True) for step in (2, 4, 6)]
    path = written(tmp_path, rows=rows)
    (tmp_path / "labels.csv").write_text("node,label\n" + "".join(f"n{i:02},k{i % 2}\n" for i in range(60)))
    (tmp_path / "features.csv").write_text("node,x\n" + "".join(f"n{i:02},1.0\n" for i in range(60)))
    sources = {"edges": str(path), **{each: str(tmp_path / f"{each}.csv") for each in ("labels", "features")}}
    graph = run_stage(heterograph.STAGE, {"edge_features": "length"}, sources, tmp_path / "graph")
    given, accuracy = {"graph": graph.uri}, []
    for chosen in ("auto", "none"):
        params = {"model": "gin", "hidden": 8, "epochs": 30, "edge_features": chosen, "seed": 1, "dropout": 0.0}
        network = run_stage(train.STAGE, params, given, tmp_path / f"train-{chosen}")
        found = run_stage(infer.STAGE, {}, {**given, "network": network.uri}, tmp_path / f"infer-{chosen}")
        table = pd.read_parquet(found.location.local_path / "predictions.parquet")
        accuracy.append((table.predicted == table.label).mean())
    assert accuracy[0] == 1
    assert accuracy[1] < 0.8
