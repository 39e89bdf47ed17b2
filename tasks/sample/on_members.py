"""Stage `sample` on the members of an engine: the same shards, in one of two ways.

Replicated, each member has the rows of the whole graph and makes whole shards by itself; partitioned, rows stay in
parts, and shards ask for draws in them.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import Literal

from superworkflow.infra.contract.stage import Output, Resources, StageRun, Stats
from superworkflow.infra.engines import engine
from superworkflow.tasks.sample.expected import estimate
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.spec import read_spec

Mode = Literal["replicated", "partitioned"]
_MODULES: dict[Mode, str] = {
    "replicated": "superworkflow.tasks.sample.replicated",
    "partitioned": "superworkflow.tasks.sample.partitioned.driver",
}


def run(job: StageRun[SampleParams]) -> Output:
    """Write the subgraphs of `job.inputs["graph"]`; see `tasks.sample.run`."""
    spec = read_spec(job.sources["spec"], job.scratch)
    inputs: dict[str, Stats] = {
        "graph": job.inputs["graph"].stats, "spec": {"spec": json.dumps(spec.canonical())},
    }  # fmt: skip
    if "seeds" in job.sources:
        inputs["seeds"] = {"bytes": job.sources["seeds"].total_bytes}
    chosen = mode(job.engine, job.params, inputs, job.resources)
    job.progress.log(f"sampling on {job.engine}, the graph {chosen}")
    result: Output = importlib.import_module(_MODULES[chosen]).run(job)
    return result


def mode(name: str, params: SampleParams, inputs: Mapping[str, Stats], resources: Resources) -> Mode:
    """Mode of sampling: replicated while all rows fit the memory that a member has for tasks.

    Args:
        name: of the engine.
        params: of sampling; `spark_mode` may force one.
        inputs: stats by input.
        resources: with the members; without any, the stage's own memory counts.
    """
    if params.spark_mode != "auto":
        return params.spark_mode
    fits = estimate(params, inputs, resources).memory_bytes <= engine(name).member_memory(resources)
    return "replicated" if fits else "partitioned"
