"""The same scores, bit by bit, whatever the processor, its BLAS and the number of threads."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__

from superworkflow.tasks.lib.kernels.ordered_sums import (
    exponential,
    inverse,
    log1p_of,
    product,
    row_dots,
    transposed_product,
)

_PRINT = """
import hashlib
import numpy as np
from superworkflow.tasks.evaluate.classify import classify
from superworkflow.tasks.evaluate.links import link_auc, score_auc
from superworkflow.tasks.lib.metrics.logistic_regression import decision_function, fit_one_vs_rest

rng = np.random.default_rng(0)
found = hashlib.sha256()
for n, d, labels in ((700, 48, 9), (301, 17, 1)):
    X = (rng.normal(size=(n, d)) * np.linspace(0.01, 1, d)).astype(np.float32)
    targets = X @ rng.integers(-3, 3, (d, labels)) > rng.normal(size=(n, labels))
    weights = fit_one_vs_rest(X, targets)
    found.update(weights.tobytes() + decision_function(X, weights).tobytes())
targets[:, 0] = True
found.update(repr(classify(X, np.concatenate([targets, ~targets], 1), 0.5, 0, seed=1, C=1.0)).encode())
pairs = [rng.integers(0, len(X), (size, 2)) for size in (400, 400, 2000, 2000)]
for name in ("average", "hadamard", "weighted-l1", "weighted-l2"):
    found.update(repr(link_auc(X, (pairs[0], pairs[1]), (pairs[2], pairs[3]), name, 1.0)).encode())
for name in ("cosine", "dot"):
    found.update(repr(score_auc(X, (pairs[2], pairs[3]), name)).encode())
print(found.hexdigest())
"""


def _printed(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _PRINT], env=os.environ | environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_scores_do_not_depend_on_the_machine(tmp_path):
    usual = _printed(OPENBLAS_NUM_THREADS="1")
    others = [
        {"OPENBLAS_NUM_THREADS": "2"},
        {"OPENBLAS_NUM_THREADS": "4", "OPENBLAS_CORETYPE": "Prescott"},
        {"OPENBLAS_CORETYPE": "Haswell"},
        {"NPY_DISABLE_CPU_FEATURES": " ".join(__cpu_dispatch__), "OPENBLAS_CORETYPE": "Nehalem"},
        {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)},
    ]
    assert {str(other): _printed(**other) for other in others} == {str(other): usual for other in others}


def test_sums_and_functions():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(37, 2051)), rng.normal(size=(37, 5)), rng.normal(size=(2051, 3))
    np.testing.assert_allclose(product(a, b), a.T @ b, atol=1e-12)
    np.testing.assert_allclose(transposed_product(a, b), a.T @ b, atol=1e-12)
    np.testing.assert_allclose(transposed_product(c, c), c.T @ c, atol=1e-9)
    np.testing.assert_allclose(row_dots(a, a), (a * a).sum(1), rtol=1e-12)
    positive = np.eye(37) + b @ b.T
    np.testing.assert_allclose(inverse(positive) @ positive, np.eye(37), atol=1e-12)
    x = -np.concatenate([np.linspace(0, 700, 20_001), [1e-300, 1e-17]])
    np.testing.assert_allclose(exponential(x), np.exp(x), rtol=2e-15)
    assert (exponential(np.array([-1e300, -np.inf])) < 1e-300).all()
    y = np.concatenate([np.linspace(0, 1, 10_001), [1e-300, 1e-17]])
    np.testing.assert_allclose(log1p_of(y), np.log1p(y), rtol=1e-15)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(exponential(x), np.exp(x * (1 + 1e-14)), rtol=2e-15)
