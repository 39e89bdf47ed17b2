"""The work of a task that makes subgraphs with all rows of the graph; `test_on_members` has the engines."""

import io
from pathlib import Path

import numpy as np

from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.subgraphs.blocks import DESCRIPTION
from superworkflow.tasks.sample import STAGE
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.replicated import SampleContext, ShardTask, _make
from superworkflow.tasks.sample.run import shards_of
from superworkflow.tasks.sample.seeds import find_seeds
from superworkflow.tasks.sample.spec import parse_spec
from tests.tasks.sampling import PlainGraph, id_of, random_graph
from tests.tasks.test_sample_stage import ENDS, SPEC

PARAMS = {"aggregation": "node", "sizes": {"one": 9}}


def make(graph: Dataset, output: Path, engine: str, seeds: Path | None = None) -> Dataset:
    spec = output.parent / "spec.pbtxt"
    spec.write_text(SPEC)
    inputs = {"graph": graph.uri, "spec": str(spec)} | ({} if seeds is None else {"seeds": str(seeds)})
    resources = Resources(cpu=2, memory=1 << 30)
    return execute(
        STAGE, PARAMS, inputs, str(output), resources, Progress("sample", stream=io.StringIO()), engine
    ).dataset  # fmt: skip


def test_a_task_makes_the_shards_of_given_seeds(tmp_path: Path) -> None:
    """The work of a member where seeds are from a table: the stage's process sends those of its shards."""
    dataset, table = plain_graph().write(tmp_path / "graph"), tmp_path / "seeds.csv"
    table.write_text("\n".join(["id", *(id_of("b", n * n % 1500) for n in range(600)), ""]))
    made = make(dataset, tmp_path / "made", "in-process", table)
    graph, params = HeteroGraph.open(dataset), SampleParams.model_validate(PARAMS)
    spec = parse_spec(SPEC, "spec.pbtxt")
    seeds = find_seeds(graph, spec, params, table)
    shards = tuple((each, seeds.rows(each.split, each.first, each.last)) for each in shards_of(seeds))
    work = SampleContext(dataset.uri, str(tmp_path), spec, params.model_dump_json())
    entries, sizes = _make(ShardTask(work, str(tmp_path / "task"), shards))
    assert {*entries} == {each for each in made.manifest.files if each.path != DESCRIPTION}
    assert sizes.edges == made.stats["edges"]


def plain_graph() -> PlainGraph:
    return random_graph(np.random.default_rng(4), {"a": 50, "b": 1500, "c": 3}, ENDS, 6000, parallel=True)
