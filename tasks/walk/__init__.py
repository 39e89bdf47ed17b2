"""Stage `walk`: index dataset → biased second-order random walks (node2vec), in shards.

Files of the dataset: `walks-00000.npy`, `walks-00001.npy`, …, each int32 [walks, walk_length] (int64 from 2**31
vertices), padded by -1 behind a walk that met a sink. Shards hold at most 32 MiB and have the same boundaries for
every graph and machine: walk w is row ``w % shard_walks(walk_length)`` of shard ``w // shard_walks(walk_length)``.
The walks of each round are in a pseudo-random order of their starts, so a shard can be trained on as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from superworkflow.infra.contract.stage import Estimate, Input, Resources, Stage, Stats
from superworkflow.infra.engines import engine
from superworkflow.tasks.walk.estimates import estimate
from superworkflow.tasks.walk.params import WalkParams


def _estimate_on(name: str, params: WalkParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """As in process where each member has the whole graph; else each has a part that fits it."""
    from superworkflow.tasks.walk.on_members import mode

    alone = estimate(params, inputs, resources)
    if mode(name, params, inputs["graph"], resources) == "replicated":
        return alone
    memory = max(alone.base_bytes, min(alone.memory_bytes, engine(name).member_memory(resources)))
    return replace(alone, memory_bytes=memory, kind="partitioned")


_ENGINES = ("spark", "dask")

STAGE = Stage(
    name="walk",
    version="2",
    params=WalkParams,
    inputs={"graph": Input("index dataset: the graph to walk on")},
    run="superworkflow.tasks.walk.run:run",
    engines=dict.fromkeys(_ENGINES, "superworkflow.tasks.walk.on_members:run"),
    estimates={name: partial(_estimate_on, name) for name in _ENGINES},
    estimate=estimate,
    help="Biased second-order random walks (node2vec)",
)
