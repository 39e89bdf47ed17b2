"""Number of intervals that a single number becomes with the scaling `piecewise`; see `scaling`."""

from __future__ import annotations

NODES_A_BIN, LEAST_BINS, MOST_BINS = 250, 16, 32
MOST_WIDENED, MOST_SINGLES, MOST_BYTES = 64, 512, 2 << 30
"""Single numbers of a table that become intervals, those of a table that may have some, and bytes of these, at most."""


def may_widen(nodes: int, wanted: str, singles: int) -> bool:
    """True if `piecewise` is possible, whatever the values are; its arguments are those of `bins_of`."""
    return singles <= MOST_SINGLES and bins_of(nodes, wanted, min(1, singles)) > 0


def bins_of(nodes: int, wanted: str, singles: int) -> int:
    """Intervals, or 0 where the scaling is another one.

    Args:
        nodes: rows of the table.
        wanted: `heterograph.scaling`.
        singles: columns of one number, those of 0 and 1 apart.
    """
    if wanted not in ("auto", "piecewise") or not 0 < singles <= MOST_WIDENED:
        return 0
    bins = min(MOST_BINS, nodes // NODES_A_BIN, MOST_BYTES // max(1, 4 * nodes * singles))
    return bins if bins >= LEAST_BINS else LEAST_BINS if wanted == "piecewise" else 0
