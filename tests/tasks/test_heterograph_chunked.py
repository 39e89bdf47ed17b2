"""Typed graphs in DGL's chunked format: what becomes of files of each kind, and what is refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.__main__ import main
from superworkflow.infra.base.errors import UserError
from superworkflow.tasks import load_stage
from superworkflow.tasks.heterograph import STAGE
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.index_helpers import run_stage

AUTHORS, PAPERS = 5, 12
WRITES, CITES = "author:writes:paper", "paper:cites:paper"


@pytest.fixture
def metadata(tmp_path):
    """Each format for edges and for features, in chunks; the metadata as a document."""
    rng = np.random.default_rng(1)
    writes = np.stack([rng.integers(0, AUTHORS, 30), rng.integers(0, PAPERS, 30)], axis=1)
    cites = np.stack([rng.integers(0, PAPERS, 20), rng.integers(0, PAPERS, 20)], axis=1)
    np.savetxt(tmp_path / "w0.csv", writes[:10], "%d", delimiter=" ")
    np.savetxt(tmp_path / "w1.csv", writes[10:], "%d", delimiter=" ")
    pq.write_table(pa.table({"s": cites[:, 0], "d": cites[:, 1]}), tmp_path / "c.parquet")
    feat = rng.normal(size=(PAPERS, 3)).astype(np.float16)
    np.save(tmp_path / "f0.npy", feat[:7])
    np.save(tmp_path / "f1.npy", feat[7:])
    np.save(tmp_path / "venue.npy", np.arange(PAPERS) % 2)
    for index, name in enumerate(("train_mask", "val_mask", "test_mask")):
        np.save(tmp_path / f"{name}.npy", np.arange(PAPERS) // 2 % 3 == index)
    np.savetxt(tmp_path / "year.csv", np.arange(30), "%d")

    def npy(*files):
        return {"format": {"name": "numpy"}, "data": list(files)}

    masks = {name: npy(f"{name}.npy") for name in ("train_mask", "val_mask", "test_mask")}
    document = {
        "graph_name": "g", "node_type": ["author", "paper"], "num_nodes_per_chunk": [[2, 3], [7, 5]],
        "edge_type": [WRITES, CITES], "num_edges_per_chunk": [[10, 20], [20]],
        "edges": {
            WRITES: {"format": {"name": "csv", "delimiter": " "}, "data": ["w0.csv", "w1.csv"]},
            CITES: {"format": {"name": "parquet"}, "data": ["c.parquet"]},
        },
        "node_data": {"paper": {"feat": npy("f0.npy", "f1.npy"), "venue": npy("venue.npy"), **masks}},
        "edge_data": {WRITES: {"year": {"format": {"name": "csv"}, "data": ["year.csv"]}}},
    }  # fmt: skip
    return document, feat, writes


def make(folder, document):
    (folder / "metadata.json").write_text(json.dumps(document))
    return run_stage(STAGE, {}, {"graph": str(folder / "metadata.json")}, folder / "graph")


def test_what_files_of_each_kind_become(metadata, tmp_path):
    document, feat, writes = metadata
    graph = HeteroGraph.open(make(tmp_path, document))
    assert {name: each.count for name, each in graph.node_sets.items()} == {"author": AUTHORS, "paper": PAPERS}
    assert list(graph.edge_sets) == ["cites", "reverse_cites", "reverse_writes", "writes"]
    ids = {name: [int(each) for each in graph.ids(name).to_pylist()] for name in graph.node_sets}
    assert ids["paper"] == sorted(range(PAPERS), key=str)
    assert (graph.node_feature("paper", "feat") == feat[ids["paper"]]).all()
    assert graph.node_feature("paper", "venue").tolist() == [each % 2 for each in ids["paper"]]
    splits = (b"train", b"validation", b"test")
    assert graph.node_feature("paper", "split").to_pylist() == [splits[each // 2 % 3] for each in ids["paper"]]
    years = sorted((int(a), int(p), year) for year, (a, p) in enumerate(writes))
    for name, ends in (("writes", ("author", "paper")), ("reverse_writes", ("paper", "author"))):
        indptr, indices = graph.rows(name)
        sources = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        given = [(ids[ends[0]][s], ids[ends[1]][t]) for s, t in zip(sources, indices, strict=True)]
        found = graph.edge_feature(name, "year").tolist()
        pairs = [each if name == "writes" else each[::-1] for each in given]
        assert sorted((*pair, year) for pair, year in zip(pairs, found, strict=True)) == years


def test_training_on_it(metadata, tmp_path, capsys):
    made = make(tmp_path, metadata[0])
    params = {"label": "paper.venue", "model": "rgcn", "hidden": 4, "epochs": 1, "fanouts": "3,3"}
    trained = run_stage(load_stage("train"), params, {"graph": made.uri}, tmp_path / "train")
    assert [trained.stats[f"{split}_nodes"] for split in ("train", "validation", "test")] == [4, 4, 4]
    given = [
        "gnn",
        "--graph",
        str(tmp_path / "metadata.json"),
        "--label",
        "paper.venue",
        "--store",
        str(tmp_path / "s"),
    ]
    assert main(["plan", *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "heterograph"


def changed(document, path, value):
    *parents, last = path
    inner = document
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["num_nodes_per_chunk"], [[2, 3], [7, 4]], ["f1.npy", "other rows", "Give 4 rows", "got 5"]),
        (["num_edges_per_chunk"], [[10, 21], [20]], ["w1.csv", "Give 21 rows"]),
        (["num_edges_per_chunk"], [[10, -1], [20]], ["num_edges_per_chunk", "[10, -1]"]),
        (["num_nodes_per_chunk"], [[5]], ["2 types need as many lists"]),
        (["edge_type"], [WRITES, "paper:cites:book"], ["edge_type", "'book' is no declared node type"]),
        (["edge_type"], [WRITES, "cites"], ["SOURCE:RELATION:DESTINATION", "'cites'"]),
        (["node_data", "book"], {}, ["node_data", "no such node type", "'book'"]),
        (["edge_data", "paper:likes:paper"], {}, ["edge_data", "no such edge type", "paper:likes:paper"]),
        (["edges", WRITES, "format", "name"], "xml", ["csv, numpy, parquet", "xml"]),
        (["edges", WRITES, "data"], ["w0.csv"], ["w0.csv", "Give 30 rows"]),
        (["edges", WRITES, "data"], ["w0.csv", "../w1.csv"], ["w1.csv"]),
        (["edges", CITES, "data"], ["none.parquet"], ["none.parquet"]),
        (["node_data", "paper", "venue", "data"], [7], ["files are a list of names"]),
        (["node_type"], "paper", ["node_type", "a list is expected"]),
    ],
)
def test_metadata_that_is_refused(metadata, tmp_path, path, value, words):
    with pytest.raises(UserError) as refused:
        make(tmp_path, changed(metadata[0], path, value))
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("w1.csv", "0 1\n" * 12 + "0 1 2\n" + "0 1\n" * 7, ["w1.csv", "Expected 2 columns, got 3"]),
        ("w1.csv", "0 1\n" * 12 + "0 12\n" + "0 1\n" * 7, ["w1.csv, row 13", "'paper' has not", "12"]),
        ("w1.csv", "0 1\n" * 12 + "x 1\n" + "0 1\n" * 7, ["w1.csv", "such as"]),
        ("f1.npy", np.full((5, 3), np.nan, np.float16), ["f1.npy, row 1", "not a finite number"]),
        ("f1.npy", np.zeros((5, 4), np.float16), ["differ in type or width", "float16[4]"]),
        ("f1.npy", np.array([{}] * 5), ["f1.npy", "cannot be read as numpy"]),
        ("f1.npy", b"no numbers", ["f1.npy", "cannot be read as numpy"]),
        ("c.parquet", pa.table({"s": [[0], [1, 2]]}), ["c.parquet", "row 2 has 2 values"]),
        ("val_mask.npy", np.ones(PAPERS, bool), ["a node is in two splits", "val_mask"]),
    ],
)
def test_files_that_are_refused(metadata, tmp_path, file, content, words):
    if isinstance(content, np.ndarray):
        np.save(tmp_path / file, content, allow_pickle=True)
    elif isinstance(content, pa.Table):
        pq.write_table(content, tmp_path / file)
    else:
        (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as refused:
        make(tmp_path, metadata[0])
    for word in words:
        assert word in str(refused.value)
