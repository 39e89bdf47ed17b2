"""Odd files have one outcome on every engine: the same graph, or the same error."""

from __future__ import annotations

import gzip
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage import text_file
from superworkflow.infra.storage.location import Location
from superworkflow.tasks.heterograph.file_sample import sample_table
from superworkflow.tasks.index import IndexParams, spark_rows
from superworkflow.tasks.lib.edge_list.detect import detect
from tests.spark import needs_spark
from tests.tasks.index_helpers import run_index
from tests.tasks.odd_files import ODD_FILES, Odd
from tests.tasks.test_index_on_spark import make

EVERY_ODD_FILE = pytest.mark.parametrize("odd", ODD_FILES, ids=lambda odd: odd.name)


def written(odd: Odd, folder: Path) -> Path:
    path = folder / odd.name
    path.write_bytes(odd.data)
    return path


def edges_of(rows: list[tuple[Any, ...]]) -> dict[tuple[str, str], float]:
    """Arcs of an undirected graph in which no edge occurs with two weights."""
    arcs = {}
    for source, target, *weight in rows:
        arcs[source, target] = arcs[target, source] = float(np.float32(weight[0] if weight else 1.0))
    return arcs


@EVERY_ODD_FILE
def test_in_process(tmp_path: Path, odd: Odd) -> None:
    path, messages = written(odd, tmp_path), []
    for engine in ("compiled", "relational"):
        if odd.error:
            with pytest.raises(UserError) as caught:
                run_index(path, engine, **odd.params)
            messages.append(str(caught.value))
            assert odd.error in messages[-1]
            assert str(path) in messages[-1]
            assert caught.value.remedy
        else:
            graph = run_index(path, engine, **odd.params)
            assert graph.arcs() == edges_of(odd.rows)
            assert graph.stats["rows_read"] == len(odd.rows)
            assert (graph.weights is not None) == (len(odd.rows[0]) == 3)
    assert len(set(messages)) <= 1


def executor_rows(path: Path, params: IndexParams) -> list[tuple[Any, ...]] | None:
    """Rows as executors of Spark read them, part by part; None when one of them is bad."""
    with path.open("rb") as stream:
        dialect = detect(stream, params, str(path))
    for parts in (spark_rows.parts_of(Location.of(path), dialect), [spark_rows.FilePart()]):
        numbers = pa.RecordBatch.from_pydict({"id": range(len(parts))})
        batches = spark_rows._read([(str(path), dialect)], parts, iter([numbers]))
        rows = list(chain.from_iterable(zip(*batch.to_pydict().values(), strict=True) for batch in batches))
        if not any(value is None for row in rows for value in row):
            return rows
        if dialect.kind != "csv":
            break
    return None


@EVERY_ODD_FILE
@pytest.mark.parametrize("part_bytes", [5, 1 << 26])
def test_as_executors_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: Odd, part_bytes: int) -> None:
    if part_bytes * 10_000 < len(odd.data):
        part_bytes = 100_000
    monkeypatch.setattr(spark_rows, "PART_BYTES", part_bytes)
    path = written(odd, tmp_path)
    rows: list[tuple[Any, ...]] | None = None
    said = ""
    try:
        rows = executor_rows(path, IndexParams(**odd.params))
    except UserError as error:
        said = str(error)
    assert odd.error in said or not said
    if "heavy-sum" in odd.name:
        assert rows
    elif odd.error:
        assert rows is None
    else:
        assert rows is not None
        assert [row[:2] for row in rows] == [row[:2] for row in odd.rows]
        assert edges_of(rows) == edges_of(odd.rows)


@needs_spark
@pytest.mark.usefixtures("java")
def test_on_spark(tmp_path: Path) -> None:
    """One that Spark itself finds; what its executors read of the others is tested without it, which takes long."""
    (odd,) = (each for each in ODD_FILES if each.name == "heavy-sum.csv")
    path, messages = written(odd, tmp_path), []
    for engine in ("in-process", "spark"):
        with pytest.raises(UserError) as caught:
            make(path, tmp_path / engine, engine, **odd.params)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("engine", ["compiled", "relational"])
@pytest.mark.parametrize("line", [b"a b\n", b"a,b\n", b'"a",b\n'])
def test_a_gzip_file_that_grows_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, engine: str
) -> None:
    monkeypatch.setattr(text_file, "ALWAYS_UNPACKED", 1 << 19)
    path = tmp_path / "g.gz"
    rows = (1 << 19) // len(line)
    path.write_bytes(gzip.compress(line * rows))
    assert run_index(path, engine, format="auto", header=False).stats["rows_read"] == rows
    path.write_bytes(gzip.compress(line * (rows + 1)))
    with pytest.raises(UserError, match=r"g.gz: .* grows beyond 100 times .* give the file uncompressed"):
        run_index(path, engine, header=False)


def test_a_gzipped_parquet_file_that_grows_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_file, "ALWAYS_UNPACKED", 1 << 10)
    path = tmp_path / "g.parquet.gz"
    path.write_bytes(gzip.compress(b"PAR1" + bytes(1 << 20)))
    with pytest.raises(UserError, match="grows beyond 100 times"):
        run_index(path)


@EVERY_ODD_FILE
def test_plans_take_samples_of_them(tmp_path: Path, odd: Odd) -> None:
    path = written(odd, tmp_path)
    if "decompressed" in odd.error:
        with pytest.raises(UserError, match="decompressed"):
            sample_table(path)
        return
    found = sample_table(path)
    assert found["bytes"] == len(odd.data)
    if odd.rows and "comment" not in odd.name and '"' not in str(odd.rows):
        assert abs(found["rows"] - len(odd.rows)) <= 9
