"""Stage `node_labels`: labels and splits of the nodes of a graph from an edge list, apart from the graph.

Other labels therefore make training and what follows it anew, and not the graph and the means of its features. A file
that cannot be read, or names other nodes, is refused here.

Files: as stage heterograph writes them, a graph of the node set `node` without edges and ids, which has the features
`label` and, if the file has splits, `split`. `HeteroGraph.open` adds them to the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_PROCESS = Process(start_s=0.7, memory_bytes=150 << 20)


class NodeLabelsParams(StageParams):
    """Parameters that say how labels are read."""

    several_labels: bool = Field(
        default=False,
        description="Nodes may have several labels even if fewer than 1 in 100 does.",
        json_schema_extra={"affects_result": False},
    )


def estimate(params: NodeLabelsParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Rows are held as text; a text for each node is written."""
    nodes, labels = int(inputs.get("graph", {}).get("nodes") or 0), inputs.get("labels", {})
    rows = int(labels.get("rows") or int(labels.get("bytes") or 0) // 8)
    output = 10 * min(rows, nodes or rows) + nodes
    return _PROCESS.estimate(
        memory_bytes=500 * rows + 300 * nodes,
        cpu_s=4e-6 * rows + 5e-7 * nodes,
        output_bytes=output,
        stats={
            "bytes": output, "labelled": min(rows, nodes or rows),
            **{name: labels[name] for name in ("train_nodes", "validation_nodes") if name in labels},
        },
    )  # fmt: skip


STAGE = Stage(
    name="node_labels",
    version="2",
    params=NodeLabelsParams,
    params_of=("heterograph",),
    inputs={
        "graph": Input("heterograph dataset: the graph of an edge list"),
        "labels": Input(
            "labels of its nodes: rows `node,label` or `node,label,split`; or a folder of part files",
            file=True,
            parts=True,
            stats="superworkflow.tasks.node_labels.split_stats:label_stats",
        ),
        "split": Input(
            "splits of its nodes, where the labels have none: rows `node,split`", file=True, parts=True, optional=True
        ),
    },
    run="superworkflow.tasks.node_labels.run:run",
    estimate=estimate,
    help="labels and splits of the nodes of an edge list's graph",
)
