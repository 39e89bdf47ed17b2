"""Memory that windows and batches take one after the other, instead of new memory from the system."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST = 1 << 20
_ALIGNED = 64
_PIECE = 16 << 20


class Memory:
    """Pieces of memory that were given back, to be taken again; threads may share one.

    Nothing is locked: pieces are given back wherever the last reference to them ends, in whatever another one does.

    Args:
        most: pieces of one size that are kept for the next ones.
    """

    def __init__(self, most: int | None = None) -> None:
        self._free: dict[int, list[NDArray[np.uint8]]] = {}
        self._most = most

    def take(self, size: int) -> NDArray[np.uint8]:
        """A piece of at least `size` bytes."""
        room = max(_LEAST, 1 << (size - 1).bit_length())
        try:
            return self._free[room].pop()
        except LookupError:
            whole = np.empty(room + _ALIGNED, np.uint8)
            first = -whole.ctypes.data % _ALIGNED
            return whole[first : first + room]

    def give_back(self, pieces: list[NDArray[np.uint8]]) -> None:
        """Pieces that nobody reads any more."""
        for piece in pieces:
            free = self._free.setdefault(len(piece), [])
            if self._most is None or len(free) < self._most:
                free.append(piece)

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array, not filled, whose memory is given back with the last reference to it, or to a view of it."""
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        if size < _LEAST:
            return np.empty(shape, dtype)
        piece = self.take(size)
        # Views refer to the array at the end of their chain. `frombuffer` makes one; a plain view of the piece would be
        # passed over by views of it, and be gone before them.
        whole: NDArray[Any] = np.frombuffer(piece.data, kind, size // kind.itemsize)
        weakref.finalize(whole, self.give_back, [piece]).atexit = False
        return whole.reshape(shape)


BATCHES = Memory(most=4)
"""For tensors of batches."""


class Arena:
    """Arrays next to each other in pieces of memory.

    Attributes:
        pieces: to be given back when nobody reads the arrays any more.
    """

    def __init__(self, memory: Memory):
        self._memory, self._at = memory, 0
        self.pieces: list[NDArray[np.uint8]] = []

    def array(self, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array, not filled, of one dimension."""
        used, room = size * dtype.itemsize, len(self.pieces[-1]) if self.pieces else 0
        if not self.pieces or self._at + used > room:
            self.pieces.append(self._memory.take(max(used, _PIECE)))
            self._at = 0
        made = self.pieces[-1][self._at : self._at + used].view(dtype)
        self._at += -(-used // _ALIGNED) * _ALIGNED
        return made
