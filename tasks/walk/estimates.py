"""Estimate of stage `walk`, and the sizes of its shards."""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Process, Resources, Stats
from superworkflow.tasks.walk.kernels.edge_filter_size import has_tries, table_bytes
from superworkflow.tasks.walk.params import WalkParams

SHARD_BYTES = 32 << 20


_BATCH = 2048


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
    memory = item * edges + 16 * vertices
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
    return _PROCESS.estimate(
        memory_bytes=memory,
        cpu_s=work_s,
        output_bytes=tokens * item + 128 * -(-walks // shard_walks(params.walk_length)),
        stats={"walks": walks, "tokens": tokens, "walk_length": params.walk_length, "vertices": vertices},
        parallel=1 - writing_s / max(work_s, 1e-9),
    )


_PROCESS = Process(start_s=0.47, memory_bytes=158 << 20)
"""Resident set of the interpreter with NumPy and compiled kernels, before a graph is read."""


_LABEL_BYTES = 48


"""CPU seconds until then."""
