"""Kernels of blocks and of workers' pieces against plain loops, and the normal equations of factors against NumPy."""

import itertools

import numba as nb
import numpy as np
import pytest
import scipy.sparse as sp

from superworkflow.tasks.als.normal_equations import add_products, decompose, solve_upper
from superworkflow.tasks.lib.vertex.blocks import signalled_blocks
from superworkflow.tasks.lib.vertex.cluster.packing import pack, room_for, unpack
from superworkflow.tasks.lib.vertex.cluster.piece_kernels import conflict_among
from superworkflow.tasks.lib.vertex.helpers import with_helpers
from superworkflow.tasks.lib.vertex.scheduler import bucket

_compiled = nb.njit(error_model="numpy")
_add, _decompose, _upper = (_compiled(with_helpers(each, _compiled)) for each in (add_products, decompose, solve_upper))


@pytest.mark.parametrize("seed", range(20))
def test_signalled_blocks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, rng.integers(1, 20))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    priorities = np.where(rng.random(starts[-1]) < 0.6, 0, rng.exponential(4, starts[-1])).astype(np.float32)
    degrees, signals = rng.integers(0, 9, starts[-1]), priorities.view(np.int32)
    for lowest in (1, max(1, bucket(int(signals.max())))):
        queue = np.empty(len(lengths), np.int32)
        count, updates, arcs = signalled_blocks(signals, degrees, starts, lowest, queue)
        blocks = [slice(low, high) for low, high in itertools.pairwise(starts)]
        expected = [number for number, each in enumerate(blocks) if signals[each].max() >= lowest]
        assert queue[:count].tolist() == expected
        assert updates == sum(2 * lengths[number] - 1 for number in expected)
        assert arcs == sum(2 * degrees[blocks[number]].sum() for number in expected)


@pytest.mark.parametrize("seed", range(30))
def test_conflict_among_blocks(seed: int) -> None:
    """A vertex is named if and only if two of other blocks are too near to each other and to some vertex."""
    rng = np.random.default_rng(seed)
    size, distance = int(rng.integers(2, 14)), int(rng.integers(0, 3))
    dense = np.triu(rng.random((size, size)) < 0.25, 1)
    matrix = sp.csr_array((dense | dense.T).astype(np.int8))
    arcs = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    colours, vertices = rng.integers(-1, 6, size).astype(np.int32), np.arange(size, dtype=np.int32)
    grouped = rng.integers(0, size, size).astype(np.int32)
    colours = colours[grouped]  # blocks have colours
    for blocks in (grouped, np.empty(0, np.int32)):
        found = int(conflict_among(*arcs, *arcs, vertices, distance, colours, 6, blocks))
        own = blocks if len(blocks) else vertices
        near = (dense | dense.T) | (distance > 1) & (matrix @ matrix).toarray().astype(bool)
        alike = (colours[:, None] == colours) & (own[:, None] != own) & (colours >= 0)
        assert (found >= 0) == bool(distance and (near & alike).any())
        assert found < 0 or alike[found].any()


@pytest.mark.parametrize("seed", range(12))
def test_values_that_have_changed_arrive(seed: int) -> None:
    rng = np.random.default_rng(seed)
    places, width = int(rng.integers(1, 300)), int(rng.integers(1, 4))
    before = rng.integers(0, 99, (places, width)).astype(np.uint32)
    cells = rng.permutation(places).astype(np.int32)
    low, high = sorted(rng.integers(0, places + 1, 2).tolist())
    changed = cells[low:high][rng.random(high - low) < (0, 0.02, 0.4, 1)[seed % 4]]
    after, found, shadow = before.copy(), before.copy(), before.copy()
    after[changed] += 1
    marks, out = np.zeros(places, np.uint8), np.zeros(room_for(after, high - low), np.uint8)
    end, count = pack(after, before.copy(), cells, low, high, marks, out, 0, True)
    assert count == len(changed)
    assert unpack(found, shadow, cells, low, high, np.zeros(places, np.uint8), out[:end].copy(), 0) == end
    assert found.tolist() == shadow.tolist() == after.tolist()


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 16, 20, 31, 32, 33, 50])
def test_normal_equations(size: int) -> None:
    rng = np.random.default_rng(size)
    near, gram = rng.normal(size=(3, 4, size)), np.zeros((size, size))
    for each in near:
        _add(gram, each)
    whole = near.reshape(-1, size)
    np.testing.assert_allclose(np.tril(gram), np.tril(whole.T @ whole), rtol=1e-12, atol=1e-12)
    gram[np.diag_indices(size)] += 1.0
    right = rng.normal(size=size)
    lower, found = gram.copy(), right.copy()
    _decompose(lower, found)
    np.testing.assert_allclose(
        np.tril(lower), np.linalg.cholesky(whole.T @ whole + np.eye(size)), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(np.tril(lower) @ found, right, rtol=1e-9, atol=1e-10)
    plain = np.tril(gram)
    decompose(plain)  # the upper triangle does not matter, nor who runs it
    assert np.tril(plain).tobytes() == np.tril(lower).tobytes()
    same = found.copy()
    _upper(lower, found)
    solve_upper(np.tril(lower), same)
    assert same.tobytes() == found.tobytes()
    np.testing.assert_allclose(found, np.linalg.solve(whole.T @ whole + np.eye(size), right), rtol=1e-8)
