"""Stage `aggregate`: the mean of every node's neighbours' features, for each edge set whose targets have features.

The first layer of a network whose outermost fan-out is `all` reads these means. No step changes them, so they are made
once for all epochs and trials, and no step has to draw and gather the largest of its hops.

Or of GCN the sum of these and the node's own, divided by the roots of both ends' degrees + 1, for a graph of one edge
set; full-graph training reads it.

Files: `means-<edge set>.npy` float32 [nodes of the edges' source set, values]; a node without neighbours has zeros. Of
GCN `gcn-<edge set>.npy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats
from superworkflow.tasks.lib.gnn.estimates import feature_values, mapped_graph, mean_values, stored_features, workers_of
from superworkflow.tasks.lib.gnn.precomputed_means import MEAN


class AggregateParams(StageParams):
    """Parameters of the aggregation."""

    form: Literal["mean", "gcn"] = Field(
        default="mean", description="mean of neighbours, or gcn: the sum of these and the node's own, divided by the "
        "roots of both ends' degrees.",
    )  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """Without the form of means, as datasets of means were named before there was another one."""
        values = super().identity()
        if self.form == MEAN:
            del values["form"]
        return values


class GcnSumsParams(AggregateParams):
    """Parameters of the aggregation for training on the whole graph, which reads the sums of GCN alone."""

    form: Literal["gcn"] = Field(default="gcn", description="The form that train_full reads.")


_PROCESS = Process(start_s=0.7, memory_bytes=150 << 20)
_WORKER_BYTES = 420 << 20
"""Resident set of a worker, which has torch as well."""
_PIECE_BYTES = 64 << 20
_HALF_S, _SINGLE_S = 2.4e-9, 8e-10
"""To add a number of float16, and of float32."""


def estimate(params: AggregateParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """A row of features is added for each edge; all but a piece of the means is on disk."""
    graph = inputs.get("graph", {})
    nodes, edges = max(1, int(graph.get("nodes") or 1)), int(graph.get("edges") or 0)
    output, mapped = 4 * mean_values(graph), mapped_graph(graph)
    stored, values = stored_features(graph), feature_values(graph)
    return _PROCESS.estimate(
        memory_bytes=min(2 * output, 2 * _PIECE_BYTES) + mapped,
        cpu_s=(_HALF_S if stored < 3 * values else _SINGLE_S) * edges * values / nodes + 2e-9 * output,
        output_bytes=output,
        stats={"bytes": output, "nodes": nodes},
        parallel=0.8,
        mapped_bytes=mapped,
    )


def estimate_on_workers(params: AggregateParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Each worker has the features and means of its nodes and those of neighbours; the first maps all means."""
    alone, workers = estimate(params, inputs, resources), workers_of(resources)
    features = 4 * feature_values(inputs.get("graph", {}))
    memory = _WORKER_BYTES + features + features * 2 // workers + alone.output_bytes * (workers + 1) // workers
    return replace(alone, memory_bytes=memory, base_bytes=_WORKER_BYTES, mapped_bytes=alone.output_bytes)


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
    estimates={"workers": estimate_on_workers},
    help="mean of every node's neighbours' features, or GCN's sum",
)
