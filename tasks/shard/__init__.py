"""Stage `shard`: a typed graph in parts, each with the rows and features of its own nodes.

Nodes are renumbered so that a part is a range of numbers (`partition`). A row keeps the order of the old numbers: draws
pick places in a row, and hash old numbers, so that blocks are the same as of the graph itself.

Files: `book.npy` as partition has it, `shards.json`, and a folder `part-<p>` for each part. Of node set i it has

- `nodes-<i>-numbers.npy`, the old numbers of its nodes, and `nodes-<i>-features.npy` float32 [nodes, values];
- `nodes-<i>-halo.npy`, other nodes that its rows name, ascending, and `nodes-<i>-halo-numbers.npy`, their old numbers;

and of edge set j

- `edges-<j>-indptr.npy` int64 [nodes + 1] and `edges-<j>-indices.npy`, the rows in new numbers;
- `edges-<j>-first.npy` int64 [nodes], where each row begins in the whole graph;
- `edges-<j>-feature-<k>.npy` float32 [edges, width], or int64 of whole numbers of width 1, of each feature of numbers,
  in the order of the rows; `shards.json` has their names and widths. Which of them is a weight or a time, or is read by
  layers, training says.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats
from superworkflow.tasks.lib.gnn.estimates import edge_values, feature_values, mapped_graph

_PROCESS = Process(start_s=0.7, memory_bytes=140 << 20)
_WEIGHT_S = 1e-8
"""To put a number of an edge in its place."""


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """A part is in memory at a time, and a number and a stamp of every node; the graph is mapped."""
    graph, divided = inputs.get("graph", {}), inputs.get("partition", {})
    nodes, edges = max(1, int(graph.get("nodes") or 1)), int(graph.get("edges") or 0)
    parts = max(1, int(divided.get("parts") or 1))
    features, mapped = 4 * feature_values(graph), mapped_graph(graph)
    halo, weights = min(edges, int(divided.get("halo") or nodes)), edge_values(graph)
    output = features + 4 * edges + 4 * weights + 30 * nodes + 8 * halo
    placed = 16 * edges // parts if weights else 0  # where the edges of a part stand in the graph
    return _PROCESS.estimate(
        memory_bytes=17 * nodes + 2 * output // parts + placed + mapped,
        cpu_s=1.5e-7 * edges + 1e-7 * nodes + 4e-9 * features + _WEIGHT_S * weights + 4e-3 * parts,
        output_bytes=output,
        stats={"nodes": nodes, "edges": edges, "parts": parts, "bytes": output},
        parallel=0.1,
        mapped_bytes=mapped,
    )


STAGE = Stage(
    name="shard",
    version="5",
    params=StageParams,
    inputs={
        "graph": Input("heterograph dataset: the graph"),
        "partition": Input("partition dataset: its parts"),
    },
    run="superworkflow.tasks.shard.run:run",
    estimate=estimate,
    help="write a typed graph in parts, each with its rows and features",
)
