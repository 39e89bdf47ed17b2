"""Predicted buffer sizes: arrays of unknown length travel with their lengths in a single exchange."""

from __future__ import annotations

from typing import NamedTuple

LEAST = 256
"""Minimum slack in elements: counts of few nodes vary widely, and the slack costs little."""


class SizeKey(NamedTuple):
    """Key by which sender and receiver predict the length of an array alike.

    Args:
        series: arrays of one series are about equally long for equal numbers of items.
        items: number of items that the array describes.
    """

    series: str
    items: int


class BufferSizes:
    """Lengths of the arrays that one worker has sent to another; both keep the same record."""

    def __init__(self) -> None:
        self._longest: dict[str, dict[int, int]] = {}

    def room(self, likely: SizeKey) -> int:
        """Length of the longest array recorded for the nearest number of items, plus a sixteenth, plus `LEAST`.

        For more items than that it grows in proportion; for fewer it does not shrink.
        """
        longest, items = self._longest.get(likely.series, {}), max(1, likely.items)
        if not longest:
            return LEAST
        nearest = min(longest, key=lambda each: (abs(each - items), each))
        length = -(-longest[nearest] * max(nearest, items) // nearest)
        return length + -(-length // 16) + LEAST

    def note(self, likely: SizeKey, length: int) -> None:
        """Record the length of an array."""
        longest, items = self._longest.setdefault(likely.series, {}), max(1, likely.items)
        longest[items] = max(longest.get(items, 0), length)
