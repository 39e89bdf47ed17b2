"""Times of seeds: of labelled nodes, by a feature that they have; and doubts about them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.stat_names import is_single

UNTIMED = int(np.iinfo(np.int64).min)
"""Time of a node that has none."""
_WHERE, _LABEL_TIME = "train.seed_time", "time"


def node_times(graph: HeteroGraph, node_set: str, name: str, seeds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Times of the nodes of a set by a feature, int64 [nodes], `UNTIMED` where a node has none.

    Args:
        graph: the graph.
        node_set: name of the set.
        name: of the feature.
        seeds: numbers of the nodes that must have a time.

    Raises:
        UserError: there is no such feature, it is not one whole number for each node, or a seed has no time.
    """
    features = {each.name: each for each in graph.node_sets[node_set].features}
    if name not in features:
        raise UserError(
            f"nodes of {node_set} have no such feature", where=_WHERE, value=name,
            remedy=f"Give --labels a column `time` and set {_WHERE}=time, or name one that nodes have: "
            f"{', '.join(features)[:500] or 'none'}",
        )  # fmt: skip
    where = f"{graph.dataset.uri}, {node_set}.{name}"
    if not is_single(features[name]) or not features[name].dtype.startswith(("int", "uint")):
        raise UserError("a time is one whole number for each node", where=where, value=features[name].dtype,
                        remedy="Store times as int64, such as Unix times")  # fmt: skip
    times = np.ascontiguousarray(graph.node_feature(node_set, name)).reshape(-1).astype(np.int64)
    lacking = seeds[times[seeds] == UNTIMED]
    if len(lacking):
        raise UserError(f"{len(lacking)} of {len(seeds)} labelled nodes have no time", where=where,
                        value=graph.ids(node_set)[int(lacking[0])].as_py(),
                        remedy=f"Give each labelled node a time, or leave {_WHERE} out")  # fmt: skip
    return times


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
