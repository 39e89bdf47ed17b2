"""Compiled: nodes and edges of one subgraph in their final order."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

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
def find_places(wanted: Any, begin: Any, end: Any, nodes: Any, firsts: Any, places: Any) -> None:
    """Places of ascending nodes, all of which are among `nodes`."""
    at = firsts
    for j in range(begin, end):
        node = wanted[j]
        if firsts and node == nodes[0]:
            places[j] = 0
        elif firsts and node == nodes[firsts - 1]:
            places[j] = firsts - 1
        else:
            while nodes[at] != node:
                at += 1
            places[j] = at


@nb.njit(nogil=True)
def edges_in_order(
    ops: Any, edge_set: Any, op_rows: Any, row_places: Any, begins: Any, found: Any, positions: Any, by_source: Any,
    n_sources: Any, out_sources: Any, out_targets: Any, out_positions: Any, at: Any, firsts: Any,
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
        begin, least = at, np.int64(firsts)
        is_one = by_source[n_sources + row] == NO_ROW
        while row != NO_ROW:
            first, count = begins[row], begins[row + 1] - begins[row]
            for k in range(count):
                out_sources[at + k] = place
                out_targets[at + k] = found[first + k]
                out_positions[at + k] = positions[first + k]
            if firsts:
                for k in range(count):
                    least = min(least, np.int64(found[first + k]))
            at += count
            row = by_source[n_sources + row]
        if not is_one:
            at = _once(out_targets, out_positions, begin, at)
        if least < firsts:
            firsts_first(out_targets, out_positions, begin, at, firsts)
    return at


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
    at = begin
    for i in range(begin, end):
        if at == begin or positions[i] != positions[at - 1]:
            targets[at], positions[at] = targets[i], positions[i]
            at += 1
    return at


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
