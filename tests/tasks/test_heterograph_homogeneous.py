"""Typed graphs from an edge list, features and labels: what comes out, and what is refused."""

import gzip
import io
import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.heterograph import STAGE
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.index_helpers import run_stage

EDGES = "source,target\nb,a\na,b\nb,c\nc,c\nd,b\n"
ROWS = {"a": ["b"], "b": ["a", "c", "d"], "c": ["b"], "d": ["b"]}


def made(folder: Path, params: dict | None = None, **texts: str) -> HeteroGraph:
    folder.mkdir(exist_ok=True)
    inputs = {}
    for name, text in texts.items():
        path = folder / f"{name}.csv"
        path.write_text(text)
        inputs[name] = str(path)
    return HeteroGraph.open(run_stage(STAGE, params or {}, inputs, folder / "graph"))


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
    graph = HeteroGraph.open(run_stage(STAGE, {"scaling": "none"}, given, tmp_path / "graph"))
    assert rows_of(graph) == {**ROWS, "e": []}
    wanted = [[4, 6, 7], [3, 2, 3], [1, 4, 5], [5, 8, 9], [2, 0.5, 1]]
    assert graph.node_feature("node", "features").tolist() == wanted
    assert graph.node_feature("node", "label").to_pylist() == [b"blue", b"blue", b"", b"red", b"red"]
    assert graph.node_feature("node", "split").to_pylist() == [b"train", b"", b"", b"test", b"validation"]
    assert graph.dataset.stats["labelled"] == 4


def test_labels_of_nodes_without_edges(tmp_path):
    """A few are left out with a warning."""
    nodes = "".join(f"{first},{second}\n" for first, second in zip(range(39), range(1, 40), strict=True))
    rows = [f"{node},{'ab'[node % 2]}\n" for node in range(40)]
    graph = made(tmp_path, edges=nodes, labels="node,label\nalone,a\n" + "".join(rows))
    warning = (
        "labels.csv:2: there are labels of nodes that are not in the graph, as those without edges, and are left out"
    )
    assert f"{warning} (got 1 of 41: 'alone' on line 2)" in str(graph.dataset.stats)
    assert graph.dataset.stats["labelled"] == 40
    with pytest.raises(UserError, match=r"labels of nodes that are not in the graph: 'x0' on line 42"):
        made(tmp_path / "more", edges=nodes, labels="node,label\n" + "".join(rows) + "x0,a\nx1,a\nx2,b\n")


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"features": "node,x\na,1\nb,2\nc,3\n"}, ["edges name nodes without features, such as 'd'", "features.csv"]),
        ({"features": "node,x\na,1\nb,-inf\nc,3\nd,4\n"}, ["features.csv, row 2", "not a finite number"]),
        ({"features": "node,y\na,\nb,nan\nc,\nd,NA\n"}, ["features.csv", "no column of the table is a feature", "'y'"]),
        ({"features": "node,x\na,1\nb,2\nb,3\nc,3\nd,4\n"}, ["features.csv, row 3", "'b'"]),
        ({"features": "node,x\na,1\nb,2,5\nc,3\nd,4\n"}, ["features.csv"]),
        ({"features": "node,x\na,1\nb,red\nc,3\nd,4\n"}, ["features.csv, row 2", "column x", "'red'"]),
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


CHAIN = "source,target\n" + "".join(f"n{i:02},n{i + 1:02}\n" for i in range(39))


def numbers(columns: np.ndarray) -> str:
    """A table of features of the nodes of `CHAIN`, in an order that is not theirs."""
    rows = [f"n{i:02}," + ",".join(map(str, columns[i].tolist())) for i in reversed(range(40))]
    return f"node,{','.join(f'x{i}' for i in range(columns.shape[1]))}\n" + "\n".join(rows) + "\n"


def words() -> np.ndarray:
    """A bag of words: counts, most of them 0; the last node has none."""
    found = np.random.default_rng(1).integers(1, 4, (40, 30)) * (np.random.default_rng(2).random((40, 30)) < 0.1)
    found[:, 0] = 1
    found[39] = 0
    return found


def ages() -> np.ndarray:
    """An age and an income that not all have, of 0 and 1 a column, and a constant."""
    rng = np.random.default_rng(3)
    income = np.where(rng.random(40) < 0.3, 0, rng.normal(40_000, 9_000, 40).round())
    return np.stack([rng.integers(18, 80, 40), income, rng.random(40) < 0.1, np.full(40, 7)], axis=1).astype(float)


@pytest.mark.parametrize(
    ("given", "params", "kind"),
    [
        (words(), {}, "none"),  # its first column is no word
        (words()[:, 1:], {}, "row"),
        (words()[:, 1:] / np.maximum(words()[:, 1:].sum(axis=1, keepdims=True), 1), {}, "none"),
        (words()[:, 1:], {"scaling": "none"}, "none"),
        (ages(), {}, "standard"),
        (ages(), {"scaling": "row"}, "row"),
        (np.random.default_rng(4).normal(size=(40, 5)), {}, "none"),
        (np.random.default_rng(4).normal(size=(40, 5)) * 0.01, {}, "standard"),
        (ages(), {"precision": "float16"}, "standard"),
    ],
    ids=["common-word", "words", "normed", "off", "ages", "asked-for", "unit", "small", "half"],
)
def test_features_are_scaled_where_they_ask_for_it(tmp_path, given, params, kind):
    graph = made(tmp_path, params, edges=CHAIN, features=numbers(given))
    wanted, document = given.astype(float), graph.dataset.json("scaling.json")["node"]
    if kind == "row":
        wanted = wanted / np.maximum(np.abs(wanted).sum(axis=1, keepdims=True), 1)
    if kind == "standard":
        stays = np.isin(wanted, [0, 1]).all(axis=0)
        deviation = wanted.std(axis=0)
        mean, scale = np.where(stays, 0, wanted.mean(axis=0)), np.where(stays | (deviation == 0), 1, deviation)
        wanted = (wanted - mean) / scale
        assert np.allclose(document["mean"], mean)
        assert np.allclose(document["scale"], scale)
    assert graph.dataset.stats["scaling"] == document["kind"] == kind
    found = graph.node_feature("node", "features")
    assert np.allclose(found, wanted, rtol=1e-3 if found.dtype == np.float16 else 1e-5, atol=1e-3)


MIXED = "node,age,color,ok,note\na,1,red,t,yes\nb,,blue,f,No\nc,2, red,,YES\nd,3,NA,T,no\n"


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_text_and_truth_values_become_numbers_and_missing_ones_means(tmp_path, form):
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "features.csv").write_text(MIXED)
    table = pa.table(
        {
            "age": pa.array([1, None, 2, 3]), "node": list("abcd"), "color": pa.array(["red", "blue", "red", None]),
            "ok": pa.array([True, False, None, True]), "note": ["yes", "No", "YES", "no"],
        }
    ).select(["node", "age", "color", "ok", "note"])  # fmt: skip
    pq.write_table(table, tmp_path / "features.parquet", use_dictionary=["color"])
    given = {"edges": str(tmp_path / "edges.csv"), "features": str(tmp_path / f"features.{form}")}
    dataset = run_stage(STAGE, {"scaling": "none"}, given, tmp_path / "graph")
    third = 1 / 3
    wanted = [[1, 0, 1, 1, 1], [2, 1, 0, 0, 0], [2, 0, 1, 2 * third, 1], [3, third, 2 * third, 1, 0]]
    assert np.allclose(HeteroGraph.open(dataset).node_feature("node", "features"), wanted)
    assert "3 values of features are missing" in dataset.stats["input_warning.1"]
    assert "age: 1, color: 1, ok: 1" in dataset.stats["input_warning.1"]
    columns = dataset.json("scaling.json")["node"]["columns"]
    assert [(each["name"], each["kind"], each["width"], each["values"]) for each in columns] == [
        ("age", "numbers", 1, []), ("color", "categories", 2, ["blue", "red"]), ("ok", "truth", 1, []),
        ("note", "truth", 1, []),
    ]  # fmt: skip


def test_columns_that_cannot_be_features_are_left_out(tmp_path: Path) -> None:
    """Whatever a warehouse has besides numbers and text; a column of one value in its second batch is none of them."""
    rows = 2 * 256
    names = [f"n{i}" for i in range(rows)]
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in itertools.pairwise(names)))
    none = [None] * rows
    columns = {
        "node": names, "x": [float(i % 7) for i in range(rows)], "empty": pa.array(none, pa.float32()),
        "nan": pa.array([float("nan")] * rows), "flag": pa.array(none, pa.bool_()),
        "lists": pa.array(none, pa.list_(pa.float32())), "late": pa.array([*none[1:], 5.0], pa.float64()),
        "inside": pa.array([{"a": 1}] * rows), "words": pa.array([["a"]] * rows), "deep": pa.array([[[1.0]]] * rows),
        "hour": pa.array([7] * rows, pa.time32("s")), "span": pa.array([7] * rows, pa.duration("s")),
    }  # fmt: skip
    wide = {f"z{i}": [float(i % 3)] * rows for i in range(5000)}  # few rows make a batch
    pq.write_table(pa.table({**columns, **wide}), tmp_path / "features.parquet")
    given = {"edges": str(tmp_path / "edges.csv"), "features": str(tmp_path / "features.parquet")}
    dataset = run_stage(STAGE, {}, given, tmp_path / "graph")
    assert [name for name, _ in dataset.json("columns.json")["node"][:3]] == ["x", "late", "z0"]
    shown = " ".join(str(value) for key, value in dataset.stats.items() if "warning" in key)
    assert all(f"column {name}: a column without values" in shown for name in ("empty", "nan", "flag", "lists"))
    for name, kind in {
        "inside": "struct<a",
        "words": "list<",
        "deep": "list<",
        "hour": "time32",
        "span": "dur",
    }.items():
        assert f"column {name}: a column of another type than numbers, text and lists of numbers is left out" in shown
        assert f"(got {kind}" in shown
    with pytest.raises(UserError, match=r"column hour: a column of another type than.*time32.*Leave the column out"):
        run_stage(STAGE, {"take": "hour"}, given, tmp_path / "taken")


def test_ten_thousand_columns_of_text_are_read(tmp_path: Path) -> None:
    header = ",".join(["node", *(f"c{i}" for i in range(10_000))])
    table = header + "\n" + "".join(f"{name}," + ",".join([f"{i}.5"] * 10_000) + "\n" for i, name in enumerate("abcd"))
    graph = made(tmp_path, {"scaling": "none"}, edges=EDGES, features=table)
    assert np.array_equal(graph.node_feature("node", "features"), np.arange(4)[:, None] + np.full(10_000, 0.5))


def test_columns_of_many_texts_and_of_none_are_left_out(tmp_path):
    names = [f"n{i:03}" for i in range(150)]
    edges = "source,target\n" + "".join(f"{a},{b}\n" for a, b in itertools.pairwise(names))
    table = "node,none,x,title\n" + "".join(f"{name},NA,1,title {name}\n" for name in names)
    graph = made(tmp_path, edges=edges, features=table)
    assert graph.dataset.json("columns.json") == {"node": [["x", 1]]}
    shown = [str(value) for key, value in graph.dataset.stats.items() if "warning" in key]
    assert ["column none: a column without values is left out" in shown[0], "column title" in shown[1]] == [True, True]
    assert "more than 100 different values is left out of the features (got title n000, title n001, …)" in shown[1]
    with pytest.raises(UserError, match=r"column title: a column of text of more than 100 .*title n000.*Leave the"):
        made(tmp_path / "taken", {"take": "title"}, edges=edges, features=table)


def test_a_feature_beyond_float16_is_refused_once_it_is_scaled(tmp_path):
    table = "node,x\na,100000\nb,200000\nc,300000\nd,4\n"
    made(tmp_path / "scaled", {"precision": "float16"}, edges=EDGES, features=table)
    with pytest.raises(UserError, match="beyond float16"):
        made(tmp_path / "not", {"precision": "float16", "scaling": "none"}, edges=EDGES, features=table)


def _with_column(folder: Path, name: str, values: list[str]) -> dict[str, str]:
    """An edge list, features and labels of 60 nodes of three classes, with one more column of features."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"{i},{(i + 1) % 60}\n" for i in range(60)))
    rows = [f"{i},{rng.normal():.3f},{i % 2},{values[i]}" for i in range(60)]
    (folder / "features.csv").write_text(f"node,noise,half,{name}\n" + "\n".join(rows))
    (folder / "labels.csv").write_text("node,label\n" + "".join(f"{i},c{i % 3}\n" for i in range(0, 60, 2)))
    return {each: str(folder / f"{each}.csv") for each in ("edges", "features", "labels")}


@pytest.mark.parametrize(
    ("name", "values", "warned"),
    [
        ("kind", [f"k{i % 3}" for i in range(60)], True),
        ("code", [str(100 * (i % 3)) for i in range(60)], True),
        ("near", [str(100 * (i % 3) + (i == 30)) for i in range(60)], False),
        ("other", [f"k{i % 5}" for i in range(60)], False),
    ],
    ids=["text", "number", "not quite", "other"],
)
def test_features_that_give_away_the_label(tmp_path, name, values, warned):
    log = io.StringIO()
    made = run_stage(STAGE, {}, _with_column(tmp_path / "in", name, values), tmp_path / "out", log=log)
    assert ("gives away the label" in log.getvalue()) == warned
    shown = [str(value) for key, value in made.stats.items() if "warning" in key]
    assert any(name in text for text in shown) == warned


def doubtful_table(typed: bool) -> tuple[pa.Table, str]:
    """A table of features of which the last five columns are ids and times, and a chain of its nodes."""
    rows = np.arange(150)
    days = np.datetime64("2024-01-01", "s") + rows % 50 * np.timedelta64(36, "h")
    names = [f"n{row:03}" for row in rows]
    table = pa.table({
        "node": names, "age": rows % 70, "kind": [f"k{row % 3}" for row in rows], "serial": rows[::-1] + 500,
        "venue_id": rows % 5, "title_id": [f"t{row}" for row in rows],
        "born": pa.array(days).cast(pa.date32(), safe=False) if typed else [str(day)[:10] for day in days],
        "seen": pa.array(days, pa.timestamp("ns", "UTC")) if typed else [f"{day}Z" for day in days],
    })  # fmt: skip
    return table, "source,target\n" + "".join(f"{a},{b}\n" for a, b in itertools.pairwise(names))


@pytest.mark.parametrize("form", ["csv", "parquet", "dates"])
def test_ids_and_dates_are_no_features_unless_they_are_named(tmp_path, form):
    table, edges = doubtful_table(form == "dates")
    (tmp_path / "edges.csv").write_text(edges)
    name = "features.csv" if form == "csv" else "features.parquet"
    pacsv.write_csv(table, tmp_path / name) if form == "csv" else pq.write_table(table, tmp_path / name)
    given = {"edges": str(tmp_path / "edges.csv"), "features": str(tmp_path / name)}
    dataset = run_stage(STAGE, {}, given, tmp_path / "graph")
    assert dataset.json("columns.json") == {"node": [["age", 1], ["kind", 3]]}
    warned = " ".join(str(dataset.stats[f"input_warning.{number}"]) for number in range(1, 6))
    for column, found in (("serial", "500 to 649"), ("venue_id", "0 to 4"), ("title_id", "t0 to t99"),
                          ("born", "2024-01-01 to 2024-03-14"), ("seen", "2024-01-01")):  # fmt: skip
        assert f"{name}, column {column}: a column of " in warned
        assert found in warned
        assert f"Set heterograph.take={column} " in warned
    params = {"take": "serial,born,seen", "leave_out": "kind", "scaling": "none"}
    graph = HeteroGraph.open(run_stage(STAGE, params, given, tmp_path / "taken"))
    assert graph.dataset.json("columns.json") == {"node": [["age", 1], ["serial", 1], ["born", 1], ["seen", 1]]}
    assert graph.node_feature("node", "features")[1].tolist() == [1, 648, 19724, 19724.5]


def test_values_in_lists_and_lists_may_be_missing(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    for kind in (pa.list_(pa.int64()), pa.list_(pa.float32(), 3)):  # no Parquet has missing lists of a fixed size
        first = None if kind == pa.list_(pa.int64()) else [None] * 3
        lists = pa.array([first, [1, None, 3], [3, 5, 6], [2, 7, None]], kind)
        pq.write_table(pa.table({"node": list("abcd"), "v": lists}), tmp_path / "features.parquet")
        given = {"edges": str(tmp_path / "edges.csv"), "features": str(tmp_path / "features.parquet")}
        dataset = run_stage(STAGE, {"scaling": "none"}, given, tmp_path / str(kind)[:14].strip("<>: "))
        found = HeteroGraph.open(dataset).node_feature("node", "features")
        assert found.tolist() == [[2, 6, 4.5], [1, 6, 3], [3, 5, 6], [2, 7, 4.5]]
        assert "(got v: 2)" in dataset.stats["input_warning.1"]


def test_the_columns_of_folders_are_features(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    for year, kind, rows in (("2023", "a", {"a": 1, "b": 2}), ("2024", "b%2Fc", {"c": 3, "d": 4})):
        folder = tmp_path / "features" / f"since={year}" / f"kind={kind}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"node": list(rows), "x": list(rows.values())}), folder / "part-0.parquet")
    given = {"edges": str(tmp_path / "edges.csv"), "features": str(tmp_path / "features")}
    dataset = run_stage(STAGE, {"scaling": "none"}, given, tmp_path / "graph")
    assert dataset.json("columns.json") == {"node": [["x", 1], ["since", 1], ["kind", 2]]}
    assert dataset.json("scaling.json")["node"]["columns"][2]["values"] == ["a", "b/c"]
    wanted = [[1, 2023, 1, 0], [2, 2023, 1, 0], [3, 2024, 0, 1], [4, 2024, 0, 1]]
    assert HeteroGraph.open(dataset).node_feature("node", "features").tolist() == wanted
    assert not any(name.startswith("input_warning") for name in dataset.stats)


@pytest.mark.parametrize(("header", "column"), [("", "3"), ("source,target,weight\n", "weight")])
def test_negative_weights_are_not_read_and_named(tmp_path, header, column):
    """A signed edge list has labels of edges in this column, of which no warning says that they are not used."""
    edges = header + "".join(f"a{i},b{i % 7},1\n" for i in range(30)) + "a0,a1,-1\n"
    graph = made(tmp_path / "named", edges=edges)
    assert graph.dataset.stats["edges.edge"] == 62
    assert not graph.edge_sets["edge"].features
    warned = str(graph.dataset.stats["input_warning.1"])
    assert f"column {column}: a column of numbers is not used (got -1 to 1" in warned
    labels = made(tmp_path / "labels", {"other_columns": column}, edges=edges)
    assert "input_warning.1" not in labels.dataset.stats
    with pytest.raises(UserError, match="not a positive number"):
        made(tmp_path / "zero", edges=edges.replace("-1", "0"))
