"""Room for arrays that cross from worker to worker with their lengths, so that one exchange is enough."""

from __future__ import annotations

from typing import NamedTuple

LEAST = 256
"""Minimum slack in elements: few nodes vary by much, and cost little."""


class SizeKey(NamedTuple):
    """Key by which sender and receiver predict the length of an array alike.

    Args:
        series: arrays of a series are about as long as each other, for as many items.
        items: that they are about.
    """

    series: str
    items: int


class BufferSizes:
    """Lengths of the arrays that one worker has sent to another, of which both keep account."""

    def __init__(self) -> None:
        self._longest: dict[str, dict[int, int]] = {}

    def room(self, likely: SizeKey) -> int:
        """As much as the longest array took of those with the nearest number of items, a sixteenth, and `LEAST`.

        More items take more in proportion, fewer as much.
        """
        known, items = self._longest.get(likely.series, {}), max(1, likely.items)
        if not known:
            return LEAST
        nearest = min(known, key=lambda each: (abs(each - items), each))
        length = -(-known[nearest] * max(nearest, items) // nearest)
        return length + -(-length // 16) + LEAST

    def note(self, likely: SizeKey, length: int) -> None:
        """An array was so long."""
        known, items = self._longest.setdefault(likely.series, {}), max(1, likely.items)
        known[items] = max(known.get(items, 0), length)
