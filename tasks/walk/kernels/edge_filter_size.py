"""Size of the table of pairs (`edge_filter`) and its consequences, known without compiled kernels."""

from __future__ import annotations

BITS_PER_EDGE = 10
MATRIX_BYTES = 1 << 25
"""Largest adjacency matrix, in bytes: what a processor's last-level cache can hold."""


def table_bytes(vertices: int, edges: int, directed: bool) -> tuple[int, bool]:
    """(bytes of the table, whether its answers are all final), for a number of directed edges."""
    pairs = vertices * vertices if directed else vertices * (vertices + 1) // 2
    if pairs <= MATRIX_BYTES * 8:
        return (pairs // 64 + 1) * 8, True
    entered = edges if directed else edges // 2
    return (entered * BITS_PER_EDGE // 64 + 1) * 8, False


def has_tries(q: float, vertices: int, directed: bool) -> bool:
    """True if second-order steps are made by tries and a dart (`mixture`) or by darts alone (`rejection`).

    Tries save what a dart above the certain part costs where its answer is not in the cache.
    """
    return q > 1 and not table_bytes(vertices, 0, directed)[1]
