"""The training kernels against the objective they state, by automatic differentiation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.embed import EmbedParams
from tasks.embed.kernel import _draw, mix, pool_size
from tasks.embed.tables import Tables
from tasks.embed.torch_kernel import TorchKernel
from tasks.embed.train import NumbaKernel, Vocabulary, key
from tasks.prepare.alias import alias_table

ROWS = 12


def vocabulary(rows=ROWS):
    threshold, alias = alias_table(np.arange(1.0, rows + 1))
    return Vocabulary(np.arange(rows, dtype=np.int32), threshold, alias.astype(np.int32), np.zeros(0, np.float32))


def random_tables(d, rows=ROWS, adagrad=False):
    rng = np.random.default_rng(d)
    tables = Tables.random(rows, d, 1, adagrad)
    tables.centre[:] = rng.normal(0, 0.7, tables.centre.shape)
    tables.context[:] = rng.normal(0, 0.7, tables.context.shape)
    return tables


def drawn_negatives(known, params, length, number, epoch):
    """The negatives of a walk's only block, as the kernel draws them."""
    blocks, _, pool = pool_size(length, params.block, params.shared_negatives)
    out = np.zeros(blocks * pool, np.int64)
    with np.errstate(over="ignore"):
        state = mix.py_func(np.uint64(key(params.seed, epoch)) + np.uint64(number) * np.uint64(0x9E3779B97F4A7C15))
    _draw(state, out, len(out), known.threshold, known.alias)
    return out.reshape(blocks, pool)


def objective(centre, context, walk, negatives, params, centres=None):
    """The stated objective, one pair at a time; also (summed weight, curvature of each centre and context row)."""
    n, window = len(walk), params.window
    loss = torch.zeros((), dtype=centre.dtype)
    curve = np.zeros(len(centre)), np.zeros(len(centre))

    def bound(s):
        return 0.25 if abs(s) < 1e-2 else (1 / (1 + np.exp(-s)) - 0.5) / s

    def pair(c, o, weight, sign):
        nonlocal loss
        s = centre[c] @ context[o]
        loss = loss - weight * torch.nn.functional.logsigmoid(sign * s)
        h = weight * bound(s.item())
        curve[0][c] += h * float(context[o] @ context[o])
        curve[1][o] += h * float(centre[c] @ centre[c])

    for i in range(n) if centres is None else centres:
        total = 0.0
        for j in range(max(0, i - window), min(n, i + window + 1)):
            if i != j:
                weight = (window - abs(i - j) + 1) / window
                total += weight
                pair(walk[i], walk[j], weight, 1)
        for m in negatives:
            pair(walk[i], m, total * params.negative / len(negatives), -1)
    return loss, curve


def expected_step(tables, walk, negatives, params, rate, centres=None):
    centre = torch.tensor(tables.centre, dtype=torch.float64, requires_grad=True)
    context = torch.tensor(tables.context, dtype=torch.float64, requires_grad=True)
    loss, curves = objective(centre, context, walk, negatives, params, centres)
    loss.backward()
    moved = []
    for table, curve in zip((centre, context), curves, strict=True):
        step = rate / (1 + params.step_bound * rate * curve)
        moved.append(table.detach().numpy() - step[:, None] * table.grad.numpy())
    return moved


@settings(max_examples=25, deadline=None)
@given(
    d=st.sampled_from([2, 3, 15, 16, 17, 33, 128]), n=st.integers(2, 30), window=st.integers(1, 12),
    negative=st.integers(1, 6), shared=st.sampled_from([8, 24, 32]), bound=st.sampled_from([0.0, 0.25, 1.0]),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_one_walk_moves_every_row_by_the_damped_gradient_of_the_objective(d, n, window, negative, shared, bound, seed):
    params = EmbedParams(
        dimensions=d, window=window, negative=negative, shared_negatives=shared, step_bound=bound, seed=seed
    )
    walk = np.random.default_rng(seed).integers(0, ROWS, n).astype(np.int32)
    tables, known = random_tables(d), vocabulary()
    negatives = drawn_negatives(known, params, n, seed, 3)[0]
    expected = expected_step(tables, walk, negatives, params, 0.05)
    NumbaKernel(tables, known, params, 1).train(walk[None], seed, 3, 0.05, 0.0)
    np.testing.assert_allclose(tables.centre, expected[0], atol=2e-4, rtol=2e-4)
    np.testing.assert_allclose(tables.context, expected[1], atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("n", [40, 41, 43])
def test_a_long_walk_is_trained_block_by_block_with_the_contexts_around_each(n):
    params = EmbedParams(dimensions=20, window=6, block=16, shared_negatives=8, seed=5)
    walk = np.random.default_rng(n).integers(0, ROWS, n).astype(np.int32)
    tables, known = random_tables(20), vocabulary()
    reference = random_tables(20)
    negatives = drawn_negatives(known, params, n, 0, 0)
    _, size, _ = pool_size(n, params.block, params.shared_negatives)
    for block, pool in enumerate(negatives):
        centres = range(block * size, min(n, (block + 1) * size))
        reference.centre[:], reference.context[:] = expected_step(reference, walk, pool, params, 0.05, centres)
    NumbaKernel(tables, known, params, 1).train(walk[None], 0, 0, 0.05, 0.05)
    np.testing.assert_allclose(tables.centre, reference.centre, atol=5e-4)
    np.testing.assert_allclose(tables.context, reference.context, atol=5e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_the_torch_kernel_takes_the_same_step(optimizer):
    params = EmbedParams(
        dimensions=24, window=4, shared_negatives=16, optimizer=optimizer, kernel="torch", step_bound=0.5
    )
    walk = np.random.default_rng(3).permutation(ROWS)[:11].astype(np.int32)
    known = vocabulary()
    negatives = np.array([3, 5, 7, 1, 0, 11, 2, 9])
    ours, theirs = random_tables(24, adagrad=optimizer == "adagrad"), random_tables(24, adagrad=optimizer == "adagrad")
    kernel = TorchKernel(theirs, known, params, 1)
    rows = torch.from_numpy(walk.astype(np.int64))[None]
    loss, weight, _ = kernel.step(rows, torch.ones_like(rows, dtype=torch.bool), torch.from_numpy(negatives)[None], 0.3)
    kernel.finish()
    centre, context = torch.tensor(ours.centre).double(), torch.tensor(ours.context).double()
    assert float(loss) == pytest.approx(float(objective(centre, context, walk, negatives, params)[0]), rel=1e-5)
    assert float(weight) > 0
    if optimizer == "sgd":
        expected = expected_step(ours, walk, negatives, params, 0.3)
        np.testing.assert_allclose(theirs.centre, expected[0], atol=1e-4)
        np.testing.assert_allclose(theirs.context, expected[1], atol=1e-4)
    else:
        assert (theirs.centre_sum[walk] > 0).all()
        assert np.abs(theirs.centre - ours.centre).max() <= 0.3 * 24**0.5 + 1e-5


def test_padding_dropped_vertices_and_short_walks_are_left_out():
    params = EmbedParams(dimensions=16, window=3, shared_negatives=8)
    known = vocabulary()
    remap = known.remap.copy()
    remap[[2, 7]] = -1
    dropped = Vocabulary(remap, known.threshold, known.alias, known.keep)
    long, short = random_tables(16), random_tables(16)
    walk = np.array([[4, 2, 5, 7, 7, 6, 2, 8, -1, -1]], np.int32)
    NumbaKernel(long, dropped, params, 1).train(walk, 9, 0, 0.05, 0.05)
    NumbaKernel(short, known, params, 1).train(np.array([[4, 5, 6, 8]], np.int32), 9, 0, 0.05, 0.05)
    np.testing.assert_array_equal(long.centre, short.centre)
    np.testing.assert_array_equal(long.context, short.context)
    alone = random_tables(16)
    NumbaKernel(alone, dropped, params, 1).train(np.array([[4, 2, 7, -1], [2, 7, -1, -1]], np.int32), 0, 0, 1.0, 1.0)
    np.testing.assert_array_equal(alone.centre, random_tables(16).centre)


def test_frequent_vertices_are_kept_with_their_probability():
    params = EmbedParams(dimensions=16, window=1, shared_negatives=8, negative=1)
    known = vocabulary()
    keep = np.where(np.arange(ROWS) == 0, 0.0, 1.0).astype(np.float32)
    thinned = Vocabulary(known.remap, known.threshold, known.alias, keep)
    tables = random_tables(16)
    before = tables.centre.copy()
    NumbaKernel(tables, thinned, params, 1).train(np.array([[1, 0, 2, 0, 0, 3]], np.int32), 0, 0, 0.1, 0.1)
    changed = np.flatnonzero(np.abs(tables.centre - before).max(1) > 0).tolist()
    assert changed == [1, 2, 3]


def test_training_stops_at_a_vector_that_is_not_a_number_or_explodes():
    params, known = EmbedParams(dimensions=16, shared_negatives=8), vocabulary()
    for value in (np.nan, np.inf, 1e6):
        tables = random_tables(16)
        tables.centre[4, 3] = value
        _, _, peak = NumbaKernel(tables, known, params, 1).train(np.array([[1, 4, 2]], np.int32), 0, 0, 0.1, 0.1)
        assert peak == np.inf
