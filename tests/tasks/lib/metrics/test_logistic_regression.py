"""The solver against scikit-learn's LIBLINEAR, which the protocol names."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from superworkflow.tasks.lib.metrics.logistic_regression import decision_function, fit_one_vs_rest


def problem(n=400, d=12, labels=7, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d)).astype(np.float32) * rng.uniform(0.1, 3, d).astype(np.float32) + 0.3
    logits = features @ rng.normal(size=(d, labels)) + rng.normal(size=labels) * 2 - 2
    return features, rng.random((n, labels)) < 1 / (1 + np.exp(-logits))


def reference(features, target, C):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(solver="liblinear", C=C, tol=1e-10, max_iter=10_000).fit(features, target)
    return np.append(model.coef_[0], model.intercept_[0])


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_same_optimum_as_liblinear(C):
    features, targets = problem()
    weights = fit_one_vs_rest(features, targets, C=C)
    for label in range(targets.shape[1]):
        np.testing.assert_allclose(weights[:, label], reference(features, targets[:, label], C), rtol=2e-4, atol=2e-4)


def test_gradient_vanishes_on_separable_and_rare_labels():
    rng = np.random.default_rng(3)
    features = rng.normal(size=(300, 5)) * 10
    targets = np.column_stack([features[:, 0] > 0, features[:, 1] > 22, np.arange(300) == 7])
    targets[8, 1] = True
    weights = fit_one_vs_rest(features, targets, C=10.0, tolerance=1e-8)
    signs = np.where(targets, 1.0, -1.0)
    misses = 1 / (1 + np.exp(signs * decision_function(features, weights)))
    extended = np.hstack([features, np.ones((300, 1))])
    gradient = weights - 10.0 * extended.T @ (signs * misses)
    scale = 10.0 * np.abs(extended).sum(axis=0).max()
    assert np.abs(gradient).max() < 1e-7 * scale


def test_a_weak_penalty_on_columns_that_are_sums_of_others():
    """As of one-hot columns: in float32 the preconditioner had negative eigenvalues, and all weights were NaN."""
    rng = np.random.default_rng(4)
    kinds = np.eye(6)[rng.integers(0, 6, 2400)] * 40
    features = np.hstack([kinds, kinds[:, :3] + kinds[:, 3:], rng.normal(size=(2400, 4)) * 8])
    targets = rng.random((2400, 3)) < 1 / (1 + np.exp(-features @ rng.normal(size=(13, 3)) / 20))
    weights = fit_one_vs_rest(features, targets, C=700.0)
    extended, signs = np.hstack([features, np.ones((2400, 1))]), np.where(targets, 1.0, -1.0)
    misses = 1 / (1 + np.exp(signs * (extended @ weights)))
    gradient = weights - 700.0 * extended.T @ (signs * misses)
    assert np.linalg.norm(gradient, axis=0).max() < 1e-6 * 700 * np.linalg.norm(extended.T @ signs / 2, axis=0).min()


def test_labels_solved_together_or_alone_are_the_same():
    features, targets = problem(labels=90, n=150, d=6, seed=1)
    together = fit_one_vs_rest(features, targets)
    for label in (0, 63, 64, 89):
        alone = fit_one_vs_rest(features, targets[:, label : label + 1])
        np.testing.assert_allclose(together[:, label], alone[:, 0], atol=1e-4)


def test_label_without_examples_comes_last_and_one_without_counterexamples_first():
    features, targets = problem(labels=3)
    targets[:, 0], targets[:, 1] = False, True
    scores = decision_function(features, fit_one_vs_rest(features, targets))
    assert (scores[:, 0] == -np.inf).all()
    assert (scores[:, 1] == np.inf).all()
    assert np.isfinite(scores[:, 2]).all()


def test_more_features_than_rows():
    features, targets = problem(n=20, d=60, labels=2, seed=5)
    targets[:2], targets[2:4] = True, False
    weights = fit_one_vs_rest(features, targets)
    np.testing.assert_allclose(weights[:, 0], reference(features, targets[:, 0], 1.0), atol=1e-4)
