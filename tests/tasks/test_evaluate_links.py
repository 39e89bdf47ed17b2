"""The node2vec protocol: operators by their formulas, AUC against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from superworkflow.tasks.evaluate.links import OPERATORS, link_auc, sample_pairs, score_auc
from superworkflow.tasks.lib.metrics.figures import area_under_curve


def test_operators_by_formula():
    u, v = np.array([[1.0, -2.0, 3.0]], np.float32), np.array([[2.0, 4.0, -1.0]], np.float32)
    expected = {
        "average": [1.5, 1.0, 1.0], "hadamard": [2.0, -8.0, -3.0],
        "weighted-l1": [1.0, 6.0, 4.0], "weighted-l2": [1.0, 36.0, 16.0],
    }  # fmt: skip
    assert {name: operator(u, v)[0].tolist() for name, operator in OPERATORS.items()} == expected
    for operator in OPERATORS.values():
        np.testing.assert_array_equal(operator(u, v), operator(v, u))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_auc_equals_sklearn_with_ties(seed):
    rng = np.random.default_rng(seed)
    positives, negatives = rng.integers(0, 6, rng.integers(1, 30)) + 1, rng.integers(0, 6, rng.integers(1, 30))
    truth = np.repeat([1, 0], [len(positives), len(negatives)])
    expected = roc_auc_score(truth, np.concatenate([positives, negatives]))
    assert area_under_curve(positives, negatives) == pytest.approx(expected)


def pairs_of_blocks(seed=0, n=300, d=8):
    """Positive pairs are of the same block, negative ones of two."""
    rng = np.random.default_rng(seed)
    block = rng.integers(0, 4, n)
    vectors = (rng.normal(size=(4, d))[block] + rng.normal(size=(n, d))).astype(np.float32)
    pairs = rng.integers(0, n, size=(4000, 2))
    same = block[pairs[:, 0]] == block[pairs[:, 1]]
    positives, negatives = pairs[same][:800], pairs[~same][:800]
    return vectors, (positives[:400], negatives[:400]), (positives[400:], negatives[400:])


@pytest.mark.parametrize("name", list(OPERATORS))
def test_link_auc_equals_sklearn_throughout(name):
    vectors, train, test = pairs_of_blocks()

    def features(pairs):
        return OPERATORS[name](vectors[pairs[:, 0]], vectors[pairs[:, 1]])

    truth = np.repeat([1, 0], [400, 400])
    model = LogisticRegression(solver="liblinear", tol=1e-9).fit(features(np.concatenate(train)), truth)
    expected = roc_auc_score(truth, model.decision_function(features(np.concatenate(test))))
    assert link_auc(vectors, train, test, name, C=1.0) == pytest.approx(expected, abs=2e-4)
    # An average says nothing of whether both ends agree; the others do.
    assert (expected > 0.7) == (name != "average")


def test_plain_scores_equal_sklearn_and_zero_vectors_have_no_direction():
    vectors, _, (positives, negatives) = pairs_of_blocks()
    vectors[positives[0, 0]] = 0
    truth = np.repeat([1, 0], [len(positives), len(negatives)])
    u, v = (vectors[np.concatenate([positives, negatives])[:, end]].astype(float) for end in (0, 1))
    dot = (u * v).sum(axis=1)
    lengths = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    cosine = np.divide(dot, lengths, out=np.zeros_like(dot), where=lengths > 0)
    assert score_auc(vectors, (positives, negatives), "dot") == pytest.approx(roc_auc_score(truth, dot), abs=1e-6)
    assert score_auc(vectors, (positives, negatives), "cosine") == pytest.approx(roc_auc_score(truth, cosine), abs=1e-6)


def test_sample_of_pairs_is_a_subset_and_repeats():
    pairs = np.arange(200).reshape(100, 2)
    chosen = sample_pairs(pairs, 30, [0, 1])
    assert len({tuple(pair) for pair in chosen} & {tuple(pair) for pair in pairs}) == 30
    np.testing.assert_array_equal(chosen, sample_pairs(pairs, 30, [0, 1]))
    assert not np.array_equal(chosen, sample_pairs(pairs, 30, [0, 2]))
    np.testing.assert_array_equal(sample_pairs(pairs, 100, [0, 1]), pairs)
