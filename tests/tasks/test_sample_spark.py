"""Subgraphs on Spark: the same files as in process, and refusals of its tasks."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from superworkflow.infra.execution.execute import execute
from superworkflow.infra.progress import Progress
from superworkflow.infra.resources import Resources
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import PARTS_FOLDER
from superworkflow.tasks.sample import STAGE
from tests.spark import needs_spark
from tests.tasks.sampling import id_of, random_graph
from tests.tasks.test_sample_stage import ENDS, SPEC

pytestmark = [needs_spark, pytest.mark.usefixtures("java")]


def make(graph: Dataset, output: Path, engine: str, seeds: Path | None = None) -> Dataset:
    spec = output.parent / "spec.pbtxt"
    spec.write_text(SPEC)
    inputs = {"graph": graph.uri, "spec": str(spec)} | ({} if seeds is None else {"seeds": str(seeds)})
    resources = Resources(cpu=2, memory=1 << 30)
    params = {"aggregation": "node", "sizes": {"one": 9}}
    return execute(
        STAGE, params, inputs, str(output), resources, Progress("sample", stream=io.StringIO()), engine
    ).dataset  # fmt: skip


def test_the_same_subgraphs_in_process_and_on_spark(tmp_path: Path) -> None:
    graph = random_graph(np.random.default_rng(4), {"a": 50, "b": 1500, "c": 3}, ENDS, 6000, parallel=True)
    dataset = graph.write(tmp_path / "graph")
    table = tmp_path / "seeds.csv"
    table.write_text("\n".join(["id", *(id_of("b", n * n % 1500) for n in range(600)), ""]))
    for name, seeds in (("all", None), ("some", table)):
        here = make(dataset, tmp_path / f"{name}-here", "in-process", seeds)
        there = make(dataset, tmp_path / f"{name}-there", "spark", seeds)
        assert len(here.files()) > 3
        assert here.manifest.files == there.manifest.files
        assert here.stats == there.stats
        assert here.digest == there.digest
        assert not (tmp_path / f"{name}-there" / PARTS_FOLDER).exists()
