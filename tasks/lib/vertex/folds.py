"""The fold of one sync: `FOLD`, `LARGEST` and `SCHEMA`, which `functions_of` sets at first."""

# mypy: ignore-errors

import numba as nb
import numpy as np

from superworkflow.tasks.lib.vertex import edges  # noqa: F401, declares the type of edges
from superworkflow.tasks.lib.vertex.scope import scope_maker

_scope_of = scope_maker(SCHEMA)  # noqa: F821
_fold = nb.njit(forceinline=True, error_model="numpy")(FOLD)  # noqa: F821
_largest = LARGEST  # noqa: F821


@nb.njit(nogil=True, cache=True, error_model="numpy")
def fold_blocks(state, params, block, totals):
    """Fold blocks of vertices, each in the order of their numbers.

    Args:
        state: `scope.State`.
        params: the program's parameters.
        block: vertices of a block.
        totals: float64 [blocks], becomes the sums, or the largest values.
    """
    vertices = len(state.indptr) - 1
    for number in range(len(totals)):
        first, last = number * block, min((number + 1) * block, vertices)
        total = np.float64(_fold(_scope_of(state, np.int64(first)), params))
        for vertex in range(first + 1, last):
            value = np.float64(_fold(_scope_of(state, np.int64(vertex)), params))
            total = max(total, value) if _largest else total + value
        totals[number] = total
