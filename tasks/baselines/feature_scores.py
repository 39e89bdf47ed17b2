"""Features alone: logistic or ridge regression on the rows of nodes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler, normalize

from superworkflow.tasks.baselines import MOST_FEATURE_PRODUCTS, MOST_ROWS
from superworkflow.tasks.baselines.labelled_nodes import LabelledNodes, spread_out
from superworkflow.tasks.lib.gnn.column_scaling import PIECEWISE, unscaled
from superworkflow.tasks.lib.gnn.features import features_of, scaling_of
from superworkflow.tasks.lib.gnn.objective.labels import NodeTargets
from superworkflow.tasks.lib.gnn.objective.number_targets import NumberTargets
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.huge_pages import rows_of_pieces
from superworkflow.tasks.lib.metrics.logistic_regression import decision_function, fit_one_vs_rest

STRENGTHS = (0.1, 1.0, 10.0, 100.0)
"""Inverse strengths of the L2 penalty that are tried."""
RIDGE_STRENGTHS = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
MOST_ITERATIONS = 100
MOST_CHOSEN_BY = 5_000
"""Validation nodes by which the strength is chosen, at most."""
SPARSE = 0.25
"""Share of values other than 0 below which features are sparse."""
MOST_COLUMNS = 512
"""Features of nodes with several labels, at most: a matrix of their pairs is inverted."""
Rows = Any
"""Rows of features: an array, or SciPy's sparse one."""


class FeatureRows(NamedTuple):
    """Rows of features for a model without the graph.

    Args:
        trained, chosen_by: nodes to train on, and to choose the strength of the penalty by.
        rows: scaled features of these two and of the judged nodes.
        note: for the log.
    """

    trained: NDArray[np.int64]
    chosen_by: NDArray[np.int64]
    rows: list[Rows]
    note: str


def feature_rows(
    graph: HeteroGraph,
    targets: NodeTargets,
    judged: NDArray[np.int64],
    seed: int,
    width: int,
    several: bool = False,
    own_scale: bool = False,
) -> tuple[FeatureRows | None, str]:
    """Rows of features, and the reason if there are none.

    Args:
        graph, targets: the graph; labels and splits of its nodes.
        judged: nodes to predict.
        seed: of the sample of nodes, where all are too many.
        width: number of the model's outputs.
        several: nodes have several labels.
        own_scale: rows are numbers of the table, not their places in intervals.

    Raises:
        UserError: a feature is not a finite number.
    """
    features = features_of(graph, targets.node_set)
    if features is None:
        return None, f"left out, since nodes of {targets.node_set} have no features"
    sample = np.asarray(features[spread_out(targets.nodes("train"), seed, 1000)], np.float32)
    is_sparse = float((sample != 0).mean()) < SPARSE
    stored = max(1.0, float((sample != 0).sum(axis=1).mean()) if is_sparse else sample.shape[1])
    limit = min(MOST_ROWS, max(1000, int(MOST_FEATURE_PRODUCTS / (stored * width))))
    trained = spread_out(targets.nodes("train"), seed, limit)
    if several and features.shape[1] > MOST_COLUMNS:
        return None, f"left out, since {features.shape[1]} are more than {MOST_COLUMNS} and nodes have several labels"
    chosen_by = spread_out(targets.nodes("validation"), seed, MOST_CHOSEN_BY)
    parts = [_rows(features, nodes, is_sparse) for nodes in (trained, chosen_by, judged)]
    scaling = scaling_of(graph, targets.node_set)
    if scaling is not None and scaling["kind"] == PIECEWISE and not is_sparse:
        # Places in intervals have one scale; standardised, those of a few outliers would be far beyond all others.
        rows = [_unscaled(part, scaling) for part in parts] if own_scale else parts
    else:
        rows = _scaled(parts, is_sparse and not several)
    count = len(targets.nodes("train"))
    note = f"learned from {len(trained):,} training nodes of {count:,}" if len(trained) < count else ""
    return FeatureRows(trained, chosen_by, rows, note), ""


def feature_scores(
    graph: HeteroGraph, labelled: LabelledNodes, judged: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.floating[Any]] | None, str]:
    """Scores [judged nodes, labels], and a note for the log; None with the reason if there are none.

    Raises:
        UserError: a feature is not a finite number.
    """
    several = labelled.classes is None
    found, reason = feature_rows(graph, labelled.targets, judged, seed, labelled.width, several)
    if found is None:
        return None, reason
    trained, chosen_by, parts, note = found
    if several:
        weights = fit_one_vs_rest(parts[0], labelled.marks(trained), tolerance=1e-4)
        return decision_function(parts[2], weights), note
    assert labelled.classes is not None
    own = labelled.classes[trained]
    if len(np.unique(own)) < 2:
        return None, "left out, since the training nodes that fit in are of one class"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = _best(
            [LogisticRegression(C=c, max_iter=MOST_ITERATIONS, tol=1e-3) for c in STRENGTHS],
            parts, own, labelled.classes[chosen_by],
        )  # fmt: skip
    scores = np.zeros((len(judged), labelled.width), np.float32)
    scores[:, model.classes_] = model.predict_proba(parts[2])
    return scores, note


def ridge_numbers(
    graph: HeteroGraph, targets: NumberTargets, judged: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.floating[Any]] | None, str]:
    """Predictions of ridge regression [judged nodes], and a note for the log; None with the reason if there are none.

    Raises:
        UserError: a feature is not a finite number.
    """
    found, reason = feature_rows(graph, targets, judged, seed, 1)
    if found is None:
        return None, reason
    own, chosen_by = targets.standardised(found.trained), targets.standardised(found.chosen_by)
    model = _best([Ridge(alpha=1 / c) for c in RIDGE_STRENGTHS], found.rows, own, chosen_by)
    return model.predict(found.rows[2]) * targets.scale + targets.mean, found.note


def _best(models: Sequence[Any], rows: Sequence[Rows], own: NDArray[Any], chosen_by: NDArray[Any]) -> Any:
    """The model of the highest score on the validation rows, of equal ones the first; the second one without these."""
    if not len(chosen_by):
        return models[1].fit(rows[0], own)
    return max((model.fit(rows[0], own) for model in models), key=lambda each: each.score(rows[1], chosen_by))


def _rows(features: NDArray[Any], nodes: NDArray[np.int64], is_sparse: bool) -> Rows:
    if not is_sparse:
        return np.asarray(features[nodes], np.float32)
    pieces = [sp.csr_matrix(np.asarray(features[nodes[i : i + 4096]], np.float32)) for i in range(0, len(nodes), 4096)]
    return sp.vstack(pieces, format="csr") if pieces else sp.csr_matrix((0, features.shape[1]), dtype=np.float32)


def _unscaled(rows: NDArray[Any], scaling: dict[str, Any]) -> Rows:
    found = np.empty((len(rows), len(scaling["mean"])), np.float32)
    for piece in rows_of_pieces(rows):
        found[piece] = unscaled(rows[piece], scaling)
    return found


def _scaled(parts: list[Rows], is_sparse: bool) -> list[Rows]:
    """Rows of unit length if the training rows are sparse and not negative, else standardised by the training rows."""
    first = parts[0]
    if is_sparse and (not first.nnz or first.data.min() >= 0):
        return [normalize(part) if part.shape[0] else part for part in parts]
    scaler = StandardScaler(with_mean=not sp.issparse(first)).fit(first)
    return [scaler.transform(part) if part.shape[0] else part for part in parts]
