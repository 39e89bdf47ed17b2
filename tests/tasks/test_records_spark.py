"""The records stage on Spark and with a store on S3: the same files as in process, in a folder."""

from __future__ import annotations

import io
import uuid
from pathlib import Path

import numpy as np
import pytest

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.records import STAGE
from tests.spark import needs_spark
from tests.tasks.heterographs import write_heterograph
from tests.tasks.subgraphs import some_block, some_graph, write_subgraphs

pytestmark = [needs_spark, pytest.mark.usefixtures("java")]


def test_the_same_files_as_in_process(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    dataset = write_heterograph(tmp_path / "graph", *some_graph(rng))
    graph = HeteroGraph.open(dataset)
    blocks = {"train": [[some_block(graph, rng, 30, ("paper",))], [some_block(graph, rng, 9, ("paper",))]]}
    subgraphs = write_subgraphs(tmp_path / "sample", graph, blocks)

    def make(name: str, engine: str) -> Dataset:
        inputs = {"graph": dataset.uri, "subgraphs": subgraphs.uri}
        resources, progress = Resources(cpu=2, memory=1 << 30), Progress("records", stream=io.StringIO())
        return execute(STAGE, {"shards": 5}, inputs, name, resources, progress, engine).dataset

    alone, spread = make(str(tmp_path / "one"), "in-process"), make(str(tmp_path / "spark"), "spark")
    remote = make(f"s3://superworkflow-tests/{uuid.uuid4().hex}", "in-process")
    assert alone.manifest.files == spread.manifest.files == remote.manifest.files
    assert dict(alone.stats) == dict(spread.stats)
    assert spread.manifest.engine == "spark"
