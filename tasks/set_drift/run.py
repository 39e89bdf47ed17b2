"""The work of stage `set_drift`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, HeteroGraph, NodeSet

Sets = Mapping[str, NodeSet] | Mapping[str, EdgeSet]


def run(job: StageRun[StageParams]) -> Output:
    """Compare the sizes of sets; see `tasks.set_drift`.

    Raises:
        DatasetDamaged: a dataset is damaged.
        UserError: it is none of a typed graph.
    """
    now, before = (HeteroGraph.open(job.inputs[name]) for name in ("graph", "earlier_graph"))
    figures = changed("nodes_changed", now.node_sets, before.node_sets)
    figures |= changed("edges_changed", now.edge_sets, before.edge_sets)
    job.output.json("drift.json", figures)
    return Output(rows=len(figures), drift=figures)


def changed(figure: str, now: Sets, before: Sets) -> dict[str, float]:
    """The figure of each set that either of the graphs has."""
    found: dict[str, float] = {}
    for name in sorted(now.keys() | before.keys()):
        change = 1.0
        if name in now and name in before:
            change = abs(now[name].count - before[name].count) / max(before[name].count, 1)
        key = f"{figure}@{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}"
        found[key] = max(found.get(key, 0.0), change)  # two names may become one
    return found
