"""The kernels of probe and of the generator of typed graphs, with guard zones; see `tests.kernels.guarded`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks import _generate_mag
from superworkflow.tasks._permutation import key
from superworkflow.tasks.probe.carry import weighted_means
from superworkflow.tasks.probe.scale import coordinates, orthonormal


@given(subgraphs=st.integers(0, 6), nodes=st.integers(1, 9), width=st.integers(1, 5), seed=st.integers(0, 2**20))
@settings(max_examples=40, deadline=None, print_blob=True)
def test_means(subgraphs, nodes, width, seed):
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 5, subgraphs))]).astype(np.int64)
    values = rng.normal(size=(nodes, width)).astype(np.float32)
    places = rng.integers(0, nodes, starts[-1]).astype(np.int32)
    weights = np.where(rng.random(starts[-1]) < 0.3, 0.0, rng.random(starts[-1]))
    out = np.empty((subgraphs, width), np.float32)
    weighted_means(values, starts, places, weights, out)
    for s in range(subgraphs):
        part = slice(starts[s], starts[s + 1])
        total = weights[part].sum()
        wanted = weights[part] @ values[places[part]] / total if total else np.zeros(width)
        assert out[s] == pytest.approx(wanted, abs=1e-5)


@given(rows=st.integers(1, 7), width=st.integers(1, 9), rank=st.integers(1, 7), seed=st.integers(0, 2**20))
@settings(max_examples=40, deadline=None, print_blob=True)
def test_bases(rows, width, rank, seed):
    rng = np.random.default_rng(seed)
    given_rows = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, width))
    basis = np.empty((rows, width))
    kept = orthonormal(given_rows, basis)
    assert kept <= min(rows, width, rank)
    found = basis[:kept].copy()
    assert found @ found.T == pytest.approx(np.eye(kept), abs=1e-6)
    assert coordinates(given_rows, found) @ found == pytest.approx(given_rows, abs=1e-3)


@given(
    drawers=st.integers(1, 40), drawn=st.integers(1, 40), total=st.integers(0, 200), block=st.sampled_from([1, 3, 64]),
    same=st.booleans(), first=st.integers(0, 5), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=40, deadline=None, print_blob=True)
def test_edges_are_drawn_from_all_there_are(drawers, drawn, total, block, same, first, seed):
    drawn, first = drawers if same else drawn, min(first, drawers - 1)
    degrees = np.empty(drawers - first, np.int64)
    _generate_mag._degrees(first, drawers, total, 0, 0.5, 1.0, key(seed, 1), degrees)
    assert degrees.min() >= 0
    assert degrees.sum() <= total
    if first == 0:
        assert degrees.sum() == total
    starts = np.concatenate([[0], np.cumsum(degrees)])
    ends = np.empty((2, starts[-1]), np.int64)
    places = ends[1].copy()
    _generate_mag._draw(first, drawers, drawn, starts, block, 0.7, 0.3, key(seed, 2), key(seed, 3), same, places)
    for i, degree in enumerate(degrees):
        mine = places[starts[i] : starts[i + 1]]
        assert ((mine >= 0) & (mine < drawn)).all()
        if degree < drawn:
            assert len(set(mine.tolist())) == degree
            assert not same or first + i not in mine
    ends[1] = places
    _generate_mag._name(first, drawers, starts, key(seed, 4), key(seed, 5), drawn, ends)
    assert len(set(ends[0].tolist())) == (degrees > 0).sum()
