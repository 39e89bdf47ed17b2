"""Schemas of plain tables and of OGB's raw folders, read by the stage that they are for."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.__main__ import main
from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.heterograph import STAGE
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph, Ragged
from superworkflow.tasks.lib.graph.schema import schema_text
from superworkflow.tasks.lib.importers.ogb import convert_ogb
from superworkflow.tasks.lib.importers.plain_tables import EdgeTable, plain_schema
from tests.tasks.index_helpers import run_stage


def read(folder: Path, out: Path) -> HeteroGraph:
    return HeteroGraph.open(run_stage(STAGE, {}, {"graph": str(folder)}, out))


def pairs(graph: HeteroGraph, edge_set: str) -> list[tuple[str, str]]:
    edges, rows = graph.edge_sets[edge_set], graph.rows(edge_set)
    sources, targets = graph.ids(edges.source).to_pylist(), graph.ids(edges.target).to_pylist()
    owners = np.repeat(np.arange(len(sources)), np.diff(rows.indptr))
    return [(sources[s], targets[t]) for s, t in zip(owners, rows.indices, strict=True)]


def test_plain_tables_become_one_graph(tmp_path, capsys):
    (tmp_path / "people.csv").write_text('id,age,name,height,member\nb,7,"Ann, B.",1.5,true\na,8,Bo,2,false\n')
    for shard in range(2):
        table = {"id": [10 * shard + i for i in range(3)], "words": [[1, 2], [], [shard]], "at": [[0.5, 1.5]] * 3}
        kinds = {"id": pa.int32(), "words": pa.list_(pa.int64()), "at": pa.list_(pa.float64(), 2)}
        columns = [pa.array(table[name], kind) for name, kind in kinds.items()]
        pq.write_table(pa.table(columns, list(kinds)), tmp_path / f"books-0000{shard}-of-00002.parquet")
    (tmp_path / "reads.csv").write_text("source,target,weight\na,10,0.5\nb,2,1\n")
    (tmp_path / "lives.csv").write_text("#source,#target\na,here\n")
    given = [
        "--nodes",
        "person=people.csv",
        "--nodes",
        "book=books@2.parquet",
        "--edges",
        "person,reads,book=reads.csv",
    ]
    given += ["--edges", "person,lives,town=lives.csv", "--reverse", "readers=reads", "--out", str(tmp_path)]
    assert main(["schema", *given]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'schema.pbtxt'}\n"
    graph = read(tmp_path, tmp_path / "made")
    assert {name: each.count for name, each in graph.node_sets.items()} == {"book": 6, "person": 2, "town": 1}
    assert pairs(graph, "reads") == [("a", "10"), ("b", "2")]
    assert pairs(graph, "readers") == [("10", "a"), ("2", "b")]
    assert graph.edge_feature("readers", "weight").tolist() == [0.5, 1]
    features = {each.name: each[1:] for each in graph.node_sets["person"].features}
    assert features == {"age": ("int64", ()), "height": ("float", ()), "member": ("bool", ()), "name": ("string", ())}
    assert graph.node_feature("person", "name").to_pylist() == [b"Bo", b"Ann, B."]
    assert graph.node_feature("book", "at").shape == (6, 2)
    words = graph.node_feature("book", "words")
    assert isinstance(words, Ragged)
    assert words.values.tolist() == [1, 2, 1, 2, 1, 0]  # books 0, 1, 10, 11, 12, 2


@pytest.mark.parametrize(
    ("nodes", "edges", "reverse", "message"),
    [
        ({"n": "none.csv"}, [], {}, "no such table"),
        ({"n": "edges.csv"}, [], {}, "no such column.*value id|no such column.*'id'"),
        ({}, [EdgeTable("n", "e", "n", "edges.csv")] * 2, {}, "two edge sets of one name"),
        ({}, [EdgeTable("n", "e", "n", "edges.csv")], {"r": "f"}, "no such edge set"),
        ({}, [EdgeTable("n", "e", "n", "bad.parquet")], {}, "cannot be read"),
    ],
)
def test_refusals(tmp_path, nodes, edges, reverse, message):
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match=message):
        plain_schema(tmp_path, nodes, edges, reverse)


def test_tables_elsewhere_and_a_name_given_twice(tmp_path, capsys):
    """The folder of the schema is made; of two tables of one name the first was not read."""
    (tmp_path / "nodes.csv").write_text("id,x\na,1\nb,2\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    given = ["schema", "--nodes", f"n={tmp_path}/nodes.csv", "--edges", f"n,e,n={tmp_path}/edges.csv"]
    out = ["--out", str(tmp_path / "new" / "graph")]
    assert main([*given, "--nodes", "n=other.csv", *out]) == 2
    assert "--nodes: two sets of one name (got 'n')" in capsys.readouterr().err
    assert main([*given, *out]) == 0
    assert f'filename: "{tmp_path}/nodes.csv"' in (tmp_path / "new" / "graph" / "schema.pbtxt").read_text()


def test_missing_values_and_other_types_are_named_and_read(tmp_path, capsys):
    """Decimals may be missing, whole numbers and truth values then become text; dates of Parquet are left out."""
    csv = 'id,price,stock,sold,empty,note\na,1.5,3,true,,NA\nb,NA,,false,,"x, y"\nc,nan,5,null,,\n'
    (tmp_path / "csv.csv").write_text(csv)
    columns = {
        "id": pa.array(["a", "b", "c"]), "price": pa.array([1.5, None, float("nan")]), "stock": pa.array([3, None, 5]),
        "sold": pa.array([True, False, None]), "note": pa.array(["NA", "x, y", None]),
        "at": pa.array([0, 1, 2], pa.timestamp("s")), "cost": pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)),
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "parquet.parquet")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    given = ["--nodes", "csv=csv.csv", "--nodes", "parquet=parquet.parquet", "--edges", "csv,to,parquet=edges.csv"]
    assert main(["schema", *given, "--out", str(tmp_path)]) == 0
    warned = capsys.readouterr().err
    assert "(got at (timestamp[" in warned
    assert warned.count("(got price: 2, stock: 1, sold: 1)") == 2
    graph = read(tmp_path, tmp_path / "made")
    for name in ("csv", "parquet"):
        kinds = {each.name: each.dtype for each in graph.node_sets[name].features}
        extra = {"empty": "string"} if name == "csv" else {"cost": "float"}
        assert kinds == {"price": "float", "stock": "string", "sold": "string", "note": "string", **extra}
        assert np.array_equal(graph.node_feature(name, "price"), [1.5, np.nan, np.nan], equal_nan=True)
        assert graph.node_feature(name, "stock").to_pylist() == [b"3", b"", b"5"]
        assert graph.node_feature(name, "note").to_pylist() == [b"NA", b"x, y", b""]


def test_columns_that_later_stages_refuse_are_left_out(tmp_path):
    """Numbers without any value, lists in which some are missing, and lists of lists of several lengths."""
    rows = 4
    columns = {
        "none": pa.array([None, float("nan")] * 2, pa.float64()), "some": pa.array([1, None] * 2),
        "inside": pa.array([[1, None]] * rows), "lists": pa.array([[[1, 2], [3]]] * rows),
        "pairs": pa.array([[1.0, 2.0], None] * 2, pa.list_(pa.float32(), 2)), "absent": pa.array([[1], None] * 2),
        "nan": pa.array([[1.0, float("nan")]] * rows), "whole": pa.array([[1, 2]] * rows, pa.list_(pa.int64(), 2)),
    }  # fmt: skip
    half = pa.table({"id": list("abcd"), **columns})
    for number in (0, 1):  # what is missing in one part only is so in the table
        part = half if number else half.set_column(3, "inside", pa.array([[1, 2]] * rows))
        ids = pa.array([f"{each}{number}" for each in "abcd"])
        pq.write_table(part.set_column(0, "id", ids), tmp_path / f"n-{number:05}-of-00002.parquet")
    (tmp_path / "e.csv").write_text("source,target\na0,b1\n")
    warnings = []
    schema = plain_schema(tmp_path, {"n": "n@2.parquet"}, [EdgeTable("n", "e", "n", "e.csv")], {}, warnings.append)
    (tmp_path / "schema.pbtxt").write_text(schema_text(schema))
    found = {each.name: (each.dtype, each.shape) for each in schema.node_sets["n"].features}
    assert found == {"some": ("string", ()), "absent": ("int64", (None,)), "nan": ("float", (None,)),
                     "whole": ("int64", (2,))}  # fmt: skip
    assert warnings[0].value == (
        "none (without values), inside (list of int64 with missing values), lists (list<element: "
        "list<element: int64>>), pairs (list of float with missing values)"
    )
    graph = read(tmp_path, tmp_path / "graph")
    assert [each.name for each in graph.node_sets["n"].features] == ["absent", "nan", "some", "whole"]


def packed(path: Path, rows: list) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(",".join(map(str, row)) + "\n" for row in rows).encode()))


def test_a_typed_raw_folder(tmp_path):
    raw = tmp_path / "ogb" / "raw"
    packed(raw / "num-node-dict.csv.gz", [["author", "paper"], [2, 12]])
    packed(raw / "triplet-type-list.csv.gz", [["author", "writes", "paper"], ["paper", "cites", "paper"]])
    packed(raw / "relations" / "author___writes___paper" / "edge.csv.gz", [[0, 11], [1, 2]])
    packed(raw / "relations" / "author___writes___paper" / "num-edge-list.csv.gz", [[2]])
    packed(raw / "relations" / "author___writes___paper" / "edge_reltype.csv.gz", [[0], [0]])
    packed(raw / "relations" / "paper___cites___paper" / "edge.csv.gz", [[2, 11]])
    packed(raw / "relations" / "paper___cites___paper" / "num-edge-list.csv.gz", [[1]])
    packed(raw / "node-feat" / "paper" / "node-feat.csv.gz", [[i, i / 2, -1] for i in range(12)])
    packed(raw / "node-feat" / "paper" / "node_year.csv.gz", [[2000 + i] for i in range(12)])
    packed(raw / "node-label" / "paper" / "node-label.csv.gz", [[i % 3] for i in range(12)])
    for name, rows in (("train", [[3]]), ("valid", [[0], [1]]), ("test", [])):
        packed(tmp_path / "ogb" / "split" / "time" / "paper" / f"{name}.csv.gz", rows)
    written = convert_ogb(tmp_path / "ogb", tmp_path / "out")
    assert sorted(written) == sorted(file.name for file in (tmp_path / "out").iterdir())
    graph = read(tmp_path / "out", tmp_path / "made")
    order = [int(each) for each in graph.ids("paper").to_pylist()]
    assert order == sorted(range(12), key=str)
    assert graph.node_feature("paper", "feat").tolist() == [[i, i / 2, -1] for i in order]
    assert graph.node_feature("paper", "year").tolist() == [2000 + i for i in order]
    assert graph.node_feature("paper", "labels").tolist() == [i % 3 for i in order]
    assert pairs(graph, "writes") == [("0", "11"), ("1", "2")]
    assert pairs(graph, "cites") == [("2", "11")]
    seeds = pq.read_table(tmp_path / "out" / "seeds-paper.parquet").to_pydict()
    assert seeds == {"id": ["3", "0", "1"], "split": ["train", "validation", "validation"]}


def test_a_raw_folder_of_one_node_set(tmp_path, monkeypatch):
    monkeypatch.setattr("superworkflow.tasks.lib.importers.ogb._BATCH", 5)
    packed(tmp_path / "num-node-list.csv.gz", [[12]])
    packed(tmp_path / "num-edge-list.csv.gz", [[13]])
    packed(tmp_path / "edge.csv.gz", [[i % 12, 7 * i % 12] for i in range(13)])
    packed(tmp_path / "edge-feat.csv.gz", [[i + 0.5] for i in range(13)])
    packed(tmp_path / "node-label.csv.gz", [[i] for i in range(12)])
    convert_ogb(tmp_path, tmp_path / "out")
    graph = read(tmp_path / "out", tmp_path / "made")
    expected = sorted((str(i % 12), str(7 * i % 12), i + 0.5) for i in range(13))
    found = zip(pairs(graph, "edges"), graph.edge_feature("edges", "feat").tolist(), strict=True)
    assert [(*pair, value) for pair, value in found] == expected
    packed(tmp_path / "node-label.csv.gz", [[i] for i in range(11)])
    with pytest.raises(UserError, match="another number of rows"):
        convert_ogb(tmp_path, tmp_path / "again")
    with pytest.raises(UserError, match="no raw folder"):
        convert_ogb(tmp_path / "out", tmp_path / "again")


def test_truth_values_as_databases_write_them(tmp_path):
    """PostgreSQL writes t and f, Python True and False, surveys yes and no."""
    (tmp_path / "people.csv").write_text("id,a,b,c,d\nx,t,yes,True,TRUE\ny,f,no,False,FALSE\nz,f,No,true,False\n")
    (tmp_path / "knows.csv").write_text("source,target\nx,y\ny,z\n")
    given = ["--nodes", "person=people.csv", "--edges", "person,knows,person=knows.csv", "--out", str(tmp_path)]
    assert main(["schema", *given]) == 0
    graph = read(tmp_path, tmp_path / "made")
    assert {each.name: each.dtype for each in graph.node_sets["person"].features} == dict.fromkeys("abcd", "bool")
    found = [graph.node_feature("person", name).tolist() for name in "abcd"]
    assert found == [[True, False, False], [True, False, False], [True, False, True], [True, False, False]]
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(schema.read_text().replace("DT_BOOL", "DT_FLOAT"))
    floats = read(tmp_path, tmp_path / "floats")
    assert floats.node_feature("person", "b").tolist() == [1, 0, 0]
