"""Exchange of the values that have changed: from owners to ghosts, between the two ends of edges, and of signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.vertex.cluster.packing import (
    NONE,
    pack,
    positions,
    raise_signals,
    room_for,
    settle,
    unpack,
    words_of,
)
from superworkflow.tasks.lib.vertex.cluster.routes import CellsByColour, GhostRoute

VALUES, SIGNALS = "values", "signals"
"""Kinds of what is sent; see `Exchange.sent`."""


class _Field(NamedTuple):
    """A field's values and those that the other ends have, as words."""

    words: NDArray[Any]
    shadow: NDArray[Any]


class CellGroup:
    """Fields that travel by the same lists: those of vertices, of edges, or of edges' directions.

    Args:
        fields: by name, [places] or [places, length].
        routes: by the other worker.
        shared: several workers may have a copy of one cell.
        back: values also travel from copies to their owners.
    """

    def __init__(self, fields: Mapping[str, NDArray[Any]], routes: Sequence[GhostRoute], shared: bool, back: bool):
        self.routes, self._shared, self._back = routes, shared, back
        self._arrays = list(fields.values())
        self._fields = [_Field(words_of(each), words_of(each.copy())) for each in self._arrays]
        longest = max((len(listed.cells) for route in routes for listed in route), default=0)
        self._marks = np.zeros(longest, np.uint8)
        self.changed_bytes = 0

    def settle(self) -> None:
        """Take all values for sent."""
        for words, shadow in self._fields:
            shadow[:] = words

    def settle_range(self, low: int, high: int) -> None:
        """Take the values of some places for sent."""
        for words, shadow in self._fields:
            shadow[low:high] = words[low:high]

    def room(self, listed: CellsByColour, low: int, high: int) -> int:
        """Bytes of this group's part of a message at most."""
        return sum(room_for(words, high - low) for words, _ in self._fields)

    def pack(self, listed: CellsByColour, low: int, high: int, out: NDArray[np.uint8], end: int) -> tuple[int, int]:
        """Write what has changed in a range of a list; returns the end, and how many values have changed."""
        self._marks[: high - low] = 0
        total = 0
        for words, shadow in self._fields:
            end, count = pack(words, shadow, listed.cells, low, high, self._marks, out, end, True)
            self.changed_bytes += count * words.shape[1] * words.itemsize
            total += count
            if count and not self._shared:
                settle(words, shadow, listed.cells, low, high)
        return end, total

    def unpack(
        self, listed: CellsByColour, low: int, high: int, message: NDArray[np.uint8], place: int, settled: bool
    ) -> int:  # fmt: skip
        """Set what `pack` has written; returns the end. Unless `settled`, this worker will send it to others."""
        self._marks[: high - low] = 0
        for words, shadow in self._fields:
            kept = shadow if settled and self._back else words
            place = unpack(words, kept, listed.cells, low, high, self._marks, message, place)
        return place


class GhostExchange:
    """All groups of a program.

    Args:
        exchange: with the other workers.
        groups: that have fields, that of vertices first.
    """

    def __init__(self, exchange: Exchange, groups: Sequence[CellGroup]):
        self.exchange, self.groups = exchange, groups
        self._others = [rank for rank in range(exchange.size) if rank != exchange.rank]
        self._nothing, self._zeros = np.empty(0, np.uint8), np.empty((0, 1), np.uint32)

    @property
    def changed_bytes(self) -> int:
        """Bytes of the values that were sent because they had changed."""
        return sum(group.changed_bytes for group in self.groups)

    def messages(self, colours: tuple[int, int], back: bool = False) -> list[NDArray[np.uint8]]:
        """Changed values of some colours, for each worker.

        Args:
            colours: the first, and the one behind the last.
            back: of vertices alone, from ghosts to their owners.
        """
        made = [self._nothing] * self.exchange.size
        for rank in self._others:
            parts = []
            for group in self.groups[:1] if back else self.groups:
                listed = group.routes[rank].coming if back else group.routes[rank].leaving
                low, high = (int(listed.starts[each]) for each in colours)
                if high > low:
                    parts.append((group, listed, low, high))
            out = np.empty(sum(part[0].room(*part[1:]) for part in parts), np.uint8)
            end, changed = 0, 0
            for group, listed, low, high in parts:
                end, count = group.pack(listed, low, high, out, end)
                changed += count
            made[rank] = out[:end] if changed else self._nothing
        return made

    def take(self, received: Sequence[NDArray[np.uint8]], colours: tuple[int, int], back: bool = False) -> None:
        """Set the values of messages that others have made by `messages`, with the same arguments."""
        for rank in self._others:
            place = 0
            groups = self.groups[:1] if back else self.groups
            for group in groups if len(received[rank]) else ():
                listed = group.routes[rank].leaving if back else group.routes[rank].coming
                low, high = (int(listed.starts[each]) for each in colours)
                if high > low:
                    place = group.unpack(listed, low, high, received[rank], place, settled=not back)

    def send_signals(
        self, signals: NDArray[np.int32], largest: NDArray[np.int32], block: int, routes: Sequence[GhostRoute], one: int
    ) -> None:  # fmt: skip
        """Move the signals of ghosts to the owners, which combine them by the maximum.

        Args:
            signals, largest: see `scope.State`.
            block: places of each of `largest`.
            routes: of vertices.
            one: bits that each signal becomes; 0, it stays as it is.
        """
        words = signals.view(np.uint32).reshape(-1, 1)
        if len(self._zeros) < len(words):
            self._zeros = np.zeros_like(words)
        made = [self._nothing] * self.exchange.size
        for rank in self._others:
            ghosts = routes[rank].coming.cells
            out, marks = np.empty(room_for(words, len(ghosts)), np.uint8), np.zeros(len(ghosts), np.uint8)
            end, count = pack(words, self._zeros, ghosts, 0, len(ghosts), marks, out, 0, not one)
            made[rank] = out[:end] if count else self._nothing
            signals[ghosts] = 0
            largest[ghosts // block] = 0
        for rank, message in enumerate(self.exchange.post(made, SIGNALS)):
            cells = routes[rank].leaving.cells
            if rank in self._others and len(message) and message[0] != NONE:
                marks = np.zeros(len(cells), np.uint8)
                place = positions(message, 0, len(cells), marks)
                if not one and place + 4 * int(marks.sum()) > len(message):
                    raise IndexError("the message of a worker is too short")
                raise_signals(signals, largest, block, cells, marks, message, place, not one, one)
