"""Features alone: a random forest on the rows of nodes (Breiman, 2001; scikit-learn's trees)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from superworkflow.tasks.baselines import MOST_FOREST_CLASSES, TREES
from superworkflow.tasks.baselines.feature_scores import FeatureRows, feature_rows
from superworkflow.tasks.baselines.labelled_nodes import LabelledNodes
from superworkflow.tasks.lib.gnn.objective.labels import NodeTargets
from superworkflow.tasks.lib.gnn.objective.number_targets import NumberTargets
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph

LEAF = 2
"""Nodes of a leaf, at least."""
MOST_TRIED = 32
"""Features that are tried at a split, at most: of classes the root of their number, of numbers a third."""
Scores = NDArray[np.floating[Any]]


def forest_classes(
    graph: HeteroGraph, labelled: LabelledNodes, judged: NDArray[np.int64], seed: int
) -> tuple[Scores | None, str]:  # fmt: skip
    """Shares of classes [judged nodes, classes], and a note for the log; None with the reason if there are none.

    Raises:
        UserError: a feature is not a finite number.
    """
    if labelled.classes is None or labelled.width > MOST_FOREST_CLASSES:
        return None, f"left out, since nodes have several labels or there are more than {MOST_FOREST_CLASSES} classes"
    found, note = _rows(graph, labelled.targets, judged, seed, labelled.width)
    if found is None:
        return None, note
    tried = min(MOST_TRIED, round(found.rows[0].shape[1] ** 0.5))
    own = labelled.classes[found.trained]
    scores = np.zeros((len(judged), labelled.width), np.float32)
    scores[:, np.unique(own)] = _mean(RandomForestClassifier, tried, found.rows, own, lambda tree: tree.predict_proba)
    return scores, note


def forest_numbers(
    graph: HeteroGraph, targets: NumberTargets, judged: NDArray[np.int64], seed: int
) -> tuple[Scores | None, str]:  # fmt: skip
    """Predictions [judged nodes], and a note for the log; None with the reason if there are none.

    Raises:
        UserError: a feature is not a finite number.
    """
    found, note = _rows(graph, targets, judged, seed, 1)
    if found is None:
        return None, note
    tried, own = min(MOST_TRIED, -(-found.rows[0].shape[1] // 3)), targets.standardised(found.trained)
    predicted = _mean(RandomForestRegressor, tried, found.rows, own, lambda tree: tree.predict)
    return predicted * targets.scale + targets.mean, note


def _rows(
    graph: HeteroGraph, targets: NodeTargets, judged: NDArray[np.int64], seed: int, width: int
) -> tuple[FeatureRows | None, str]:  # fmt: skip
    found, reason = feature_rows(graph, targets, judged, seed, width, own_scale=True)
    if found is None:
        return None, reason
    return (None, "left out, since features are sparse") if sp.issparse(found.rows[0]) else (found, found.note)


def _mean(
    kind: Any, tried: int, rows: list[Any], own: NDArray[Any], method: Callable[[Any], Callable[[Any], Scores]]
) -> Scores:  # fmt: skip
    """Mean of the trees' predictions of the judged rows; one tree with the classes of its leaves is in memory."""
    total: Any = 0.0
    for number in range(TREES):
        tree = kind(1, min_samples_leaf=LEAF, max_features=max(1, tried), random_state=number)
        total = total + method(tree.fit(rows[0], own))(rows[2])
    mean: Scores = total / TREES
    return mean
