"""The kernels of probe, with guard zones; see `tests.kernels.guarded`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
