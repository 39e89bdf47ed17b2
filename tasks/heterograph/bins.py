"""Number of intervals that a single number becomes with the scaling `piecewise`; see `scaling`."""

from __future__ import annotations

NODES_A_BIN, LEAST_BINS, MOST_BINS, MOST_WIDENED = 500, 16, 32, 64
"""Nodes for each interval, intervals, and single numbers of a table that become some."""


def bins_of(nodes: int, wanted: str, singles: int) -> int:
    """Intervals, or 0 where the scaling is another one.

    Args:
        nodes: rows of the table.
        wanted: `heterograph.scaling`.
        singles: columns of one number.
    """
    if wanted not in ("auto", "piecewise") or not 0 < singles <= MOST_WIDENED:
        return 0
    bins = min(MOST_BINS, nodes // NODES_A_BIN)
    return bins if bins >= LEAST_BINS else LEAST_BINS if wanted == "piecewise" else 0
