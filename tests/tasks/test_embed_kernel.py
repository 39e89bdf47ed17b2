"""The training kernels against the objective they state, by automatic differentiation."""

import os
import subprocess
import sys

import llvmlite.binding
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.embed import EmbedParams
from superworkflow.tasks.embed._loss import block_loss
from superworkflow.tasks.embed.blocks import BlockBounds
from superworkflow.tasks.embed.kernel import _draw, pool_size
from superworkflow.tasks.embed.tables import EmbeddingTables
from superworkflow.tasks.embed.torch_kernel import TorchKernel
from superworkflow.tasks.embed.train import NumbaKernel, Vocabulary, key
from superworkflow.tasks.lib.kernels.products import PRODUCTS
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.kernels.variants import VARIABLE
from superworkflow.tasks.prepare.alias import alias_table

ROWS = 12


def vocabulary(rows=ROWS):
    threshold, alias = alias_table(np.arange(1.0, rows + 1))
    return Vocabulary(np.arange(rows, dtype=np.int32), threshold, alias.astype(np.int32), np.zeros(0, np.float32))


def random_tables(d, rows=ROWS, adagrad=False):
    rng = np.random.default_rng(d)
    tables = EmbeddingTables.random(rows, d, 1, adagrad)
    tables.centre[:] = rng.normal(0, 0.7, tables.centre.shape)
    tables.context[:] = rng.normal(0, 0.7, tables.context.shape)
    for table in (tables.centre, tables.context):  # to values that products take as they are
        table.view(np.uint32)[:] &= 0xFFFF0000
    return tables


def drawn_negatives(vocab, params, length, number, epoch):
    """The negatives of a walk's only block, as the kernel draws them."""
    blocks, _, pool = pool_size(length, params.block, params.shared_negatives)
    out = np.zeros(blocks * pool, np.int64)
    with np.errstate(over="ignore"):
        state = mix.py_func(np.uint64(key(params.seed, epoch)) + np.uint64(number) * GAMMA)
    _draw(state, out, len(out), vocab.threshold, vocab.alias)
    return out.reshape(blocks, pool)


def objective(centre, context, walk, negatives, params, centres=None):
    """The stated objective, one pair at a time; also the curvature of each row, and the sum of the magnitudes of its
    gradient's terms; both of the centres and of the contexts."""
    n, window = len(walk), params.window
    loss = torch.zeros((), dtype=centre.dtype)
    curve = np.zeros(len(centre)), np.zeros(len(centre))
    terms = np.zeros(centre.shape), np.zeros(centre.shape)

    def bound(s):
        return 0.25 if abs(s) < 1e-2 else (1 / (1 + np.exp(-s)) - 0.5) / s

    def pair(c, o, weight, sign):
        nonlocal loss
        a, b = centre[c].detach().numpy(), context[o].detach().numpy()
        s = centre[c] @ context[o]
        loss = loss - weight * torch.nn.functional.logsigmoid(sign * s)
        h = weight * bound(s.item())
        curve[0][c] += h * (b @ b)
        curve[1][o] += h * (a @ a)
        slope = weight / (1 + np.exp(sign * s.item()))
        terms[0][c] += slope * np.abs(b)
        terms[1][o] += slope * np.abs(a)

    for i in range(n) if centres is None else centres:
        total = 0.0
        for j in range(max(0, i - window), min(n, i + window + 1)):
            if i != j:
                weight = (window - abs(i - j) + 1) / window
                total += weight
                pair(walk[i], walk[j], weight, 1)
        for m in negatives:
            pair(walk[i], m, total * params.negative / len(negatives), -1)
    return loss, curve, terms


def expected_step(tables, walk, negatives, params, rate, centres=None):
    centre = torch.tensor(tables.centre, dtype=torch.float64, requires_grad=True)
    context = torch.tensor(tables.context, dtype=torch.float64, requires_grad=True)
    loss, curves, terms = objective(centre, context, walk, negatives, params, centres)
    loss.backward()
    moved, errors = [], []
    for table, curve, term in zip((centre, context), curves, terms, strict=True):
        step = (rate / (1 + params.step_bound * rate * curve))[:, None]
        moved.append(table.detach().numpy() - step * table.grad.numpy())
        errors.append(step * term * 2**-8)  # every term's slope is rounded to bfloat16
    return moved, errors


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
    tables, vocab = random_tables(d), vocabulary()
    negatives = drawn_negatives(vocab, params, n, seed, 3)[0]
    expected, errors = expected_step(tables, walk, negatives, params, 0.05)
    NumbaKernel(tables, vocab, params, 1).train(walk[None], seed, 3, 0.05, 0.0)
    assert (np.abs(tables.centre - expected[0]) <= 2e-5 + errors[0]).all()
    assert (np.abs(tables.context - expected[1]) <= 2e-5 + errors[1]).all()


@pytest.mark.parametrize("n", [40, 41, 43])
def test_a_long_walk_is_trained_block_by_block_with_the_contexts_around_each(n):
    params = EmbedParams(dimensions=20, window=6, block=16, shared_negatives=8, seed=5)
    walk = np.random.default_rng(n).integers(0, ROWS, n).astype(np.int32)
    tables, vocab = random_tables(20), vocabulary()
    reference = random_tables(20)
    negatives = drawn_negatives(vocab, params, n, 0, 0)
    _, size, _ = pool_size(n, params.block, params.shared_negatives)
    for block, pool in enumerate(negatives):
        centres = range(block * size, min(n, (block + 1) * size))
        reference.centre[:], reference.context[:] = expected_step(reference, walk, pool, params, 0.05, centres)[0]
    NumbaKernel(tables, vocab, params, 1).train(walk[None], 0, 0, 0.05, 0.05)
    # From the second block on, the scores are of rounded vectors too. A pair more or less is a step of 0.02.
    np.testing.assert_allclose(tables.centre, reference.centre, atol=4e-3)
    np.testing.assert_allclose(tables.context, reference.context, atol=4e-3)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_the_torch_kernel_takes_the_same_step(optimizer):
    params = EmbedParams(
        dimensions=24, window=4, shared_negatives=16, optimizer=optimizer, kernel="torch", step_bound=0.5
    )
    walk = np.random.default_rng(3).permutation(ROWS)[:11].astype(np.int32)
    vocab = vocabulary()
    negatives = np.array([3, 5, 7, 1, 0, 11, 2, 9])
    ours, theirs = random_tables(24, adagrad=optimizer == "adagrad"), random_tables(24, adagrad=optimizer == "adagrad")
    kernel = TorchKernel(theirs, vocab, params, 1)
    rows = torch.from_numpy(walk.astype(np.int64))[None]
    loss, weight, _ = kernel.step(rows, torch.ones_like(rows, dtype=torch.bool), torch.from_numpy(negatives)[None], 0.3)
    kernel.finish()
    centre, context = torch.tensor(ours.centre).double(), torch.tensor(ours.context).double()
    assert float(loss) == pytest.approx(float(objective(centre, context, walk, negatives, params)[0]), rel=1e-5)
    assert float(weight) > 0
    if optimizer == "sgd":
        expected, _ = expected_step(ours, walk, negatives, params, 0.3)
        np.testing.assert_allclose(theirs.centre, expected[0], atol=1e-4)
        np.testing.assert_allclose(theirs.context, expected[1], atol=1e-4)
    else:
        assert (theirs.centre_sum[walk] > 0).all()
        assert np.abs(theirs.centre - ours.centre).max() <= 0.3 * 24**0.5 + 1e-5


def test_the_loss_of_a_block_is_that_of_every_fourth_centre():
    params = EmbedParams(dimensions=16, window=3, shared_negatives=2000)
    rng = np.random.default_rng(4)
    walk, negatives = rng.integers(0, ROWS, 11), rng.integers(0, ROWS, 2000)
    tables = random_tables(16)
    one_side = np.concatenate([[0.0], np.cumsum([1, 2 / 3, 1 / 3] + [0.0] * 10)])
    pairs = one_side[: len(walk)] + one_side[: len(walk)][::-1]
    weights = (pairs * params.negative / len(negatives)).astype(np.float32)
    block = BlockBounds(0, len(walk), 0, len(walk), 0, len(negatives), 0, 0, 0, 0, 0)
    loss, weight = block_loss(tables, walk, len(walk), negatives, params.window, block, weights)
    centre, context = (torch.tensor(table).double() for table in (tables.centre, tables.context))
    expected = objective(centre, context, walk, negatives, params, range(0, len(walk), 4))[0]
    assert loss == pytest.approx(float(expected), rel=1e-5)
    assert weight == pytest.approx(pairs[::4].sum())


def test_padding_dropped_vertices_and_short_walks_are_left_out():
    params = EmbedParams(dimensions=16, window=3, shared_negatives=8)
    vocab = vocabulary()
    remap = vocab.remap.copy()
    remap[[2, 7]] = -1
    dropped = Vocabulary(remap, vocab.threshold, vocab.alias, vocab.keep)
    long, short = random_tables(16), random_tables(16)
    walk = np.array([[4, 2, 5, 7, 7, 6, 2, 8, -1, -1]], np.int32)
    NumbaKernel(long, dropped, params, 1).train(walk, 9, 0, 0.05, 0.05)
    NumbaKernel(short, vocab, params, 1).train(np.array([[4, 5, 6, 8]], np.int32), 9, 0, 0.05, 0.05)
    np.testing.assert_array_equal(long.centre, short.centre)
    np.testing.assert_array_equal(long.context, short.context)
    alone = random_tables(16)
    NumbaKernel(alone, dropped, params, 1).train(np.array([[4, 2, 7, -1], [2, 7, -1, -1]], np.int32), 0, 0, 1.0, 1.0)
    np.testing.assert_array_equal(alone.centre, random_tables(16).centre)


def test_frequent_vertices_are_kept_with_their_probability():
    params = EmbedParams(dimensions=16, window=1, shared_negatives=8, negative=1)
    vocab = vocabulary()
    keep = np.where(np.arange(ROWS) == 0, 0.0, 1.0).astype(np.float32)
    thinned = Vocabulary(vocab.remap, vocab.threshold, vocab.alias, keep)
    tables = random_tables(16)
    before = tables.centre.copy()
    NumbaKernel(tables, thinned, params, 1).train(np.array([[1, 0, 2, 0, 0, 3]], np.int32), 0, 0, 0.1, 0.1)
    changed = np.flatnonzero(np.abs(tables.centre - before).max(1) > 0).tolist()
    assert changed == [1, 2, 3]


def test_training_stops_at_a_vector_that_is_not_a_number_or_explodes():
    params, vocab = EmbedParams(dimensions=16, shared_negatives=8), vocabulary()
    for value in (np.nan, np.inf, 1e6):
        tables = random_tables(16)
        tables.centre[4, 3] = value
        _, _, peak = NumbaKernel(tables, vocab, params, 1).train(np.array([[1, 4, 2]], np.int32), 0, 0, 0.1, 0.1)
        assert peak == np.inf


_PRINT_TABLES = """
import hashlib
import numpy as np
from superworkflow.tasks.embed import EmbedParams
from superworkflow.tasks.lib.kernels.products import PRODUCTS
from superworkflow.tasks.embed.tables import EmbeddingTables
from superworkflow.tasks.embed.train import NumbaKernel, Vocabulary
from superworkflow.tasks.prepare.alias import alias_table
from tests.kernels.aarch64 import arm_code, compiled_kernels, of_another_processor

threshold, alias = alias_table(np.arange(1.0, 301))
vocab = Vocabulary(np.arange(300, dtype=np.int32), threshold, alias.astype(np.int32), np.zeros(0, np.float32))
found = hashlib.sha256()
shapes = (128, 10, 128, 80), (20, 5, 16, 43), (48, 3, 33, 41), (7, 12, 128, 90), (33, 28, 9, 50)
for d, window, block, length in shapes:
    walks = np.random.default_rng(d).integers(0, 300, (100, length)).astype(np.int32)
    tables = EmbeddingTables.random(300, d, 1, False)
    NumbaKernel(tables, vocab, EmbedParams(dimensions=d, window=window, block=block), 1).train(walks, 0, 0, 0.05, 0.01)
    found.update(tables.centre.tobytes() + tables.context.tobytes())
if PRODUCTS.available == ("floats",):  # so trains a processor of another kind, such as Arm's
    for name, library in compiled_kernels():
        assert not of_another_processor(library), name
        assert arm_code(library), name
print(PRODUCTS.value, found.hexdigest())
"""


@pytest.mark.slow
def test_all_ways_to_multiply_train_the_same_bits():
    """By tiles, words and floats where this processor has them, and as one without AVX-512 does."""
    has = llvmlite.binding.get_host_cpu_features()
    if not has.get("avx2"):
        pytest.skip("compiles for AVX2")
    if "NUMBA_CPU_FEATURES" in os.environ:
        pytest.skip("compiles for this processor, and another one is named")
    plain = "+sse4.2,+popcnt,+avx,+avx2,+fma,+bmi,+bmi2"
    here = [{VARIABLE: f"products={way}"} for way in PRODUCTS.available]
    printed = [
        subprocess.run(
            [sys.executable, "-c", _PRINT_TABLES], env=os.environ | features,
            capture_output=True, text=True, check=True, timeout=600,
        ).stdout.split()
        for features in (*here, {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": plain})
    ]  # fmt: skip
    ways, digests = zip(*printed, strict=True)
    assert ways == (*PRODUCTS.available, "floats")
    assert len(set(digests)) == 1


def test_rows_of_tables_begin_at_cache_lines():
    tables = EmbeddingTables.random(1000, 48, 1, False)
    assert [table.ctypes.data % 64 for table in (tables.centre, tables.context)] == [0, 0]
