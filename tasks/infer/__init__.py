"""Stage `infer`: a trained network applied to all nodes, layer by layer, each with all its neighbours.

Files: `predictions.parquet` with columns `node`, `predicted`, `probability` of that class, and `label` and `split`,
null where there is none. Where nodes have several labels `predicted` and `probability` are lists of those with a
probability of at least a half, or the likeliest, `label` is a list, and `ranked` lists of a node with k labels the k
likeliest. `probabilities.npy` float32 [nodes, classes], of all classes, whose names are in `classes.json`; they sum to
1 where nodes have one class. `embeddings.parquet`, columns `node` and `vector`, what the last layer reads of each node
(of a network of one layer, its scores). All have the nodes of the classified set, by number. Of numbers
`predicted` and `label` are float64, in the labels' unit, and there are no probabilities. A graph without labels has
none to compare with, and a graph other than the network's own has no splits unless `splits` gives them.

Of a network that predicts links: `embeddings.parquet` has what the last layer makes of the nodes where the edges start,
`target_embeddings.parquet` of those where they end, if that is another node set or the decoder is `complex`, then as
they are multiplied; `factors.npy` float32 [width], of the
decoder. A pair's score is the sum over the columns of both nodes' vectors and the factors, multiplied.
`predictions.parquet` has the held-out pairs with columns `source`, `target`, `linked`, `split`, `score`, `probability`.

Of one that predicts triples of all relations both files have the rows as they are, `factors.npy` is float32
[relations, width], `relations.json` names the decoder and the relations, and the triples have a column `relation`;
scores are those of `lib.gnn.sampler.triples`.

Of a network that predicts edges: `embeddings.parquet` and `target_embeddings.parquet` as of links, which the decoder of
`lib.gnn.model.pair_decoder` reads, and the labelled edges in `predictions.parquet` with columns `source`, `target`,
`predicted`, of classes `probability`, `label` and `split`; of a graph without labels all edges of the set, in its order
(those of an edge list without direction once, in the order of its rows), with nulls for both; `probabilities.npy` and
`classes.json` as of nodes.

`rows-<layer>-<node set>.npy` float32 [nodes, width]: what a layer from the second on reads of the nodes of a set, by
number of both; see `lib.gnn.model.inner_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats
from superworkflow.tasks.lib.gnn.estimates import USUAL_CLASSES, feature_values, mapped_graph, workers_of


class InferParams(StageParams):
    """Parameters of inference."""

    batch: int = Field(default=8192, ge=1, le=1 << 20, description="Nodes that are computed together, 1 to 1048576.")
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="Where to compute: cpu or cuda.")
    inner_rows: bool = Field(
        default=True,
        description="Also write what inner layers read of all nodes, by which a registered model predicts new nodes; a "
        "classifier of two layers and one node set needs nothing more.",
    )


_PROCESS = Process(start_s=2.6, memory_bytes=420 << 20)
_NODE_BYTES, _WORKER_NODE_BYTES = 300, 400
"""Bytes of a node: its name, label, split and class as columns; of the first worker's also its places in parts."""


def estimate(params: InferParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Every edge once in each layer, every node once through each matrix; rows of two layers are held."""
    graph, network = inputs.get("graph", {}), inputs.get("network", {})
    nodes, edges = max(1, int(graph.get("nodes") or 1)), int(graph.get("edges") or 0)
    hidden, layers = int(network.get("hidden") or 256), int(network.get("layers") or 2)
    classes, values = int(network.get("classes") or USUAL_CLASSES), feature_values(graph)
    width = values / nodes or hidden
    products = 2.0 * nodes * hidden * (width + (layers - 1) * hidden)
    sums = 1.0 * edges * (width + (layers - 1) * hidden)
    # What a layer reads and makes, and of the last one its senders' rows times its matrix.
    held = max(2 * hidden if layers > 2 else 0, (hidden if layers > 1 else 0) + 2 * classes)
    if network.get("model") in ("gcn", "gin", "gat"):  # a table of products of every layer
        held = max(2 * hidden if layers > 1 else 0, held)
    held += 0 if values else hidden  # embeddings, where there are no features to map
    gathered = min(nodes, params.batch * edges // nodes) * int(width) * 8
    mapped = mapped_graph(graph)
    inner = hidden * max(0, layers - 2) if params.inner_rows else 0
    return _PROCESS.estimate(
        memory_bytes=(4 * held + _NODE_BYTES) * nodes + gathered + mapped,
        cpu_s=products / 7e10 + sums * 6e-10 + 4e-8 * edges * layers + 2e-6 * nodes,
        output_bytes=nodes * (4 * (hidden + inner + classes) + 40),
        stats={"rows": nodes, "nodes": nodes, "dimensions": hidden},
        parallel=0.6,
        mapped_bytes=mapped,
    )


def estimate_on_workers(params: InferParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Each worker has its nodes' rows and those of neighbours, most of all nodes, and weights of its edges, where there
    are any; the first also maps all results."""
    alone, workers = estimate(params, inputs, resources), workers_of(resources)
    graph, network = inputs.get("graph", {}), inputs.get("network", {})
    nodes, hidden = max(1, int(graph.get("nodes") or 1)), int(network.get("hidden") or 256)
    classes, values = int(network.get("classes") or USUAL_CLASSES), feature_values(graph) or nodes * hidden
    rows = nodes * (3 * hidden + 2 * classes) + values * (2 * workers + 1) // workers
    weights = int(graph.get("edges") or 0) // workers if network.get("weighted") else 0
    memory = _PROCESS.memory_bytes + 4 * (rows + weights) + _WORKER_NODE_BYTES * nodes
    return replace(alone, memory_bytes=memory, mapped_bytes=4 * nodes * (hidden + classes))


STAGE = Stage(
    name="infer",
    version="6",
    params=InferParams,
    inputs={
        "graph": Input("heterograph dataset: the graph with features and labels"),
        "labels": Input("node_labels dataset: labels of an edge list's nodes", optional=True),
        "network": Input("train dataset: the trained network"),
        "shards": Input("shard dataset: the same graph in parts, for workers", optional=True, affects_result=False),
        "subgraphs": Input("sample dataset: subgraphs by which their seeds are predicted", optional=True),
        "splits": Input("train dataset: whose splits nodes have, instead of the network's own", optional=True),
    },
    run="superworkflow.tasks.infer.run:run",
    engines={"workers": "superworkflow.tasks.infer.on_workers:run"},
    check="superworkflow.tasks.lib.device:check_device",
    estimate=estimate,
    estimates={"workers": estimate_on_workers},
    image="torch",
    needs=("torch", "safetensors"),
    help="predictions and embeddings of all nodes",
)
