"""Features alone: logistic regression on the rows of nodes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler, normalize

from superworkflow.tasks.baselines import MOST_FEATURE_PRODUCTS, MOST_ROWS
from superworkflow.tasks.baselines.labelled_nodes import LabelledNodes, spread_out
from superworkflow.tasks.lib.gnn.features import features_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.metrics.logistic_regression import decision_function, fit_one_vs_rest

STRENGTHS = (0.1, 1.0, 10.0, 100.0)
"""Inverse strengths of the L2 penalty that are tried."""
MOST_ITERATIONS = 100
MOST_CHOSEN_BY = 5_000
"""Validation nodes by which the strength is chosen, at most."""
SPARSE = 0.25
"""Share of values other than 0 below which features are sparse."""
MOST_COLUMNS = 512
"""Features of nodes with several labels, at most: a matrix of their pairs is inverted."""
Rows = Any
"""Rows of features: an array, or SciPy's sparse one."""


def feature_scores(
    graph: HeteroGraph, labelled: LabelledNodes, judged: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.floating[Any]] | None, str]:
    """Scores [judged nodes, labels], and a note for the log; None with the reason if there are none.

    Raises:
        UserError: a feature is not a finite number.
    """
    features = features_of(graph, labelled.node_set)
    if features is None:
        return None, f"left out, since nodes of {labelled.node_set} have no features"
    sample = np.asarray(features[spread_out(labelled.nodes("train"), seed, 1000)], np.float32)
    is_sparse = float((sample != 0).mean()) < SPARSE
    stored = max(1.0, float((sample != 0).sum(axis=1).mean()) if is_sparse else sample.shape[1])
    limit = min(MOST_ROWS, max(1000, int(MOST_FEATURE_PRODUCTS / (stored * labelled.width))))
    trained = spread_out(labelled.nodes("train"), seed, limit)
    several = labelled.classes is None
    if several and features.shape[1] > MOST_COLUMNS:
        return None, f"left out, since {features.shape[1]} are more than {MOST_COLUMNS} and nodes have several labels"
    chosen_by = spread_out(labelled.nodes("validation"), seed, MOST_CHOSEN_BY)
    parts = [_rows(features, nodes, is_sparse) for nodes in (trained, chosen_by, judged)]
    parts = _scaled(parts, is_sparse and not several)
    dropped = len(labelled.nodes("train")) - len(trained)
    note = f"learned from {len(trained):,} training nodes of {len(trained) + dropped:,}" if dropped else ""
    if several:
        weights = fit_one_vs_rest(parts[0], labelled.marks(trained), tolerance=1e-4)
        return decision_function(parts[2], weights), note
    assert labelled.classes is not None
    own = labelled.classes[trained]
    if len(np.unique(own)) < 2:
        return None, "left out, since the training nodes that fit in are of one class"
    best, most = None, -1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for strength in STRENGTHS if len(chosen_by) else (1.0,):
            model = LogisticRegression(C=strength, max_iter=MOST_ITERATIONS, tol=1e-3).fit(parts[0], own)
            worth = float(model.score(parts[1], labelled.classes[chosen_by])) if len(chosen_by) else 0.0
            if worth > most:
                best, most = model, worth
    assert best is not None
    scores = np.zeros((len(judged), labelled.width), np.float32)
    scores[:, best.classes_] = best.predict_proba(parts[2])
    return scores, note


def _rows(features: NDArray[Any], nodes: NDArray[np.int64], is_sparse: bool) -> Rows:
    if not is_sparse:
        return np.asarray(features[nodes], np.float32)
    pieces = [sp.csr_matrix(np.asarray(features[nodes[i : i + 4096]], np.float32)) for i in range(0, len(nodes), 4096)]
    return sp.vstack(pieces, format="csr") if pieces else sp.csr_matrix((0, features.shape[1]), dtype=np.float32)


def _scaled(parts: list[Rows], is_sparse: bool) -> list[Rows]:
    """Rows of unit length if the training rows are sparse and not negative, else standardised by the training rows."""
    first = parts[0]
    if is_sparse and (not first.nnz or first.data.min() >= 0):
        return [normalize(part) if part.shape[0] else part for part in parts]
    scaler = StandardScaler(with_mean=not sp.issparse(first)).fit(first)
    return [scaler.transform(part) if part.shape[0] else part for part in parts]
