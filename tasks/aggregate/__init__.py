"""Stage `aggregate`: the mean of every node's neighbours' features, for each edge set whose targets have features.

The first layer of a network whose outermost fan-out is `all` reads these means. No step changes them, so they are made
once for all epochs and trials, and no step has to draw and gather the largest of its hops.

Files: `means-<edge set>.npy` float32 [nodes of the edges' source set, values]; a node without neighbours has zeros.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.params import StageParams
from superworkflow.infra.resources import Resources
from superworkflow.infra.stage import Estimate, Input, Stage, Stats


class AggregateParams(StageParams):
    """Parameters of the stage aggregate: there are none."""


_PROCESS_BYTES = 150 << 20
_START_S = 0.7
_PIECE_BYTES = 64 << 20


def estimate(params: AggregateParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """A row of features is added for each edge; all but a piece of the means is on disk."""
    graph = inputs.get("graph", {})
    nodes, edges = max(1, int(graph.get("nodes") or 1)), int(graph.get("edges") or 0)
    node_bytes = max(0, int(graph.get("bytes") or 0) - 4 * edges - 20 * nodes) / nodes
    output = int(nodes * node_bytes * max(1, int(graph.get("edge_sets") or 1)))
    return Estimate(
        memory_bytes=_PROCESS_BYTES + min(2 * output, 2 * _PIECE_BYTES),
        cpu_s=_START_S + 2e-10 * edges * node_bytes + 2e-9 * output,
        output_bytes=output,
        stats={"bytes": output, "nodes": nodes},
        parallel=0.8,
        start_s=_START_S,
        base_bytes=_PROCESS_BYTES,
        mapped_bytes=int(nodes * node_bytes),
    )


def sums_file(edge_set: int) -> str:
    """Name of the file of an edge set's means."""
    return f"means-{edge_set}.npy"


STAGE = Stage(
    name="aggregate",
    version="1",
    params=AggregateParams,
    inputs={
        "graph": Input("heterograph dataset: the graph with features"),
        "shards": Input("shard dataset: the same graph in parts, for workers", optional=True, affects_result=False),
    },
    run="superworkflow.tasks.aggregate.run:run",
    engines={"workers": "superworkflow.tasks.aggregate.on_workers:run"},
    estimate=estimate,
    help="mean of every node's neighbours' features",
)
