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
from superworkflow.tasks.lib.vertex.field_hints import field_bringer
from superworkflow.tasks.lib.vertex.field_writes import FieldCompiler
from superworkflow.tasks.lib.vertex.helpers import with_helpers
from superworkflow.tasks.lib.vertex.neighbour_reads import fields_of_updates, ways_of
from superworkflow.tasks.lib.vertex.scope import scope_maker

BLOCK = 1 << 12
"""Vertices of one colour that a thread updates in one go."""
AHEAD = 16
"""Vertices by which the neighbours of one are prefetched before it is updated."""
BROUGHT = [name for name in fields_of_updates(PROGRAM) if not SCHEMA.fields[SCHEMA.field(name)][2]]  # noqa: F821
"""Fields that are: numbers of neighbours, if updates read any."""
_OUT, _IN = ways_of(PROGRAM) if SCHEMA.directed else (any(ways_of(PROGRAM)), False)  # noqa: F821
Settings = namedtuple("Settings", SETTINGS)  # noqa: F821
"""Numeric parameters. The class is found by its module's name, as the kept functions' types are."""
_scope_of = scope_maker(SCHEMA)  # noqa: F821
_first_scope_of = scope_maker(SCHEMA.of_init)  # noqa: F821
CHECKED = bool(SCHEMA.checked)  # noqa: F821
_compiled = nb.njit(forceinline=True, error_model="numpy", boundscheck=CHECKED, pipeline_class=FieldCompiler)
_update = _compiled(with_helpers(PROGRAM.update, _compiled))  # noqa: F821
_init = _compiled(with_helpers(PROGRAM.init or (lambda scope, params: None), _compiled))  # noqa: F821
_yield = types.ExternalFunction("sched_yield", types.int32())


def _note(sums, row, value):
    raise NotImplementedError


@overload(_note, inline="always")
def _overload_note(sums, row, value):
    if isinstance(value, types.NoneType):
        return lambda sums, row, value: None
    if not isinstance(value, types.Number | types.Boolean | types.Optional):
        return None

    return lambda sums, row, value: add_exactly(sums, row, np.float64(value))


_bring = field_bringer(SCHEMA, BROUGHT)  # noqa: F821


@_compiled
def _bring_neighbours(state, vertex):
    """Prefetch fields of a vertex's neighbours."""
    if _OUT:
        for arc in range(state.indptr[vertex], state.indptr[vertex + 1]):
            _bring(state, np.int64(state.indices[arc]))
    if _IN:
        for arc in range(state.in_indptr[vertex], state.in_indptr[vertex + 1]):
            _bring(state, np.int64(state.in_indices[arc]))


@_compiled
def _begin(state, first, colour):
    """Stamp of the updates of a vertex or block, where accesses are recorded; of another colour than the last if so."""
    if CHECKED:
        state.checks[0] = (((state.checks[0] >> 32) + colour) << 32) | first


@_compiled
def _conflicts(state):
    return CHECKED and state.checks[1] != 0


@nb.njit(nogil=True, cache=True, error_model="numpy")
def run_share(state, queue, starts, far, params, sums, row, claims, arrived, threads):
    """Update one thread's share of a step: colour after colour, in blocks that threads claim.

    Args:
        state: `scope.State`.
        queue: int32 [active], the active vertices by colour, ascending in each.
        starts: int64 [colours + 1], where each colour begins.
        far: fields of neighbours are prefetched.
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
        _begin(state, 0, 1)
        while True:
            block = fetch_add(claims, colour, 1)
            if block >= blocks:
                break
            for place in range(low + block * BLOCK, min(low + (block + 1) * BLOCK, high)):
                if far and place + AHEAD < high:
                    _bring_neighbours(state, np.int64(queue[place + AHEAD]))
                _begin(state, queue[place], 0)
                _note(sums, row, _update(_scope_of(state, np.int64(queue[place])), params))
                if _conflicts(state):
                    return
        if threads > 1:
            fetch_add(arrived, colour, 1)
            while load_acquire(arrived, colour) < threads:
                _yield()


@nb.njit(nogil=True, cache=True)
def _tree(state, low, high, path, seen):
    """Order a block breadth first from its vertex of highest priority; part after part if it is not connected.

    Args:
        state: `scope.State`.
        low: place where the block begins.
        high: place where it ends.
        path: int32 [vertices], from `low` on it becomes the order.
        seen: int64 [vertices], the step that has last reached each.
    """
    root = low
    for vertex in range(low + 1, high):
        if state.signals[vertex] > state.signals[root]:
            root = vertex
    path[low] = root
    seen[root] = state.step
    place, end, further = low, low + 1, low
    while end < high or place < end:
        if place == end:
            while seen[further] == state.step:
                further += 1
            path[end] = further
            seen[further] = state.step
            end += 1
        vertex = path[place]
        place += 1
        for part in range(2):
            indptr, indices = (state.indptr, state.indices) if part == 0 else (state.in_indptr, state.in_indices)
            for arc in range(indptr[vertex], indptr[vertex + 1]):
                other = indices[arc]
                if low <= other < high and seen[other] != state.step:
                    seen[other] = state.step
                    path[end] = other
                    end += 1


@nb.njit(nogil=True, cache=True, error_model="numpy")
def run_splashes(state, queue, starts, blocks, path, seen, params, sums, row, claims, arrived, threads):
    """Update one thread's share of a step, block after block: from the leaves of its tree to the root, and back.

    Args:
        state: `scope.State`.
        queue: int32 [active], the active blocks by colour.
        starts: int64 [colours + 1], where each colour begins.
        blocks: int64 [blocks + 1], where each block begins.
        path: int32 [vertices], memory.
        seen: int64 [vertices], memory.
        params: the program's parameters.
        sums: int64 [threads, WORDS], to which the residuals are added; see `exact_sum`.
        row: of this thread.
        claims: int64 [colours], zeros: blocks that threads have claimed.
        arrived: int64 [colours], zeros: threads that have no block left.
        threads: how many call this.
    """
    for colour in range(len(starts) - 1):
        _begin(state, 0, 1)
        while True:
            number = starts[colour] + fetch_add(claims, colour, 1)
            if number >= starts[colour + 1]:
                break
            low, high = blocks[queue[number]], blocks[queue[number] + 1]
            _tree(state, low, high, path, seen)
            _begin(state, low, 0)
            for turn in range(2 * (high - low) - 1):
                vertex = path[high - 1 - turn if turn < high - low else turn - (high - low) + 1 + low]
                state.signals[vertex] = 0
                _note(sums, row, _update(_scope_of(state, np.int64(vertex)), params))
                if _conflicts(state):
                    return
        if threads > 1:
            fetch_add(arrived, colour, 1)
            while load_acquire(arrived, colour) < threads:
                _yield()


@nb.njit(nogil=True, cache=True, error_model="numpy")
def run_init(state, params, low, high):
    """Set the fields of vertices from `low` to `high`."""
    for vertex in range(low, high):
        _init(_first_scope_of(state, np.int64(vertex)), params)
