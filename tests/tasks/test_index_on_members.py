"""The index stage on members: the same files as in process, from many small parts of the input and of the graph.

Tasks run in turn here; `test_on_members` has the engines.
"""

import gzip
import io
import random
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import PARTS_FOLDER
from superworkflow.infra.storage.store import Store
from superworkflow.tasks.index import STAGE, IndexParams, on_members, row_parts
from superworkflow.tasks.index.row_parts import FilePart, whole_lines
from superworkflow.tasks.lib.edge_list.detect import SAMPLE_BYTES, detect
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from tests.members import IN_TURN


@pytest.fixture(autouse=True)
def small_parts(in_turn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts, ranges and blocks of small files."""
    monkeypatch.setattr(row_parts, "PART_BYTES", 30_000)
    monkeypatch.setattr(on_members, "RANGE_ROWS", 2500)
    monkeypatch.setattr(on_members, "BLOCK_ARCS", 4000)
    monkeypatch.setattr(on_members, "BLOCK_VERTICES", 300)


def edge_rows(count: int) -> list[tuple[str, str, float]]:
    """Rows with string labels, hubs, self-loops and repeated edges."""
    draw = random.Random(count)

    def label() -> str:
        return draw.choice([f"v{int(draw.paretovariate(0.5)) % 700}", f"ä{draw.randrange(30)}", "007", "7"])

    loop = [("alone", "alone", 1.0)]
    return loop + [(label(), label(), round(draw.random() + 0.1, 3)) for _ in range(count)]


def make(path: Path | str, output: Path | str, engine: str, cpu: int = 2, **params: Any) -> Dataset:
    resources, progress = Resources(cpu=cpu, memory=1 << 30), Progress("index", stream=io.StringIO())
    return execute(STAGE, params, {"edges": str(path)}, str(output), resources, progress, engine).dataset


def same(path: Path, folder: Path, **params: Any) -> Dataset:
    """Make it in process and in parts, hold one against the other; needs `in_turn`."""
    here = make(path, folder / "one", "in-process", cpu=1, **params)
    two = make(path, folder / "two", "in-process", cpu=2, **params)
    there = make(path, folder / "parts", IN_TURN, **params)
    assert there.manifest.files == here.manifest.files == two.manifest.files
    assert dict(there.stats) == dict(here.stats)
    assert not (folder / "parts" / PARTS_FOLDER).exists()
    return there


def test_the_same_files_as_in_process(tmp_path: Path) -> None:
    text = "source,target,weight\n" + "".join(f"{u},{v},{w}\n" for u, v, w in edge_rows(9000))
    (tmp_path / "edges.csv").write_text(text)
    made = same(tmp_path / "edges.csv", tmp_path, directed=True, duplicates="max", max_degree=9)
    assert made.stats["self_loops_dropped"] > 1
    assert made.stats["isolated_vertices"] >= 1
    assert made.stats["trimmed_edges"] > 0
    assert made.stats["vertices"] > 300  # more than one block


def test_row_groups_of_parquet(tmp_path: Path) -> None:
    rows = edge_rows(3000)
    columns = dict(zip(("from", "to", "weight"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), tmp_path / "edges.parquet", row_group_size=1000)
    made = same(tmp_path / "edges.parquet", tmp_path)
    assert made.stats["rows_read"] == 3001


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_between_two_times(tmp_path: Path, kind: str) -> None:
    path, times = tmp_path / f"edges.{kind}", [f"2004-0{1 + row % 9}-01T00:00:00Z" for row in range(3001)]
    columns = [*map(list, zip(*edge_rows(3000), strict=True)), times]
    if kind == "parquet":
        pq.write_table(pa.table(columns, ["from", "to", "weight", "time"]), path, row_group_size=1000)
    else:
        rows = "".join(f"{u},{v},{w},{t}\n" for u, v, w, t in zip(*columns, strict=True))
        path.write_text(f"from,to,weight,time\n{rows}")
    made = same(path, tmp_path, from_time="2004-03-01", until="2004-06-01")
    assert made.stats["rows_read"] == sum("2004-03" <= time < "2004-06" for time in times)


def test_through_an_object_store(s3_store: Store, tmp_path: Path) -> None:
    (tmp_path / "edges.tsv").write_text("".join(f"{u}\t{v}\n" for u, v, _ in edge_rows(9000)))
    s3_store.root.join("edges.tsv").upload(tmp_path / "edges.tsv")
    there = make(s3_store.root.join("edges.tsv").uri, s3_store.root.join("graph").uri, IN_TURN)
    here = make(tmp_path / "edges.tsv", tmp_path / "here", "in-process")
    assert there.manifest.files == here.manifest.files
    assert there.digest == here.digest
    assert there.location.walk_files() == ["indices.npy", "indptr.npy", "manifest.json", "vertices.parquet"]


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("a,b,1\nb,c,nan\n", {}),
        ("a,b\nb,c\nb,a\n", {"duplicates": "error"}),
    ],
    ids=["weight", "duplicate"],
)
def test_errors_are_those_of_the_stage_in_process(tmp_path: Path, text: str, params: dict[str, Any]) -> None:
    (tmp_path / "edges.csv").write_text("source,target,weight\n"[: None if ",1" in text else 0] + text)
    messages = []
    for engine in ("in-process", IN_TURN):
        with pytest.raises(UserError) as raised:
            make(tmp_path / "edges.csv", tmp_path / "none", engine, **params)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert Dataset.find(tmp_path / "none") is None


def test_every_line_is_in_one_part() -> None:
    draw = random.Random(5)
    text = b"header\n" + b"".join(b"x" * draw.choice([0, 1, 5, 40]) + b"\n" for _ in range(300)) + b"last"
    for size in (1, 2, 7, 64, 10_000):
        parts = [
            whole_lines(io.BytesIO(text), start, min(start + size, len(text)), 7) for start in range(7, len(text), size)
        ]
        assert b"".join(parts) == text[7:]
        assert all(part.endswith(b"\n") for part in list(filter(None, parts))[:-1])


def test_of_a_text_no_more_is_read_than_tells_how_it_is_written(tmp_path: Path) -> None:
    text = "source\ttarget\n" + "".join(f"{u}\t{v}\n" for u, v, _ in edge_rows(90_000))
    for name, data in (("a.tsv", text.encode()), ("a.tsv.gz", gzip.compress(text.encode(), 0))):
        (tmp_path / name).write_bytes(data)
        with (tmp_path / name).open("rb") as stream:
            found = detect(stream, IndexParams(), name)
            assert stream.tell() < 2 * SAMPLE_BYTES < len(data)
        assert found == Dialect("tsv", "\t", name.endswith(".gz"), 14, 1, (0, 1, -1), ("source", "target"))
    assert row_parts.parts_of(Location.of(tmp_path / "a.tsv.gz"), found) == [FilePart()]


def test_a_damaged_part_of_parquet_is_an_error_of_its_own(tmp_path: Path) -> None:
    """It is not tried again, as a bucket that does not answer is."""
    path = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"source": list(range(5000)), "target": list(range(5000))}), path, row_group_size=1000)
    with path.open("rb") as stream:
        dialect = detect(stream, IndexParams(), str(path))
    part = row_parts.parts_of(Location.of(path), dialect)[2]
    read = partial(row_parts._parquet_rows, Location.of(path), dialect, part)
    (tmp_path / "there").mkdir()
    assert sum(len(columns[0]) for columns in read(tmp_path / "there")) == 1000
    bytes_there = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(2).column(0)
    begin = column.dictionary_page_offset or column.data_page_offset
    bytes_there[begin : begin + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(bytes_there)
    with pytest.raises(UserError, match=path.name):
        list(read(tmp_path / "there"))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        list(read(tmp_path / "there"))
