"""Each bad input gives one message with file, line or field, value and remedy."""

import gzip
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from tests.tasks.index_helpers import run_index

ENGINES = pytest.mark.parametrize("engine", ["compiled", "relational"])


def message(path, engine, **params) -> str:
    with pytest.raises(UserError) as caught:
        run_index(path, engine, **params)
    assert str(path) in str(caught.value) or "index." in str(caught.value)
    assert caught.value.remedy
    return str(caught.value)


@ENGINES
def test_missing_and_empty_files(tmp_path, engine):
    assert "no such file" in message(tmp_path / "absent.csv", engine)
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    assert "empty" in message(empty, engine)
    empty.write_text("# only\n\n# comments\n")
    assert "no rows" in message(empty, engine)
    for header in ("source,target\n", "source,target", "source,target\r\n", "source,target\r"):
        empty.write_bytes(header.encode())
        assert "no rows" in message(empty, engine)
        empty.write_bytes(gzip.compress(header.encode()))
        assert "no rows" in message(empty, engine)


@ENGINES
def test_no_edges_left(tmp_path, engine):
    path = tmp_path / "loops.txt"
    path.write_text("a a\nb b\n")
    text = message(path, engine)
    assert "self-loop" in text
    assert "2 rows" in text


@ENGINES
@pytest.mark.parametrize(("name", "mark"), [("g.csv", ","), ("g.tsv", "\t"), ("g.txt", " ")])
def test_a_row_with_too_few_columns(tmp_path, engine, name, mark):
    path = tmp_path / name
    rows = [f"a{i}{mark}b{i}" for i in range(5000)]
    rows[3210] = "lonely"
    path.write_text("# comment\n" + "\n".join(rows))
    text = message(path, engine)
    assert "line 3212" in text
    assert "'lonely'" in text
    assert "too few columns" in text


@ENGINES
def test_an_empty_node(tmp_path, engine):
    path = tmp_path / "g.csv"
    path.write_text("a,b\nb,\nc,d\n")
    assert "line 2: the row has an empty node (got 'b,')" in message(path, engine)


@ENGINES
@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "heavy", "1e99", "1e-99", "0x10", "1_0", "--1", "1e"])
def test_a_weight_that_is_not_a_positive_number(tmp_path, engine, weight):
    path = tmp_path / "g.csv"
    path.write_text(f"source,target,weight\na,b,1\nb,c,0.5\nc,d,{weight}\n")
    text = message(path, engine)
    assert "line 4: the weight is not a positive number" in text
    assert repr(weight) in text
    assert "index.weighted" in text


@ENGINES
def test_an_empty_weight(tmp_path, engine):
    path = tmp_path / "g.csv"
    path.write_text("source,target,weight\na,b,1\nb,c,\n")
    assert "line 3: the weight is not a positive number" in message(path, engine)


@ENGINES
def test_lines_are_counted_in_quoted_and_compressed_files(tmp_path, engine):
    path = tmp_path / "g.csv.gz"
    path.write_bytes(gzip.compress(b'source,target,weight\n"a\nx",b,1\n"b",c,0\n'))
    text = message(path, engine)
    assert "line 4: the weight is not a positive number (got '0')" in text


@ENGINES
def test_bad_rows_of_parquet(tmp_path, engine):
    path = tmp_path / "g.parquet"
    pq.write_table(pa.table({"source": ["a", "b"], "target": ["b", "c"], "weight": [1.0, np.nan]}), path)
    assert "row 2: the weight is not a positive number" in message(path, engine)
    pq.write_table(pa.table({"source": ["a", None], "target": ["b", "c"]}), path)
    assert "row 2: the row has an empty node" in message(path, engine)
    pq.write_table(pa.table({"source": ["a"]}), path)
    assert "too few columns" in message(path, engine)


@ENGINES
@pytest.mark.parametrize("field", ["source", "target", "weight"])
def test_wrong_column_names(tmp_path, engine, field):
    path = tmp_path / "g.csv"
    path.write_text("buyer,seller,price\na,b,1\n")
    text = message(path, engine, **{field: "wrong"})
    assert f"index.{field}" in text
    assert "'wrong'" in text
    assert "buyer, seller, price" in text


@ENGINES
def test_duplicates_can_be_refused(tmp_path, engine):
    path = tmp_path / "g.csv"
    path.write_text("a,b\nb,c\nb,a\n")
    text = message(path, engine, duplicates="error")
    assert "line 3" in text
    assert "first in line 1" in text
    assert run_index(path, engine, duplicates="error", directed=True).stats["edges"] == 3


@ENGINES
def test_text_that_is_not_utf8(tmp_path, engine):
    path = tmp_path / "g.csv"
    path.write_bytes("a,b\nb,Ã\n".encode("latin-1"))
    text = message(path, engine)
    assert "UTF-8" in text
    assert "line 2" in text


@ENGINES
def test_a_truncated_gzip(tmp_path, engine):
    path = tmp_path / "g.csv.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d,%d\n" % (i, i * 7919 % 10007) for i in range(100_000)))[:-5000])
    assert "cannot be decompressed" in message(path, engine)


@ENGINES
def test_a_damaged_page_late_in_a_parquet_file(tmp_path, engine):
    """The first batch is whole: later ones come through Arrow, which knows DuckDB's errors as ones of files."""
    path, rows = tmp_path / "g.parquet", 1_200_000
    table = pa.table({"source": np.arange(rows), "target": np.arange(rows) // 2})
    pq.write_table(table, path, row_group_size=rows // 4, compression="none", use_dictionary=False)
    offset = pq.ParquetFile(path).metadata.row_group(3).column(0).data_page_offset
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(b"\xff" * 40)
    assert "damaged" in message(path, engine)


SHORT = """
import sys
from superworkflow.__main__ import main
from superworkflow.tasks.lib.edge_list import duckdb_reader
connect = duckdb_reader.connect
duckdb_reader.connect = lambda memory, threads, scratch: connect(4_000_000, threads, scratch)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("engine", "kind"), [("relational", "csv"), ("relational", "parquet"), ("compiled", "parquet")]
)
@pytest.mark.parametrize(
    "events", [pytest.param(False, marks=pytest.mark.slow), True], ids=["for people", "for a launcher"]
)
def test_too_little_memory_is_told_with_what_to_do(tmp_path, engine, kind, events):
    path, rng = tmp_path / f"g.{kind}", np.random.default_rng(1)
    nodes = [[f"a-node-with-a-name-{number:012d}" for number in side] for side in rng.integers(0, 50_000, (2, 200_000))]
    if kind == "csv":
        path.write_text("".join(f"{source},{target}\n" for source, target in zip(*nodes, strict=True)))
    else:
        pq.write_table(pa.table(nodes, ["source", "target"]), path)
    given = ["stage", "index", "--input", f"edges={path}", "--output", str(tmp_path / "out"), "--memory", "256Mi"]
    given += ["--params-json", f'{{"engine": "{engine}"}}', *(["--events"] if events else [])]
    done = subprocess.run([sys.executable, "-c", SHORT, *given], capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "Traceback" not in said
    words = ("g.csv" if kind == "csv" else "g.parquet", "too little memory", "memory: 256.0 MiB", "engine: spark")
    assert all(word in said for word in words), said
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_contradicting_parameters(tmp_path):
    path = tmp_path / "g.csv"
    path.write_text("a,b\n")
    assert "no header" in message(path, "compiled", header=False, source="a")
    assert "delimiter" in message(path, "compiled", format="tsv", delimiter=",")
    assert "one ASCII character" in message(path, "compiled", delimiter=",,")
    path.write_text("a,b,c\n1,2,3\n")
    assert "used twice" in message(path, "compiled", source="a", target="a")


def test_a_file_that_is_no_parquet(tmp_path):
    path = tmp_path / "g.csv"
    path.write_text("a,b\n")
    assert "not a Parquet file" in message(path, "compiled", format="parquet")
