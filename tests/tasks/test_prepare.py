"""Vocabulary, alias tables and subsampling of the stage prepare."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.prepare.alias import alias_table
from superworkflow.tasks.prepare.run import keep_probability, keep_vertices
from tests.tasks.embedding_inputs import Inputs, community_walks


def alias_probabilities(threshold, alias):
    """Probability of each outcome by the table, in units of 1 / (n 2**32); adds up to exactly n 2**32."""
    own = threshold.astype(np.int64)
    np.add.at(own, alias, 2**32 - threshold.astype(np.int64))
    return own


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.floats(-1, 1.5))
def test_an_alias_table_gives_every_outcome_its_share_and_nothing_is_lost(counts, power):
    weights = np.array(counts, dtype=np.float64) ** power
    threshold, alias = alias_table(weights)
    given_shares = alias_probabilities(threshold, alias)
    n = len(counts)
    assert int(given_shares.sum()) == n * 2**32
    expected = weights / weights.sum()
    np.testing.assert_allclose(given_shares / (n * 2.0**32), expected, atol=2**-31)


@pytest.mark.parametrize("weights", [[], [1.0, 0.0], [1.0, np.inf], [1.0, np.nan], [-1.0]])
def test_an_alias_table_refuses_weights_that_are_no_distribution(weights):
    with pytest.raises(ValueError, match="positive and finite"):
        alias_table(np.array(weights, dtype=np.float64))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=50), st.integers(1, 8))
def test_rows_are_the_kept_vertices_by_falling_frequency_then_id(counts, min_count):
    kept = keep_vertices(np.array(counts), min_count).tolist()
    expected = sorted((v for v, c in enumerate(counts) if c >= min_count), key=lambda v: (-counts[v], v))
    assert kept == expected


def test_frequent_vertices_are_subsampled_by_the_formula_of_word2vec():
    counts = np.array([900, 90, 10])
    keep = keep_probability(counts, 0.05)
    share, t = counts / 1000, 0.05
    np.testing.assert_allclose(keep, np.minimum(1, (np.sqrt(share / t) + 1) * t / share), rtol=1e-6)
    assert keep[0] < keep[1] <= keep[2] == 1


def test_the_dataset_says_what_the_walks_hold(tmp_path):
    walks = community_walks(3, 7, 200, 11, 0.2)
    walks[::3, 5:] = -1  # walks that met a sink
    walks[walks == 4] = 6  # vertex 4 is never met
    walks[0, 0] = 20
    labels = [f"n{v}" for v in range(21)]
    counts = np.bincount(walks[walks >= 0], minlength=21)
    min_count = int(np.sort(counts)[3])
    made = Inputs(tmp_path, walks, labels, shards=3, min_count=min_count, sample=0.01).vocabulary
    kept, remap = made.array("kept.npy"), made.array("remap.npy")
    assert set(kept.tolist()) == set(np.flatnonzero(counts >= min_count).tolist())
    assert 4 not in kept
    np.testing.assert_array_equal(remap[kept], np.arange(len(kept)))
    np.testing.assert_array_equal(np.flatnonzero(remap < 0), np.flatnonzero(counts < min_count))
    np.testing.assert_array_equal(made.array("counts.npy"), counts[kept])
    shares = alias_probabilities(made.array("negative_threshold.npy"), made.array("negative_alias.npy"))
    expected = counts[kept] ** 0.75 / (counts[kept] ** 0.75).sum()
    np.testing.assert_allclose(shares / shares.sum(), expected, atol=1e-8)
    keep = made.array("keep.npy")
    assert made.stats["expected_tokens"] == pytest.approx(float(keep @ counts[kept]))
    assert made.stats["tokens"] == int(counts[kept].sum())
    assert made.stats["tokens_dropped"] == int(counts.sum() - counts[kept].sum())
    assert made.manifest.rows == len(kept)


def test_a_min_count_that_keeps_nothing_is_one_clear_error(tmp_path):
    with pytest.raises(
        UserError, match=r"prepare.min_count: no vertex occurs at least min_count times.*got 10000.*Lower it"
    ):
        Inputs(tmp_path, community_walks(2, 4, 10, 5, 0), [str(v) for v in range(8)], min_count=10_000)


def test_walks_of_another_graph_are_refused(tmp_path):
    with pytest.raises(UserError, match="a vertex of the walks is not in the graph of 7 vertices"):
        Inputs(tmp_path, community_walks(2, 4, 50, 9, 0), [str(v) for v in range(7)])
