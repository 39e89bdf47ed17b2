"""The kernels of triangles, coreness and one-sided colours, with guard zones; see `tests.kernels.guarded`."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.components.run import components
from superworkflow.tasks.kcore.run import coreness
from superworkflow.tasks.lib.vertex.colours import apart, conflict
from superworkflow.tasks.triangles.run import triangles

NONE = np.empty(0, np.int64), np.empty(0, np.int32)


def rows(matrix: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


@settings(max_examples=25, deadline=None, print_blob=True)
@given(size=st.integers(0, 40), density=st.floats(0, 1), threads=st.integers(1, 3), seed=st.integers(0, 2**20))
def test_triangles_are_those_of_the_cubed_matrix(size: int, density: float, threads: int, seed: int) -> None:
    upper = np.triu(np.random.default_rng(seed).random((size, size)) < density, 1)
    dense = (upper | upper.T).astype(np.int64)
    found = triangles(*rows(sp.csr_array(dense)), threads)
    assert found.tolist() == (np.diag(dense @ dense @ dense) // 2).tolist()


@settings(max_examples=40, deadline=None, print_blob=True)
@given(size=st.integers(0, 40), density=st.floats(0, 1), directed=st.booleans(), seed=st.integers(0, 2**20))
def test_coreness_is_what_is_left_of_removing_vertices_of_too_low_degree(
    size: int, density: float, directed: bool, seed: int
) -> None:
    dense = (np.random.default_rng(seed).random((size, size)) < density).astype(np.int64)
    np.fill_diagonal(dense, 0)
    both = dense + dense.T if directed else np.maximum(dense, dense.T)
    _, found = coreness(*rows(sp.csr_array(dense if directed else both)), directed)
    expected, left, level = np.zeros(size, np.int64), np.ones(size, bool), 0
    while left.any():
        level += 1
        while (few := left & (both[:, left].sum(axis=1) < level)).any():
            left &= ~few
        expected[left] = level
    assert found.tolist() == expected.tolist()


@settings(max_examples=60, deadline=None, print_blob=True)
@given(
    size=st.sampled_from([0, 1, 2, 5, 40, 3000]), most=st.floats(0, 2), directed=st.booleans(),
    hub=st.booleans(), seed=st.integers(0, 2**20),
)  # fmt: skip
def test_components_are_those_of_scipy(size: int, most: float, directed: bool, hub: bool, seed: int) -> None:
    """Few edges: many components and long trees; with a hub, one that is larger than the others."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, max(1, size), (2, int(size * most))) if size else np.empty((2, 0), np.int64)
    if hub and size:
        ends = np.concatenate([ends, [np.full(size // 2, size - 1), rng.integers(0, size, size // 2)]], 1)
    matrix = sp.csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), (size, size))
    indptr, indices = rows(matrix if directed else sp.csr_array(matrix + matrix.T))
    found, read = components(indptr, indices, directed)
    labels = sp.csgraph.connected_components(matrix, directed=False)[1] if size else np.empty(0, np.int64)
    first = np.full(labels.max(initial=-1) + 1, size)
    np.minimum.at(first, labels, np.arange(size))
    assert found.tolist() == first[labels].tolist()
    assert read <= len(indices)


@settings(max_examples=25, deadline=None, print_blob=True)
@given(
    samples=st.integers(1, 150), features=st.integers(1, 150), density=st.floats(0, 0.3), words=st.integers(1, 2),
    of_samples=st.booleans(), seed=st.integers(0, 2**20),
)  # fmt: skip
def test_vertices_of_one_colour_share_no_neighbour(
    samples: int, features: int, density: float, words: int, of_samples: bool, seed: int
) -> None:
    block = np.random.default_rng(seed).random((samples, features)) < density
    block[:, 0] = True  # a constant feature
    matrix = sp.csr_array(sp.block_array([[None, sp.csr_array(block)], [sp.csr_array(block.T), None]]))
    updated = (np.arange(samples + features) < samples) == of_samples
    colours = np.empty(samples + features, np.int32)
    count = apart(*rows(matrix), updated, words, colours)
    assert set(colours.tolist()) == set(range(count))
    assert (colours[~updated] == count - 1).all()
    assert (colours[updated] < count - 1).all()
    assert conflict(*rows(matrix), *NONE, 2, np.where(updated, colours, -1).astype(np.int32)) == -1
    mine = block if of_samples else block.T
    shared = mine.astype(int) @ mine.T.astype(int)
    own = colours[updated]
    assert not ((shared > 0) & (own[:, None] == own[None, :]) & ~np.eye(len(own), dtype=bool)).any()
    if count > 2:  # two merged colours conflict exactly where a neighbour is shared
        merged = np.where(own == 1, 0, own)
        wrong = (shared > 0) & (merged[:, None] == merged[None, :]) & ~np.eye(len(own), dtype=bool)
        given_colours = np.full(samples + features, -1, np.int32)
        given_colours[updated] = merged
        assert (conflict(*rows(matrix), *NONE, 2, given_colours) >= 0) == wrong.any()
