"""Guard zones: while `guard_zones` lasts, every array that a compiled kernel is given lies between poisoned bytes.

Bounds checks see neither intrinsics nor slices, and only kernels that were compiled for them; this needs no compilation
and no list of kernels: each call from Python of any kernel is made on copies, inside tuples too, and what the kernel
wrote is copied back after the zones were looked at. Arrays that overlap do so in their copies as well. Calls are made
one at a time, since threads may share what is copied.

The poison differs from one call to the next, so that a kernel whose result depends on bytes outside an array differs
between calls.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numba import _dispatcher
from numba.core.dispatcher import Dispatcher

POISONS = (0x7FA5A5A5, 0xA5A5A5A5, 0x25252525)
"""What stands in the zones, as 32-bit words: a NaN that any arithmetic changes; wild integers below 0 and above, which
are floats so small that any addition changes them."""
LEAST_ZONE, MOST_ZONE = 1 << 13, 1 << 20
_LINE = 64

_poisons = itertools.cycle(POISONS)
_lock = threading.RLock()
_rooms: list[Room] = []  # of the call that is being made
calls: dict[str, int] = {}
"""Guarded calls of each kernel, by its name."""


class Overrun(AssertionError):
    """A kernel wrote outside an array."""


class Room:
    """Bytes between two poisoned zones.

    Args:
        name: whose they are.
        size: how many.
        address: the room begins as far from a cache line as this one.
        poison: one of `POISONS`; the next one if not given.
    """

    def __init__(self, name: str, size: int, address: int = 0, poison: int | None = None):
        self.name, self.size, self.poison = name, size, next(_poisons) if poison is None else poison
        zone = min(MOST_ZONE, max(LEAST_ZONE, size))
        self.whole = self._poisoned(size + 2 * zone + _LINE)
        self.first = zone + (address - self.whole.ctypes.data - zone) % _LINE

    def view(self, like: np.ndarray, offset: int) -> np.ndarray:
        """An array of this layout, `offset` bytes after the room's begin."""
        return np.ndarray(like.shape, like.dtype, self.whole, self.first + offset, like.strides)

    def _poisoned(self, size: int) -> np.ndarray:
        return np.full(-(-size // 4), self.poison, np.uint32).view(np.uint8)

    def check(self, kernel: str) -> None:
        end = self.first + self.size
        poison = self._poisoned(4 + max(self.first, len(self.whole) - end))
        for zone, begin, origin, side in (
            (self.whole[: self.first], 0, -self.first, "before"),
            (self.whole[end:], end % 4, 0, "behind"),
        ):
            if len(bytes_at := np.flatnonzero(zone != poison[begin : begin + len(zone)]) + origin):
                where = f"bytes {bytes_at[0]} to {bytes_at[-1]} {side} it"
                raise Overrun(f"{kernel} wrote outside {self.name}, {self.size} bytes: {where}")


def guarded_matrix(rows: int, columns: int) -> np.ndarray:
    """Zeros, float32 [rows * columns], at a cache line, between NaN; looked at when the running call ends."""
    room = Room(f"a matrix of {rows} x {columns}", 4 * rows * columns, poison=POISONS[0])
    _rooms.append(room)
    matrix = room.whole[room.first : room.first + room.size].view(np.float32)
    matrix[:] = 0
    return matrix


@contextmanager
def guard_zones() -> Iterator[None]:
    """Guard all calls of kernels from Python within the block; calls from one kernel to another are not guarded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "__call__", _call, raising=False)
        yield


def guard_all_calls() -> None:
    """From now on; see `guard_zones`."""
    Dispatcher.__call__ = _call


def _call(kernel: Any, *arguments: Any, **keywords: Any) -> Any:
    name = kernel.py_func.__name__
    with _lock:
        calls[name] = calls.get(name, 0) + 1
        arrays = _Copies(name, (arguments, tuple(keywords.values())))
        outer, _rooms[:] = list(_rooms), arrays.rooms
        given = dict(zip(keywords, map(arrays.copied, keywords.values()), strict=True))
        try:
            result = _dispatcher.Dispatcher.__call__(kernel, *map(arrays.copied, arguments), **given)
            for room in _rooms:
                room.check(name)
        finally:
            _rooms[:] = outer
        arrays.copy_back()
        return arrays.original(result)


class _Copies:
    """Copies of all arrays in the arguments of a call; those that overlap share a room."""

    def __init__(self, kernel: str, arguments: Any):
        found: dict[int, np.ndarray] = {id(array): array for array in _arrays(arguments)}
        bounds = np.lib.array_utils.byte_bounds
        spans = sorted(((*bounds(array), array) for array in found.values()), key=lambda span: span[:2])
        self.rooms: list[Room] = []
        self.pairs: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        span = 0
        while span < len(spans):
            low, high, first = spans[span]
            last = span
            while last < len(spans) and (last == span or spans[last][0] < high):
                high, last = max(high, spans[last][1]), last + 1
            room = Room(f"{first.dtype}{list(first.shape)}", high - low, low)
            self.rooms.append(room)
            for _, _, array in spans[span:last]:
                view = room.view(array, array.__array_interface__["data"][0] - low)
                view[...] = array
                self.pairs[id(array)] = array, view
            span = last
        for array, view in self.pairs.values():
            view.flags.writeable = array.flags.writeable

    def copied(self, value: Any) -> Any:
        return _map(value, lambda array: self.pairs[id(array)][1])

    def original(self, value: Any) -> Any:
        """A kernel may return an array that it was given, or a piece of one."""
        given = {id(view): array for array, view in self.pairs.values()}
        return _map(value, lambda array: given.get(id(array), self._apart(array)))

    def _apart(self, array: np.ndarray) -> np.ndarray:
        inside = any(np.may_share_memory(array, room.whole) for room in self.rooms)
        return array.copy() if inside else array

    def copy_back(self) -> None:
        for array, view in self.pairs.values():
            if array.flags.writeable:
                array[...] = view


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _arrays(item)


def _map(value: Any, change: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, tuple):
        items = [_map(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value
