"""Arrays that the compiled sampler reads and writes: rows of the graph, the spec in numbers, seeds, subgraphs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

TOP_K, RANDOM_UNIFORM, RANDOM_WEIGHTED, LATEST_K = range(4)
SEED_OP = -1
NO_VALUES = -(1 << 62)
"""In a program: the edge set has no weights, or no op needs its ranks or timestamps."""
NO_LIMIT = np.iinfo(np.int64).max


class StackedRows(NamedTuple):
    """The rows of all edge sets in use, behind each other.

    Args:
        indptr: where each row begins in `indices`, int64; of each set one more than it has rows.
        indices: targets.
        weights: float32, of the sets that are drawn by weight.
        ranks: int64, of the sets of which the edges of the largest weights are taken: in the order in which they are.
        times: int64, of the sets that are sampled by timestamp.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    weights: NDArray[np.float32]
    ranks: NDArray[np.int64]
    times: NDArray[np.int64]


class Program(NamedTuple):
    """A spec in numbers; sets are numbered among those in use.

    Args:
        ops: int64 [ops, 3]: edge set, sample size, strategy.
        inputs: int64 [ops + 1]: begins in `input_ops`.
        input_ops: ops whose targets an op starts from, `SEED_OP` for the seeds.
        edges: int64 [edge sets, 7]: first entry in `indptr`, first in `indices`, node sets of source and target, and
            what is added to an entry of `indices` for its weight, rank and timestamp, `NO_VALUES` without.
        counts: nodes of each node set.
        options: int64 [4]: node set of the seeds; whether to draw for each path; whether to aggregate by node; seeds.
    """

    ops: NDArray[np.int64]
    inputs: NDArray[np.int64]
    input_ops: NDArray[np.int64]
    edges: NDArray[np.int64]
    counts: NDArray[np.int64]
    options: NDArray[np.int64]


class Seeds(NamedTuple):
    """Seeds: node numbers [b, 1], of links [b, 2]; latest timestamp and repeat of each, int64 [b]."""

    nodes: NDArray[Any]
    times: NDArray[np.int64]
    repeats: NDArray[np.int64]


class SeedLink(NamedTuple):
    """The two seeds of a subgraph, edges between which are left out; -1 and -1 for none."""

    source: np.int64
    target: np.int64


class Row(NamedTuple):
    """The row of a node in a graph's arrays, perhaps without a few entries in its midst.

    Args:
        first: index of the first entry.
        degree: entries, less those left out.
        gap, skip: entries from place `gap` on lie `skip` further; ``gap = degree, skip = 0`` where none is left out.
    """

    first: np.int64
    degree: np.int64
    gap: np.int64
    skip: np.int64


class OpRule(NamedTuple):
    """Rule of an op's draws in each row.

    Args:
        size: most edges of a draw.
        strategy: `TOP_K` and so on.
        values: what is added to an entry of a row for its weight, rank or timestamp, `NO_VALUES` without.
        limit: largest timestamp, for `LATEST_K`.
        by_path: draw for each path that leads to the row.
    """

    size: np.int64
    strategy: np.int64
    values: np.int64
    limit: np.int64
    by_path: bool


class EdgeColumns(NamedTuple):
    """Edges of one set: places of their ends among the subgraph's nodes, int32, and positions in the set's rows."""

    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    positions: NDArray[Any]


class Out(NamedTuple):
    """Room for subgraphs, a row of each array for each set.

    Args:
        node_starts: int64 [node sets, subgraphs + 1], the first entries given.
        nodes: [node sets, room].
        edge_starts: int64 [edge sets, subgraphs + 1].
        sources, targets: int32 [edge sets, room].
        positions: [edge sets, room].
    """

    node_starts: NDArray[np.int64]
    nodes: NDArray[Any]
    edge_starts: NDArray[np.int64]
    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    positions: NDArray[Any]
