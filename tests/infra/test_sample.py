"""What a look at the beginning of a file says about all of it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.sample import SAMPLE_BYTES, sample_table


def test_short_file_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("a,b\nb,c\nc,d\n")
    assert sample_table(path) == {"bytes": 12, "gzipped": False, "text_bytes": 12, "rows": 3, "kinds": 3}


@pytest.mark.parametrize("text", ["# x y\n1 a\n2 b\n3 a\n", "1\ta b\n2\tc\n3\tc\n", "1,a\n2,b,x\n3,a\n"])
def test_kinds_of_the_second_column(tmp_path: Path, text: str) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(text)
    assert sample_table(path)["kinds"] == 2


@pytest.mark.parametrize("pack", [False, True])
def test_long_file_is_estimated(tmp_path: Path, pack: bool) -> None:
    text = "".join(f"{i},{i * 7919 % 400_000}\n" for i in range(400_000)).encode()
    assert len(text) > 4 * SAMPLE_BYTES
    path = tmp_path / "edges.csv"
    path.write_bytes(gzip.compress(text, 1) if pack else text)
    found = sample_table(path)
    assert found["gzipped"] is pack
    assert found["text_bytes"] == pytest.approx(len(text), rel=0.1)
    assert found["rows"] == pytest.approx(400_000, rel=0.1)


def test_parquet_knows_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"source": list(range(1000)), "target": list(range(1000))}), path)
    assert sample_table(path)["rows"] == 1000
