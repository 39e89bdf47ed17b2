"""Subgraphs whose rows are drawn in parts, each by its owner, equal those of the plain sampler, whatever the cuts.

Requests and replies go from part to part as in `tasks.sample.partitioned`, but in this process.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs
from superworkflow.tasks.lib.subgraphs.blocks import read_group
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.partitioned.blocks import write_shard
from superworkflow.tasks.sample.partitioned.members import count_joins, edge_requests, store_edges
from superworkflow.tasks.sample.partitioned.plan import Routes, SamplePlan, plan_of
from superworkflow.tasks.sample.partitioned.requester import ShardSeeds, count_requests, draw_requests, store_draws
from superworkflow.tasks.sample.partitioned.responder import answer, join
from superworkflow.tasks.sample.sampler import SeedRows
from superworkflow.tasks.sample.spec import SamplingSpec
from tests.kernels.guarded import calls
from tests.kernels.test_sample_kernels import ENDS, specs
from tests.tasks.sampling import PlainSampler, plain, random_graph, same


@given(
    spec=specs(), seed=st.integers(0, 2**63 - 1), nodes=st.sampled_from([1, 2, 9, 40]), weighted=st.booleans(),
    edges=st.sampled_from([0, 1, 30, 400]), parallel=st.booleans(), aggregation=st.sampled_from(["edge", "node"]),
    inputs=st.sampled_from(["once", "path"]), parts=st.integers(1, 5), tasks=st.sampled_from([1, 3, 20]),
)  # fmt: skip
@settings(max_examples=25, deadline=None, print_blob=True)
def test_subgraphs_drawn_in_parts_equal_the_plain_samplers(
    tmp_path_factory: pytest.TempPathFactory, spec: SamplingSpec, seed: int, nodes: int, weighted: bool, edges: int,
    parallel: bool, aggregation: str, inputs: str, parts: int, tasks: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed % 2**32)
    made = random_graph(rng, {"a": nodes, "b": nodes // 2 + 1, "c": 3}, ENDS, edges, parallel=parallel)
    if not weighted:
        for features in made.features.values():
            del features["weight"]
    params = SampleParams(seed=seed, aggregation=aggregation, inputs=inputs)
    folder = tmp_path_factory.mktemp("parts")
    graph, kept = made.open(folder / "graph"), TaskOutputs(str(folder / "made"))
    plan = plan_of(graph, spec.fitted(graph.node_sets, graph.edge_sets), params, kept, str(folder / "rows"))
    cuts = tuple(np.unique([0, each.sources, *rng.integers(0, each.sources, parts - 1)]) for each in plan.edge_sets)
    subgraphs = 5
    numbers = rng.integers(0, nodes, (subgraphs, 1 + spec.is_link))
    times = rng.integers(-4, 7, subgraphs) * 2**55
    rows = SeedRows(pa.array([str(n) for n in range(subgraphs)]), numbers, times, np.arange(subgraphs) % 2)
    shards = [ShardSeeds(n, f"{n}.parquet", rows.part(n, last)) for n, last in ((0, 3), (3, subgraphs))]
    done = 0
    for block in sampled_in_parts(replace(plan, cuts=cuts), shards, tasks):
        for number in range(block.subgraphs):
            wanted = PlainSampler(made, spec, params).subgraph(
                numbers[done].tolist(), int(rows.repeats[done]), int(times[done])
            )
            assert same(plain(block, made, number), wanted)
            done += 1
    assert done == subgraphs
    assert not plan.ops or not edges or calls["draw_requested"]


def sampled_in_parts(plan: SamplePlan, shards: list[ShardSeeds], tasks: int) -> Iterator[Any]:
    """The blocks of these shards, read from their files."""
    counts = [count_requests(plan, shard, 0) for shard in shards]
    for level in range(plan.levels):
        routes = _routes(counts, tasks)
        replies = _exchanged(plan, routes, shards, partial(draw_requests, plan, routes, level), answer)
        counts = [store_draws(plan, routes, level, shards, place, replies[place])[1] for place in range(len(shards))]
    if plan.by_node:
        routes = _routes([count_joins(plan, shard) for shard in shards], tasks)
        found = _exchanged(plan, routes, shards, partial(edge_requests, plan, routes), join)
        for place in range(len(shards)):
            store_edges(plan, routes, shards, place, found[place])
    for shard in shards:
        write_shard(plan, shard)
        with pq.ParquetFile(Path(plan.kept.output) / shard.name) as file:
            yield from (read_group(file, group, plan.layout) for group in range(file.num_row_groups))


def _routes(counts: list[list[np.ndarray]], tasks: int) -> Routes:
    return Routes.shared([np.sum(each, axis=0) for each in zip(*counts, strict=True)], tasks)


def _exchanged(
    plan: SamplePlan, routes: Routes, shards: list[ShardSeeds], asks: Callable[[Any], Any], answers: Callable[..., Any]
) -> list[list[Any]]:
    """Replies of the tasks to each shard."""
    requests = sorted((pair for item in enumerate(shards) for pair in asks(item)), key=lambda pair: pair[0])
    replies: list[list[Any]] = [[] for _ in shards]
    for task, pairs in groupby(requests, key=lambda pair: pair[0]):
        for place, reply in answers(plan, routes, task, [request for _, request in pairs]):
            replies[place].append(reply)
    return replies
