"""Sparse features: the graph is that of the same values in a dense table."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import load_stage
from superworkflow.tasks.heterograph import STAGE, HeterographParams
from superworkflow.tasks.heterograph.feature_stats import feature_stats
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.index_helpers import run_stage

NODES, WIDTH = 40, 12
FILES = ("nodes-0-feature-0.npy", "scaling.json", "columns.json", "edges-0-indices.npy", "nodes-0-ids.parquet")


def counts() -> np.ndarray:
    """Bags of words, of which nodes 7 and 39 have none."""
    rng = np.random.default_rng(3)
    words = np.where(rng.random((NODES, WIDTH)) < 0.2, rng.integers(1, 5, (NODES, WIDTH)), 0)
    words[[7, 39]] = 0
    return words


def write(folder: Path, form: str, words: np.ndarray) -> str:
    """A file or a folder of features, and `edges.csv`."""
    folder.mkdir(exist_ok=True)
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"{i},{(i * 7 + 3) % NODES}\n" for i in range(NODES)))
    row, column = (np.asarray(each) for each in np.nonzero(words))
    table = pa.table({"node": row, "column": column, "value": words[row, column]})
    name = folder / {"csv": "f.csv", "parquet": "f.parquet", "npz": "f.npz", "svm": "f.svm", "folder": "f"}.get(
        form, "dense.parquet"
    )
    if form == "csv":
        pacsv.write_csv(table, name)
    elif form == "parquet":
        pq.write_table(table.select(["value", "node", "column"]), name)
    elif form == "npz":
        sparse.save_npz(name, sparse.csr_matrix(words))
    elif form == "svm":
        dump_svmlight_file(words, np.arange(NODES) % 3, str(name))
    elif form == "folder":
        name.mkdir()
        for part in range(3):
            pq.write_table(table[part * 30 : (part + 1) * 30 if part < 2 else None], name / f"part-{part}.parquet")
    else:
        columns = {str(j): words[:, j] for j in range(WIDTH)}
        pq.write_table(pa.table({"node": np.arange(NODES), **columns}), name)
    return str(name)


def made(folder: Path, features: str, out: str, log: io.StringIO | None = None, **params) -> Dataset:
    inputs = {"edges": str(folder / "edges.csv"), "features": features}
    if network := params.pop("network", None):
        inputs["network"] = network
    return run_stage(STAGE, params, inputs, folder / out, log=log)


@pytest.mark.parametrize("form", ["csv", "parquet", "folder", "npz", "svm"])
def test_the_same_files_as_of_a_dense_table(tmp_path, form):
    for scaling in ("auto", "piecewise", "standard"):
        dense = made(tmp_path, write(tmp_path / "", "dense", counts()), f"dense-{scaling}", scaling=scaling)
        given = tmp_path / form
        found = made(tmp_path, write(given, form, counts()) if not given.exists() else str(next(given.glob("f*"))),
                     f"found-{scaling}", scaling=scaling)  # fmt: skip
        assert {each.path: each.sha256 for each in found.manifest.files if each.path in FILES} == {
            each.path: each.sha256 for each in dense.manifest.files if each.path in FILES
        }
    assert dense.json("scaling.json")["node"]["kind"] == "standard"
    assert ("its labels are not" in str(found.stats.get("input_warning.1"))) == (form == "svm")


def test_a_network_reads_its_own_columns_and_others_are_named(tmp_path):
    words = counts()
    graph = made(tmp_path, write(tmp_path, "csv", words), "graph")
    (tmp_path / "labels.csv").write_text("node,label\n" + "".join(f"{i},{i % 2}\n" for i in range(NODES)))
    inputs = {"edges": str(tmp_path / "edges.csv"), "features": str(tmp_path / "f.csv")}
    labelled = run_stage(STAGE, {}, {**inputs, "labels": str(tmp_path / "labels.csv")}, tmp_path / "labelled")
    params = {"epochs": 1, "hidden": 4, "fanouts": "5,5"}
    network = run_stage(load_stage("train"), params, {"graph": labelled.uri}, tmp_path / "network")
    rows = "".join(f"{i},{j},{words[i, j]}\n" for i, j in zip(*np.nonzero(words), strict=True) if j != 5)
    (tmp_path / "other.csv").write_text(f"node,word,count\n{rows}3,new,2\n")
    other = made(tmp_path, str(tmp_path / "other.csv"), "other", network=network.uri)
    assert other.json("columns.json") == graph.json("columns.json")
    without = words * (np.arange(WIDTH) != 5)
    wanted = without / np.maximum(without.sum(axis=1, keepdims=True), 1)
    ids = np.array(HeteroGraph.open(other).ids("node").to_pylist(), int)
    assert np.allclose(HeteroGraph.open(other).node_feature("node", "features"), wanted[ids])
    assert "values of 1 columns that the network does not have are left out" in other.stats["input_warning.1"]


@pytest.mark.parametrize(
    ("text", "params", "words"),
    [
        ("node,column,value\n1,a,2\n2,a,1\n1,a,3\n", {}, ["two values in one column", "column a", "groupby"]),
        ("node,column,value\n1,a,2\n2,a,x\n", {}, ["f.csv, row 2", "column value", "'x'"]),
        ("node,column,value\n1,a,2\n2,a,\n", {}, ["f.csv, row 2", "not a finite number"]),
        ("node,column,value\n1,,2\n", {}, ["f.csv, row 1", "Name a column in each row"]),
        ("node,column,value\n", {}, ["no rows"]),
        ("a,b\n1,2\n", {"sparse": True}, ["three columns", "heterograph.sparse=false"]),
    ],
    ids=["repeated", "text", "missing", "no-column", "empty", "two-columns"],
)
def test_what_is_refused(tmp_path, text, params, words):
    write(tmp_path, "csv", counts())
    (tmp_path / "f.csv").write_text(text)
    with pytest.raises(UserError) as refused:
        made(tmp_path, str(tmp_path / "f.csv"), "graph", **params)
    assert all(word in str(refused.value) for word in words)


def test_three_columns_by_parameter_and_a_header_in_doubt(tmp_path):
    write(tmp_path, "csv", counts())
    (tmp_path / "f.csv").write_text("who,what,much\n3,b,2\n5,a,4\n3,a,1\n")
    graph = made(tmp_path, str(tmp_path / "f.csv"), "graph", sparse=True, scaling="none")
    assert made(tmp_path, str(tmp_path / "f.csv"), "left", sparse=True, leave_out="a").json("columns.json") == {
        "node": [["b", 1]]
    }
    assert graph.json("columns.json") == {"node": [["a", 1], ["b", 1]]}
    values = dict(zip(HeteroGraph.open(graph).ids("node").to_pylist(),
                      graph.array("nodes-0-feature-0.npy").tolist(), strict=True))  # fmt: skip
    assert (values["3"], values["5"], values["4"]) == ([1, 2], [4, 0], [0, 0])
    (tmp_path / "g.csv").write_text("node,feature,value\n" + "".join(f"{i},1.5,{i % 3}\n" for i in range(NODES)))
    doubted = made(tmp_path, str(tmp_path / "g.csv"), "doubted")
    assert doubted.json("columns.json") == {"node": [["1.5", 1]]}
    assert "Set heterograph.sparse=false" in doubted.stats["input_warning.1"]
    dense = made(tmp_path, str(tmp_path / "g.csv"), "dense", sparse=False)
    assert dense.json("columns.json") == {"node": [["feature", 1], ["value", 1]]}


@pytest.mark.parametrize("form", ["csv", "parquet", "npz", "dense"])
def test_plans_know_the_width(tmp_path, form):
    given = write(tmp_path, form, counts())
    inputs = {"edges": str(tmp_path / "edges.csv"), "features": given}
    stats = {name: STAGE.inputs[name].stats_of(Source.of(path)) for name, path in inputs.items()}
    predicted = STAGE.estimate(HeterographParams(), stats, Resources())
    assert predicted.stats["values.nodes.node"] == WIDTH
    assert predicted.stats["nodes"] == pytest.approx(NODES, abs=3)


def test_plans_count_categories(tmp_path):
    text = "node,x,color,ok\n" + "".join(f"{i},{i / 3:.2f},c{i % 7},{'yes' if i % 2 else 'no'}\n" for i in range(50))
    (tmp_path / "f.csv").write_text(text)
    assert feature_stats(Source.of(tmp_path / "f.csv"), 1 << 20)["width"] == 9
