"""Files of labels: what is read and matched, and what each fault says."""

import gzip
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage import text_file
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.label.match import match
from superworkflow.tasks.lib.edge_list.label_file import check_several, label_warnings, parse, read_labels

NODES = pa.chunked_array([["a", "b"], ["c", "10", "Smith, J"]])


def read(tmp_path, content, most=0.05, name="labels.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return match(parse(path, name), name, NODES, most)


@pytest.mark.parametrize(
    "content",
    [
        "a,x\nc,y\nb,x\n",
        "node,label\na,x\nc,y\nb,x\n",
        "label,node\nx,a\ny,c\nx,b\n",
        "node label\na x\nc y\nb x\n",
        "Node\tLabel\na\tx\nc\ty\nb\tx\n",
        "# of departments\n% more\na x\n\nc   y\nb\tx\n".replace("\t", " "),
        "node,since,label\na,1999,x\nc,2000,y\nb,2001,x\n",
        "\ufeffnode,label\r\na,x\r\nc,y\r\nb,x\r\na,x\r\n",
        pytest.param(gzip.compress(b"node,label\na,x\nc,y\nb,x\n"), id="gzip"),
    ],
)
def test_formats_give_the_same_matrix(tmp_path, content):
    labels, _ = read(tmp_path, content)
    assert labels.vertices.tolist() == [0, 1, 2]
    assert labels.names == ["x", "y"]
    assert labels.matrix.astype(int).tolist() == [[1, 0], [1, 0], [0, 1]]


def test_several_labels_quotes_blanks_and_order_by_number(tmp_path):
    labels, _ = read(tmp_path, 'node,label\n"Smith, J",10\n"Smith, J",9\na,New York\n10,2\n')
    assert labels.names == ["2", "9", "10", "New York"]
    assert labels.vertices.tolist() == [0, 3, 4]
    np.testing.assert_array_equal(labels.matrix[2], [False, True, True, False])


def test_a_small_share_of_unknown_nodes_is_counted_and_dropped(tmp_path):
    content = "a,x\nz1,y\nb,y\nz2,y\nz3,q\nz4,q\na,x\n"
    with pytest.raises(UserError) as caught:
        read(tmp_path, content)
    message = str(caught.value)
    assert message.startswith("labels.csv:2: 57.1% of the labels are for nodes that are not in the graph: 'z1'")
    assert "'z3' on line 5 and 1 more (got 4)" in message
    assert "--set label.max_unknown=0.58" in message
    labels, unknown = read(tmp_path, content, most=0.8)
    assert (unknown, labels.names) == (4, ["x", "y"])
    repeated, unknown = read(tmp_path, content + "z1,y\nb,y\n", most=0.8)
    assert (unknown, repeated.names) == (5, ["x", "y"])
    np.testing.assert_array_equal(repeated.matrix, labels.matrix)


def test_a_small_file_that_grows_takes_little_memory_and_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(text_file, "ALWAYS_UNPACKED", 1 << 19)
    packed = gzip.compress(b"a,x\nb,y\n" * (1 << 16))
    tracemalloc.start()
    assert read(tmp_path, packed)[0].vertices.tolist() == [0, 1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20  # of 131072 rows
    with pytest.raises(UserError, match=r"labels.csv: the compressed file grows beyond 100 times .* uncompressed"):
        read(tmp_path, gzip.compress(b"a,x\nb,y\n" * (1 << 16) + b"a"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,x\nb\n", r"labels.csv:2: 1 column instead of 2 \(got 'b'\)\. Rows are `node,label`"),
        ("a,x\nb,y,z\n", r"labels.csv:2: 3 columns instead of 2"),
        ("a,x\n,y\n", r"labels.csv:2: the node is empty \(got ',y'\)"),
        ("# nothing\n\n", "no labels in this file"),
        ("node,label\n", "no labels in this file"),
        ("a,x\nb,x\n", r"all nodes have the same label.*got 'x'.*two kinds"),
        ("node,age,size\na,1,2\n", "labels.csv:1: the header has no column `label`"),
        (b"a,x\nb,\xff\xfe\n", r"labels.csv:\d: not text in UTF-8"),
        pytest.param(gzip.compress(b"a,x\nb,y\n" * 1000)[:-20], "the file cannot be decompressed", id="cut-gzip"),
        pytest.param(
            gzip.compress(b"a,x\n") + gzip.compress(b"b,y" * (1 << 20)) * 64,  # each member of the file is the same
            "labels.csv, line 2: the line is longer than 1048576 bytes",
            id="long-line-in-gzip",
        ),
        ("a,x\nb," + "y" * (1 << 21), "line 2: the line is longer"),
    ],
)
def test_faults_say_where_what_and_what_to_do(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, content)


def _rows(tmp_path, rows):
    path = tmp_path / "labels.csv"
    path.write_text("node,label\n" + "\n".join(rows) + "\n")
    return parse(path, "labels.csv")


def test_one_second_label_among_many_is_refused_with_its_line(tmp_path):
    rows = [f"v{i},{i % 3}" for i in range(500)]
    check_several(_rows(tmp_path, [*rows, "v7,1"]), "label.several_labels")  # the same label again
    with pytest.raises(UserError) as raised:
        check_several(_rows(tmp_path, [*rows, "v7,2"]), "label.several_labels")
    text = str(raised.value)
    assert "labels.csv:502" in text
    assert "node 'v7' has a second label, and only 1 of 500 nodes have several" in text
    assert "2, after 1" in text
    assert "label.several_labels=true" in text
    check_several(_rows(tmp_path, [*rows, *(f"v{i},9" for i in range(5))]), "x")  # one in a hundred


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (["Action|Comedy", "Action", "Drama"], "Action|Comedy"),
        (["a;b", "c;b", "d"], ";"),
        (["x|1", "y|2", "z"], None),
        (["C;", "D"], None),
        (["Action", "Drama"], None),
    ],
)
def test_joined_labels_are_doubted(tmp_path, labels, found):
    warnings = label_warnings(_rows(tmp_path, [f"v{i},{label}" for i, label in enumerate(labels)]), "labels.csv")
    assert len(warnings) == (found is not None)
    if found:
        assert found in str(warnings[0])
        assert ".explode()" in str(warnings[0])


PARQUET = {
    "text": pa.table({"node": ["a", "c", "b"], "label": ["x", "y", "x"]}),
    "other-order": pa.table({"label": pa.array(["x", "y", "x"]).dictionary_encode(), "id": ["a", "c", "b"]}),
    "lists": pa.table({"node": ["a", "c", "b", "10"], "label": [["x"], ["y"], ["x"], []]}),
    "missing": pa.table({"node": ["a", "c", "10", "b"], "label": ["x", "y", None, "x"]}),
}


@pytest.mark.parametrize("form", PARQUET)
def test_parquet_gives_the_same_matrix(tmp_path, form):
    pq.write_table(PARQUET[form], tmp_path / "table.parquet", row_group_size=2)
    labels, _ = read(tmp_path, (tmp_path / "table.parquet").read_bytes())
    assert labels.names == ["x", "y"]
    assert labels.matrix.astype(int).tolist() == [[1, 0], [1, 0], [0, 1]]


def test_numbers_in_parquet_are_their_digits_and_a_fault_has_its_row(tmp_path):
    table = pa.table({"node": [10, 20, 30], "label": [1.0, float("nan"), 2.0], "split": ["train", "", "test"]})
    pq.write_table(table, tmp_path / "labels.parquet")
    rows = parse(tmp_path / "labels.parquet", "labels.parquet", splits=True)
    assert (rows.nodes, rows.labels, rows.splits, rows.missing) == (["10", "30"], ["1", "2"], ["train", "test"], 1)
    assert rows.place(1) == "labels.parquet:3"
    pq.write_table(pa.table({"node": ["a"], "label": [{"x": 1}]}), tmp_path / "labels.parquet")
    with pytest.raises(UserError, match=r"labels.parquet, column label: .*no names"):
        parse(tmp_path / "labels.parquet", "labels.parquet")


@pytest.mark.parametrize("header", [True, False])
def test_folders_hold_columns(tmp_path, header):
    """The split, or the label, as Hive's folders have them."""
    for split, nodes in (("train", "ab"), ("test", "c")):
        (tmp_path / "s" / f"split={split}").mkdir(parents=True)
        text = "node,label\n" * header + "".join(f"{node},x\n" for node in nodes)
        (tmp_path / "s" / f"split={split}" / "part-0.csv").write_text(text)
    rows, warnings = read_labels(Source.of(tmp_path / "s"), tmp_path, pa.array(["a"]), splits=True)
    found = dict(zip(rows.nodes, zip(rows.labels, rows.splits, strict=True), strict=True))
    assert found == {"a": ("x", "train"), "b": ("x", "train"), "c": ("x", "test")}
    for label in ("New York", "__HIVE_DEFAULT_PARTITION__"):
        folder = tmp_path / "l" / f"label={label.replace(' ', '%20')}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"node": [label[:1]]}), folder / "part-0.parquet")
    rows, warnings = read_labels(Source.of(tmp_path / "l"), tmp_path, pa.array(["N"]))
    assert (rows.nodes, rows.labels, rows.missing) == (["N"], ["New York"], 1)
    assert not warnings


@pytest.mark.parametrize(
    ("header", "row", "named"),
    [
        ("id,fold,label,split", "v1,3,a,train", ["fold"]),
        ("node,label,time", "v1,a,5", []),
        (",node,label", "0,v1,a", []),
    ],
)
def test_columns_that_are_not_read_are_named(tmp_path, header, row, named):
    (tmp_path / "labels.csv").write_text(f"{header}\n{row}\n")
    for splits in (False, True):
        rows = parse(tmp_path / "labels.csv", "labels.csv", splits)
        assert [each.value for each in label_warnings(rows, "labels.csv")] == named


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("iata,state\na,AK\nb,TX\n", True),
        ("iata,AK\na,AK\nb,TX\n", False),  # its label is one of others
        ("iata,state\nzz,AK\na,TX\n", False),  # the second node is unknown too
        ("b,state\na,AK\nb,TX\n", False),
    ],
)
def test_a_first_row_about_no_node_is_a_header(tmp_path, text, header):
    (tmp_path / "l.csv").write_text(text)
    rows, warnings = read_labels(Source.of(tmp_path / "l.csv"), tmp_path, pa.array(["a", "b"]))
    assert (rows.nodes[0] in ("iata", "b")) is not header
    assert rows.place(0) == f"{tmp_path}/l.csv:{1 + header}"
    assert [("read as a header" in str(each), "iata, state" in str(each)) for each in warnings] == [
        (True, True)
    ] * header
