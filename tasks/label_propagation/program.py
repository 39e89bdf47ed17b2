"""Label propagation: a node's shares of the classes are the weighted means of its neighbours'.

Labelled nodes keep their class; the others end at the harmonic function: the chance that a walk from the node meets a
node of the class before any other labelled one (Zhu, Ghahramani and Lafferty, ICML 2003). In large graphs with few
labels all nodes have nearly the same shares, since walks forget where they began, and the largest is the same class
everywhere. The prediction is the class whose share is above its mean over the nodes without a label by most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from superworkflow.tasks.lib.vertex.program import ProgramParams, VertexProgram


class LabelPropagationParams(ProgramParams):
    """Parameters of label propagation."""

    threshold: float = Field(
        default=1e-5, gt=0, lt=1,
        description="Neighbours are updated again when a node's shares have changed by more than this in all, above 0 "
        "and below 1.",
    )  # fmt: skip


def init(scope: Any, params: Any) -> None:
    """Labelled nodes have their class alone, and their neighbours are first."""
    if scope.label >= 0:
        scope.share[scope.label] = 1.0
        for i in range(scope.degree):
            scope.signal(scope.neighbour(i))


def update(scope: Any, params: Any) -> float:
    """The mean of the neighbours; those that count on it are next if it has changed."""
    if scope.label >= 0:
        return 0.0
    share, total, change = scope.share, 0.0, 0.0
    for i in range(scope.degree):
        total += scope.weight(i)
    for kind in range(len(share)):
        mean = 0.0
        for i in range(scope.degree):
            mean += scope.weight(i) * scope.neighbour(i).share[kind]
        mean /= total
        change += abs(mean - share[kind])
        share[kind] = mean
    if change > params.threshold:
        for i in range(scope.degree):
            scope.signal(scope.neighbour(i), change)
    return change


def restart(values: Mapping[str, Any], earlier: Any) -> None:
    """Earlier shares, but where no labelled node is reached any more; neighbours of other labels are looked at."""
    import scipy.sparse as sp
    from scipy.sparse.csgraph import connected_components

    label, share, graph = values["label"], values["share"], earlier.graph
    given = share.copy()
    earlier.keep(values, "share")
    share[label >= 0] = given[label >= 0]
    rows = sp.csr_array((np.ones(len(graph.indices), np.int8), graph.indices, graph.indptr), shape=(len(label),) * 2)
    component = connected_components(rows, directed=False)[1]
    share[~np.isin(component, component[label >= 0])] = 0.0
    earlier.changed |= earlier.around(earlier.differs)


def finish(fields: Mapping[str, Any], params: LabelPropagationParams) -> dict[str, Any]:
    """The prediction too; that of a labelled node is its label, and -1 is that of one which no label reaches."""
    label, share = fields["label"], fields["share"]
    reached = (label < 0) & share.any(axis=1)
    mean = share[reached].mean(axis=0) if reached.any() else 0.0
    predicted = np.where(reached, (share - mean).argmax(axis=1), label).astype(np.int32)
    return {"label": label, "predicted": predicted, "share": share}


PROGRAM = VertexProgram(
    name="label_propagation",
    fields={"label": "int32", "predicted": "int32", "share": ("float64", "label")},
    init=init, update=update, params=LabelPropagationParams, given=("label",), classes=("label",),
    shown={"predicted": "label"}, restart=restart, finish=finish,
    help="class of each node from the classes of some",
)  # fmt: skip
