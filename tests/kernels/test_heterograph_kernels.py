"""Edges in order, with small buckets and pieces, and rows of any bits; see `tests.kernels.guarded`."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.heterograph.csr import Ordered, first_of_each, order_edges, pack, reverse
from superworkflow.tasks.lib.graph import csr as _csr


@given(
    seed=st.integers(0, 2**20), edges=st.sampled_from([0, 1, 2, 50, 3000]), sources=st.sampled_from([1, 2, 90, 5000]),
    targets=st.sampled_from([1, 3, 70, 6000]), hub=st.booleans(), threads=st.integers(1, 8), bucket=st.integers(6, 9),
    most=st.integers(4, 12),
)  # fmt: skip
@settings(max_examples=100, deadline=None, print_blob=True)
def test_edges_are_ordered(
    seed: int, edges: int, sources: int, targets: int, hub: bool, threads: int, bucket: int, most: int
) -> None:
    """By source, target, and as they came: also of several between the same nodes; rows are moved bit by bit."""
    rng = np.random.default_rng(seed)
    ends = [rng.integers(0, size, edges).astype(np.int32) for size in (sources, targets)]
    if hub:
        ends[0][: edges // 2] = sources - 1
    rows = rng.integers(-(2**31), 2**31, edges).astype(np.int32)  # patterns that are no numbers, as float32, included
    order = np.lexsort((np.arange(edges), ends[1], ends[0]))
    sizes = {"BUCKET": 1 << bucket, "MOST_ARCS": 1 << most, "MOST_BUCKETS": 1 << (most // 3), "PIECE": 1 << (most - 2)}
    before = {name: getattr(_csr, name) for name in sizes}
    try:
        for name, size in sizes.items():
            setattr(_csr, name, size)
        made = order_edges(pack(*ends), rows, sources, targets, threads)
        backward = reverse(made, sources, targets, threads)
    finally:
        for name, size in before.items():
            setattr(_csr, name, size)
    starts = np.searchsorted(ends[0][order], np.arange(sources + 1))
    _same(made, Ordered(starts, ends[1][order], rows[order]))
    back = np.lexsort((np.arange(edges), ends[0][order], ends[1][order]))
    starts = np.searchsorted(ends[1][order][back], np.arange(targets + 1))
    _same(backward, Ordered(starts, ends[0][order][back], back))
    once = first_of_each(made)
    pairs = list(dict.fromkeys(zip(ends[0][order].tolist(), ends[1][order].tolist(), strict=True)))
    assert list(zip(np.repeat(np.arange(sources), np.diff(once.indptr)), once.indices, strict=True)) == pairs


def _same(made: Ordered, wanted: Ordered) -> None:
    for one, other in zip(made, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
