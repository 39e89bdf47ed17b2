"""Node classification by the DeepWalk protocol.

Perozzi, Al-Rfou, Skiena: DeepWalk, KDD 2014, section 5.2, after Tang and Liu, KDD 2009: a random share of the labelled
nodes trains one L2-regularised logistic regression per label on the vectors as they are; a test node that has k
labels is given the k labels of highest score. Micro- and Macro-F1 are taken over all test nodes, and averaged over
the random splits. Nodes with one label each are the case k = 1.

Of the penalty's inverse strength C the literature has 1, on some thousand nodes. The entries of these vectors are near
0.1, so that on a few hundred nodes the penalty outweighs the labels: `strength` chooses from 1 to what is 1 for entries
of variance 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.metrics.figures import Matrix, f1_scores, top_k
from superworkflow.tasks.lib.metrics.logistic_regression import TOLERANCE, decision_function, fit_one_vs_rest


@dataclass(frozen=True)
class Score:
    """One split."""

    train_ratio: float
    shuffle: int
    micro_f1: float
    macro_f1: float


_JUDGED = 512
"""Training nodes by which `strength` chooses."""
_ROUGH = 1e-3
"""Tolerance of its fits."""


def check_split(nodes: int, ratio: float, where: str) -> None:
    """Raise UserError when a train ratio leaves no node to train on or to test on."""
    if not 1 <= int(ratio * nodes) < nodes:
        raise UserError(
            f"this leaves {int(ratio * nodes)} of {nodes} labelled nodes to train on, and both parts need one",
            where=where, value=ratio, remedy="Choose other train ratios, or label more nodes",
        )  # fmt: skip


def classify(
    vectors: NDArray[np.float32], labels: Matrix, ratio: float, shuffle: int, *, seed: int, C: float | Literal["auto"]
) -> Score:
    """Train and score one split.

    The split depends on (seed, shuffle) alone: a larger ratio trains on a superset of the nodes of a smaller one.

    Args:
        vectors: `[n, d]`.
        labels: `[n, labels]`, at least one per row.
        ratio: share to train on; rounded down to whole nodes.
        shuffle: number of the split.
        seed: of all splits.
        C: inverse strength of the penalty, or auto, see `strength`.
    """
    order = np.random.default_rng([seed, shuffle]).permutation(len(vectors))
    cut = int(ratio * len(vectors))
    train, test = order[:cut], order[cut:]
    chosen = strength(vectors[train], labels[train]) if C == "auto" else C
    return Score(ratio, shuffle, *_scores(vectors, labels, train, test, chosen))


def strength(vectors: NDArray[np.float32], labels: Matrix) -> float:
    """Inverse strength of best Micro-F1: 1, what is 1 for entries of variance 1, or the power of two between them.

    Each is judged on either half of at most 512 nodes after training on the other one; of equals the largest is taken.

    Args:
        vectors: `[n, d]` of training nodes in random order.
        labels: `[n, labels]`.
    """
    variance = float(vectors.var(axis=0, dtype=np.float64).mean())
    if not variance:
        return 1.0
    one, two = np.array_split(np.arange(min(_JUDGED, len(vectors)), dtype=np.int64), 2)
    found = {
        C: sum(_scores(vectors, labels, train, test, C, _ROUGH)[0] for train, test in ((one, two), (two, one)))
        for C in (2.0 ** round(-math.log2(variance) * share) for share in (0.0, 0.5, 1.0))
    }
    return max(found, key=lambda C: (found[C], C))


def _scores(
    vectors: NDArray[np.float32],
    labels: Matrix,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    C: float,
    tolerance: float = TOLERANCE,
) -> tuple[float, float]:
    """Micro- and Macro-F1 on the test nodes."""
    weights = fit_one_vs_rest(vectors[train], labels[train], C=C, tolerance=tolerance)
    truth = labels[test]
    return f1_scores(truth, top_k(decision_function(vectors[test], weights), truth.sum(axis=1)))
