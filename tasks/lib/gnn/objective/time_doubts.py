"""Doubts about the times of seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph

_WHERE, _LABEL_TIME = "train.seed_time", "time"


def time_doubts(graph: HeteroGraph, seeds: NDArray[np.int64], name: str) -> list[InputWarning]:
    """Warnings of seeds' times that change nothing.

    Args:
        graph: the graph.
        seeds: times of the seeds, int64 [seeds].
        name: feature of edges that is their time.

    Raises:
        UserError: all edges are later than all seeds.
    """
    spans = [(int(each.min()), int(each.max())) for each in _edge_times(graph, name) if len(each)]
    if not spans or not len(seeds):
        return []
    first, last = min(low for low, _ in spans), max(high for _, high in spans)
    shown = f"seeds {seeds.min()} to {seeds.max()}, edges {first} to {last}"
    if seeds.max() < first:
        raise UserError("all edges are later than all seeds, which would have no neighbours", where=_WHERE, value=shown,
                        remedy="Write times of labels and of edges in the same unit")  # fmt: skip
    if seeds.min() >= last:
        return [InputWarning("no edge is later than any seed: the times of seeds change nothing", _WHERE, shown,
                             "Write times of labels and of edges in the same unit")]  # fmt: skip
    return []


def unused_times(graph: HeteroGraph, node_set: str, name: str) -> list[InputWarning]:
    """A warning where labels and edges have times, and those of the labels are not used."""
    timed = any(each.name == _LABEL_TIME for each in graph.node_sets[node_set].features)
    if not timed or not _edge_times(graph, name):
        return []
    what = "labels have times, and edges that are later pass messages to them"
    return [InputWarning(what, _WHERE, f"{node_set}.{_LABEL_TIME}", f"Set {_WHERE}={_LABEL_TIME}")]


def _edge_times(graph: HeteroGraph, name: str) -> list[NDArray[np.integer]]:
    """Times of the edge sets that have any; a set that reverses another one has the same."""
    return [
        graph.edge_feature(each.name, name)
        for each in graph.edge_sets.values()
        if each.reversed_of is None and any(f.name == name and "int" in f.dtype for f in each.features)
    ]
