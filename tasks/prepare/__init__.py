"""Stage `prepare`: vocabulary and sampling distributions for skip-gram training (Word2Vec pre-processing).

Files of the dataset (rows are the kept vertices, the most frequent first, ties by vertex id):
    kept.npy                int [rows], vertex of a row
    remap.npy               int [vertices], row of a vertex, -1 where it is dropped
    counts.npy              int64 [rows], occurrences in the walks
    negative_threshold.npy  uint32 [rows] ┐ alias table of the negative-sampling distribution, counts ** power:
    negative_alias.npy      int [rows]    ┘ slot s uniform, u uniform in [0, 2**32): s if u < threshold[s] else alias[s]
    keep.npy                float32 [rows], probability of keeping an occurrence; only where `sample` is set

The walks are not rewritten. Integers are int32, or int64 from 2**31 vertices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats


class PrepareParams(StageParams):
    """Parameters of Word2Vec pre-processing."""

    min_count: int = Field(
        default=1, ge=1,
        description="Vertices that occur fewer times in all walks are left out of training, at least 1.",
        json_schema_extra={"search": {"type": "int", "low": 1, "high": 20, "log": True}},
    )  # fmt: skip
    power: float = Field(
        default=0.75, ge=-2, le=2,
        description="Exponent of the vertex frequencies in the negative-sampling distribution, -2 to 2.",
        json_schema_extra={"search": {"type": "float", "low": 0.0, "high": 1.0, "by_default": False}},
    )  # fmt: skip
    sample: float = Field(
        default=0.0, ge=0, lt=1,
        description="Subsampling threshold t of frequent vertices, 0 to 1, 0 for none: of a vertex with a share f of "
        "the tokens an occurrence is kept with probability (sqrt(f / t) + 1) t / f.",
        json_schema_extra={"search": {"type": "float", "low": 1e-5, "high": 1e-2, "log": True, "by_default": False}},
    )  # fmt: skip


COUNTERS = 4
"""Most threads that count: each has its own counts."""
_PROCESS = Process(start_s=0.47, memory_bytes=140 << 20)
"""Resident set of the interpreter with NumPy and compiled kernels, before walks are read."""
_SHARD_BYTES = 32 << 20


def estimate(params: PrepareParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Memory by counting the arrays; time by what one 4 GHz core of 2025 needed for a token."""
    walks = inputs["walks"]
    vertices, tokens = int(walks["vertices"] or 0), int(walks["tokens"] or 0)
    shards = -(-4 * tokens // _SHARD_BYTES)
    threads = max(1, min(resources.threads, COUNTERS, shards))
    item = 4 if vertices < 2**31 else 8
    mapped = min(threads * _SHARD_BYTES, 4 * tokens)
    counting = threads * 8 * vertices + mapped
    building = 40 * vertices + item * vertices  # weights, shares, alias, threshold and the slots that wait
    counting_s = 1e-9 * tokens * (3 if 8 * vertices < 16 << 20 else 8)
    work_s = counting_s + 3e-7 * vertices
    return _PROCESS.estimate(
        memory_bytes=max(counting, building),
        cpu_s=work_s,
        output_bytes=vertices * (3 * item + 12 + (4 if params.sample else 0)),
        stats={"rows": vertices, "vertices": vertices, "tokens": tokens, "walks": walks["walks"]},
        parallel=counting_s / max(work_s, 1e-9),
        mapped_bytes=mapped if counting > building else 0,
    )


def estimate_on_members(params: PrepareParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """As in process, plus the shuffle that adds the counts up."""
    alone = estimate(params, inputs, resources)
    return replace(alone, cpu_s=alone.cpu_s + 2.0)


_ENGINES = ("spark", "dask")

STAGE = Stage(
    name="prepare",
    version="1",
    params=PrepareParams,
    inputs={"graph": Input("index dataset"), "walks": Input("walk dataset: the walks to count")},
    run="superworkflow.tasks.prepare.run:run",
    engines=dict.fromkeys(_ENGINES, "superworkflow.tasks.prepare.on_members:run"),
    estimates=dict.fromkeys(_ENGINES, estimate_on_members),
    estimate=estimate,
    help="Word2Vec pre-processing: frequencies, vocabulary, negative sampling",
)
