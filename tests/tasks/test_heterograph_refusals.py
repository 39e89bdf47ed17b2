"""Tables that the stage heterograph refuses: each error names file and row, or schema and line, and the value."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import UserError
from tests.tasks.heterograph_tables import Items, run_stage, table_bytes, write_graph

PAPERS = Items(
    {"id": ["p0", "p1", "p2"], "year": [1, 2, 3], "v": [[1.0, 2.0]] * 3},
    {"year": ("int8", ()), "v": ("float", (2,))}, file="papers.csv",
)  # fmt: skip
CITES = Items({"source": ["p0", "p1"], "target": ["p1", "p2"]}, ends=("paper", "paper"), file="cites.csv")
BACK = Items(ends=("paper", "paper"), file="cites.csv", reverses="cites")


def refused(folder: Path, **params: Any) -> str:
    with pytest.raises(UserError) as caught:
        run_stage(folder, folder / "out", **params)
    assert caught.value.remedy
    assert caught.value.where
    return str(caught.value)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"id": ["p0", "p1", "p0"]}, "papers.csv, row 3: an earlier row has the same id (got 'p0')"),
        ({"id": ["p0", "", "p2"]}, "papers.csv, row 2: no id (got None)"),
        ({"year": [1, "x", 3]}, "papers.csv, row 2: the value is no int8 (got 'x')"),
        ({"year": [1, 2, 128]}, "papers.csv, row 3: the value is no int8 (got '128')"),
        ({"year": [1, "", 3]}, "papers.csv, row 2: the value is no int8 (got '')"),
        ({"v": [[1.0, 2.0], [1.0], [1.0, 2.0]]}, "papers.csv, row 2: feature v has 2 values, by its shape (got 1)"),
        ({"v": [[1.0, 2.0], [1.0, 2.0, 3.0], []]}, "papers.csv, row 2: feature v has 2 values, by its shape (got 3)"),
        ({"v": [[1.0, 2.0], [1.0, 2.0], ["1..2", 3.0]]}, "papers.csv, row 3: the value is no float (got '1..2')"),
    ],
)
def test_values_in_csv(tmp_path: Path, columns: dict[str, list[Any]], error: str) -> None:
    papers = replace(PAPERS, columns=PAPERS.columns | columns)
    assert error in refused(write_graph(tmp_path, {"paper": papers}, {"cites": CITES}))


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([[[1.0], [2.0]], [[1.0], [2.0, 3.0]]], "row 2: feature m has lists of 1 in dimension 1, by its shape (got 2)"),
        ([[[[1.0]]], [[[1.0]]]], "row 1: lists of feature m are nested deeper than its shape"),
        ([[1.0, None], [1.0, 2.0]], "row 1: no value (got None)"),
    ],
)
def test_nested_lists(tmp_path: Path, values: list[Any], error: str) -> None:
    items = Items({"id": ["a", "b"], "m": values}, {"m": ("float", (None, 1))}, file="n.parquet")
    assert f"n.parquet, {error}" in refused(write_graph(tmp_path, {"n": items}, {}))


@pytest.mark.parametrize("ending", ["parquet", "tfrecord"])
@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"id": ["p0", "p1", "p0"]}, "row 3: an earlier row has the same id (got 'p0')"),
        ({"id": [b"p0", b"p1", b"\xff"]}, "row 3: an id is not text in UTF-8 (got b'\\xff')"),
        ({"year": [1, -129, 3]}, "row 2: the value is no int8 (got -129)"),
        ({"v": [[1.0, 2.0], [1.0, 2.0], [1.0]]}, "row 3: feature v has 2 values, by its shape (got 1)"),
        ({"year": ["1", "2", "3"]}, "row 1: values are of type"),
    ],
)
def test_values_in_other_formats(tmp_path: Path, ending: str, columns: dict[str, list[Any]], error: str) -> None:
    folder = write_graph(tmp_path, {"paper": replace(PAPERS, file=f"papers.{ending}")}, {})
    dtypes = {"v": "float", "year": "string" if columns.get("year") == ["1", "2", "3"] else "int64"}
    (folder / f"papers.{ending}").write_bytes(table_bytes(ending, PAPERS.columns | columns, dtypes))
    assert f"papers.{ending}, {error}" in refused(folder)


def test_a_duplicate_in_another_shard(tmp_path: Path) -> None:
    ids = {"id": ["p0", "p1", "p2", "p3", "p1"]}
    folder = write_graph(tmp_path, {"paper": Items(ids, file="papers@3.csv")}, {})
    assert "papers-00001-of-00003.csv, row 3: an earlier row has the same id (got 'p1')" in refused(folder)


@pytest.mark.parametrize("dangling", ["source", "target"])
def test_dangling_edges(tmp_path: Path, dangling: str) -> None:
    cites = replace(CITES, columns=CITES.columns | {dangling: ["p0", "p9"]})
    folder = write_graph(tmp_path, {"paper": PAPERS}, {"cites": cites, "back": BACK})
    error = f"cites.csv, row 2: the {dangling} of an edge is no node of 'paper' (got 'p9')"
    assert error in refused(folder)
    graph = run_stage(folder, tmp_path / "dropped", dangling="drop")
    assert [len(graph.rows(name).indices) for name in graph.edge_sets] == [1, 1]
    assert graph.dataset.stats["dangling_edges"] == 1


def _schema(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        schema = folder / "schema.pbtxt"
        assert old in schema.read_text()
        schema.write_text(schema.read_text().replace(old, new, 1))

    return change


def _file(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: _write(folder / name, data)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (_schema("papers.csv", "absent.csv"), "there is no such table (got 'absent.csv')"),
        (_schema("papers.csv", "papers@3.csv"), "there is no such table (got 'papers-00000-of-00003.csv')"),
        (_schema("papers.csv", "/etc/passwd"), "passwd: the format of a table is not clear from its name"),
        (_schema("papers.csv", "/absent/papers@2.csv"), "no such table (got '/absent/papers-00000-of-00002.csv')"),
        (_schema("papers.csv", "../papers.csv"), "has an empty part, '.' or '..'"),
        (_schema("papers.csv", "sofa://bucket/p.csv"), "sofa://bucket/p.csv: unknown protocol"),
        (_schema('key: "year"', 'key: "sofa"'), "papers.csv: the table has no such column (got 'sofa'). It has: id,"),
        (_schema("DT_INT8", "DT_SOFA"), "schema.pbtxt:12, feature 'year': unknown data type (got 'DT_SOFA')"),
        (_schema('source: "paper"', 'source: "sofa"'), "the source of edge set 'back' is no node set (got 'sofa')"),
        (_schema('target: "paper"', 'target: "author"'), "a reversed edge set's ends do not match those of 'cites'"),
        (_schema("size: 2", "size: 2 } dim { size: -1"), "ragged in another dimension than its first (got 'v')"),
        (_schema('filename: "papers.csv"', ""), "a node set has features and no table (got 'paper')"),
        (_schema('filename: "cites.csv"', ""), "an edge set has no table (got 'back')"),
        (_schema("node_sets", "sofas"), "schema.pbtxt:1: a schema has no such field (got 'sofas')"),
        (_file("papers.csv", b"id,year,v\np0,1\n"), "papers.csv: the table cannot be read: Invalid Input Error: CSV"),
        (_file("papers.csv", b'id,year,v\n"p0,1,1 2\n'), "papers.csv: the table cannot be read"),
        (_file("papers.csv", b"id,id,year,v\np0,p0,1,1 2\n"), "papers.csv: several columns have this name (got 'id')"),
        (
            _file("papers.csv", b"id,year,v\n" + b"p,1,1 2\n" * 9999 + b"\xff,1,1 2\n"),
            "papers.csv: the table cannot be read",
        ),
        (_file("papers.csv", b"\xff\n"), "papers.csv: the header cannot be read"),
        (_file("papers.csv", b"PAR1 and no more"), "papers.csv: the table cannot be read"),
        (_file("papers.csv", b"\x1f\x8b and no more"), "papers.csv: the file cannot be decompressed"),
    ],
)
def test_files_and_schemas(tmp_path: Path, change: Callable[[Path], None], error: str) -> None:
    nodes = {"author": Items(), "paper": PAPERS}
    folder = write_graph(tmp_path, nodes, {"back": BACK, "cites": CITES})
    change(folder)
    assert error in refused(folder)


def test_other_refusals(tmp_path: Path) -> None:
    odd = write_graph(tmp_path / "odd", {"paper": Items({"id": ["a"]}, file="papers.csv")}, {})
    (odd / "papers.csv").rename(odd / "papers.txt")
    _schema("papers.csv", "papers.txt")(odd)
    assert "papers.txt: the format of a table is not clear from its name" in refused(odd)
    context = Items({"k": [1, 2]}, {"k": ("int64", ())}, file="context.csv")
    two = write_graph(tmp_path / "two", {"paper": Items({"id": ["a"]}, file="papers.csv")}, {}, context)
    assert "the table of the context has one row (got '2 rows')" in refused(two)
    cut = write_graph(tmp_path / "cut", {"paper": Items({"id": ["a"]}, file="papers.tfrecord")}, {})
    (cut / "papers.tfrecord").write_bytes((cut / "papers.tfrecord").read_bytes()[:-1])
    assert "papers.tfrecord, record 0" in refused(cut)
    absent = write_graph(tmp_path / "absent", {"paper": Items({"ids": ["a"]}, file="papers.tfrecord")}, {})
    assert "papers.tfrecord: the table has no such column (got 'id')" in refused(absent)
    (absent / "schema.pbtxt").rename(absent / "graph.pbtxt")
    assert "the folder has no schema.pbtxt" in refused(absent)
