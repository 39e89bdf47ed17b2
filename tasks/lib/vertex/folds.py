"""The fold of one sync: `FOLD`, `LENGTH`, `LARGEST` and `SCHEMA`, which `functions_of` sets at first."""

# mypy: ignore-errors

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.exact_sum import add_exactly
from superworkflow.tasks.lib.vertex import edges  # noqa: F401, declares the type of edges
from superworkflow.tasks.lib.vertex.helpers import with_helpers
from superworkflow.tasks.lib.vertex.scope import scope_maker

_scope_of = scope_maker(SCHEMA._replace(checked=""))  # noqa: F821
_compiled = nb.njit(forceinline=True, error_model="numpy")
_fold = _compiled(with_helpers(FOLD, _compiled))  # noqa: F821
_length, _largest = max(1, LENGTH), LARGEST  # noqa: F821


@_compiled
def _number(scope, params, values):
    values[0] = np.float64(_fold(scope, params))


_values_of = _fold if LENGTH else _number  # noqa: F821


@nb.njit(nogil=True, cache=True, error_model="numpy")
def fold_all(state, params, vertices, sums, row):
    """Add up the numbers of the first vertices, exactly; or find the largest, from 0 on.

    Args:
        state: `scope.State`.
        params: the program's parameters.
        vertices: how many.
        sums: int64 [sums, WORDS], to some of which the numbers are added; see `exact_sum`.
        row: first of these.
    """
    largest, values = 0.0, np.empty(_length)
    for vertex in range(vertices):
        values[:] = 0.0
        _values_of(_scope_of(state, np.int64(vertex)), params, values)
        for k in range(_length):
            if not _largest:
                add_exactly(sums, row + k, values[k])
            elif not values[k] <= largest and largest == largest:
                largest = values[k]
    return largest
