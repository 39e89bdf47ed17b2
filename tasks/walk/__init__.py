"""Stage `walk`: index dataset → biased second-order random walks (node2vec), in shards.

Files of the dataset: `walks-00000.npy`, `walks-00001.npy`, …, each int32 [walks, walk_length] (int64 from 2**31
vertices), padded by -1 behind a walk that met a sink. Shards hold at most 32 MiB and have the same boundaries for
every graph and machine: walk w is row ``w % shard_walks(walk_length)`` of shard ``w // shard_walks(walk_length)``.
The walks of each round are in a pseudo-random order of their starts, so a shard can be trained on as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.config import JsonDict

from superworkflow.infra.estimate import Estimate, Stats
from superworkflow.infra.params import StageParams
from superworkflow.infra.resources import Resources
from superworkflow.infra.stage import Input, Stage
from superworkflow.tasks.walk.kernels.edge_filter_size import has_tries, table_bytes

SHARD_BYTES = 32 << 20
LEAST_BIAS, MOST_BIAS = 1e-6, 1e6
"""Limits of p and q: beyond them a walk does nothing else any more, and numbers of darts leave 64 bits."""
_BATCH = 2048

_PAPER_GRID: JsonDict = {"search": {"type": "categorical", "choices": [0.25, 0.5, 1.0, 2.0, 4.0]}}


def _labels(value: Any) -> Any:
    return tuple(str(label) for label in value) if isinstance(value, list | tuple) else value


class WalkParams(StageParams):
    """Parameters of the walks; names and defaults are those of the node2vec paper."""

    num_walks: int = Field(
        default=10, ge=1, description="Walks from each start vertex, at least 1.",
        json_schema_extra={"search": {"type": "int", "low": 5, "high": 20}},
    )  # fmt: skip
    walk_length: int = Field(
        default=80, ge=1, le=1_000_000, description="Vertices of a walk, its start included, 1 to 1,000,000.",
        json_schema_extra={"search": {"type": "int", "low": 20, "high": 120}},
    )  # fmt: skip
    p: float = Field(
        default=1.0, ge=LEAST_BIAS, le=MOST_BIAS, json_schema_extra=_PAPER_GRID,
        description="Return parameter, 1e-6 to 1e6: the weight of going straight back is multiplied by 1/p.",
    )  # fmt: skip
    q: float = Field(
        default=1.0, ge=LEAST_BIAS, le=MOST_BIAS, json_schema_extra=_PAPER_GRID,
        description="In-out parameter, 1e-6 to 1e6: the weight of leaving the neighbourhood is multiplied by 1/q.",
    )  # fmt: skip
    seed: int = Field(default=42, ge=0, lt=2**63, description="Seed of all random numbers, 0 to 2**63 - 1.")
    start_vertices: Annotated[tuple[str, ...], BeforeValidator(_labels)] | None = Field(
        default=None, min_length=1, description="Labels of the vertices to start from, at least one; all if not given."
    )
    weighted: bool | None = Field(
        default=None,
        description="Step in proportion to the edges' weights; if not given, whenever the graph has weights.",
    )
    spark_mode: Literal["auto", "replicated", "partitioned"] = Field(
        default="auto",
        description="On Spark: replicated gives each executor the whole graph, partitioned a part of it between which "
        "walks travel; auto takes the first while the graph fits an executor's memory. The walks are the same.",
        json_schema_extra={"affects_result": False},
    )


def shard_walks(walk_length: int) -> int:
    """Walks in a full shard."""
    walks = max(1, SHARD_BYTES // (4 * walk_length))
    return walks if walks < _BATCH else walks // _BATCH * _BATCH


def estimate(params: WalkParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Memory by counting the arrays; time by what one 4 GHz core of 2025 needed for a step."""
    graph = inputs["graph"]
    vertices, edges = int(graph["vertices"] or 0), int(graph["directed_edges"] or 0)
    weighted = bool(graph.get("weighted")) if params.weighted is None else params.weighted
    walks = params.num_walks * (len(params.start_vertices) if params.start_vertices else vertices)
    tokens = walks * params.walk_length
    item = 4 if vertices < 2**31 else 8
    second_order, directed = not (params.p == 1 and params.q == 1), bool(graph.get("directed"))

    shard = min(walks, shard_walks(params.walk_length)) * params.walk_length * item
    buffers = min(2, -(-walks // shard_walks(params.walk_length))) * shard
    memory = _PROCESS_BYTES + item * edges + 16 * vertices
    if params.q != 1:
        memory += table_bytes(vertices, edges, directed)[0]
    if weighted:
        memory += 24 * edges + 24 * vertices if second_order else 12 * edges + 8 * vertices
    if has_tries(params.q, vertices, directed) and not directed:
        # What finds the triangles has gone before there are walks; its answer is there while alias tables are made.
        finding = edges if weighted else (item + 3) * edges // 2 + 12 * vertices
        memory += max(edges // 8 + buffers, finding)
    else:
        memory += buffers
    if params.start_vertices:
        memory += _LABEL_BYTES * vertices

    # Nanoseconds for a step: memory latency dominates once the graph is larger than the caches.
    large = 4 * edges > 16 << 20
    if not second_order:
        step_ns = (10 if large else 5) if weighted else (7 if large else 3)
    elif params.q == 1:
        step_ns = (25 if large else 15) if weighted else (12 if large else 9)
    else:
        step_ns = (40 if large else 17) if weighted else (26 if large else 13)
    build_ns = 6 + (4 if params.q != 1 else 0) + (16 if weighted else 0)
    write_ns = 1.8  # for a byte: checksum and write
    writing_s = 1e-9 * write_ns * tokens * item
    work_s = 1e-9 * (step_ns * tokens + build_ns * edges) + writing_s
    return Estimate(
        memory_bytes=memory,
        cpu_s=_START_S + work_s,
        output_bytes=tokens * item + 128 * -(-walks // shard_walks(params.walk_length)),
        stats={"walks": walks, "tokens": tokens, "walk_length": params.walk_length, "vertices": vertices},
        parallel=1 - writing_s / max(work_s, 1e-9),
        start_s=_START_S,
        base_bytes=_PROCESS_BYTES,
    )


def estimate_on_spark(params: WalkParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """As in process where each executor has the whole graph; else each has a part that fits it."""
    from superworkflow.tasks.walk.on_spark import memory_for_walks, mode

    alone = estimate(params, inputs, resources)
    if mode(params, inputs["graph"], resources) == "replicated":
        return alone
    memory = max(alone.base_bytes, min(alone.memory_bytes, memory_for_walks(resources)))
    return replace(alone, memory_bytes=memory, kind="partitioned")


_PROCESS_BYTES = 158 << 20
"""Resident set of the interpreter with NumPy and compiled kernels, before a graph is read."""
_LABEL_BYTES = 48
_START_S = 0.47
"""CPU seconds until then."""

STAGE = Stage(
    name="walk",
    version="2",
    params=WalkParams,
    inputs={"graph": Input("index dataset: the graph to walk on")},
    run="superworkflow.tasks.walk.run:run",
    engines={"spark": "superworkflow.tasks.walk.on_spark:run"},
    estimates={"spark": estimate_on_spark},
    estimate=estimate,
    help="Biased second-order random walks (node2vec)",
)
