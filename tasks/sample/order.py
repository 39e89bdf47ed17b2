"""Compiled: nodes and edges of one subgraph in their final order."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.bits import count_ones, trailing_zeros
from superworkflow.tasks.sample.places import bits_of, sort_pairs

MOST_PATHS = 1 << 40
"""Ways to a node are counted up to here."""
NO_ROW = -1


@nb.njit(nogil=True)
def distinct(
    given: Any, begin: Any, count: Any, nodes: Any, pairs: Any, other: Any, digits: Any, distinct: Any, paths: Any,
    sums: Any, by_path: Any,
) -> Any:  # fmt: skip
    """The different ones of `count` nodes from `begin` on, ascending, to `distinct`; their paths, added, to `sums`."""
    low = bits_of(count)
    for i in range(count):
        pairs[i] = (np.uint64(given[begin + i]) << np.uint64(low)) | np.uint64(i)
    pairs, other = sort_pairs(pairs, other, count, low, bits_of(nodes), digits)
    mask = np.uint64((1 << low) - 1)
    n, last = np.int64(-1), np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(count):
        node = pairs[i] >> np.uint64(low)
        is_new = node != last
        n += is_new
        last = node
        distinct[n] = node
        if by_path:
            more = paths[np.int64(pairs[i] & mask)]
            sums[n] = more if is_new else min(sums[n] + more, MOST_PATHS)
        else:
            sums[n] = 1
    return n + 1


@nb.njit(nogil=True)
def number_nodes(pairs: Any, count: Any, low: Any, nodes: Any, firsts: Any, found: Any) -> Any:
    """Number the nodes of sorted (node, edge) pairs: behind the `firsts` that are there; to each edge, its node's."""
    mask = np.uint64((1 << low) - 1)
    n, last = firsts - 1, np.uint64(0xFFFFFFFFFFFFFFFF)
    if firsts == 0:
        for i in range(count):
            node = pairs[i] >> np.uint64(low)
            n += node != last
            last = node
            nodes[n] = node
            found[np.int64(pairs[i] & mask)] = n
        return n + 1
    one, two = np.uint64(nodes[0]), np.uint64(nodes[firsts - 1])
    for i in range(count):
        node = pairs[i] >> np.uint64(low)
        place = np.int64(0)
        if node == two:
            place = firsts - 1
        elif node != one:
            n += node != last
            last = node
            nodes[n] = node
            place = n
        found[np.int64(pairs[i] & mask)] = place
    return n + 1


@nb.njit(nogil=True)
def number_marked(
    ops: Any, edges: Any, op_edges: Any, targets: Any, node_set: Any, count: Any, words: Any, bits: Any, ranks: Any,
    nodes: Any, found: Any,
) -> Any:  # fmt: skip
    """Number the nodes of a set without seeds by a bit for each node of the graph's, in half the time of sorting.

    It pays where a subgraph has more edges to the set than the set's bits have words.

    Args:
        ops, edges: see `kernel.Program`; op_edges: begins of their edges.
        targets: of all edges.
        node_set: which.
        count: edges that lead to it.
        words: of 64 bits, that its nodes take.
        bits: uint64 [words], scratch; ranks: int32 [words], scratch.
        nodes: are written here, ascending; at least `count`.
        found: each edge's node's number is written here.

    Returns:
        How many nodes there are.
    """
    one, low = np.uint64(1), np.uint64(63)
    bits[:words] = np.uint64(0)
    for op in range(len(ops)):
        if edges[ops[op, 0], 3] == node_set:
            for k in range(op_edges[op], op_edges[op + 1]):
                node = np.uint64(targets[k])
                bits[node >> np.uint64(6)] |= one << (node & low)
    n = np.int64(0)
    for word in range(words):
        left, here = bits[word], n
        ranks[word] = n
        n += count_ones(left)
        if here + 4 <= count:  # without a branch for each; those that are none are written over
            for i in range(4):
                nodes[here + i] = (word << 6) + trailing_zeros(left)
                left &= left - one
            here += 4
        while here < n:
            nodes[here] = (word << 6) + trailing_zeros(left)
            left &= left - one
            here += 1
    for op in range(len(ops)):
        if edges[ops[op, 0], 3] == node_set:
            for k in range(op_edges[op], op_edges[op + 1]):
                node = np.uint64(targets[k])
                slot = node >> np.uint64(6)
                found[k] = ranks[slot] + count_ones(bits[slot] & ((one << (node & low)) - one))
    return n


@nb.njit(nogil=True)
def find_places(wanted: Any, begin: Any, end: Any, nodes: Any, firsts: Any, places: Any) -> None:
    """Places of ascending nodes, all of which are among `nodes`."""
    place = firsts
    for j in range(begin, end):
        node = wanted[j]
        if firsts and node == nodes[0]:
            places[j] = 0
        elif firsts and node == nodes[firsts - 1]:
            places[j] = firsts - 1
        else:
            while nodes[place] != node:
                place += 1
            places[j] = place


@nb.njit(nogil=True)
def edges_in_order(
    ops: Any, edge_set: Any, op_rows: Any, row_places: Any, begins: Any, found: Any, positions: Any, by_source: Any,
    n_sources: Any, out_sources: Any, out_targets: Any, out_positions: Any, filled: Any, firsts: Any,
) -> Any:  # fmt: skip
    """The edges of one set from the rows of all its ops: by source, target, position, each once."""
    by_source[:n_sources] = NO_ROW  # the first row of each source; behind them, the next row of the same source
    for op in range(len(ops) - 1, -1, -1):
        if ops[op, 0] == edge_set:
            for j in range(op_rows[op], op_rows[op + 1]):
                by_source[n_sources + j] = by_source[row_places[j]]
                by_source[row_places[j]] = j
    for place in range(n_sources):
        row = by_source[place]
        if row == NO_ROW:
            continue
        begin, least = filled, np.int64(firsts)
        is_one = by_source[n_sources + row] == NO_ROW
        while row != NO_ROW:
            first, count = begins[row], begins[row + 1] - begins[row]
            for k in range(count):
                out_sources[filled + k] = place
                out_targets[filled + k] = found[first + k]
                out_positions[filled + k] = positions[first + k]
            if firsts:
                for k in range(count):
                    least = min(least, np.int64(found[first + k]))
            filled += count
            row = by_source[n_sources + row]
        if not is_one:
            filled = _once(out_targets, out_positions, begin, filled)
        if least < firsts:
            firsts_first(out_targets, out_positions, begin, filled, firsts)
    return filled


@nb.njit(nogil=True)
def edges_of_one_op(
    first_row: Any, last_row: Any, row_places: Any, begins: Any, found: Any, positions: Any, firsts: Any,
    out_sources: Any, out_targets: Any, out_positions: Any, filled: Any,
) -> Any:  # fmt: skip
    """The edges of a set that a single op draws and that lead to no seed: its rows are in order, after those of the
    `firsts` seeds."""
    for place in range(firsts):
        for row in range(first_row, last_row):
            if row_places[row] == place:
                filled = _copy_rows(
                    row, row + 1, row_places, begins, found, positions, out_sources, out_targets, out_positions, filled
                )
    row = first_row
    while row < last_row:
        end = row
        while end < last_row and row_places[end] >= firsts:
            end += 1
        filled = _copy_rows(
            row, end, row_places, begins, found, positions, out_sources, out_targets, out_positions, filled
        )
        row = end + 1
    return filled


@nb.njit(nogil=True)
def _copy_rows(
    first_row: Any, last_row: Any, row_places: Any, begins: Any, found: Any, positions: Any, out_sources: Any,
    out_targets: Any, out_positions: Any, filled: Any,
) -> Any:  # fmt: skip
    first = begins[first_row]
    count = begins[last_row] - first
    for k in range(count):
        out_targets[filled + k] = found[first + k]
    for k in range(count):
        out_positions[filled + k] = positions[first + k]
    for row in range(first_row, last_row):
        for k in range(begins[row] - first, begins[row + 1] - first):
            out_sources[filled + k] = row_places[row]
    return filled + count


@nb.njit(nogil=True)
def _once(targets: Any, positions: Any, begin: Any, end: Any) -> Any:
    """Sort edges of one source by position and drop those that are there already; the new end."""
    gap = 1
    while gap < (end - begin) // 3:
        gap = 3 * gap + 1
    while gap:
        for i in range(begin + gap, end):
            target, position = targets[i], positions[i]
            j = i
            while j >= begin + gap and positions[j - gap] > position:
                targets[j], positions[j] = targets[j - gap], positions[j - gap]
                j -= gap
            targets[j], positions[j] = target, position
        gap //= 3
    kept = begin
    for i in range(begin, end):
        if kept == begin or positions[i] != positions[kept - 1]:
            targets[kept], positions[kept] = targets[i], positions[i]
            kept += 1
    return kept


@nb.njit(nogil=True)
def firsts_first(targets: Any, positions: Any, begin: Any, end: Any, firsts: Any) -> None:
    """Move the edges to seeds, whose places are below `firsts`, to the front of the others of one source."""
    for i in range(begin, end):
        target, position = targets[i], positions[i]
        if target < firsts:
            j = i
            while j > begin and targets[j - 1] > target:
                targets[j], positions[j] = targets[j - 1], positions[j - 1]
                j -= 1
            targets[j], positions[j] = target, position
