"""Times of seeds: of labelled nodes, by a feature that they have."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.stat_names import is_single

UNTIMED = int(np.iinfo(np.int64).min)
"""Time of a node that has none."""
_WHERE = "train.seed_time"


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
