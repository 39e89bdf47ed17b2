"""Figures of predictions: area under the ROC curve, average precision, F1 of labels, errors of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.metrics import NUMBER_FIGURES

Matrix = NDArray[np.bool_]


def area_under_curve(positives: NDArray[np.floating], negatives: NDArray[np.floating]) -> float:
    """Probability that a positive scores above a negative, equal scores counted half (Mann and Whitney)."""
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, side="left").sum(dtype=np.float64)
    equal = np.searchsorted(ordered, positives, side="right").sum(dtype=np.float64) - below
    return float((below + equal / 2) / (len(positives) * len(negatives)))


def average_precision(positives: NDArray[np.floating], negatives: NDArray[np.floating]) -> float:
    """Mean over the positives of the precision at their score; equal scores are one threshold."""
    scores = np.concatenate([positives, negatives])
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(order < len(positives))
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    gained = np.diff(hits[ends], prepend=0)
    return float((gained * hits[ends] / (ends + 1)).sum() / len(positives))


def top_k(scores: NDArray[np.float64], k: NDArray[np.integer]) -> Matrix:
    """Mark the k[i] highest scores of each row i; equal scores go by column.

    A label without examples to train on scores -inf, so that it comes after all others.
    """
    predicted = np.zeros(scores.shape, dtype=bool)
    rows = np.arange(len(scores))
    single = k == 1
    predicted[rows[single], scores[single].argmax(axis=1)] = True
    several = rows[k > 1]
    order = np.argsort(-scores[several], axis=1, kind="stable")
    chosen = np.arange(scores.shape[1]) < k[several, None]
    predicted[np.repeat(several, k[several]), order[chosen]] = True
    return predicted


def f1_scores(truth: Matrix, predicted: Matrix) -> tuple[float, float]:
    """Micro- and Macro-F1 of bool `[n, labels]`.

    F1 = 2·TP / (2·TP + FP + FN), over all labels together, or per label and then averaged over all labels of the
    problem; a label that is neither there nor predicted counts 0.
    """
    hits = (truth & predicted).sum(axis=0)
    marked = truth.sum(axis=0) + predicted.sum(axis=0)
    per_label = 2 * hits / np.maximum(marked, 1)
    return float(2 * hits.sum() / max(marked.sum(), 1)), float(per_label.mean())


def class_scores(labels: NDArray[np.int64], predicted: NDArray[np.int64]) -> tuple[float, float]:
    """Accuracy and Macro-F1 of classes by their numbers, int64 [n] each."""
    classes = int(max(labels.max(), predicted.max())) + 1
    hits = np.bincount(labels[labels == predicted], minlength=classes)
    marked = np.bincount(labels, minlength=classes) + np.bincount(predicted, minlength=classes)
    there = marked > 0
    return float(hits.sum() / len(labels)), float((2 * hits[there] / marked[there]).mean())


def number_errors(truth: NDArray[Any], found: NDArray[Any]) -> dict[str, float]:
    """RMSE, MAE and R² of predictions, both [n] with n > 0; without R² where all true numbers are the same."""
    errors = found.astype(np.float64) - truth
    squares, spread = float(np.square(errors).mean()), float(truth.astype(np.float64).var())
    values = [math.sqrt(squares), float(np.abs(errors).mean())] + ([1 - squares / spread] if spread else [])
    return dict(zip(NUMBER_FIGURES, values, strict=False))
