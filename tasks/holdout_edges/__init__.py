"""Stage `holdout_edges`: labels of edges to learn, and the graph without the edges to validate on and to test.

Labels are a column of the edge list or, with a schema, a feature SET.FEATURE of an edge set (`train.label`): texts or
whole numbers that are classes, or numbers to predict (`train.task`). An empty field, nan, None and null mean that an
edge has none; it then only passes messages. Rows with the same node twice are left out, as they are of the graph.

A share of the labelled edges, of each class, is to validate on and to test (`train.split_by`). These edges leave the
graph, with all others between the same two nodes, in this set and in those that reverse it: of a graph whose edges have
a direction those of the same one, else both. So no messages, weights or features of theirs are seen; nor are labels,
which leave the graph with all of the feature's sets. The nodes stay.

Files: those of a heterograph dataset (see `tasks.lib.graph.heterograph`), and those of `lib.gnn.objective.edge_labels`,
in the order of the rows of the edge list, or of the edges of the set.

The same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, Stats
from superworkflow.tasks.lib.edge_list.time_bounds import ColumnName, TimeBound
from superworkflow.tasks.lib.gnn.objective.split_params import SplitParams


class HoldoutEdgesParams(SplitParams):
    """Parameters of labels of edges: those of stage train, and those by which stage heterograph reads an edge list."""

    missing: Literal["auto", "error", "drop", "keep"] = Field(default="auto", description="See `index.missing`.")
    bipartite: Literal["auto"] | bool = Field(default="auto", description="See `index.bipartite`.")
    time: ColumnName = Field(default=None, description="See `index.time`.")
    from_time: TimeBound = Field(default=None, description="See `index.from_time`.")
    until: TimeBound = Field(default=None, description="See `index.until`.")


_PROCESS = Process(start_s=1.1, memory_bytes=230 << 20)


def estimate(params: HoldoutEdgesParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Rows are read as text; features are copied."""
    graph, given = inputs.get("graph", {}), inputs.get("edges", {})
    edges, size = int(graph.get("edges") or 0), int(graph.get("bytes") or 0)
    labelled = max(1, edges // 2)
    kept = params.train_share
    return _PROCESS.estimate(
        memory_bytes=100 * labelled + 40 * edges,
        cpu_s=8e-7 * labelled + 1e-9 * size + 5e-9 * int(given.get("bytes") or 0),
        output_bytes=size + 25 * labelled,
        stats={
            **graph,
            **{name: round(int(graph[name] or 0) * kept) for name in ("edges", "reversed_edges") if name in graph},
            "labelled_edges": labelled,
        },
        mapped_bytes=size,
    )


STAGE = Stage(
    name="holdout_edges",
    version="1",
    params=HoldoutEdgesParams,
    params_of=("heterograph", "train"),
    inputs={
        "graph": Input("heterograph dataset: the graph"),
        "edges": Input(
            "the edge list that the graph is made of, which has the labels; with a schema its edges have them",
            optional=True,
            file=True,
            parts=True,
        ),
    },
    run="superworkflow.tasks.holdout_edges.run:run",
    estimate=estimate,
    help="labels of edges to learn, and the graph without those that are judged",
    late=("superworkflow.tasks.lib.edge_list.duckdb_reader",),
)
