"""Estimates of a whole file from a look at some parts of it."""

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.heterograph.file_sample import estimate_distinct, sample_table
from superworkflow.tasks.lib.generators.edge_lists import generate

ROOT = Path(__file__).parent.parent.parent
SHIPPED = ROOT / "flows" / "data" / "email-eu-core.txt.gz"


def test_short_file_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("a,b\nb,c\nc,d")
    assert sample_table(path) == {
        "bytes": 11, "gzipped": False, "text_bytes": 11, "rows": 3, "kinds": 3, "values": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["# x y\n1 a\n2 b\n3 a\n", "1\ta b\n2\tc\n3\tc\n", "1,a\n2,b,x\n3,a\n4,b\n", "  1   a \n2 b\n3  a\n"],
)
def test_kinds_of_the_second_column(tmp_path: Path, text: str) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(text)
    assert sample_table(path)["kinds"] == 2


def test_reading_text_starts_no_thread(tmp_path: Path) -> None:
    """A thread of Arrow's that lets go of a Python object while the interpreter ends aborts the process."""
    path = tmp_path / "edges.csv"
    path.write_text("".join(f"{i},{i + 1}\n" for i in range(10_000)))
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom superworkflow.tasks.heterograph import file_sample\n"
        "threads = lambda: len(os.listdir('/proc/self/task'))\n"
        "before = threads()\nfile_sample.sample_table(Path(sys.argv[1]))\nprint(before, threads())"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    before, after = ended.stdout.split()
    assert before == after


def test_no_table(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("one\ntwo\n")
    found = sample_table(path)
    assert found["rows"] == 2
    assert "values" not in found


@pytest.mark.parametrize("pack", [False, True])
def test_long_file_is_estimated(tmp_path: Path, pack: bool) -> None:
    text = "".join(f"{i},{i * 7919 % 400_000}\n" for i in range(400_000)).encode()
    path = tmp_path / "edges.csv"
    path.write_bytes(gzip.compress(text, 1) if pack else text)
    found = sample_table(path, len(text) // 5)
    assert found["gzipped"] is pack
    assert found["text_bytes"] == pytest.approx(len(text), rel=0.1)
    assert found["rows"] == pytest.approx(400_000, rel=0.1)


def test_parquet_knows_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"source": list(range(1000)), "target": list(range(1000))}), path)
    found = sample_table(path)
    assert (found["rows"], found["values"]) == (1000, 1000)


def test_lists_of_parquet_are_no_text(tmp_path: Path) -> None:
    """Such as the features of nodes that `generate --model communities` writes."""
    path = tmp_path / "features.parquet"
    features = pa.array([[0.5, 1.5], [2.5, 3.5]], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"node": pa.array([7, 9]), "features": features}), path)
    found = sample_table(path)
    assert found.pop("unpacked_bytes") >= features.nbytes
    assert found == {
        "bytes": path.stat().st_size, "gzipped": False, "text_bytes": path.stat().st_size, "rows": 2,
    }  # fmt: skip


def _degrees(kind: str, mean: float, nodes: int = 300_000) -> Any:
    """Degrees of a power-law or a uniform random graph, of vertices that have an edge."""
    rng = np.random.default_rng(0)
    expected = np.full(nodes, mean)
    if kind == "power law":
        expected = (np.arange(nodes) + 10.0) ** (-1 / 1.5)
        expected = np.minimum(expected * mean * nodes / expected.sum(), np.sqrt(mean * nodes))
    found = rng.poisson(expected)
    return found[found > 0]


@pytest.mark.parametrize("kind", ["power law", "uniform"])
@pytest.mark.parametrize(("mean", "share"), [(60, 0.02), (20, 0.03), (20, 0.1), (5, 0.1), (5, 0.5)])
def test_values_that_were_not_seen(kind: str, mean: float, share: float) -> None:
    degrees = _degrees(kind, mean)
    counts = np.random.default_rng(1).binomial(degrees, share)
    counts = counts[counts > 0]
    assert estimate_distinct(counts, share, degrees.sum()) == pytest.approx(len(degrees), rel=0.2)
    assert len(counts) < 0.9 * len(degrees) or share == 0.5  # that it is no matter of counting


def test_all_values_were_seen() -> None:
    assert estimate_distinct(np.array([1, 2, 90]), 1.0, 93) == 3
    assert estimate_distinct(np.array([70, 80]), 0.5, 300) == 2


@pytest.mark.parametrize("ending", ["csv", "txt.gz", "parquet"])
@pytest.mark.parametrize("model", ["chung-lu", "er"])
def test_vertices_of_a_generated_graph(tmp_path: Path, model: Any, ending: str) -> None:
    path = generate(model, 25_000, 500_000, tmp_path / f"g.{ending}", seed=1, prefix="user")
    whole = sample_table(path, 1 << 30)
    found = sample_table(path, 1 << 20)
    assert found["values"] == pytest.approx(whole["values"], rel=0.2)
    assert found["rows"] == pytest.approx(500_000, rel=0.1)


@pytest.mark.parametrize("order", ["as it is", "shuffled", "by source"])
@pytest.mark.parametrize("label", ["{}", "v{}-x"])
def test_vertices_of_a_real_graph(tmp_path: Path, order: str, label: str) -> None:
    lines = [line.split() for line in gzip.decompress(SHIPPED.read_bytes()).decode().splitlines()]
    rows = [(line[0], line[1]) for line in lines if line and line[0].isdigit()]
    if order == "shuffled":
        np.random.default_rng(0).shuffle(rows)
    elif order == "by source":
        rows.sort(key=lambda row: int(row[0]))
    path = tmp_path / "edges.txt"
    path.write_text("".join(f"{label.format(u)} {label.format(v)}\n" for u, v in rows))
    vertices = len({end for row in rows for end in row})
    assert sample_table(path)["values"] == vertices
    assert sample_table(path, path.stat().st_size // 4)["values"] == pytest.approx(vertices, rel=0.2)


def test_truncated_parquet_is_refused(tmp_path):
    path = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"a": range(1000), "b": range(1000)}), path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(UserError, match="cannot be read as Parquet") as found:
        sample_table(path)
    assert str(path) in str(found.value)
