"""Forms of files: formats, headers, compression, labels of any kind."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tasks.index_helpers import run_index

ENGINES = ("compiled", "relational")
PATH_GRAPH = {("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")}

TEXTS = {
    "blanks.txt": "a b\nb c\n",
    "runs.txt": "  a \t b  \n\n\tb   c",
    "dos.txt": "a b\r\nb c \r\n\r\n",
    "comments.txt": "# Nodes: 3\n% more\na b\n# between\nb c\n",
    "plain.csv": "a,b\nb,c\n",
    "dos.csv": "a,b\r\nb,c\r\n",
    "bom.csv": "\ufeffa,b\nb,c\n",
    "usual.csv": "source,target\na,b\nb,c",
    "names.csv": "src,dst,other\na,b,9\nb,c,9\n",
    "swapped.csv": "target,x,source\nb,1,a\nc,1,b\n",
    "commented.csv": "# made by hand\nsource,target\na,b\nb,c\n",
    "semicolon.csv": "a;b\nb;c\n",
    "tabs.tsv": "a\tb\nb\tc\n",
    "tabs.txt": "a\tb\nb\tc\n",
    "blank-lines.csv": "a,b\n\nb,c\n\n",
    "more.csv": "a,b,x,y\nb,c,x,y\n",
    "quoted.csv": '"a","b"\n"b","c"\n',
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_text_formats(tmp_path, name, packed, engine):
    path = tmp_path / name
    data = TEXTS[name].encode()
    path.write_bytes(gzip.compress(data) if packed else data)  # by its first bytes, not its name
    graph = run_index(path, engine)
    assert graph.arcs().keys() == PATH_GRAPH
    assert graph.stats["rows_read"] == 2
    assert graph.weights is None


def test_gzip_of_several_members(tmp_path):
    path = tmp_path / "g.txt.gz"
    path.write_bytes(gzip.compress(b"a b\n") + gzip.compress(b"b c\n"))
    for engine in ENGINES:
        assert run_index(path, engine).arcs().keys() == PATH_GRAPH


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("packed", [False, True])
def test_parquet(tmp_path, packed, engine):
    path = tmp_path / "g.parquet"
    pq.write_table(pa.table({"w": [1.5, 2.5], "from": ["a", "b"], "to": ["b", "c"]}), path)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    graph = run_index(path, engine)
    assert graph.arcs() == {("a", "b"): 1.5, ("b", "a"): 1.5, ("b", "c"): 2.5, ("c", "b"): 2.5}


@pytest.mark.parametrize("engine", ENGINES)
def test_parquet_of_integers_gives_their_digits(tmp_path, engine):
    path = tmp_path / "g.parquet"
    pq.write_table(pa.table({"u": pa.array([1, 2], pa.int32()), "v": [20, 10**15]}), path)
    assert sorted(run_index(path, engine).labels) == ["1", "1000000000000000", "2", "20"]


@pytest.mark.parametrize("engine", ENGINES)
def test_labels_stay_as_written(tmp_path, engine):
    path = tmp_path / "g.csv"
    labels = ["007", "7", "7.0", " b ", "Ångström", "日本", 'say ""hi""', "a,b", "two\nlines", "true", "NULL", "x" * 99]
    path.write_text("source,target\n" + "".join(f'hub,"{label}"\n' for label in labels))
    graph = run_index(path, engine)
    assert sorted(graph.labels) == sorted([*(label.replace('""', '"') for label in labels), "hub"])


@pytest.mark.parametrize("engine", ENGINES)
def test_unquoted_labels_stay_as_written(tmp_path, engine):
    path = tmp_path / "g.tsv"
    labels = [
        "007",
        "7",
        " b ",
        'a "quoted" word',
        "NULL",
        "nan",
        "1e5",
        "#tag",
        "a,b",
        "ß",
        "x" * 99,
        "y" * 15,
        "y" * 16,
    ]
    path.write_text("".join(f"hub\t{label}\n" for label in labels))
    assert sorted(run_index(path, engine, header=False).labels) == sorted([*labels, "hub"])


@pytest.mark.parametrize("engine", ENGINES)
def test_header(tmp_path, engine):
    path = tmp_path / "g.csv"
    path.write_text("x,y\n1,2\n2,3\n")
    assert sorted(run_index(path, engine).labels) == ["1", "2", "3"]  # numbers below words
    assert sorted(run_index(path, engine, header=False).labels) == ["1", "2", "3", "x", "y"]
    path.write_text("4 2\n1 2\n2 3\n")  # a count of vertices and edges looks like an edge …
    assert "4" in run_index(path, engine, format="whitespace").labels
    assert "4" not in run_index(path, engine, format="whitespace", header=True).labels  # … unless `header` says so


@pytest.mark.parametrize("engine", ENGINES)
def test_columns_by_name(tmp_path, engine):
    path = tmp_path / "g.csv"
    path.write_text("id,buyer,seller,price\n1,a,b,2.5\n2,b,c,4\n")
    graph = run_index(path, engine, source="buyer", target="seller", weight="price", directed=True)
    assert graph.arcs() == {("a", "b"): 2.5, ("b", "c"): 4.0}


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_are_found_or_told(tmp_path, engine):
    path = tmp_path / "g.txt"
    path.write_text("a b 2\nb c 0.5\n")
    assert set(run_index(path, engine).arcs().values()) == {2.0, 0.5}
    assert run_index(path, engine, weighted=False).weights is None
    path.write_text("a b x\nb c y\n")
    assert run_index(path, engine).weights is None


@pytest.mark.parametrize("engine", ENGINES)
def test_delimiter(tmp_path, engine):
    path = tmp_path / "g.txt"
    path.write_text("a|b\nb|c\n")
    assert run_index(path, engine, delimiter="|").arcs().keys() == PATH_GRAPH


@pytest.mark.parametrize("engine", ENGINES)
def test_blanks_separate_a_csv_without_commas(tmp_path, engine):
    path = tmp_path / "g.csv"
    path.write_text("a b 2\nb c 0.5\n")
    assert run_index(path, engine).arcs() == {("a", "b"): 2.0, ("b", "a"): 2.0, ("b", "c"): 0.5, ("c", "b"): 0.5}


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("origin,destination,day,delay\na,b,2001/01/01 00:47,5\nb,c,2001/01/02 10:00,-3\n", True),
        ("origin,destination,day\na,b,2001/01/01\nb,c,2001/01/02\n", True),
        ("a,b,2001/01/01\nb,c,2001/01/02\n", False),
        ("a,b,x,NA\nb,c,y,4\n", False),
        ("1,b,x,four\n2,c,y,4\n", False),
    ],
)  # fmt: skip
def test_a_header_is_found_by_numbers_or_dates_below_it(tmp_path, text, header):
    path = tmp_path / "g.csv"
    path.write_text(text)
    assert run_index(path).labels.count("origin") == 0
    assert run_index(path).stats["edges"] == text.count("\n") - header


def test_real_graphs(tmp_path, shared_data):
    for name, nodes, edges, header in (
        ("email-eu-core/email-Eu-core.txt", None, None, "auto"),
        ("ego-facebook/ego-facebook.txt", 4039, 88234, True),
    ):
        path = tmp_path / name.replace("/", "-")
        path.write_bytes((shared_data / name).read_bytes())
        graph = run_index(path, header=header)
        if nodes:
            assert (graph.stats["vertices"], graph.stats["edges"]) == (nodes, edges)
        assert run_index(path, "relational", header=header).arcs() == graph.arcs()
