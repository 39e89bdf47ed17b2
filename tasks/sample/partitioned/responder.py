"""Responder of a partitioned sample: a task draws in the rows of its range for the shards that request it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from superworkflow.tasks.lib.graph.sparse_rows import row_starts
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.sample.partitioned.draw import (
    JoinRequests,
    RowDraws,
    RowRequests,
    draw_requested,
    join_requested,
    room_for,
)
from superworkflow.tasks.sample.partitioned.members import EdgeRequest, EdgeResponse
from superworkflow.tasks.sample.partitioned.plan import Routes, SamplePlan
from superworkflow.tasks.sample.partitioned.requester import ShardRequest, ShardResponse, compact
from superworkflow.tasks.sample.partitioned.rows import RangeRows, rows_of

load_kernels_fast()


def answer(
    plan: SamplePlan, routes: Routes, task: int, requests: list[ShardRequest]
) -> Iterator[tuple[int, ShardResponse]]:
    """Draw for all requests to a task."""
    if not requests:
        return
    edge_set, place = routes.range_of(task)
    rows = rows_of(plan, edge_set, place)
    for request in requests:
        yield request.shard, _drawn(plan, rows, task, request)


def _drawn(plan: SamplePlan, given: RangeRows, task: int, request: ShardRequest) -> ShardResponse:
    op, rows = plan.ops[request.op], given.rows
    requests = RowRequests(
        request.keys, request.times.astype(np.int64), request.links.astype(np.int64), row_starts(request.lengths),
        request.nodes.astype(np.int64) + given.low, request.draws.astype(np.int64),
    )  # fmt: skip
    room, most = room_for(rows.indptr, given.low, requests.nodes, requests.draws, op.size, plan.by_path)
    drawn = RowDraws(
        np.empty(len(requests.nodes), np.int64), np.empty(room, np.int64), np.empty(room, rows.indices.dtype),
        np.empty(room if plan.by_path else 0, np.int64),
    )  # fmt: skip
    total = draw_requested(rows, given.low, op.size, op.strategy, plan.by_path, requests, most, drawn)
    return ShardResponse(
        op.number, task, given.base, compact(drawn.counts), compact(drawn.positions[:total]),
        compact(drawn.targets[:total]), drawn.paths[:total],
    )  # fmt: skip


def join(
    plan: SamplePlan, routes: Routes, task: int, requests: list[EdgeRequest]
) -> Iterator[tuple[int, EdgeResponse]]:
    """All edges between nodes of subgraphs, in the rows of a task."""
    if not requests:
        return
    edge_set, place = routes.range_of(task)
    given = rows_of(plan, edge_set, place)
    for request in requests:
        rows = JoinRequests(
            request.links.astype(np.int64), row_starts(request.lengths), request.nodes.astype(np.int64) + given.low,
            row_starts(request.target_lengths), request.targets.astype(np.int64),
        )  # fmt: skip
        counts, room = np.empty(len(rows.nodes), np.int64), 4 * len(rows.nodes)
        while True:
            positions, places = np.empty(room, np.int64), np.empty(room, np.int64)
            total = join_requested(given.rows, given.low, rows, counts, positions, places)
            if total <= room:
                break
            room = total
        found = compact(positions[:total]), compact(places[:total])
        yield request.shard, EdgeResponse(edge_set, task, given.base, compact(counts), *found)
