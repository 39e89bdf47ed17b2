"""Responder of a partitioned sample: a task draws in the rows of its range for the shards that request it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.sample.partitioned.draw import draw_asked, join_asked, room_for
from superworkflow.tasks.sample.partitioned.home import ShardRequest, ShardResponse, compact
from superworkflow.tasks.sample.partitioned.members import EdgesAsked, EdgesFound
from superworkflow.tasks.sample.partitioned.plan import Routes, SamplePlan
from superworkflow.tasks.sample.partitioned.rows import RangeRows, rows_of

load_kernels_fast()


def answer(
    plan: SamplePlan, routes: Routes, task: int, requests: list[ShardRequest]
) -> Iterator[tuple[int, ShardResponse]]:
    """Draw for all requests to a task."""
    if not requests:
        return
    edge_set, place = routes.range_of(task)
    rows, apart = rows_of(plan, edge_set, place), plan.apart(plan.edge_sets[edge_set])
    for request in requests:
        yield request.shard, _drawn(plan, rows, apart, task, request)


def _drawn(plan: SamplePlan, given: RangeRows, apart: bool, task: int, request: ShardRequest) -> ShardResponse:
    op, rows = plan.ops[request.op], given.rows
    nodes = request.nodes.astype(np.int64) + given.low
    draws = request.draws.astype(np.int64)
    room, most = room_for(rows.indptr, given.low, nodes, draws, op.size, plan.by_path)
    counts, positions = np.empty(len(nodes), np.int64), np.empty(room, np.int64)
    targets, paths = np.empty(room, rows.indices.dtype), np.empty(room if plan.by_path else 0, np.int64)
    total = draw_asked(
        rows, given.low, op.size, op.strategy, apart, plan.by_path, request.keys, request.times.astype(np.int64),
        request.links.astype(np.int64), begins_of(request.lengths), nodes, draws, most, counts, positions, targets,
        paths,
    )  # fmt: skip
    return ShardResponse(
        op.number, task, given.base, compact(counts), compact(positions[:total]), compact(targets[:total]),
        paths[:total],
    )  # fmt: skip


def join(plan: SamplePlan, routes: Routes, task: int, requests: list[EdgesAsked]) -> Iterator[tuple[int, EdgesFound]]:
    """All edges between nodes of subgraphs, in the rows of a task."""
    if not requests:
        return
    edge_set, place = routes.range_of(task)
    given, apart = rows_of(plan, edge_set, place), plan.apart(plan.edge_sets[edge_set])
    for request in requests:
        nodes = request.nodes.astype(np.int64) + given.low
        counts, room = np.empty(len(nodes), np.int64), 4 * len(nodes)
        begins, target_begins = begins_of(request.lengths), begins_of(request.target_lengths)
        while True:
            positions, places = np.empty(room, np.int64), np.empty(room, np.int64)
            total = join_asked(
                given.rows, given.low, apart, request.links.astype(np.int64), begins, nodes, target_begins,
                request.targets.astype(np.int64), counts, positions, places,
            )  # fmt: skip
            if total <= room:
                break
            room = total
        found = compact(positions[:total]), compact(places[:total])
        yield request.shard, EdgesFound(edge_set, task, given.base, compact(counts), *found)


def begins_of(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Offsets of consecutive groups of these lengths, and the end of the last."""
    begins = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=begins[1:])
    return begins
