"""Odd files have one outcome on every engine: the same graph, or the same error."""

import gzip
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage import text_file
from superworkflow.infra.storage.location import Location
from superworkflow.tasks.heterograph.file_sample import sample_table
from superworkflow.tasks.index import IndexParams, row_parts
from superworkflow.tasks.lib.edge_list.detect import detect
from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs
from tests.members import IN_TURN
from tests.tasks.index_helpers import run_index
from tests.tasks.odd_files import ODD_FILES, Odd
from tests.tasks.test_index_on_members import make

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


def rows_of(item: row_parts.RowPart) -> Iterator[tuple[Any, ...]]:
    columns = [each.to_pylist() for each in item.ids()]
    if item.dialect.weighted:
        columns.append(item.kept.array(item.weights_name, np.float32).tolist())
    return zip(*columns, strict=True)


def executor_rows(path: Path, params: IndexParams) -> list[tuple[Any, ...]] | None:
    """Rows as tasks read them, part by part; None when one of them is bad."""
    with path.open("rb") as stream:
        dialect = detect(stream, params, str(path))
    for parts in (row_parts.parts_of(Location.of(path), dialect), [row_parts.FilePart()]):
        items = [
            row_parts.RowPart(TaskOutputs(str(path.parent)), n, str(path), dialect, each)
            for n, each in enumerate(parts)
        ]
        if not any(row_parts.scan_rows(item).bad for item in items):
            return list(chain.from_iterable(map(rows_of, items)))
        if dialect.kind != "csv":
            break
    return None


@EVERY_ODD_FILE
@pytest.mark.parametrize("part_bytes", [5, 1 << 26])
def test_as_tasks_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: Odd, part_bytes: int) -> None:
    if part_bytes * 10_000 < len(odd.data):
        part_bytes = 100_000
    monkeypatch.setattr(row_parts, "PART_BYTES", part_bytes)
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


@pytest.mark.usefixtures("in_turn")
def test_in_parts(tmp_path: Path) -> None:
    """One that Spark itself finds; what its executors read of the others is tested without it, which takes long."""
    (odd,) = (each for each in ODD_FILES if each.name == "heavy-sum.csv")
    path, messages = written(odd, tmp_path), []
    for engine in ("in-process", IN_TURN):
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
