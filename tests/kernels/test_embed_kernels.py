"""Training with small tables, blocks and walks together, its own matrices between NaN; see `tests.kernels.guarded`."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.embed import kernel
from superworkflow.tasks.embed.blocks import SkipGramLoss, Steps
from superworkflow.tasks.embed.tables import EmbeddingTables
from superworkflow.tasks.embed.train import NORM_LIMIT, Vocabulary, key
from superworkflow.tasks.prepare.alias import alias_table
from tests.kernels.checked import is_checked
from tests.kernels.poisoned import poisoned_training

LANES = 16


@pytest.fixture(scope="module")
def train() -> Any:
    """The training kernel with poisoned matrices: in the checked mode that is the module's own."""
    return kernel.train_walks if is_checked() else poisoned_training()


@given(
    dimensions=st.sampled_from([1, 2, 3, 15, 16, 17, 31, 33, 64, 129]), rows=st.sampled_from([1, 2, 3, 10, 100]),
    dropped=st.sampled_from([0, 5]), length=st.sampled_from([1, 2, 3, 4, 5, 8, 17, 40, 81]),
    walks=st.sampled_from([0, 1, 2, 5]), window=st.sampled_from([1, 2, 3, 4, 5, 10, 11, 12, 20, 28, 100]),
    shared=st.sampled_from([8, 12, 16, 20, 28, 64, 68]), block=st.sampled_from([4, 5, 7, 8, 9, 15, 16, 17, 33, 128]),
    negative=st.sampled_from([0, 1, 5, 100]), bound=st.sampled_from([0.0, 0.25, 1.0]), adagrad=st.booleans(),
    thinned=st.booleans(), rate=st.sampled_from([1e-3, 0.05, 0.5]), number=st.sampled_from([0, 1000, 10**9]),
    seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=30, deadline=None, print_blob=True)
def test_training(
    train, dimensions, rows, dropped, length, walks, window, shared, block, negative, bound, adagrad, thinned, rate,
    number, seed,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    remap = np.full(rows + dropped, -1, np.int32)
    remap[rng.permutation(rows + dropped)[:rows]] = rng.permutation(rows)
    given_walks = rng.integers(0, rows + dropped, (walks, length)).astype(np.int32)
    for walk in given_walks[::2]:
        walk[rng.integers(0, length + 1) :] = -1
    keep = rng.random(rows).astype(np.float32) if thinned else np.zeros(0, np.float32)
    threshold, alias = alias_table(rng.integers(1, 1000, rows) ** rng.choice([-2.0, 0.0, 0.75]))
    begin = rng.normal(0, 0.3 / np.sqrt(dimensions), (2, rows, dimensions))

    def run(function: Any, columns: int) -> tuple[EmbeddingTables, tuple[float, float, float]]:
        tables = EmbeddingTables.random(rows, columns, 1, adagrad)
        for table, values in zip((tables.centre, tables.context), begin, strict=True):
            table[:] = 0
            table[:, :dimensions] = values
        vocabulary = Vocabulary(remap, threshold, alias.astype(np.int32), keep)
        objective = SkipGramLoss(window, float(negative), shared, block)
        steps = Steps(bound, rate, rate / 2, NORM_LIMIT**2)
        result = function(given_walks, number, np.uint64(key(seed, 0)), vocabulary, tables, objective, steps)
        return tables, result

    tables, result = run(train, dimensions)
    again, same = run(train, dimensions)
    assert repr(result) == repr(same)  # NaN is NaN
    np.testing.assert_array_equal(tables.centre, again.centre)
    np.testing.assert_array_equal(tables.context, again.context)
    own, same = run(kernel.train_walks, dimensions)
    assert repr(result) == repr(same)
    np.testing.assert_array_equal(tables.centre, own.centre)
    unseen = np.setdiff1d(np.arange(rows), remap[given_walks[given_walks >= 0]])
    np.testing.assert_array_equal(tables.centre[unseen], begin[0][unseen].astype(np.float32))
    if np.isfinite(result[2]):
        assert np.isfinite(tables.centre).all()
        assert np.isfinite(tables.context).all()
    if not adagrad and np.isfinite(result[2]):  # columns of zeros change nothing
        wide, _ = run(train, -(-dimensions // LANES) * LANES)
        np.testing.assert_allclose(wide.centre[:, :dimensions], tables.centre, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(wide.context[:, :dimensions], tables.context, rtol=1e-5, atol=1e-6)
        assert not wide.centre[:, dimensions:].any()
        assert not wide.context[:, dimensions:].any()
