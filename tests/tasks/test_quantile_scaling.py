"""Scaling by quantiles: normal scores of ranks against SciPy's, and back, for any numbers of nodes and equal values."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import norm, rankdata

from superworkflow.tasks.heterograph.scaling import Scaling, fit
from superworkflow.tasks.lib.gnn.column_scaling import unscaled
from superworkflow.tasks.lib.gnn.model.config import check_scaling

NODES = 5000


def normal_scores(column):
    scores = norm.ppf((rankdata(column) - 0.5) / len(column))
    return (scores - scores.mean()) / scores.std()


def columns():
    """Single numbers with equal values, with a heavy tail, 0 and 1, and a list of two numbers."""
    rng = np.random.default_rng(0)
    years, areas = rng.integers(1900, 1999, NODES), rng.pareto(0.7, NODES)
    return np.column_stack([years, areas, rng.random(NODES) < 0.1, 9 + rng.normal(size=(NODES, 2))]).astype(np.float32)


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


@pytest.mark.parametrize("nodes", [999, 1000])
def test_few_nodes_are_standardized_by_default(nodes):
    assert fit(columns()[:nodes], "auto", [1, 1, 1, 2]).kind == ("standard" if nodes < 1000 else "quantile")


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 40), st.integers(1, 4)),
               elements=st.floats(-1e6, 1e6, width=32) | st.sampled_from([0, 1, 5])),
)  # fmt: skip
def test_any_values_are_recorded_and_come_back(values):
    """Scores have the order of the values; equal values, columns of one value and of 0 and 1 included."""
    scaling = fit(values, "quantile", [1] * values.shape[1])
    document = json.loads(json.dumps(scaling.document()))
    check_scaling(document, values.shape[1])
    found = Scaling.read(document).apply(values)
    np.testing.assert_array_equal(found, scaling.apply(values))
    assert np.isfinite(found).all()
    for scores, column in zip(found.T, values.T, strict=True):
        assert (np.diff(scores[np.argsort(column, kind="stable")]) >= 0).all()
    span = np.ptp(values, axis=0) + np.abs(values).max(axis=0)
    assert (np.abs(unscaled(scaled_wide(scaling, values), document) - values) <= 1e-6 * span).all()


def scaled_wide(scaling, values):
    """Scores before they are rounded to float32."""
    wide = (values - scaling.mean) / scaling.scale
    for column, knots in enumerate(scaling.knots):
        if knots:
            wide[:, column] = np.interp(values[:, column], knots, scaling.scores[column])
    return wide


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"knots": [[0.0, 1.0]]}, "other features"),
        ({"scores": [[0.0, 1.0], [1.0, 0.0]]}, "do not rise"),
        ({"knots": [[0.0, 1.0], [2.0, 2.0]]}, "do not rise"),
        ({"knots": [[0.0, 1.0], [2.0, float("inf")]]}, "do not rise"),
        ({"scores": [[0.0, 1.0], [1.0]]}, "do not rise"),
        ({"kind": "standard"}, "other features"),
    ],
)
def test_documents_that_cannot_be_are_refused(change, message):
    curve = [[0.0, 1.0], [2.0, 3.0]]
    good = {"kind": "quantile", "mean": [0.0] * 2, "scale": [1.0] * 2, "fill": [], "knots": curve, "scores": curve}
    check_scaling(good, 2)
    with pytest.raises(ValueError, match=message):
        check_scaling(good | change, 2)
