"""Ratings of items that are rated as often as in long tails, for both sides of the row of als."""

import numpy as np
import scipy.sparse as sp


def ratings(users: int, items: int, count: int) -> sp.csr_matrix:
    """Users by items, float32: about `count` ratings of 1 to 5, which factors of 5 numbers and noise make."""
    random = np.random.default_rng(0)
    often = [1 / np.arange(20, size + 20) ** 0.7 for size in (users, items)]
    ends = [random.choice(len(each), size=count, p=each / each.sum()) for each in often]
    left, right = (random.normal(0, 0.5, (size, 5)) for size in (users, items))
    values = 3 + np.einsum("rk,rk->r", left[ends[0]], right[ends[1]]) + random.normal(0, 0.7, count)
    cells, first = np.unique(ends[0].astype(np.int64) * items + ends[1], return_index=True)
    values = values[first].clip(1, 5).astype(np.float32)
    return sp.csr_matrix((values, (cells // items, cells % items)), shape=(users, items))
