"""Lasso of scikit-learn.

sklearn_lasso.py SAMPLES FEATURES STRENGTH
{} -> {"wall_s", "cpu_s", "answer": coefficients that are not 0}
"""

import sys

import numpy as np
from serving import Clock, serve
from sklearn.linear_model import Lasso
from word_samples import word_samples

given: dict = {}


def prepare() -> dict:
    matrix, labels = word_samples(int(sys.argv[1]), int(sys.argv[2]))
    alpha = np.abs(matrix.T @ (labels - labels.mean())).max() / len(labels) * float(sys.argv[3])
    given.update(matrix=matrix.tocsc(), labels=labels, model=Lasso(alpha=alpha, tol=1e-6, max_iter=100_000))
    return {"samples": len(labels)}


def answer(request: dict) -> dict:
    with Clock() as clock:
        given["model"].fit(given["matrix"], given["labels"])
    return {**clock.seconds(), "answer": int(np.count_nonzero(given["model"].coef_))}


serve(answer, prepare)
