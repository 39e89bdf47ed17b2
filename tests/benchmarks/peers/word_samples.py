"""Samples whose features occur as words do, for both sides of the rows of linear models."""

import numpy as np
import scipy.sparse as sp


def word_samples(samples: int, features: int, each: int = 60) -> tuple[sp.csr_matrix, np.ndarray]:
    """Rows of length 1, and numbers that a twentieth of the features predict."""
    random = np.random.default_rng(0)
    often = 1 / np.arange(10, features + 10)
    columns = random.choice(features, size=samples * each, p=often / often.sum())
    rows = np.repeat(np.arange(samples), each)
    matrix = sp.csr_matrix((np.ones(samples * each), (rows, columns)), shape=(samples, features))
    counts = np.bincount(matrix.indices, minlength=features)
    matrix.data = (1 + np.log(matrix.data)) * np.log(samples / np.maximum(1, counts))[matrix.indices]
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix.data /= np.repeat(np.maximum(lengths, 1e-12), np.diff(matrix.indptr))
    weights = np.where(random.random(features) < 0.05, random.normal(size=features), 0)
    return matrix, 5 * (matrix @ weights) + random.normal(0, 0.5, samples) + 3
