"""The DeepWalk protocol, against scikit-learn's classifier and F1 in the same protocol."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.evaluate.classify import check_split, classify, strength
from superworkflow.tasks.lib.metrics.figures import f1_scores, top_k


def community_graph(n=600, d=16, labels=8, seed=0):
    """Noisy vectors around label centres; one to three labels per node."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(labels, d))
    matrix = np.zeros((n, labels), dtype=bool)
    for row in matrix:
        row[
            rng.choice(
                labels, rng.integers(1, 4), replace=False, p=np.arange(1, labels + 1) / (labels * (labels + 1) / 2)
            )
        ] = True
    vectors = matrix @ centres + rng.normal(size=(n, d)) * 1.5
    return vectors.astype(np.float32), matrix


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("several", [True, False])
def test_f1_equals_the_reference_protocol_to_three_decimals(ratio, several):
    vectors, labels = community_graph()
    if not several:
        labels = np.eye(labels.shape[1], dtype=bool)[labels.argmax(axis=1)]
    for shuffle in range(3):
        score = classify(vectors, labels, ratio, shuffle, seed=0, C=1.0)
        order = np.random.default_rng([0, shuffle]).permutation(len(vectors))
        cut = int(ratio * len(vectors))
        train, test = order[:cut], order[cut:]
        model = OneVsRestClassifier(LogisticRegression(solver="liblinear", C=1.0, tol=1e-8))
        chances = model.fit(vectors[train], labels[train].astype(int)).predict_proba(vectors[test])
        predicted = np.zeros_like(labels[test])
        for row, (chance, truth) in enumerate(zip(chances, labels[test], strict=True)):
            predicted[row, chance.argsort()[-truth.sum() :]] = True
        for average, mine in (("micro", score.micro_f1), ("macro", score.macro_f1)):
            assert mine == pytest.approx(f1_score(labels[test], predicted, average=average, zero_division=0), abs=5e-4)


def test_top_k_on_a_hand_example():
    scores = np.array([[0.1, 0.9, 0.5, -3.0], [2.0, -np.inf, -1.0, -2.0], [0.0, 0.0, 0.0, 0.0]])
    predicted = top_k(scores, np.array([2, 3, 1]))
    assert predicted.astype(int).tolist() == [[0, 1, 1, 0], [1, 0, 1, 1], [1, 0, 0, 0]]


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_top_k_marks_k_labels_and_none_below_an_unmarked_one(seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-2, 3, size=(9, 6)).astype(float)
    k = rng.integers(1, 7, size=9)
    predicted = top_k(scores, k)
    assert predicted.sum(axis=1).tolist() == k.tolist()
    for row, marked in zip(scores, predicted, strict=True):
        assert marked.all() or row[marked].min() >= row[~marked].max()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_f1_equals_sklearn(seed):
    rng = np.random.default_rng(seed)
    truth, predicted = rng.random((2, 12, 5)) < rng.uniform(0.05, 0.6)
    micro, macro = f1_scores(truth, predicted)
    assert micro == pytest.approx(f1_score(truth, predicted, average="micro", zero_division=0))
    assert macro == pytest.approx(f1_score(truth, predicted, average="macro", zero_division=0))


def test_f1_by_hand():
    truth = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]], dtype=bool)
    predicted = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0]], dtype=bool)
    micro, macro = f1_scores(truth, predicted)
    assert micro == pytest.approx(2 * 3 / (4 + 4))
    assert macro == pytest.approx((2 * 2 / 5 + 2 * 1 / 3 + 0) / 3)


def test_larger_ratio_trains_on_a_superset_and_seed_changes_the_split():
    vectors, labels = community_graph(n=200)
    first = classify(vectors, labels, 0.5, 0, seed=0, C=1.0)
    assert first == classify(vectors, labels, 0.5, 0, seed=0, C=1.0)
    assert first.micro_f1 != classify(vectors, labels, 0.5, 0, seed=1, C=1.0).micro_f1


def test_the_penalty_of_few_short_vectors_is_weaker():
    vectors, labels = community_graph(n=120)
    short = np.float32(0.05) * vectors
    before, auto = (
        np.mean([classify(short, labels, 0.5, shuffle, seed=0, C=C).micro_f1 for shuffle in range(5)])
        for C in (1.0, "auto")
    )
    assert auto > before + 0.1
    assert strength(short[:60], labels[:60]) == 2.0 ** round(-np.log2(short[:60].var(axis=0, dtype=float).mean())) > 50


def test_the_penalty_stays_where_labels_are_mostly_noise():
    rng = np.random.default_rng(0)
    vectors = 0.1 * rng.normal(size=(2000, 64)).astype(np.float32)
    labels = np.eye(4, dtype=bool)[np.where(rng.random(2000) < 0.75, 0, rng.integers(0, 4, 2000))]
    assert strength(vectors, labels) == 1.0
    assert strength(vectors[:1], labels[:1]) == strength(np.zeros((9, 2), np.float32), labels[:9]) == 1.0


@pytest.mark.parametrize(("nodes", "ratio"), [(5, 0.1), (1, 0.5)])
def test_split_without_a_part_is_refused(nodes, ratio):
    with pytest.raises(UserError, match=rf"leaves 0 of {nodes} labelled nodes to train on.*\(got {ratio}\)"):
        check_split(nodes, ratio, "evaluate.train_ratios")
