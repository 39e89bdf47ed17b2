"""Memory that windows of subgraphs take one after the other, instead of new memory from the system for each."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks._subgraphs import Block

_LEAST = 1 << 20
_ALIGNED = 64


class Memory:
    """Pieces of memory that were given back, to be taken again; threads may share one."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[NDArray[np.uint8]]] = defaultdict(list)
        self._guard = threading.Lock()

    def take(self, size: int) -> NDArray[np.uint8]:
        """A piece of at least `size` bytes."""
        room = max(_LEAST, 1 << (size - 1).bit_length())
        with self._guard:
            if self._free[room]:
                return self._free[room].pop()
        return np.empty(room, np.uint8)

    def give_back(self, pieces: list[NDArray[np.uint8]]) -> None:
        """Pieces that nobody reads any more."""
        with self._guard:
            for piece in pieces:
                self._free[len(piece)].append(piece)


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
