"""Typed graphs and subgraphs with tables and rows in parts: the very files and errors of one process."""

import contextlib
import gzip
import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.engines import engine as engine_named
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.tasks import heterograph, sample
from superworkflow.tasks.heterograph import on_members, row_spans, table_parts
from superworkflow.tasks.sample.partitioned import driver
from tests.members import IN_TURN
from tests.spark import needs_spark
from tests.tasks.examples import framed
from tests.tasks.heterograph_tables import Items, write_graph
from tests.tasks.sampling import id_of, random_graph

GIB = 1 << 30
ODD = ["0", "10", "9", "a b", 'q"', "a,b", "é", "🙂", "z" * 40, "x\ny", " "]


def make(
    stage: Any, output: Path | str, given: Mapping[str, str], engine: str, progress: Progress | None = None, /,
    **params: Any,
) -> Dataset:  # fmt: skip
    progress = progress or Progress(stage.name, stream=io.StringIO())
    return execute(stage, params, given, str(output), Resources(cpu=2, memory=GIB), progress, engine).dataset


def assert_same(there: Dataset, here: Dataset) -> None:
    assert there.manifest.files == here.manifest.files
    assert there.stats == here.stats
    assert there.digest == here.digest
    assert not [name for name in there.location.walk_files() if name.startswith("_")]


def tables(folder: Path) -> Path:
    """Every format, ids and features of all kinds, sets without a table, reversed sets, parallel and dangling edges."""
    rng = np.random.default_rng(5)
    papers = [*ODD, *(f"p{n}" for n in rng.permutation(300))]
    count = len(papers)
    nodes = {
        "paper": Items(
            {
                "id": papers, "x": rng.integers(0, 99, (count, 3)).astype(float).tolist(),
                "title": [ODD[n] for n in rng.integers(0, len(ODD), count)],
                "years": [rng.integers(0, 9, size).tolist() for size in rng.integers(0, 4, count)],
            },
            {"x": ("float", (3,)), "title": ("string", ()), "years": ("int64", (None,))}, file="papers.parquet",
        ),
        "author": Items({"#id": ODD, "h": list(range(len(ODD)))}, {"h": ("int32", ())}, file="authors@3.csv"),
        "topic": Items(),
        "none": Items({"id": [], "k": []}, {"k": ("int64", ())}, file="none.csv"),
    }  # fmt: skip

    def some(pool: list[str], rows: int) -> list[str]:
        return [pool[int(n * len(pool))] for n in rng.random(rows) ** 3]

    edges = {
        "cites": Items(
            {
                "source": some(papers, 2000), "target": some([*papers, "absent"], 2000),
                "weight": rng.random(2000).astype(np.float32).tolist(), "why": some(ODD, 2000),
            },
            {"weight": ("float", ()), "why": ("string", ())}, ("paper", "paper"), "cites.parquet",
        ),
        "cited": Items(ends=("paper", "paper"), file="cites.parquet", reverses="cites"),
        "writes": Items(
            {"#source": some(ODD, 200), "#target": some(papers, 200)}, {}, ("author", "paper"), "writes@3.csv.gz"
        ),
        "written": Items(ends=("paper", "author"), file="writes@3.csv.gz", reverses="writes"),
        "about": Items(
            {"source": some(papers, 150), "target": some(["t1", "t2", *ODD], 150)}, {}, ("paper", "topic"),
            "about.tfrecord",
        ),
        "to-none": Items({"source": [], "target": []}, {}, ("paper", "none"), "to-none.csv"),
        "likes": Items(
            {"source": some(papers[20:], 300), "target": some(papers[20:], 300), "stars": list(range(300))},
            {"stars": ("int64", ())}, ("paper", "paper"), "likes.csv",
        ),
    }  # fmt: skip
    write_graph(folder, nodes, edges, Items({"k": [3]}, {"k": ("int64", ())}, file="context.csv"))
    for name in ("papers.parquet", "cites.parquet"):
        pq.write_table(pq.read_table(folder / name), folder / name, row_group_size=70)
    return folder


@pytest.mark.usefixtures("in_turn")
@pytest.mark.parametrize("ranges", [3, 7])
def test_a_graph_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: int) -> None:
    monkeypatch.setattr(table_parts, "PART_BYTES", 1000)
    monkeypatch.setattr(on_members, "make", partial(on_members.make, ranges=ranges))
    graph = {"graph": str(tables(tmp_path / "tables"))}
    params = {"dangling": "drop", "parallel_edges": "keep" if ranges == 3 else "first"}
    here = make(heterograph.STAGE, tmp_path / "here", graph, "in-process", **params)
    assert here.stats["dangling_edges"]
    assert_same(make(heterograph.STAGE, tmp_path / "there", graph, IN_TURN, **params), here)


def spoiled(change: Callable[[dict[str, Items], dict[str, Items]], None], folder: Path) -> Path:
    nodes = {"paper": Items({"id": [f"p{n}" for n in range(9)], "x": list(range(9))}, {"x": ("int8", ())},
                            file="papers@3.csv")}  # fmt: skip
    edges = {"cites": Items({"source": ["p1", "p8", "p3"], "target": ["p2", "p0", "p1"]}, {}, ("paper", "paper"),
                            "cites@2.csv")}  # fmt: skip
    change(nodes, edges)
    return write_graph(folder, nodes, edges)


def _cell(kind: int, name: str, column: str, row: int, value: Any) -> Callable[..., None]:
    def change(*sets: dict[str, Items]) -> None:
        items = sets[kind][name]
        values = [value if place == row else old for place, old in enumerate(items.columns[column])]
        sets[kind][name] = replace(items, columns=items.columns | {column: values})

    return change


@pytest.mark.usefixtures("in_turn")
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (_cell(0, "paper", "id", 7, "p1"), "an earlier row has the same id (got 'p1')"),
        (_cell(0, "paper", "id", 2, ""), "no id"),
        (_cell(0, "paper", "x", 5, 999), "the value is no int8"),
        (_cell(1, "cites", "target", 1, "p99"), "the target of an edge is no node of 'paper' (got 'p99')"),
    ],
)
def test_refusals_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[..., None], error: str
) -> None:
    monkeypatch.setattr(table_parts, "PART_BYTES", 10)  # a line of text or two
    graph = {"graph": str(spoiled(change, tmp_path / "tables"))}
    messages = []
    for engine in ("in-process", IN_TURN):
        with pytest.raises(UserError) as caught:
            make(heterograph.STAGE, tmp_path / engine, graph, engine)
        messages.append(str(caught.value))
    assert error in messages[0]
    assert messages[1] == messages[0]


LINES = [b"source,target", *(b"n%d,m%d" % (n, n * n) for n in range(90))]
RECORDS = [framed(b"r" * n) for n in range(60)]


@pytest.mark.parametrize(
    ("name", "rows", "begins_at"),
    [
        ("a.csv", [line + b"\n" for line in LINES], 1),
        ("a.csv", [b"\xef\xbb\xbf" + LINES[0] + b"\r\n", *(line + b"\r\n" for line in LINES[1:-1]), LINES[-1]], 1),
        ("a.tfrecord", RECORDS, 0),
    ],
)
def test_spans_are_whole_rows(tmp_path: Path, name: str, rows: list[bytes], begins_at: int) -> None:
    path, copy = tmp_path / name, tmp_path / "copy"
    path.write_bytes(b"".join(rows))
    location, offset = Location.of(path), begins_at
    pieces = row_spans.pieces_of(location, path.stat().st_size, 100)
    (spans,) = row_spans.spans_of(pieces, [row_spans.look(piece) for piece in pieces]).values()
    assert len(spans) > 8
    for number, span in enumerate(spans):
        row_spans.copy_span(location, span, copy)
        text = copy.read_bytes().removeprefix(span.header)
        count = next(n for n in range(len(rows)) if b"".join(rows[offset : offset + n]) == text) if number else 0
        if not number:
            count = next(n for n in range(len(rows)) if b"".join(rows[:n]) == text) - begins_at
        assert span.row == offset - begins_at
        assert span.header.strip() == (LINES[0] if number and begins_at else b"")
        offset += count
    assert offset == len(rows)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", b"\n".join([*LINES, b'"x\ny",z', *LINES])),
        ("a.csv", b"\n".join([*LINES, b"", *LINES])),
        ("a.csv", b"\n".join([*LINES, *(line + b"\r" for line in LINES)])),
        ("a.csv", b"\n".join(LINES) + b"\rx,y\n"),
        ("a.tfrecord", b"".join(RECORDS)[:-1]),
        ("a.csv", gzip.compress(np.random.default_rng(1).bytes(999))),
    ],
)
def test_what_is_not_split(tmp_path: Path, name: str, text: bytes) -> None:
    (tmp_path / name).write_bytes(text)
    pieces = row_spans.pieces_of(Location.of(tmp_path / name), len(text), 100)
    assert not any(row_spans.spans_of(pieces, [row_spans.look(piece) for piece in pieces]).values())


SEEDS = 'seed_op { op_name: "seed" node_set_name: "b" }'
LINKS = 'symmetric_link_seed_op { op_name: "seed" }'
OPS = """
sampling_ops { op_name: "one" input_op_names: "seed" edge_set_name: "bb" sample_size: 4 strategy: RANDOM_UNIFORM }
sampling_ops {
  op_name: "two" input_op_names: ["seed", "one"] edge_set_name: "bb" sample_size: 2 strategy: RANDOM_WEIGHTED
}
sampling_ops { op_name: "up" input_op_names: "two" edge_set_name: "ba" sample_size: 3 strategy: TOP_K }
sampling_ops { op_name: "none" input_op_names: "up" edge_set_name: "ac" sample_size: 3 strategy: RANDOM_UNIFORM }
sampling_ops { op_name: "back" input_op_names: "up" edge_set_name: "ab" sample_size: 5 strategy: LATEST_K }
"""
ENDS = {"ab": ("a", "b"), "ac": ("a", "c"), "bb": ("b", "b"), "ba": ("b", "a")}


def sampled_graph(folder: Path) -> Dataset:
    made = random_graph(np.random.default_rng(4), {"a": 40, "b": 700, "c": 0}, ENDS, 4000, parallel=True)
    made.node_features["b"] = {"timestamp": np.random.default_rng(2).integers(-3, 6, 700) * 2**55}
    return made.write(folder)


def inputs_of(folder: Path, seeds: str) -> dict[str, str]:
    """A graph, a spec, and for links a table of seeds."""
    (folder / "spec.pbtxt").write_text(seeds + OPS)
    inputs = {"graph": sampled_graph(folder / "graph").uri, "spec": str(folder / "spec.pbtxt")}
    if seeds == LINKS:
        rows = [f"{id_of('b', n % 9)},{id_of('b', n % 7)},{n * 2**50}" for n in range(300)]
        (folder / "seeds.csv").write_text("\n".join(["source,target,timestamp", *rows, ""]))
        inputs["seeds"] = str(folder / "seeds.csv")
    return inputs


@pytest.mark.usefixtures("in_turn")
@pytest.mark.parametrize(
    ("ranges", "seeds", "params"),
    [
        (3, SEEDS, {"inputs": "path", "size_factor": 2.0}),
        (7, SEEDS, {"aggregation": "node"}),
        (7, LINKS, {"aggregation": "node"}),
        (1, LINKS, {"inputs": "path"}),
    ],
)
def test_subgraphs_of_rows_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: int, seeds: str, params: dict[str, Any]
) -> None:
    monkeypatch.setattr(driver, "make", partial(driver.make, ranges=ranges))
    monkeypatch.setattr(driver, "SHARDS_PER_CORE", 2)  # several batches
    inputs = inputs_of(tmp_path, seeds)
    here = make(sample.STAGE, tmp_path / "here", inputs, "in-process", **params)
    there = make(sample.STAGE, tmp_path / "there", inputs, IN_TURN, spark_mode="partitioned", **params)
    assert int(here.stats["edges"] or 0) > 1000
    assert_same(there, here)


@needs_spark
def test_a_worker_that_is_killed_loses_no_subgraphs(
    shared_spark: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(engine_named("spark")), "tasks", "tests.members:shared_spark")
    monkeypatch.setattr(driver, "make", partial(driver.make, ranges=3))
    monkeypatch.setattr(driver, "SHARDS_PER_CORE", 2)
    inputs, progress = inputs_of(tmp_path, SEEDS), Killer("sample", stream=io.StringIO())
    here = make(sample.STAGE, tmp_path / "here", inputs, "in-process", repeats=2)
    there = make(
        sample.STAGE, tmp_path / "there", inputs, "spark", progress, spark_mode="partitioned", repeats=2
    )  # fmt: skip
    assert progress.killed
    assert_same(there, here)
    assert 0 < progress.bytes_an_edge <= 40


class Killer(Progress):
    """Ends a process of Python that draws, when the first of several batches is done."""

    killed = False
    bytes_an_edge = 0.0

    def log(self, message: str) -> None:
        super().log(message)
        if "bytes were shuffled" in message:
            self.bytes_an_edge = float(message.split()[4])
        if self.killed or not message.startswith("1024 subgraphs,"):
            return
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has just ended
                if all("pyspark.daemon" in each.cmdline() for each in (process, process.parent() or process)):
                    process.kill()
                    self.killed = True
                    return
