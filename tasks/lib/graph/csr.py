"""Compressed sparse rows from edges, in memory of a bounded multiple of the edges, the same for any number of threads.

An edge is one uint64: first vertex in the high half, second in the low half (`pack`). Both steps here split the edges
into buckets that fit a core's cache, in the order they came, then finish each bucket by itself:

- `merge_edges` puts equal edges into the same bucket by a hash, and merges them in a small table;
- `assemble` puts rows next to each other into the same bucket, and sorts it by counting, digit by digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.graph.csr_limits import BUCKET, MOST_ARCS, MOST_BUCKETS, MOST_WORKERS, PIECE
from superworkflow.tasks.lib.graph.sparse_rows import row_starts as row_starts

Edges = NDArray[np.uint64]
Weights = NDArray[np.float32]
EndCounts = NDArray[np.int32]
"""[2, workers, vertices]: how often a vertex is first, and second, among the edges of a worker; see `count_ends`."""

_UNIT_BITS = 5
UNIT = 1 << _UNIT_BITS
"""Short rows that share an entry in the table of buckets, which then stays in a core's cache."""

SUM, MAX, MIN = 0, 1, 2

_U = np.uint64
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_NO_WEIGHTS = np.empty(0, np.float32)


def pack(first: NDArray[Any], second: NDArray[Any]) -> Edges:
    """Edges from their two ends."""
    return (first.astype(np.uint64) << _HALF) | second.astype(np.uint64)


def unpack(edges: Edges) -> NDArray[np.int32]:
    """Ends [edges, 2] of packed edges."""
    return np.stack([(edges >> _HALF).astype(np.int32), (edges & _LOW).astype(np.int32)], axis=1)


def merge_edges(
    ends: NDArray[np.int32], weights: Weights | None, directed: bool, rule: int, threads: int
) -> tuple[Edges, Weights | None, int, int]:
    """Simple graph of a list of edges: self-loops dropped, equal edges merged.

    Args:
        ends: [rows, 2], each edge's source and target.
        weights: [rows] or None.
        directed: whether (u, v) and (v, u) are different edges; if not, edges come back with the smaller end first.
        rule: weight of merged edges: SUM (in float64, in the order of rows), MAX or MIN.
        threads: workers.

    Returns:
        Distinct edges in a fixed order that means nothing, their weights, the number of self-loops, and of rows
        merged into an earlier one.
    """
    workers, buckets = _workers(threads), _buckets(len(ends))
    places = np.zeros((workers, buckets + 1), np.int64)
    given = _NO_WEIGHTS if weights is None else weights
    _count_by_hash(ends, directed, places)
    loops = int(places[:, buckets].sum())
    starts = _starts(places[:, :buckets])
    edges = np.empty(len(ends) - loops, np.uint64)
    moved = np.empty(len(edges) if weights is not None else 0, np.float32)
    _scatter_by_hash(ends, given, directed, places, edges, moved)
    kept = np.empty(buckets, np.int64)
    _merge_buckets(edges, moved, starts, rule, kept)
    count = _close_gaps(edges, moved, starts, kept)
    duplicates = len(edges) - count
    edges.resize(count, refcheck=False)
    if weights is None:
        return edges, None, loops, duplicates
    moved.resize(count, refcheck=False)
    return edges, moved, loops, duplicates


def count_ends(edges: Edges, vertices: int, threads: int) -> EndCounts:
    """Count each vertex as first, and as second, in each worker's part of `edges`."""
    counts = np.zeros((2, _workers(threads), vertices), np.int32)
    _count_ends(edges, counts)
    return counts


def degrees(counts: EndCounts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count each vertex as first, and as second, in all edges."""
    first, second = counts.sum(axis=1, dtype=np.int64)
    return first, second


def assemble(
    edges: Edges,
    weights: Weights | None,
    indptr: NDArray[np.int64],
    symmetric: bool,
    counts: EndCounts,
    scratch: Edges | None = None,
) -> Iterator[tuple[NDArray[np.int32], Weights | None]]:
    """The rows of a graph in pieces, from the first to the last, with as many workers as counted the edges.

    Args:
        edges: distinct edges [m].
        weights: [m] or None.
        indptr: int64 [vertices + 1] that fits the edges.
        symmetric: store each edge in both its ends' rows.
        counts: of these edges in this order.
        scratch: memory to use for arcs in flight, where they fit: new memory costs time.

    Yields:
        Indices of whole rows, ascending in each row, and their weights, of PIECE arcs or one long row. A piece is
        not overwritten until the one after the next is requested, so that it can be written in the background.
    """
    if not int(indptr[-1]):
        return
    units, head = _unit_rows(indptr)
    first_units = _bucket_units(indptr[units], BUCKET)
    firsts = units[first_units]
    bits = max(1, int(len(indptr) - 2).bit_length())
    passes = -(-bits // 12)
    given = _NO_WEIGHTS if weights is None else weights
    arcs_of = counts[0] + counts[1] if symmetric else counts[0]
    bucket_of = np.repeat(np.arange(len(firsts) - 1, dtype=np.int32), np.diff(first_units))
    moved = _NO_WEIGHTS
    pieces = [_Piece(weights is not None) for _ in range(2)]
    low = 0
    while low < len(firsts) - 1:
        high = _until(indptr[firsts], low, MOST_ARCS, MOST_BUCKETS)
        rows = slice(firsts[low], firsts[high])
        places = np.add.reduceat(arcs_of[:, rows], firsts[low:high] - firsts[low], axis=1, dtype=np.int64)
        starts = _starts(places)
        if scratch is None or len(scratch) < starts[-1]:
            scratch = np.empty(starts[-1], np.uint64)
        arcs = scratch[: starts[-1]]
        if weights is not None and len(moved) < len(arcs):
            moved = np.empty(len(arcs), np.float32)
        own_units = slice(first_units[low], first_units[high])
        _scatter_rows(
            edges, given, symmetric, (bucket_of[own_units] - low).astype(np.uint16), first_units[low], head,
            firsts[low], firsts[high], places, arcs, moved,
        )  # fmt: skip
        begin = 0
        while begin < high - low:
            end = _until(starts, begin, PIECE, MOST_BUCKETS)
            pieces.reverse()
            indices, piece_weights = pieces[0].of(int(starts[end] - starts[begin]))
            _sort_buckets(
                arcs, moved, starts[begin : end + 1], firsts[low + begin : low + end + 1], indptr,
                -(-bits // passes), passes, indices, piece_weights,
            )  # fmt: skip
            yield indices, piece_weights if weights is not None else None
            begin = end
        low = high


class _Piece:
    """Memory of a piece of rows, which grows with the largest."""

    def __init__(self, weighted: bool):
        self._weighted = weighted
        self._indices, self._weights = np.empty(0, np.int32), np.empty(0, np.float32)

    def of(self, arcs: int) -> tuple[NDArray[np.int32], Weights]:
        """Room for `arcs` arcs, and for their weights if there are any."""
        if arcs > len(self._indices):
            self._indices = np.empty(arcs, np.int32)
            self._weights = np.empty(arcs if self._weighted else 0, np.float32)
        return self._indices[:arcs], self._weights[:arcs]


def _until(starts: NDArray[np.int64], begin: int, most_arcs: int, most_buckets: int) -> int:
    """End of the longest range of buckets from `begin` within both limits; one bucket at least."""
    end = int(np.searchsorted(starts, starts[begin] + most_arcs, "right")) - 1
    return min(max(end, begin + 1), begin + most_buckets, len(starts) - 1)


def _workers(threads: int) -> int:
    return max(1, min(threads, MOST_WORKERS))


def _buckets(rows: int) -> int:
    return int(min(MOST_BUCKETS, 1 << max(0, (rows // BUCKET)).bit_length()))


def _starts(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Turn counts [workers, buckets] into where each worker writes; returns where each bucket starts [buckets + 1]."""
    flat = np.cumsum(places.T.ravel())
    starts = np.concatenate([[0], flat[places.shape[0] - 1 :: places.shape[0]]])
    places[:] = np.concatenate([[0], flat[:-1]]).reshape(places.shape[1], places.shape[0]).T
    return starts


def _unit_rows(indptr: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Rows that stay together, so that the table of their buckets is small: first row of each unit and the end.

    Returns:
        The first rows, and the number of rows before which each is a unit by itself; after them, UNIT are, of which
        none has more than BUCKET / UNIT arcs. Vertices are numbered by degree, so these are the most.
    """
    long_rows = np.flatnonzero(np.diff(indptr) > BUCKET // UNIT)
    head = int(long_rows[-1]) + 1 if len(long_rows) else 0
    vertices = len(indptr) - 1
    return np.concatenate([np.arange(head), np.arange(head, vertices, UNIT), [vertices]]), head


def _bucket_units(starts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """First unit of each bucket of whole units, of about `size` arcs, and the end; `starts` [units + 1] are of arcs."""
    marks = np.searchsorted(starts, np.arange(0, int(starts[-1]), size))
    return np.unique(np.concatenate([[0], marks, [len(starts) - 1]]))


@nb.njit(cache=True, inline="always")
def _hash(edge: np.uint64) -> np.uint64:
    edge = (edge ^ (edge >> _U(32))) * _U(0x9E3779B97F4A7C15)
    return edge ^ (edge >> _U(29))


@nb.njit(cache=True, inline="always")
def _bucket_of_hash(hashed: np.uint64, buckets: np.int64) -> np.int64:
    return np.int64((hashed >> _U(40)) & _U(buckets - 1))


@nb.njit(cache=True, inline="always")
def _edge(first: np.int32, second: np.int32, directed: bool) -> np.uint64:
    if not directed and second < first:
        first, second = second, first
    return (_U(first) << _HALF) | _U(second)


@nb.njit(cache=True, parallel=True)
def _count_by_hash(ends: NDArray[np.int32], directed: bool, places: NDArray[np.int64]) -> None:
    """Count the edges of each worker in each bucket, and self-loops; output: `places` [workers, buckets + 1]."""
    workers, buckets = places.shape[0], places.shape[1] - 1
    for worker in nb.prange(workers):
        counts = np.zeros(buckets + 1, np.int64)
        for row in range(worker * len(ends) // workers, (worker + 1) * len(ends) // workers):
            if ends[row, 0] == ends[row, 1]:
                counts[buckets] += 1
            else:
                counts[_bucket_of_hash(_hash(_edge(ends[row, 0], ends[row, 1], directed)), buckets)] += 1
        places[worker] = counts


@nb.njit(cache=True, parallel=True)
def _scatter_by_hash(
    ends: NDArray[np.int32], weights: Weights, directed: bool, places: NDArray[np.int64], edges: Edges, moved: Weights
) -> None:
    """Write edges to their buckets, each worker from its `places` on; output: `edges`, and their weights, `moved`."""
    workers, buckets = places.shape[0], places.shape[1] - 1
    for worker in nb.prange(workers):
        place = places[worker].copy()
        for row in range(worker * len(ends) // workers, (worker + 1) * len(ends) // workers):
            if ends[row, 0] != ends[row, 1]:
                edge = _edge(ends[row, 0], ends[row, 1], directed)
                bucket = _bucket_of_hash(_hash(edge), buckets)
                edges[place[bucket]] = edge
                if len(moved):
                    moved[place[bucket]] = weights[row]
                place[bucket] += 1


@nb.njit(cache=True, parallel=True)
def _merge_buckets(
    edges: Edges, weights: Weights, starts: NDArray[np.int64], rule: int, kept: NDArray[np.int64]
) -> None:
    """Merge equal edges of each bucket in place; output: `kept`, how many are left at the start of each."""
    for bucket in nb.prange(len(kept)):
        start, end = starts[bucket], starts[bucket + 1]
        size = 16
        while size < 2 * (end - start):
            size *= 2
        table = np.full(size, -1, np.int32)
        total = np.empty(end - start if len(weights) else 0, np.float64)
        count = 0
        for i in range(start, end):
            edge = edges[i]
            slot = np.int64(_hash(edge) & _U(size - 1))
            while table[slot] >= 0 and edges[start + table[slot]] != edge:
                slot = (slot + 1) & (size - 1)
            if table[slot] < 0:
                table[slot] = count
                edges[start + count] = edge
                if len(weights):
                    total[count] = weights[i]
                count += 1
            elif len(weights):
                if rule == SUM:
                    total[table[slot]] += weights[i]
                elif rule == MAX:
                    total[table[slot]] = max(total[table[slot]], weights[i])
                else:
                    total[table[slot]] = min(total[table[slot]], weights[i])
        if len(weights):
            for i in range(count):
                weights[start + i] = total[i]
        kept[bucket] = count


@nb.njit(cache=True)
def _close_gaps(edges: Edges, weights: Weights, starts: NDArray[np.int64], kept: NDArray[np.int64]) -> int:
    """Move the edges that are left in each bucket together, in place; returns how many there are."""
    filled = kept[0]
    for bucket in range(1, len(kept)):
        start = starts[bucket]
        if filled == start:
            filled += kept[bucket]
            continue
        for i in range(start, start + kept[bucket]):
            edges[filled] = edges[i]
            if len(weights):
                weights[filled] = weights[i]
            filled += 1
    return int(filled)


@nb.njit(cache=True, parallel=True)
def _count_ends(edges: Edges, counts: NDArray[np.int32]) -> None:
    """Add to the output `counts`; see `EndCounts`."""
    workers = counts.shape[1]
    for worker in nb.prange(workers):
        for i in range(worker * len(edges) // workers, (worker + 1) * len(edges) // workers):
            counts[0, worker, np.int64(edges[i] >> _HALF)] += 1
            counts[1, worker, np.int64(edges[i] & _LOW)] += 1


@nb.njit(cache=True, parallel=True)
def _scatter_rows(
    edges: Edges,
    weights: Weights,
    symmetric: bool,
    bucket_of: NDArray[np.uint16],
    unit: int,
    head: int,
    first: int,
    end: int,
    places: NDArray[np.int64],
    arcs: Edges,
    moved: Weights,
) -> None:
    """Write the arcs of rows first to end - 1 to their buckets.

    Args:
        edges, weights: of the graph; of the weights none if it has none.
        symmetric: store each edge in both its ends' rows.
        bucket_of: bucket of each unit of rows, from number `unit` on; rows below `head` are a unit each.
        places: int64 [workers, buckets], where each worker's arcs begin.
        arcs, moved: output, arcs by bucket and their weights.
    """
    workers = places.shape[0]
    for worker in nb.prange(workers):
        place = places[worker].copy()
        for i in range(worker * len(edges) // workers, (worker + 1) * len(edges) // workers):
            edge = edges[i]
            for _ in range(2 if symmetric else 1):
                row = np.int64(edge >> _HALF)
                if first <= row < end:
                    bucket = np.int64(bucket_of[min(row, head + ((row - head) >> _UNIT_BITS)) - unit])
                    arcs[place[bucket]] = edge
                    if len(moved):
                        moved[place[bucket]] = weights[i]
                    place[bucket] += 1
                edge = (edge << _HALF) | (edge >> _HALF)


@nb.njit(cache=True, parallel=True)
def _sort_buckets(
    arcs: Edges,
    weights: Weights,
    starts: NDArray[np.int64],
    firsts: NDArray[np.int64],
    indptr: NDArray[np.int64],
    digit_bits: int,
    passes: int,
    indices: NDArray[np.int32],
    out_weights: Weights,
) -> None:
    """Write the arcs of adjacent buckets to their rows: counting sorts by the digits of the second end, then by row.

    Args:
        arcs, weights: by bucket; overwritten.
        starts: of the buckets in these.
        firsts: first row of each bucket, and the end.
        indptr: of the whole graph.
        digit_bits, passes: of the sorts.
        indices, out_weights: output, from the first row of the first bucket on.
    """
    mask = _U((1 << digit_bits) - 1)
    weighted = len(weights) > 0
    for bucket in nb.prange(len(starts) - 1):
        start, size = starts[bucket], starts[bucket + 1] - starts[bucket]
        here, there = arcs[start : start + size], np.empty(size, np.uint64)
        here_weights, there_weights = weights[:0], weights[:0]
        if weighted:
            here_weights, there_weights = weights[start : start + size], np.empty(size, np.float32)
        place = np.empty((1 << digit_bits) + 1, np.int64)
        for turn in range(passes):
            shift = _U(turn * digit_bits)
            place[:] = 0
            for i in range(size):
                place[np.int64((here[i] >> shift) & mask) + 1] += 1
            for digit in range(1 << digit_bits):
                place[digit + 1] += place[digit]
            for i in range(size):
                value = np.int64((here[i] >> shift) & mask)
                there[place[value]] = here[i]
                if weighted:
                    there_weights[place[value]] = here_weights[i]
                place[value] += 1
            here, there = there, here
            here_weights, there_weights = there_weights, here_weights
        first = firsts[bucket]
        cursor = indptr[first : firsts[bucket + 1]] - indptr[firsts[0]]
        for i in range(size):
            row = np.int64(here[i] >> _HALF) - first
            indices[cursor[row]] = np.int32(here[i] & _LOW)
            if weighted:
                out_weights[cursor[row]] = here_weights[i]
            cursor[row] += 1
