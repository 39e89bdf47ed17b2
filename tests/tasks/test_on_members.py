"""Each stage on each engine with members: the very files of one process. Other tests run their tasks in turn."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.store import Store
from superworkflow.tasks import heterograph, index, prepare, records, sample, walk
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.embedding_inputs import community_walks, write_graph, write_walks
from tests.tasks.heterograph_tables import Items
from tests.tasks.heterograph_tables import write_graph as write_tables
from tests.tasks.heterographs import write_heterograph
from tests.tasks.sampling import random_graph
from tests.tasks.subgraphs import some_block, some_graph, write_subgraphs
from tests.tasks.test_sample_stage import ENDS, SPEC
from tests.tasks.test_walk_stage import write_graph as write_walked

Case = tuple[Any, dict[str, Any], dict[str, str]]


def _index(folder: Path) -> Case:
    (folder / "edges.csv").write_text("".join(f"v{n * n % 53},v{n % 19},{1 + n % 7}\n" for n in range(400)))
    return index.STAGE, {"max_degree": 9}, {"edges": str(folder / "edges.csv")}


def _walk(folder: Path) -> Case:
    graph = write_walked(folder / "graph", 300, 900, directed=True, weighted=True)
    return walk.STAGE, {"p": 0.5, "q": 2.0, "walk_length": 10, "num_walks": 2}, {"graph": graph.uri}


def _walk_in_parts(folder: Path) -> Case:
    stage, params, inputs = _walk(folder)
    return stage, {**params, "spark_mode": "partitioned"}, inputs


def _prepare(folder: Path) -> Case:
    write_graph(folder / "graph", [str(v) for v in range(40)])
    write_walks(folder / "walks", community_walks(4, 10, 60, 11, 0.2), 40, shards=5)
    return prepare.STAGE, {"min_count": 3}, {"graph": str(folder / "graph"), "walks": str(folder / "walks")}


def _heterograph(folder: Path) -> Case:
    names = [f"p{n}" for n in range(60)]
    nodes = {"paper": Items({"id": names, "x": list(range(60))}, {"x": ("int64", ())}, file="papers@3.csv")}
    edges = {"cites": Items({"source": names, "target": names[::-1]}, {}, ("paper", "paper"), "cites@2.csv"),
             "cited": Items(ends=("paper", "paper"), file="cites@2.csv", reverses="cites")}  # fmt: skip
    return heterograph.STAGE, {}, {"graph": str(write_tables(folder / "tables", nodes, edges))}


def _sample(folder: Path) -> Case:
    graph = random_graph(np.random.default_rng(4), {"a": 50, "b": 300, "c": 3}, ENDS, 900, parallel=True)
    (folder / "spec.pbtxt").write_text(SPEC)
    return sample.STAGE, {}, {"graph": graph.write(folder / "graph").uri, "spec": str(folder / "spec.pbtxt")}


def _sample_in_parts(folder: Path) -> Case:
    stage, params, inputs = _sample(folder)
    return stage, {**params, "spark_mode": "partitioned"}, inputs


def _records(folder: Path) -> Case:
    rng = np.random.default_rng(7)
    dataset = write_heterograph(folder / "graph", *some_graph(rng))
    graph = HeteroGraph.open(dataset)
    blocks = {"train": [[some_block(graph, rng, 30, ("paper",))], [some_block(graph, rng, 9, ("paper",))]]}
    subgraphs = write_subgraphs(folder / "sample", graph, blocks)
    return records.STAGE, {"shards": 5}, {"graph": dataset.uri, "subgraphs": subgraphs.uri}


def make(case: Case, output: str, engine: str) -> Dataset:
    stage, params, inputs = case
    resources, progress = Resources(cpu=2, memory=1 << 30), Progress(stage.name, stream=io.StringIO())
    return execute(stage, params, inputs, output, resources, progress, engine).dataset


CASES = [_index, _walk, _walk_in_parts, _prepare, _heterograph, _sample, _sample_in_parts, _records]


@pytest.mark.parametrize("case", CASES)
def test_the_same_files_as_in_process(
    cluster_engine: str, case: Callable[[Path], Case], tmp_path: Path, s3_store: Store
) -> None:
    """From tables and datasets in a folder to a bucket."""
    given = case(tmp_path)
    here = make(given, str(tmp_path / "here"), "in-process")
    there = make(given, s3_store.root.join("made").uri, cluster_engine)
    assert there.manifest.files == here.manifest.files
    assert dict(there.stats) == dict(here.stats)
    assert there.digest == here.digest
    assert there.manifest.engine == cluster_engine
    assert not [name for name in there.location.walk_files() if name.startswith("_")]
