"""Scaling by quantiles: normal scores of ranks against SciPy's, intervals against NumPy's quantiles, and back."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import norm, rankdata

from superworkflow.tasks.heterograph.bins import bins_of, may_widen
from superworkflow.tasks.heterograph.scaling import Scaling, fit
from superworkflow.tasks.lib.gnn.column_scaling import scaled_widths, unscaled
from superworkflow.tasks.lib.gnn.model.config import check_scaling

NODES = 3000


def normal_scores(column):
    scores = norm.ppf((rankdata(column) - 0.5) / len(column))
    return (scores - scores.mean()) / scores.std()


def columns():
    """Single numbers with equal values, with a heavy tail, 0 and 1, and a list of two numbers."""
    rng = np.random.default_rng(0)
    years, areas = rng.integers(1900, 1999, NODES), rng.pareto(0.7, NODES)
    return np.column_stack([years, areas, rng.random(NODES) < 0.1, 9 + rng.normal(size=(NODES, 2))]).astype(np.float32)


def test_single_numbers_become_places_between_quantiles():
    values = np.concatenate([columns(), columns()])
    scaling = fit(values, "auto", [1, 1, 1, 2])
    found = scaling.apply(values)
    assert (scaling.kind, [len(each) for each in scaling.knots]) == ("piecewise", [25, 25, 0, 0, 0])
    assert found.shape == (2 * NODES, 51)
    np.testing.assert_allclose(found[:, :48].mean(axis=0), 0, atol=1e-5)
    edges = np.quantile(values[:, 1].astype(float), np.linspace(0, 1, 25))
    interval = np.clip(np.searchsorted(edges, values[:, 1], side="right") - 1, 0, 23)
    shares = (values[:, 1] - edges[interval]) / np.diff(edges)[interval]
    wanted = np.where(
        np.arange(24) < interval[:, None], 1, np.where(np.arange(24) == interval[:, None], shares[:, None], 0)
    )
    np.testing.assert_allclose(found[:, 24:48] - found[:, 24:48].min(axis=0), wanted, atol=1e-5)
    assert (found[:, 48] == values[:, 2]).all()
    few = fit(values[:, :1] // 20, "piecewise", [1])
    assert few.knots == [[95.0, 96.0, 97.0, 98.0, 99.0]]


@pytest.mark.parametrize(
    ("nodes", "wanted", "widths", "kind"),
    [
        (999, "auto", [1, 1, 1, 2], "standard"), (1000, "auto", [1, 1, 1, 2], "quantile"),
        (999, "quantile", [1, 1, 1, 2], "quantile"), (3999, "auto", [1, 1, 1, 2], "quantile"),
        (4000, "auto", [1, 1, 1, 2], "piecewise"), (999, "piecewise", [1, 1, 1, 2], "piecewise"),
        (4000, "auto", [5], "standard"), (4000, "auto", [1] * 65, "piecewise"),
        (4000, "auto", [1] * 90, "quantile"), (4000, "piecewise", [1] * 90, "quantile"),
    ],
)  # fmt: skip
def test_what_nodes_and_columns_ask_for(nodes, wanted, widths, kind):
    values = np.tile(np.concatenate([columns(), columns()]), 18)[:nodes, : sum(widths)]
    found = fit(values, wanted, widths)
    assert found.kind == kind
    assert may_widen(nodes, wanted, widths.count(1)) or kind != "piecewise"
    assert fit(values, "auto", widths, widens=False).kind in ("standard", "quantile")


def test_intervals_have_enough_nodes_and_few_bytes():
    found = {
        (4_000, 5): 16,
        (5_000, 5): 20,
        (20_000, 64): 32,
        (1_000_000, 20): 26,
        (5_000_000, 20): 0,
        (3_999, 5): 0,
    }
    assert {(nodes, count): bins_of(nodes, "auto", count) for nodes, count in found} == found
    assert not may_widen(10_000, "auto", 513)


@pytest.mark.parametrize("wanted", ["auto", "quantile"])
def test_single_numbers_become_normal_scores(wanted):
    values = columns()
    scaling = fit(values, wanted, [1, 1, 1, 2])
    found = scaling.apply(values)
    assert scaling.kind == "quantile"
    assert [len(each) for each in scaling.knots] == [99, 256, 0, 0, 0]
    np.testing.assert_allclose(found[:, 0], normal_scores(values[:, 0]), atol=1e-5)
    exact = normal_scores(values[:, 1])
    assert np.quantile(np.abs(found[:, 1] - exact), 0.98) < 0.02
    assert np.array_equal(np.argsort(found[:, 1], kind="stable"), np.argsort(values[:, 1], kind="stable"))
    np.testing.assert_allclose(found[:, :2].std(axis=0), 1, atol=0.02)
    by_column = fit(values, "auto" if wanted == "auto" else "standard", [1, 1, 1, 2])
    wide = (values[:, 2:] - by_column.mean[2:]) / by_column.scale[2:]
    np.testing.assert_allclose(found[:, 2:], wide, atol=1e-5)
    assert (found[:, 2] == values[:, 2]).all() == (wanted == "auto")


def test_values_beyond_those_of_training_have_the_outermost_scores():
    values = columns()[:, :2]
    scaling = fit(values, "quantile", [1, 1])
    beyond = np.array([[-1e9, -1e9], [1e9, 1e9]], np.float32)
    ends = [[each[place] for each in scaling.scores] for place in (0, -1)]
    np.testing.assert_array_equal(scaling.apply(beyond), np.array(ends, np.float32))


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 40), st.integers(1, 4)),
               elements=st.floats(-1e6, 1e6, width=32) | st.sampled_from([0, 1, 5])),
    st.sampled_from(["quantile", "piecewise"]),
)  # fmt: skip
def test_any_values_are_recorded_and_come_back(values, wanted):
    """Scores have the order of the values; equal values, columns of one value and of 0 and 1 included."""
    scaling = fit(values, wanted, [1] * values.shape[1])
    document = json.loads(json.dumps(scaling.document()))
    found = Scaling.read(document).apply(values)
    check_scaling(document, found.shape[1])
    np.testing.assert_array_equal(found, scaling.apply(values))
    assert np.isfinite(found).all()
    ends = np.cumsum(scaled_widths([1] * values.shape[1], document))[:-1]
    for scores, column in zip(np.split(found, ends, axis=1), values.T, strict=True):
        assert (np.diff(scores[np.argsort(column, kind="stable")], axis=0) >= 0).all()
    if wanted == "piecewise":
        span = np.ptp(values, axis=0) + np.abs(values).max(axis=0)
        assert (np.abs(unscaled(found, document) - values) <= 1e-4 * span).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"knots": [[0.0, 1.0]]}, "other features"),
        ({"scores": [[0.0, 1.0], [1.0, 0.0]]}, "do not rise"),
        ({"knots": [[0.0, 1.0], [2.0, 2.0]]}, "do not rise"),
        ({"knots": [[0.0, 1.0], [2.0, float("inf")]]}, "do not rise"),
        ({"scores": [[0.0, 1.0], [1.0]]}, "do not rise"),
        ({"kind": "standard"}, "other features"),
        ({"kind": "piecewise", "scores": [], "center": [0.0]}, "other features"),
        ({"kind": "piecewise", "center": [0.0] * 2}, "other features"),
    ],
)
def test_documents_that_cannot_be_are_refused(change, message):
    curve = [[0.0, 1.0], [2.0, 3.0]]
    good = {"kind": "quantile", "mean": [0.0] * 2, "scale": [1.0] * 2, "fill": [], "knots": curve, "scores": curve}
    check_scaling(good, 2)
    with pytest.raises(ValueError, match=message):
        check_scaling(good | change, 2)
