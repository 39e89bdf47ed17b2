"""Layout of sampled subgraphs in shards and row groups, by their numbers and sizes alone."""

from __future__ import annotations

SPLITS = ("train", "validation", "test")
GROUP_ENTRIES = 1 << 20
"""Nodes and edges with which a row group, which is read and written as a whole, is full."""
SHARD_STEP, MOST_SUBGRAPHS, WANTED_SHARDS = 256, 4096, 64
"""Shards hold a multiple of the first number of subgraphs, at most the second, and are about as many as the third."""


def shard_spans(subgraphs: int) -> list[tuple[int, int]]:
    """(first, last + 1) subgraph of each shard of a split."""
    steps = -(-subgraphs // (SHARD_STEP * WANTED_SHARDS))
    size = min(MOST_SUBGRAPHS, SHARD_STEP * max(1, steps))
    return [(first, min(first + size, subgraphs)) for first in range(0, subgraphs, size)]


def shard_name(split: str, number: int) -> str:
    """File name of a shard."""
    return f"subgraphs-{split}-{number:05}.parquet"
