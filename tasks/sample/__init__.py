"""Stage `sample`: heterograph, spec and seeds → subgraphs around the seeds, in Parquet shards.

`tasks.lib.subgraphs.blocks` describes the shards. A subgraph depends on the graph, the spec, the parameters,
its seed and its repeat alone: not on threads, engine or shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from superworkflow.infra.contract.stage import Estimate, Input, Resources, Stage, Stats
from superworkflow.infra.engines import engine
from superworkflow.tasks.sample.expected import estimate
from superworkflow.tasks.sample.params import SampleParams


def _estimate_on(name: str, params: SampleParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """As in process where each member has all rows; else each has a part that fits it."""
    from superworkflow.tasks.sample.on_members import mode

    alone = estimate(params, inputs, resources)
    if mode(name, params, inputs, resources) == "replicated":
        return alone
    memory = max(alone.base_bytes, min(alone.memory_bytes, engine(name).member_memory(resources)))
    return replace(alone, memory_bytes=memory, kind="partitioned")


_ENGINES = ("spark", "dask")

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
    engines=dict.fromkeys(_ENGINES, "superworkflow.tasks.sample.on_members:run"),
    estimate=estimate,
    estimates={name: partial(_estimate_on, name) for name in _ENGINES},
    help="Subgraphs around seed nodes",
)
