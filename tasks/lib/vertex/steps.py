"""Steps of the chromatic engine, for one program: `functions_of` sets `PROGRAM`, `SCHEMA` and `SETTINGS` at first."""

# mypy: ignore-errors

from collections import namedtuple

import numba as nb
import numpy as np
from numba.core import types
from numba.extending import overload

from superworkflow.tasks.lib.kernels.atomic import fetch_add, load_acquire
from superworkflow.tasks.lib.kernels.exact_sum import add_exactly
from superworkflow.tasks.lib.vertex import edges  # noqa: F401, declares the type of edges
from superworkflow.tasks.lib.vertex.scope import scope_maker

BLOCK = 1 << 12
"""Vertices of one colour that a thread updates in one go."""
Settings = namedtuple("Settings", SETTINGS)  # noqa: F821
"""Numeric parameters. The class is found by its module's name, as the kept functions' types are."""
_scope_of = scope_maker(SCHEMA)  # noqa: F821
_first_scope_of = scope_maker(SCHEMA.of_init)  # noqa: F821
_init = nb.njit(forceinline=True, error_model="numpy")(PROGRAM.init or (lambda scope, params: None))  # noqa: F821
_update = nb.njit(forceinline=True, error_model="numpy")(PROGRAM.update)  # noqa: F821
_yield = types.ExternalFunction("sched_yield", types.int32())


def _note(sums, row, value):
    raise NotImplementedError


@overload(_note, inline="always")
def _overload_note(sums, row, value):
    if isinstance(value, types.NoneType):
        return lambda sums, row, value: None

    return lambda sums, row, value: add_exactly(sums, row, np.float64(value))


@nb.njit(nogil=True, cache=True, error_model="numpy")
def run_share(state, queue, starts, params, sums, row, claims, arrived, threads):
    """Update one thread's share of a step: colour after colour, in blocks that threads claim.

    Args:
        state: `scope.State`.
        queue: int32 [active], the active vertices by colour, ascending in each.
        starts: int64 [colours + 1], where each colour begins.
        params: the program's parameters.
        sums: int64 [threads, WORDS], to which the residuals are added; see `exact_sum`.
        row: of this thread.
        claims: int64 [colours], zeros: blocks that threads have claimed.
        arrived: int64 [colours], zeros: threads that have no block left.
        threads: how many call this.
    """
    for colour in range(len(starts) - 1):
        low, high = starts[colour], starts[colour + 1]
        blocks = (high - low + BLOCK - 1) // BLOCK
        while True:
            block = fetch_add(claims, colour, 1)
            if block >= blocks:
                break
            for place in range(low + block * BLOCK, min(low + (block + 1) * BLOCK, high)):
                _note(sums, row, _update(_scope_of(state, np.int64(queue[place])), params))
        if threads > 1:
            fetch_add(arrived, colour, 1)
            while load_acquire(arrived, colour) < threads:
                _yield()


@nb.njit(nogil=True, cache=True, error_model="numpy")
def run_init(state, params, low, high):
    """Set the fields of vertices from `low` to `high`."""
    for vertex in range(low, high):
        _init(_first_scope_of(state, np.int64(vertex)), params)
