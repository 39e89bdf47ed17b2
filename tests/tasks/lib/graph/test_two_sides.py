"""The two sides of a graph, by its edges alone."""

import numpy as np
import pytest
from scipy import sparse

from superworkflow.tasks.lib.graph.two_sides import two_sides


def rows_of(pairs: list[tuple[int, int]], nodes: int) -> tuple[np.ndarray, np.ndarray]:
    ends = np.array(pairs).T
    both = np.concatenate([ends, ends[::-1]], axis=1)
    matrix = sparse.csr_array((np.ones(both.shape[1]), tuple(both)), shape=(nodes, nodes))
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def test_sides_of_users_and_items():
    """Numbers are mixed; node 40 has no edge, and 41 and 42 to 43 are a component of their own."""
    rng = np.random.default_rng(2)
    number = rng.permutation(40)
    pairs = [(int(number[user]), int(number[30 + item])) for user in range(30) for item in rng.choice(10, 4, False)]
    sides = two_sides(*rows_of([*pairs, (41, 42), (41, 43)], 44))
    assert (sides[number[:30]] == 1).all()
    assert (sides[number[30:]] == 2).all()
    assert sides[40:].tolist() == [0, 2, 1, 1]


@pytest.mark.parametrize("pairs", [
    [(u, v) for u in range(9) for v in range(u)],  # odd cycles
    [(u, (u - 1) // 2) for u in range(1, 200)],  # a tree
    [(u, (u + 1) % 20) for u in range(20)],  # one even cycle
])  # fmt: skip
def test_other_graphs_have_none(pairs):
    assert not len(two_sides(*rows_of(pairs, 200)))
