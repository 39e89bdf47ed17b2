"""The fold of one sync: `FOLD`, `LARGEST` and `SCHEMA`, which `functions_of` sets at first."""

# mypy: ignore-errors

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.exact_sum import add_exactly
from superworkflow.tasks.lib.vertex import edges  # noqa: F401, declares the type of edges
from superworkflow.tasks.lib.vertex.scope import scope_maker

_scope_of = scope_maker(SCHEMA)  # noqa: F821
_fold = nb.njit(forceinline=True, error_model="numpy")(FOLD)  # noqa: F821
_largest = LARGEST  # noqa: F821


@nb.njit(nogil=True, cache=True, error_model="numpy")
def fold_all(state, params, vertices, sums, row):
    """Add up the values of the first vertices, exactly; or find the largest, from 0 on.

    Args:
        state: `scope.State`.
        params: the program's parameters.
        vertices: how many.
        sums: int64 [sums, WORDS], to one of which the values are added; see `exact_sum`.
        row: of this sum.
    """
    largest = 0.0
    for vertex in range(vertices):
        value = np.float64(_fold(_scope_of(state, np.int64(vertex)), params))
        if not _largest:
            add_exactly(sums, row, value)
        elif not value <= largest and largest == largest:
            largest = value
    return largest
