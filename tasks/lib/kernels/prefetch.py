"""Compiled hints: bring a cache line nearer, without waiting for it. They never fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from superworkflow.tasks.lib.kernels.huge_pages import on_huge_pages
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.kernels.variants import KernelChoice

_LINE_BYTES = 64
AHEAD = 16
"""Rows, or edges, by which loops prefetch ahead of the one that they read."""
FIRST, SECOND = 3, 2
"""Level of the cache that the line is brought into, as LLVM numbers localities."""


def hint(builder: Any, pointer: Any, level: int | None = None) -> None:
    """Add the hint for the line at `pointer` to the code of an intrinsic: a read, of data used again soon.

    Without a level it is the one of `LEVEL`, on which the intrinsic then depends.
    """
    if level is None:
        level = SECOND if LEVEL.value == "second" else FIRST
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    insert: Any = cgutils.get_or_insert_function
    function = insert(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(function, [builder.bitcast(pointer, byte), word(0), word(level), word(1)])


def _into(level: int | None) -> Any:
    """The intrinsic that brings lines into this level."""

    def typed(typing_context: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            hint(builder, builder.gep(data, [arguments[1]]), level)
            return context.get_dummy_value()

        return types.void(array, index), generate

    return intrinsic(typed)


_prefetch_first: Any = _into(FIRST)
prefetch_far: Any = _into(SECOND)
"""The hint of `prefetch` into the second-level cache, for whole rows: far more lines can be on their way there than
into the first, which has few buffers for lines that it waits for (on an AMD EPYC of 2022 13 GB/s of random rows against
7)."""

_LARGE, _SMALL, _AT_ONCE, _TURNS = 1 << 25, 1 << 20, 256, 2000
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")


@nb.njit(inline="always")
def _place(places: Any, state: Any, mask: Any) -> Any:
    for k in range(_AT_ONCE):
        state += GAMMA
        places[k] = np.int64(mix(state) & mask)
    return state


@nb.njit(inline="always")
def _sum_at(table: Any, places: Any) -> Any:
    total = np.uint64(0)
    for k in range(_AT_ONCE):
        total += table[np.uint64(places[k])]
    return total


@nb.njit(cache=True, nogil=True)
def _read_by_first(table: Any, places: Any, state: Any) -> Any:
    total = np.uint64(0)
    for _ in range(_TURNS):
        state = _place(places, state, np.uint64(len(table) - 1))
        for k in range(_AT_ONCE):
            _prefetch_first(table, places[k])
        total += _sum_at(table, places)
    return state + total


@nb.njit(cache=True, nogil=True)
def _read_by_second(table: Any, places: Any, state: Any) -> Any:
    total = np.uint64(0)
    for _ in range(_TURNS):
        state = _place(places, state, np.uint64(len(table) - 1))
        for k in range(_AT_ONCE):
            prefetch_far(table, places[k])
        total += _sum_at(table, places)
    return state + total


def _table() -> Any:
    """256 MiB, more than most caches hold, whose pages are there; 8 MiB where a container has less than 2 GiB."""
    with suppress(OSError, ValueError):  # of another system, or without a limit
        if int(_MEMORY_LIMIT.read_text()) < 2 << 30:
            return np.ones(_SMALL, np.uint64)
    table = np.ones(_LARGE, np.uint64)
    on_huge_pages(table)  # as the arrays of graphs are
    return table


def _rates() -> Mapping[str, Callable[[], float]]:
    """Random reads a second, as walkers make them: many on their way at once."""
    table = cache(_table)

    def rate(read: Any) -> float:
        places = np.zeros(_AT_ONCE, np.int64)
        read(table(), places, np.uint64(0))  # compiled, or loaded, before time is taken
        begun = time.perf_counter()
        read(table(), places, np.uint64(time.perf_counter_ns()))
        return _AT_ONCE * _TURNS / (time.perf_counter() - begun)

    return {"first": lambda: rate(_read_by_first), "second": lambda: rate(_read_by_second)}


LEVEL = KernelChoice("prefetch", "reads/s", _rates, lambda: str(_read_by_first.stats.cache_path))
"""Level of the cache that `prefetch` brings lines into. The first has few buffers for lines that it waits for (16 on an
Intel Xeon of 2023, where first-order walks were 8 to 25% faster by the second), and is nearer."""

prefetch: Any = LEVEL.marks(_into(None))
"""``prefetch(array, index)``: the hint for ``array[index]``; array 1-D contiguous, index a 64-bit integer."""


@nb.njit(inline="always")
def prefetch_list(indptr: Any, values: Any, vertex: Any, later: Any) -> Any:
    """Hints for the values of one vertex's list, and for where that of a later one begins.

    Args:
        indptr: [vertices + 1], where each list begins.
        values: of all lists, one after the other.
        vertex: whose list is read soon.
        later: one whose list is read as much later again.
    """
    prefetch(indptr, later)
    for place in range(indptr[vertex], indptr[vertex + 1], max(1, _LINE_BYTES // values.itemsize)):
        prefetch(values, place)


@nb.njit(inline="always")
def prefetch_rows(flat: Any, width: Any, rows: Any, first: Any, count: Any) -> Any:
    """`prefetch_row` of the rows [first, first + count) of a list, unless the list ends before."""
    if first + count <= len(rows):
        for i in range(first, first + count):
            prefetch_row(flat, np.int64(rows[i]) * width, width)


@nb.njit(inline="always")
def prefetch_row(flat: Any, begin: Any, width: Any) -> Any:
    """`prefetch_far` of all of flat[begin:begin + width], which is not empty and may end beyond the array."""
    for position in range(begin, begin + width, max(1, _LINE_BYTES // flat.itemsize)):
        prefetch_far(flat, position)
    prefetch_far(flat, begin + width - 1)
