"""The compiled sampler: subgraphs one after the other, each by all ops of a spec, in the order of the original.

An op's input nodes are ascending, and so are the places drawn in a row, so that edges come out in order; only seeds,
which are first in their set, are moved. A row is read in three steps, each for all nodes of an op: its begin, its
entries' places, its entries. What a step reads was prefetched by the one before, so that they need not wait for memory.
Slow reference: `PlainSampler` in tests/tasks/sampling.py.

Phases are kernels of their own where they neither make arrays nor call another kernel: others would count references
to all arrays that they are given, at each call.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.prefetch import prefetch
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.subgraphs.draw import DrawScratch
from superworkflow.tasks.sample.induced import find_link, induced
from superworkflow.tasks.sample.order import (
    distinct,
    edges_in_order,
    edges_of_one_op,
    find_places,
    number_marked,
    number_nodes,
)
from superworkflow.tasks.sample.places import MOST_DIGITS, bits_for, bits_of, grown, sort_pairs
from superworkflow.tasks.sample.program import (
    LATEST_K,
    NO_LIMIT,
    SEED_OP,
    TOP_K,
    EdgeColumns,
    OpRule,
    Row,
    SeedLink,
)
from superworkflow.tasks.sample.row_draws import draw_row

_UNREAD = -1
_AHEAD = 16


@nb.njit(nogil=True, forceinline=True)
def subgraph_key(seeds: Any, number: Any, seed: Any, n_seeds: Any) -> Any:
    """State of a subgraph's random numbers: `seed`, the numbers of its seed nodes and its repeat, mixed in one by one.

    ``key = mix(seed + GAMMA)``, then ``key = mix(key + (x + 1) * GAMMA)`` for each x of these.
    """
    key = mix(np.uint64(seed) + GAMMA)
    for i in range(n_seeds):
        key = mix(key + np.uint64(seeds.nodes[number, i] + 1) * GAMMA)
    return mix(key + np.uint64(seeds.repeats[number] + 1) * GAMMA)


@nb.njit(nogil=True, forceinline=True)
def row_bounds(
    indptr: Any, base: Any, nodes: Any, paths: Any, row0: Any, count: Any, size: Any, strategy: Any, by_path: Any,
    bounds: Any,
) -> Any:  # fmt: skip
    """Bounds of an op's `count` rows, from `row0` on.

    Args:
        indptr, base: rows of the edge set begin at ``indptr[base]``.
        nodes, paths: of the rows of all ops.
        size, strategy: of the op.

    Writes:
        bounds: row j of the op begins at ``bounds[2 * j]`` and has ``bounds[2 * j + 1]`` entries.

    Returns:
        (edges that the op draws at most, largest degree of a row that it draws in).
    """
    for j in range(min(_AHEAD, count)):
        prefetch(indptr, base + np.int64(nodes[row0 + j]))
    most_edges, most_degree = np.int64(0), np.int64(0)
    for j in range(count):
        if j + _AHEAD < count:
            prefetch(indptr, base + np.int64(nodes[row0 + j + _AHEAD]))
        entry = base + np.int64(nodes[row0 + j])
        low, degree = indptr[entry], indptr[entry + 1] - indptr[entry]
        bounds[2 * j], bounds[2 * j + 1] = low, degree
        draws = paths[row0 + j] if by_path else np.int64(1)
        most_edges += degree if draws > degree else min(degree, size * draws)
        if degree > size or strategy == LATEST_K:
            most_degree = max(most_degree, degree)
    return most_edges, most_degree


@nb.njit(nogil=True, forceinline=True)
def edges_to(program: Any, op_edges: Any, node_set: Any) -> Any:
    """Number of drawn edges that lead to a node set."""
    count = np.int64(0)
    for op in range(len(program.ops)):
        if program.edges[program.ops[op, 0], 3] == node_set:
            count += op_edges[op + 1] - op_edges[op]
    return count


@nb.njit(nogil=True, forceinline=True)
def pair_nodes(program: Any, op_edges: Any, targets: Any, node_set: Any, low: Any, pairs: Any) -> None:
    """Pairs of the drawn edges that lead to a node set.

    Writes:
        pairs: ``target << low | edge``.
    """
    n = 0
    for op in range(len(program.ops)):
        if program.edges[program.ops[op, 0], 3] == node_set:
            for k in range(op_edges[op], op_edges[op + 1]):
                pairs[n] = (np.uint64(targets[k]) << np.uint64(low)) | np.uint64(k)
                n += 1


@nb.njit(nogil=True, forceinline=True)
def ops_of(program: Any, op_edges: Any, edge_set: Any) -> Any:
    """(edges drawn from an edge set, ops that draw from it, the last of these)."""
    drawn, drawing, last_op = np.int64(0), 0, 0
    for op in range(len(program.ops)):
        if program.ops[op, 0] == edge_set:
            drawn += op_edges[op + 1] - op_edges[op]
            drawing, last_op = drawing + 1, op
    return drawn, drawing, last_op


@nb.njit(nogil=True, cache=True)
def sample(rows: Any, program: Any, seeds: Any, first: Any, last: Any, seed: Any, most: Any, out: Any) -> Any:
    """Sample subgraphs `first` to `last - 1` of `seeds`, as far as they fit into `out`.

    Args:
        rows: `StackedRows`; program: `Program`; seeds: `Seeds`.
        first, last: range of subgraphs.
        seed: of all random numbers.
        most: nodes and edges, of all sets together, with which it is enough.

    Writes:
        out: `Out`, from its beginning.

    Returns:
        How many are done, the room that the next one needs if it did not fit, else 0, and their nodes and edges.
    """
    ops, edges, options = program.ops, program.edges, program.options
    seed_set, by_path, by_node, n_seeds = options[0], options[1] != 0, options[2] != 0, options[3]
    n_ops, n_node_sets, n_edge_sets = len(ops), len(program.counts), len(edges)
    indptr, indices = rows.indptr, rows.indices
    room = min(out.nodes.shape[1], out.positions.shape[1])

    # Edges and rows of all ops, behind each other; see `order`.
    targets = np.empty(1 << 12, indices.dtype)
    positions = np.empty(1 << 12, out.positions.dtype)
    paths = np.empty(1 << 12 if by_path else 1, np.int64)
    found = np.empty(1 << 12, np.int32)
    row_nodes = np.empty(1 << 10, indices.dtype)
    row_paths = np.empty(1 << 10, np.int64)
    row_places = np.empty(1 << 10, np.int32)
    begins = np.empty(1 << 10, np.int64)
    bounds = np.empty(1 << 10, np.int64)
    op_rows = np.zeros(n_ops + 1, np.int64)
    op_edges = np.zeros(n_ops + 1, np.int64)
    # Fronts: the different targets of each op that is another one's input, ascending, and the paths to them.
    fronts = np.empty(1 << 10, indices.dtype)
    front_paths = np.empty(1 << 10, np.int64)
    op_fronts = np.zeros(n_ops + 1, np.int64)
    feeds = np.zeros(n_ops, np.bool_)
    for op in program.input_ops:
        if op != SEED_OP:
            feeds[op] = True
    # Scratch.
    table = np.empty(1 << 4, indices.dtype)
    orders = np.empty(1 << 4, np.int32)
    pairs = np.empty(1 << 12, np.uint64)
    other = np.empty(1 << 12, np.uint64)
    digits = np.empty(MOST_DIGITS, np.int64)
    present = np.empty(1 << 4, np.uint64)
    ranks = np.empty(1 << 4, np.int32)
    sums = np.empty(1 << 10, np.int64)
    by_source = np.empty(1 << 10, np.int64)
    marks = np.zeros(1, np.uint64)
    work = DrawScratch(marks, np.empty(1, np.int64), np.empty(1, np.int64))

    entries = np.int64(0)
    n_rows: Any
    for number in range(first, last):
        done = number - first
        key = subgraph_key(seeds, number, seed, n_seeds)
        link = SeedLink(np.int64(seeds.nodes[number, 0]), np.int64(seeds.nodes[number, n_seeds - 1]))
        for op in range(n_ops):
            edge_set, size, strategy = ops[op, 0], ops[op, 1], ops[op, 2]
            op_key = mix(key + np.uint64(op + 1) * GAMMA)
            # Input nodes v, ascending: paths(v) is the sum over the inputs of their paths to v; 1 for a seed.
            row0 = op_rows[op]
            n_rows = np.int64(0)
            merge = program.inputs[op + 1] - program.inputs[op] > 1
            for i in range(program.inputs[op], program.inputs[op + 1]):
                given = program.input_ops[i]
                if given == SEED_OP:
                    row_nodes = grown(row_nodes, row0 + n_rows, row0 + n_rows + 2)
                    row_paths = grown(row_paths, row0 + n_rows, row0 + n_rows + 2)
                    for j in range(n_seeds):
                        if j == 0 or seeds.nodes[number, j] != seeds.nodes[number, 0]:
                            row_nodes[row0 + n_rows], row_paths[row0 + n_rows] = seeds.nodes[number, j], 1
                            n_rows += 1
                    merge |= n_seeds > 1
                else:
                    more = op_fronts[given + 1] - op_fronts[given]
                    row_nodes = grown(row_nodes, row0 + n_rows, row0 + n_rows + more)
                    row_paths = grown(row_paths, row0 + n_rows, row0 + n_rows + more)
                    for j in range(more):
                        row_nodes[row0 + n_rows + j] = fronts[op_fronts[given] + j]
                        row_paths[row0 + n_rows + j] = front_paths[op_fronts[given] + j]
                    n_rows += more
            if merge:
                pairs, other = grown(pairs, 0, n_rows), grown(other, 0, n_rows)
                sums = grown(sums, 0, n_rows)
                sums[:n_rows] = row_paths[row0 : row0 + n_rows]
                n_rows = distinct(
                    row_nodes, row0, n_rows, program.counts[edges[edge_set, 2]], pairs, other, digits,
                    row_nodes[row0:], sums, row_paths[row0:], True,
                )  # fmt: skip
            op_rows[op + 1] = row0 + n_rows

            # Bounds of their rows.
            begins = grown(begins, row0, row0 + n_rows + 1)
            bounds = grown(bounds, 0, 2 * n_rows)
            row_places = grown(row_places, 0, row0 + n_rows)
            most_edges, most_degree = row_bounds(
                indptr, edges[edge_set, 0], row_nodes, row_paths, row0, n_rows, size, strategy, by_path, bounds
            )
            edge0 = op_edges[op]
            targets, found = grown(targets, edge0, edge0 + most_edges), grown(found, edge0, edge0 + most_edges)
            positions = grown(positions, edge0, edge0 + most_edges)
            if by_path:
                paths = grown(paths, edge0, edge0 + most_edges)
            if len(marks) <= most_degree >> 6:
                marks = np.zeros((most_degree >> 6) + 1, np.uint64)
            kept = min(size, most_degree)
            if len(work.keys) < kept or len(work.marks) < len(marks):
                kept = max(kept, len(work.keys))
                work = DrawScratch(marks, np.empty(kept, np.int64), np.empty(kept, np.int64))

            # Places that are drawn in each row, from the state mix(op_key + (v + 1) * GAMMA).
            shift, filled = edges[edge_set, 1], edge0
            values = edges[edge_set, 4 + (strategy == TOP_K) + 2 * (strategy == LATEST_K)]
            limit = seeds.times[number] if strategy == LATEST_K else np.int64(NO_LIMIT)
            rule = OpRule(size, strategy, values, limit, by_path)
            apart = n_seeds == 2 and edges[edge_set, 2] == seed_set and edges[edge_set, 3] == seed_set
            for j in range(min(_AHEAD, n_rows)):
                prefetch(indices, bounds[2 * j])
            for j in range(n_rows):
                if j + _AHEAD < n_rows:
                    prefetch(indices, bounds[2 * (j + _AHEAD)])
                    prefetch(indices, bounds[2 * (j + _AHEAD)] + min(bounds[2 * (j + _AHEAD) + 1], size) - 1)
                low, degree = bounds[2 * j], bounds[2 * j + 1]
                begins[row0 + j] = filled
                if degree <= size and not apart and strategy != LATEST_K:
                    for k in range(degree):
                        positions[filled + k] = low - shift + k
                        targets[filled + k] = indices[low + k]
                    if by_path:
                        paths[filled : filled + degree] = row_paths[row0 + j]
                    filled += degree
                    continue
                gap, skip = degree, np.int64(0)
                if apart:
                    gap, skip = find_link(link, row_nodes[row0 + j], indices, low, degree)
                state = mix(op_key + np.uint64(row_nodes[row0 + j] + 1) * GAMMA)
                draws = row_paths[row0 + j] if by_path else np.int64(1)
                row = Row(low, degree - skip, gap, skip)
                count = draw_row(positions, paths, filled, row, rule, rows, state, draws, work)
                for k in range(filled, filled + count):
                    if positions[k] >= gap:
                        positions[k] += skip
                    positions[k] += low - shift
                    prefetch(indices, shift + np.int64(positions[k]))
                    targets[k] = _UNREAD
                filled += count
            begins[row0 + n_rows] = filled
            op_edges[op + 1] = filled

            # The neighbours there, and the front: paths(u) is the sum of the draws of edges to u.
            for k in range(edge0, filled):
                if targets[k] == _UNREAD:
                    targets[k] = indices[shift + np.int64(positions[k])]
            op_fronts[op + 1] = op_fronts[op]
            if feeds[op]:
                n, begin = filled - edge0, op_fronts[op]
                pairs, other = grown(pairs, 0, n), grown(other, 0, n)
                fronts, front_paths = grown(fronts, begin, begin + n), grown(front_paths, begin, begin + n)
                op_fronts[op + 1] = begin + distinct(
                    targets, edge0, n, program.counts[edges[edge_set, 3]], pairs, other, digits, fronts[begin:],
                    paths[edge0:], front_paths[begin:], by_path,
                )  # fmt: skip

        # The nodes of each set in their final order, and the places of edges' ends among them.
        for node_set in range(n_node_sets):
            n = edges_to(program, op_edges, node_set)
            begin = out.node_starts[node_set, done]
            if begin + n + n_seeds > room:
                return done, begin + n + n_seeds, entries
            nodes = out.nodes[node_set, begin:]
            firsts, words = np.int64(0), (program.counts[node_set] >> 6) + 1
            if node_set != seed_set and words <= n:
                present, ranks = grown(present, 0, words), grown(ranks, 0, words)
                n = number_marked(ops, edges, op_edges, targets, node_set, n, words, present, ranks, nodes, found)
            else:
                if node_set == seed_set:
                    for i in range(n_seeds):
                        if i == 0 or seeds.nodes[number, i] != seeds.nodes[number, 0]:
                            nodes[i] = seeds.nodes[number, i]
                            firsts += 1
                pairs, other = grown(pairs, 0, n), grown(other, 0, n)
                low = bits_of(op_edges[n_ops])
                pair_nodes(program, op_edges, targets, node_set, low, pairs)
                pairs, other = sort_pairs(pairs, other, n, low, bits_of(program.counts[node_set]), digits)
                n = number_nodes(pairs, n, low, nodes, firsts, found)
            for op in range(n_ops):
                if edges[ops[op, 0], 2] == node_set:
                    find_places(row_nodes, op_rows[op], op_rows[op + 1], nodes, firsts, row_places)
            out.node_starts[node_set, done + 1] = begin + n

        # The edges of each set by (source, target, position): all between its nodes, or those drawn.
        for edge_set in range(n_edge_sets):
            begin = out.edge_starts[edge_set, done]
            source_set, target_set = edges[edge_set, 2], edges[edge_set, 3]
            a, b = out.node_starts[source_set, done], out.node_starts[source_set, done + 1]
            firsts = n_seeds if target_set == seed_set else np.int64(0)
            columns = EdgeColumns(out.sources[edge_set], out.targets[edge_set], out.positions[edge_set])
            filled = begin
            if by_node:
                c, d = out.node_starts[target_set, done], out.node_starts[target_set, done + 1]
                bits = bits_for(d - c)
                table, orders = grown(table, 0, 1 << bits), grown(orders, 0, 1 << bits)
                apart = n_seeds == 2 and source_set == seed_set and target_set == seed_set
                filled = induced(
                    rows, edges[edge_set], out.nodes[source_set, a:b], out.nodes[target_set, c:d],
                    link if apart else SeedLink(np.int64(-1), np.int64(-1)), table, orders, columns, begin, room, firsts,
                )  # fmt: skip
                if filled > room:
                    return done, filled, entries
            else:
                drawn_here, drawing, last_op = ops_of(program, op_edges, edge_set)
                if begin + drawn_here > room:
                    return done, begin + drawn_here, entries
                if drawing == 1 and firsts == 0:
                    filled = edges_of_one_op(
                        op_rows[last_op], op_rows[last_op + 1], row_places, begins, found, positions,
                        n_seeds if source_set == seed_set else np.int64(0), columns, begin,
                    )  # fmt: skip
                else:
                    by_source = grown(by_source, 0, b - a + op_rows[n_ops])
                    filled = edges_in_order(
                        ops, edge_set, op_rows, row_places, begins, found, positions, by_source, b - a, columns, begin,
                        firsts,
                    )  # fmt: skip
            out.edge_starts[edge_set, done + 1] = filled
        for node_set in range(n_node_sets):
            entries += out.node_starts[node_set, done + 1] - out.node_starts[node_set, done]
        for edge_set in range(n_edge_sets):
            entries += out.edge_starts[edge_set, done + 1] - out.edge_starts[edge_set, done]
        if entries >= most:
            return done + 1, np.int64(0), entries
    return last - first, np.int64(0), entries
