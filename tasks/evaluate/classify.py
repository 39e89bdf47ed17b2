"""Node classification by the DeepWalk protocol.

Perozzi, Al-Rfou, Skiena: DeepWalk, KDD 2014, section 5.2, after Tang and Liu, KDD 2009: a random share of the labelled
nodes trains one L2-regularised logistic regression per label on the vectors as they are; a test node that has k
labels is given the k labels of highest score. Micro- and Macro-F1 are taken over all test nodes, and averaged over
the random splits. Nodes with one label each are the case k = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.metrics.f1 import Matrix, f1_scores, top_k
from superworkflow.tasks.lib.metrics.logistic_regression import decision_function, fit_one_vs_rest


@dataclass(frozen=True)
class Score:
    """One split."""

    train_ratio: float
    shuffle: int
    micro_f1: float
    macro_f1: float


def check_split(nodes: int, ratio: float, where: str) -> None:
    """Raise UserError when a train ratio leaves no node to train on or to test on."""
    if not 1 <= int(ratio * nodes) < nodes:
        raise UserError(
            f"this leaves {int(ratio * nodes)} of {nodes} labelled nodes to train on, and both parts need one",
            where=where, value=ratio, remedy="Choose other train ratios, or label more nodes",
        )  # fmt: skip


def classify(vectors: NDArray[np.float32], labels: Matrix, ratio: float, shuffle: int, *, seed: int, C: float) -> Score:
    """Train and score one split.

    The split depends on (seed, shuffle) alone: a larger ratio trains on a superset of the nodes of a smaller one.

    Args:
        vectors: `[n, d]`.
        labels: `[n, labels]`, at least one per row.
        ratio: share to train on; rounded down to whole nodes.
    """
    order = np.random.default_rng([seed, shuffle]).permutation(len(vectors))
    cut = int(ratio * len(vectors))
    train, test = order[:cut], order[cut:]
    weights = fit_one_vs_rest(vectors[train], labels[train], C=C)
    truth = labels[test]
    predicted = top_k(decision_function(vectors[test], weights), truth.sum(axis=1))
    micro, macro = f1_scores(truth, predicted)
    return Score(ratio, shuffle, micro, macro)
