"""The fold of one sync of several numbers: `FOLD`, `LENGTH` and `SCHEMA`, which `functions_of` sets at first."""

# mypy: ignore-errors

import numba as nb
import numpy as np

from superworkflow.tasks.lib.vertex import edges  # noqa: F401, declares the type of edges
from superworkflow.tasks.lib.vertex.helpers import with_helpers
from superworkflow.tasks.lib.vertex.scope import scope_maker

_scope_of = scope_maker(SCHEMA)  # noqa: F821
_compiled = nb.njit(forceinline=True, error_model="numpy")
_fold = _compiled(with_helpers(FOLD, _compiled))  # noqa: F821
_length = LENGTH  # noqa: F821


@nb.njit(nogil=True, cache=True, error_model="numpy")
def fold_vectors(state, params, block, totals):
    """Add up what the vertices say, block after block, each in the order of places.

    Args:
        state: `scope.State`.
        params: the program's parameters.
        block: vertices of a block.
        totals: float64 [blocks, length], zeros; becomes the sums.
    """
    vertices = len(state.indptr) - 1
    values = np.zeros(_length)
    for number in range(len(totals)):
        for vertex in range(number * block, min((number + 1) * block, vertices)):
            values[:] = 0.0
            _fold(_scope_of(state, np.int64(vertex)), params, values)
            for k in range(_length):
                totals[number, k] += values[k]
