"""Stage `sample`: heterograph, spec and seeds → subgraphs around the seeds, in Parquet shards.

`tasks.lib.subgraphs.blocks` describes the shards. A subgraph depends on the graph, the spec, the parameters,
its seed and its repeat alone: not on threads, engine or shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from superworkflow.infra.contract.estimate import Estimate, Stats
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.contract.stage import Input, Stage
from superworkflow.tasks.sample.expected import estimate
from superworkflow.tasks.sample.params import SampleParams


def estimate_on_spark(params: SampleParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """As in process where each executor has all rows; else each has a part that fits it."""
    from superworkflow.infra.engines.spark.session import python_memory
    from superworkflow.tasks.sample.on_spark import mode

    alone = estimate(params, inputs, resources)
    if mode(params, inputs, resources) == "replicated":
        return alone
    memory = max(alone.base_bytes, min(alone.memory_bytes, python_memory(resources)))
    return replace(alone, memory_bytes=memory, kind="partitioned")


STAGE = Stage(
    name="sample",
    version="2",
    params=SampleParams,
    inputs={
        "graph": Input("heterograph dataset: the graph to sample from"),
        "spec": Input("sampling spec, text format", file=True, stats="superworkflow.tasks.sample.expected:spec_stats"),
        "seeds": Input(
            "table of seeds (CSV, Parquet, or a folder of such): id, or source and target of links; perhaps split and "
            "timestamp",
            file=True,
            parts=True,
            optional=True,
            stats="superworkflow.tasks.heterograph.file_sample:table_stats",
        ),
    },
    run="superworkflow.tasks.sample.run:run",
    engines={"spark": "superworkflow.tasks.sample.on_spark:run"},
    estimate=estimate,
    estimates={"spark": estimate_on_spark},
    help="Subgraphs around seed nodes",
)
