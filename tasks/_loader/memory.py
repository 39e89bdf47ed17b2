"""Memory that windows of subgraphs, and batches, take one after the other, instead of new memory from the system."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks._subgraphs import Block

_LEAST = 1 << 20
_ALIGNED = 64


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
            return np.empty(room, np.uint8)

    def give_back(self, pieces: list[NDArray[np.uint8]]) -> None:
        """Pieces that nobody reads any more."""
        for piece in pieces:
            free = self._free.setdefault(len(piece), [])
            if self._most is None or len(free) < self._most:
                free.append(piece)

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array, not filled, whose memory is given back with the last reference to it."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if size < _LEAST:
            return np.empty(shape, dtype)
        piece = self.take(size)
        made: NDArray[Any] = np.ndarray(shape, dtype, piece)
        weakref.finalize(made, self.give_back, [piece]).atexit = False
        return made


BATCHES = Memory(most=4)
"""For tensors of batches."""


def moved(block: Block, memory: Memory, pieces: list[NDArray[np.uint8]]) -> Block:
    """The block with its lists in a piece of memory, which is added to `pieces`."""
    lists = (block.nodes, block.sources, block.targets, block.positions)
    total = sum(-(-values.nbytes // _ALIGNED) * _ALIGNED for each in lists for values in each)
    if not total:
        return block
    piece, at = memory.take(total), 0
    pieces.append(piece)

    def copied(values: NDArray[Any]) -> NDArray[Any]:
        nonlocal at
        target = piece[at : at + values.nbytes].view(values.dtype)
        target[:] = values
        at += -(-values.nbytes // _ALIGNED) * _ALIGNED
        return target

    nodes, sources, targets, positions = ([copied(values) for values in each] for each in lists)
    return block._replace(nodes=nodes, sources=sources, targets=targets, positions=positions)
