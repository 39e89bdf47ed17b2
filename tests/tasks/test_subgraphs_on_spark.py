"""Typed graphs and subgraphs on Spark, with tables and rows in parts: the very files and errors of one process."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.engines.spark.driver import allocation_settings
from superworkflow.infra.engines.spark.exchange import Step, exchange
from superworkflow.infra.engines.spark.session import spark_session
from superworkflow.infra.engines.spark.tasks import run_tasks
from superworkflow.infra.errors import UserError
from superworkflow.infra.execution.execute import execute
from superworkflow.infra.progress import Progress
from superworkflow.infra.resources import Executors, Resources
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.store import Store
from superworkflow.tasks import heterograph, sample
from superworkflow.tasks.heterograph import on_spark, spark_tables
from superworkflow.tasks.sample.partitioned import driver
from tests.spark import needs_spark
from tests.tasks.heterograph_tables import Items, write_graph
from tests.tasks.sampling import id_of, random_graph

pytestmark = needs_spark
GIB = 1 << 30
ODD = ["0", "10", "9", "a b", 'q"', "a,b", "é", "🙂", "z" * 40, "x\ny", " "]


@pytest.fixture(scope="module")
def session(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One session for all, since starting it takes longer than what is done here: one or two executors of a core each.

    They are processes of this machine, and as many as elastic executors of a profile would be.
    """
    progress, folder = Progress("tests", stream=io.StringIO()), tmp_path_factory.mktemp("session")
    elastic = allocation_settings(Executors(count=1, max=2, cpu=1, memory=GIB))
    settings = {**elastic, "spark.master": "local-cluster[2,1,512]", "spark.executor.memory": "512m"}
    job = SimpleNamespace(
        progress=progress, resources=Resources(cpu=2, memory=GIB), scratch=folder, engine_settings=settings
    )  # fmt: skip
    with spark_session(cast("Any", job)) as made:
        yield made


@pytest.fixture
def opened(session: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stages find this session open."""
    for module in (on_spark, driver):
        monkeypatch.setattr(module, "spark_session", lambda job, settings=None: contextlib.nullcontext(session))
    return session


def make(
    stage: Any, output: Path | str, given: Mapping[str, str], engine: str, progress: Progress | None = None, /,
    **params: Any,
) -> Dataset:  # fmt: skip
    progress = progress or Progress(stage.name, stream=io.StringIO())
    return execute(stage, params, given, str(output), Resources(cpu=2, memory=GIB), progress, engine).dataset


def assert_same(there: Dataset, here: Dataset) -> None:
    assert [(f.path, f.sha256) for f in there.manifest.files] == [(f.path, f.sha256) for f in here.manifest.files]
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
    }  # fmt: skip
    write_graph(folder, nodes, edges, Items({"k": [3]}, {"k": ("int64", ())}, file="context.csv"))
    for name in ("papers.parquet", "cites.parquet"):
        pq.write_table(pq.read_table(folder / name), folder / name, row_group_size=70)
    return folder


@pytest.mark.parametrize("ranges", [3, 7])
def test_a_graph_is_that_of_one_process(
    opened: Any, tmp_path: Path, s3_store: Store, monkeypatch: pytest.MonkeyPatch, ranges: int
) -> None:
    monkeypatch.setattr(spark_tables, "PART_BYTES", 1000)
    monkeypatch.setattr(on_spark, "make", partial(on_spark.make, ranges=ranges))
    graph = {"graph": str(tables(tmp_path / "tables"))}
    params = {"dangling": "drop", "parallel_edges": "keep" if ranges == 3 else "first"}
    here = make(heterograph.STAGE, tmp_path / "here", graph, "in-process", **params)
    assert here.stats["dangling_edges"]
    store = tmp_path / "there"
    if ranges == 7:
        for file in (tmp_path / "tables").iterdir():
            s3_store.root.join("tables", file.name).upload(file)
        graph, store = {"graph": s3_store.root.join("tables").uri}, s3_store.root.join("made").uri
    assert_same(make(heterograph.STAGE, store, graph, "spark", **params), here)


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
        values = [value if at == row else old for at, old in enumerate(items.columns[column])]
        sets[kind][name] = replace(items, columns=items.columns | {column: values})

    return change


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
    opened: Any, tmp_path: Path, change: Callable[..., None], error: str
) -> None:
    graph = {"graph": str(spoiled(change, tmp_path / "tables"))}
    messages = []
    for engine in ("in-process", "spark"):
        with pytest.raises(UserError) as caught:
            make(heterograph.STAGE, tmp_path / engine, graph, engine)
        messages.append(str(caught.value))
    assert error in messages[0]
    assert messages[1] == messages[0]


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


@pytest.mark.parametrize(
    ("ranges", "seeds", "params"),
    [
        (3, SEEDS, {"repeats": 2}),
        (7, SEEDS, {"inputs": "path", "size_factor": 2.0}),
        (7, LINKS, {"aggregation": "node"}),
    ],
)
def test_partitioned_subgraphs_are_those_of_one_process(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: int, seeds: str, params: dict[str, Any]
) -> None:
    monkeypatch.setattr(driver, "make", partial(driver.make, ranges=ranges))
    monkeypatch.setattr(driver, "SHARDS_PER_CORE", 2)  # several batches
    graph, spec = sampled_graph(tmp_path / "graph"), tmp_path / "spec.pbtxt"
    spec.write_text(seeds + OPS)
    inputs = {"graph": graph.uri, "spec": str(spec)}
    if seeds == LINKS:
        table = tmp_path / "seeds.csv"
        pairs = [(n % 9, n % 7) for n in range(300)]
        rows = [f"{id_of('b', s)},{id_of('b', t)},{n * 2**50}" for n, (s, t) in enumerate(pairs)]
        table.write_text("\n".join(["source,target,timestamp", *rows, ""]))
        inputs["seeds"] = str(table)
    here = make(sample.STAGE, tmp_path / "here", inputs, "in-process", **params)
    progress = Killer("sample", stream=io.StringIO())
    there = make(sample.STAGE, tmp_path / "there", inputs, "spark", progress, spark_mode="partitioned", **params)
    assert int(here.stats["edges"] or 0) > 1000
    assert_same(there, here)
    assert progress.killed == (ranges == 3)


class Killer(Progress):
    """Ends an executor when the first of several batches is done."""

    killed = False

    def log(self, message: str) -> None:
        super().log(message)
        if self.killed or not message.startswith("1024 subgraphs,"):
            return
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has just ended
                if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                    process.kill()
                    self.killed = True
                    return


def _meet(folder: Path, number: int) -> bool:
    (folder / str(number)).touch()
    until = time.monotonic() + 200
    while len(list(folder.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    return len(list(folder.iterdir())) == 2


def test_executors_are_added_while_tasks_wait(session: Any, tmp_path: Path) -> None:
    """Each of two tasks waits for the other, and an executor does one at a time."""
    assert session.conf.get("spark.dynamicAllocation.initialExecutors") == "1"
    assert run_tasks(session, partial(_meet, tmp_path), [0, 1]) == [True, True]


def _twice(item: int) -> Iterator[tuple[int, str]]:
    if item < 0:
        raise UserError("negative", value=item)
    yield from ((item % 2, f"{item}a"), (item % 2, f"{item}b"))


def _back(task: int, sent: list[str]) -> Iterator[tuple[int, str]]:
    yield 0, "".join(sent)


def _all(task: int, sent: list[str]) -> list[str]:
    return sent


def test_an_exchange(session: Any) -> None:
    """What is sent comes in the order of the senders; of several faults the first is told."""
    steps = Step(2, _back), Step(3, _all)
    assert exchange(session, range(5), _twice, *steps) == [["0a0b2a2b4a4b", "1a1b3a3b"], [], []]
    assert exchange(session, [], _twice, *steps) == [["", ""], [], []]
    with pytest.raises(UserError, match="got -2"):
        exchange(session, [1, -2, 3, -4], _twice, *steps)
