"""Coefficients that a vertex program learned from samples and features, and what they predict."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.vertex.program import CLASSES
from superworkflow.tasks.lib.vertex.stage import whole_field

SCALE = "scale.npy"
MEAN = "mean.npy"
"""Files of a feature_graph dataset: by what values of features are divided, and what is subtracted before."""


class LinearModel(NamedTuple):
    """A linear model.

    Args:
        feature: int64 [features], indices in the file of the samples.
        coefficient: float64 [features, problems], in the units of the file.
        intercept: float64 [problems].
        classes: labels by number; empty where numbers are predicted.
    """

    feature: NDArray[np.int64]
    coefficient: NDArray[np.float64]
    intercept: NDArray[np.float64]
    classes: list[str]

    def predicted(self, matrix: sp.csr_array) -> tuple[NDArray[np.float64], int]:
        """Numbers, or numbers of classes, of samples, and how many of their values are of features that are not there.

        Args:
            matrix: [samples, largest index + 1].
        """
        order = np.argsort(self.feature)
        places = np.searchsorted(self.feature, matrix.indices, sorter=order)
        places = order[np.minimum(places, len(order) - 1)]
        there = self.feature[places] == matrix.indices
        values = sp.csr_array(
            (np.where(there, matrix.data, 0.0), places, matrix.indptr), (matrix.shape[0], len(self.feature))
        )
        scores = values @ self.coefficient + self.intercept
        unknown = int(len(there) - there.sum())
        if not self.classes:
            return scores[:, 0], unknown
        numbers = scores.argmax(axis=1) if scores.shape[1] > 1 else scores[:, 0] > 0
        return numbers.astype(np.float64), unknown


def linear_model(graph: Dataset, values: Dataset) -> LinearModel:
    """The model of two datasets.

    Args:
        graph: of stage `feature_graph`.
        values: of a program on that graph.

    Raises:
        UserError: they do not belong together.
    """
    first, count = int(graph.stats["samples"] or 0), int(graph.stats["features"] or 0)
    coefficient = whole_field(graph, values, "coefficient")[first : first + count]
    coefficient = coefficient.reshape(count, -1)
    intercept = np.atleast_1d(np.array(values.json("model.json")["intercept"], np.float64))
    if SCALE in graph:
        coefficient = coefficient / graph.array(SCALE)[:, None]
        intercept = intercept - graph.array(MEAN) @ coefficient
    classes = list(graph.json(CLASSES)) if CLASSES in graph else []
    return LinearModel(graph.array("feature.npy", mmap=False), coefficient, intercept, classes)
