"""Targets of nodes by the task: one class, several labels, or a number for each node."""

from __future__ import annotations

from superworkflow.tasks.lib.gnn.objective.label_lists import ManyTargets, has_several, many_targets_of
from superworkflow.tasks.lib.gnn.objective.labels import Targets, targets_of
from superworkflow.tasks.lib.gnn.objective.number_targets import NumberTargets, number_targets_of
from superworkflow.tasks.lib.gnn.objective.split_params import SplitParams
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph


def node_targets_of(graph: HeteroGraph, params: SplitParams) -> Targets | ManyTargets | NumberTargets:
    """Targets of a graph's nodes by `params.task`.

    Raises:
        UserError: the label cannot be learned by this task.
    """
    given = graph, params.label, params.shares, params.seed
    if params.task == "regression":
        return number_targets_of(*given)
    if has_several(graph, params.label):
        return many_targets_of(*given)
    return targets_of(*given, certain=params.task == "classification")
