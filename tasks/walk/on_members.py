"""Stage `walk` on the members of an engine: the same shards, in one of two ways.

Replicated, each member has the whole graph and makes whole shards by itself; partitioned, each has a part of the
graph, and walks travel between them.
"""

from __future__ import annotations

import importlib
from typing import Literal

from superworkflow.infra.contract.stage import Output, Resources, StageRun, Stats
from superworkflow.infra.engines import engine
from superworkflow.tasks.walk.estimates import estimate
from superworkflow.tasks.walk.params import WalkParams

Mode = Literal["replicated", "partitioned"]
_MODULES: dict[Mode, str] = {
    "replicated": "superworkflow.tasks.walk.replicated",
    "partitioned": "superworkflow.tasks.walk.partitioned.driver",
}


def run(job: StageRun[WalkParams]) -> Output:
    """Write the walks of `job.inputs["graph"]`; see `tasks.walk.run`."""
    chosen = mode(job.engine, job.params, job.inputs["graph"].stats, job.resources)
    job.progress.log(f"walks on {job.engine}, the graph {chosen}")
    module = importlib.import_module(_MODULES[chosen])
    result: Output = module.run(job)
    return result


def mode(name: str, params: WalkParams, graph: Stats, resources: Resources) -> Mode:
    """Mode of walking: replicated while the whole graph's walker fits the memory that a member has for tasks.

    Args:
        name: of the engine.
        params: of the walks; `spark_mode` may force one.
        graph: stats of the index dataset.
        resources: with the members; without any, the stage's own memory counts.
    """
    if params.spark_mode != "auto":
        return params.spark_mode
    fits = estimate(params, {"graph": graph}, resources).memory_bytes <= engine(name).member_memory(resources)
    return "replicated" if fits else "partitioned"
