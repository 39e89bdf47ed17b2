"""The compiled sampler: subgraphs one after the other, each by all ops of a spec, in the order of the original.

An op's input nodes are ascending, and so are the places drawn in a row, so that edges come out in order; only seeds,
which are first in their set, are moved. A row is read in three steps, each for all nodes of an op: its begin, its
entries' places, its entries. What a step reads was asked for by the one before, so that they need not wait for memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.prefetch import prefetch
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.subgraphs.draw import DrawScratch, draw_largest, draw_uniform, draw_weighted
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

TOP_K, RANDOM_UNIFORM, RANDOM_WEIGHTED, LATEST_K = range(4)
SEED_OP = -1
NO_VALUES = -(1 << 62)
"""In a program: the edge set has no weights, or ranks and timestamps that nobody asks for."""
_UNREAD = -1
_AHEAD = 16
_NO_LIMIT = np.iinfo(np.int64).max
_PATH = np.uint64(0xD1B54A32D192ED03)


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


@nb.njit(nogil=True, cache=True)
def sample(rows: Any, program: Any, seeds: Any, first: Any, last: Any, seed: Any, most: Any, out: Any) -> Any:
    """Sample subgraphs `first` to `last - 1` of `seeds` to the beginning of `out`, as far as they fit.

    Args:
        rows: `StackedRows`; program: `Program`; seeds: `Seeds`; out: `Out`, filled.
        first, last: range of subgraphs.
        seed: of all random numbers.
        most: nodes and edges, of all sets together, with which it is enough.

    Returns:
        How many are done, the room that the next one needs if it did not fit, else 0, and their nodes and edges.
    """
    ops, edges, options = program.ops, program.edges, program.options
    seed_set, by_path, by_node, n_seeds = options[0], options[1] != 0, options[2] != 0, options[3]
    n_ops, n_node_sets, n_edge_sets = len(ops), len(program.counts), len(edges)
    indptr, indices = rows.indptr, rows.indices
    room = min(out.nodes.shape[1], out.positions.shape[1])

    # Of the edges and rows of all ops, behind each other.
    targets = np.empty(1 << 12, indices.dtype)
    positions = np.empty(1 << 12, out.positions.dtype)
    paths = np.empty(1 << 12 if by_path else 1, np.int64)
    found = np.empty(1 << 12, np.int32)
    row_nodes = np.empty(1 << 10, indices.dtype)
    row_paths = np.empty(1 << 10, np.int64)
    row_places = np.empty(1 << 10, np.int32)
    begins = np.empty(1 << 10, np.int64)
    lows = np.empty(1 << 10, np.int64)
    op_rows = np.zeros(n_ops + 1, np.int64)
    op_edges = np.zeros(n_ops + 1, np.int64)
    # Different targets of each op that is another one's input, ascending.
    fronts = np.empty(1 << 10, indices.dtype)
    front_paths = np.empty(1 << 10, np.int64)
    op_fronts = np.zeros(n_ops + 1, np.int64)
    feeds = np.zeros(n_ops, np.bool_)
    for op in program.input_ops:
        if op != SEED_OP:
            feeds[op] = True
    # Of one set of nodes at a time.
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
    ends = np.empty(2, np.int64)

    entries = np.int64(0)
    n_rows: Any
    for number in range(first, last):
        done = number - first
        key = mix(np.uint64(seed) + GAMMA)
        for i in range(n_seeds):
            key = mix(key + np.uint64(seeds.nodes[number, i] + 1) * GAMMA)
        key = mix(key + np.uint64(seeds.repeats[number] + 1) * GAMMA)

        for op in range(n_ops):
            edge_set, size, strategy = ops[op, 0], ops[op, 1], ops[op, 2]
            op_key = mix(key + np.uint64(op + 1) * GAMMA)
            # The input nodes.
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

            # Begins of their rows.
            base = edges[edge_set, 0]
            begins = grown(begins, row0, row0 + n_rows + 1)
            lows = grown(lows, 0, 2 * n_rows)
            row_places = grown(row_places, 0, row0 + n_rows)
            for j in range(min(_AHEAD, n_rows)):
                prefetch(indptr, base + np.int64(row_nodes[row0 + j]))
            most_edges, most_degree = np.int64(0), np.int64(0)
            for j in range(n_rows):
                if j + _AHEAD < n_rows:
                    prefetch(indptr, base + np.int64(row_nodes[row0 + j + _AHEAD]))
                entry = base + np.int64(row_nodes[row0 + j])
                low, degree = indptr[entry], indptr[entry + 1] - indptr[entry]
                lows[2 * j], lows[2 * j + 1] = low, degree
                draws = row_paths[row0 + j] if by_path else np.int64(1)
                most_edges += degree if draws > degree else min(degree, size * draws)
                if degree > size or strategy == LATEST_K:
                    most_degree = max(most_degree, degree)
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

            # Places of what is drawn in each row.
            shift, filled = edges[edge_set, 1], edge0
            values = edges[edge_set, 4 + (strategy == TOP_K) + 2 * (strategy == LATEST_K)]
            limit = seeds.times[number] if strategy == LATEST_K else np.int64(_NO_LIMIT)
            apart = n_seeds == 2 and edges[edge_set, 2] == seed_set and edges[edge_set, 3] == seed_set
            for j in range(min(_AHEAD, n_rows)):
                prefetch(indices, lows[2 * j])
            for j in range(n_rows):
                if j + _AHEAD < n_rows:
                    prefetch(indices, lows[2 * (j + _AHEAD)])
                    prefetch(indices, lows[2 * (j + _AHEAD)] + min(lows[2 * (j + _AHEAD) + 1], size) - 1)
                low, degree = lows[2 * j], lows[2 * j + 1]
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
                    find_link(seeds.nodes, number, row_nodes[row0 + j], indices, low, degree, ends)
                    gap, skip = ends[0], ends[1]
                    degree -= skip
                state = mix(op_key + np.uint64(row_nodes[row0 + j] + 1) * GAMMA)
                draws = row_paths[row0 + j] if by_path else np.int64(1)
                count = draw_row(
                    positions, paths, filled, low, values, degree, gap, skip, size, strategy, rows, limit, state, draws,
                    by_path, work,
                )  # fmt: skip
                for k in range(filled, filled + count):
                    if positions[k] >= gap:
                        positions[k] += skip
                    positions[k] += low - shift
                    prefetch(indices, shift + np.int64(positions[k]))
                    targets[k] = _UNREAD
                filled += count
            begins[row0 + n_rows] = filled
            op_edges[op + 1] = filled

            # The neighbours there.
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
            n = np.int64(0)
            for op in range(n_ops):
                if edges[ops[op, 0], 3] == node_set:
                    n += op_edges[op + 1] - op_edges[op]
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
                n = np.int64(0)
                for op in range(n_ops):
                    if edges[ops[op, 0], 3] == node_set:
                        for k in range(op_edges[op], op_edges[op + 1]):
                            pairs[n] = (np.uint64(targets[k]) << np.uint64(low)) | np.uint64(k)
                            n += 1
                pairs, other = sort_pairs(pairs, other, n, low, bits_of(program.counts[node_set]), digits)
                n = number_nodes(pairs, n, low, nodes, firsts, found)
            for op in range(n_ops):
                if edges[ops[op, 0], 2] == node_set:
                    find_places(row_nodes, op_rows[op], op_rows[op + 1], nodes, firsts, row_places)
            out.node_starts[node_set, done + 1] = begin + n

        for edge_set in range(n_edge_sets):
            begin = out.edge_starts[edge_set, done]
            source_set, target_set = edges[edge_set, 2], edges[edge_set, 3]
            a, b = out.node_starts[source_set, done], out.node_starts[source_set, done + 1]
            firsts = n_seeds if target_set == seed_set else np.int64(0)
            filled = begin
            if by_node:
                c, d = out.node_starts[target_set, done], out.node_starts[target_set, done + 1]
                bits = bits_for(d - c)
                table, orders = grown(table, 0, 1 << bits), grown(orders, 0, 1 << bits)
                apart = n_seeds == 2 and source_set == seed_set and target_set == seed_set
                filled = induced(
                    rows, edges[edge_set], out.nodes[source_set, a:b], out.nodes[target_set, c:d], table, orders, bits,
                    out.sources[edge_set], out.targets[edge_set], out.positions[edge_set], begin, room, firsts,
                    apart, seeds.nodes, number, ends,
                )  # fmt: skip
                if filled > room:
                    return done, filled, entries
            else:
                drawn_here, drawing, last_op = np.int64(0), 0, 0
                for op in range(n_ops):
                    if ops[op, 0] == edge_set:
                        drawn_here += op_edges[op + 1] - op_edges[op]
                        drawing, last_op = drawing + 1, op
                if begin + drawn_here > room:
                    return done, begin + drawn_here, entries
                if drawing == 1 and firsts == 0:
                    filled = edges_of_one_op(
                        op_rows[last_op], op_rows[last_op + 1], row_places, begins, found, positions,
                        n_seeds if source_set == seed_set else np.int64(0), out.sources[edge_set],
                        out.targets[edge_set], out.positions[edge_set], begin,
                    )  # fmt: skip
                else:
                    by_source = grown(by_source, 0, b - a + op_rows[n_ops])
                    filled = edges_in_order(
                        ops, edge_set, op_rows, row_places, begins, found, positions, by_source, b - a,
                        out.sources[edge_set], out.targets[edge_set], out.positions[edge_set], begin, firsts,
                    )  # fmt: skip
            out.edge_starts[edge_set, done + 1] = filled
        for node_set in range(n_node_sets):
            entries += out.node_starts[node_set, done + 1] - out.node_starts[node_set, done]
        for edge_set in range(n_edge_sets):
            entries += out.edge_starts[edge_set, done + 1] - out.edge_starts[edge_set, done]
        if entries >= most:
            return done + 1, np.int64(0), entries
    return last - first, np.int64(0), entries


@nb.njit(nogil=True)
def draw_row(
    positions: Any, paths: Any, filled: Any, low: Any, values: Any, degree: Any, gap: Any, skip: Any, size: Any,
    strategy: Any, rows: Any, limit: Any, state: Any, draws: Any, by_path: Any, work: Any,
) -> Any:  # fmt: skip
    """Draw in one row; see `tasks.lib.subgraphs.draw` for rows with a gap.

    Args:
        positions: places in the row are written from `filled` on.
        paths: by path, how often each was drawn is written there.
        low: first entry of the row in `rows`.
        values: what is added to an entry for its weight, rank or timestamp, `NO_VALUES` without.
        size, strategy: of the op.
        rows: see `StackedRows`.
        limit: largest timestamp.
        state: of the random stream.
        draws: paths that lead to the row, where draws are by path; else 1.
        work: `DrawScratch`, large enough for the row.

    Returns:
        How many places were drawn.
    """
    count = degree
    if strategy == LATEST_K:
        count = draw_largest(
            positions, filled, low + values, degree, gap, skip, min(size, degree), rows.times, limit, work
        )  # fmt: skip
    elif degree <= size:
        for k in range(degree):
            positions[filled + k] = k
    elif strategy == TOP_K:
        count = draw_largest(positions, filled, low + values, degree, gap, skip, size, rows.ranks, limit, work)
    elif draws == 1:
        if strategy == RANDOM_UNIFORM or values == NO_VALUES:
            count = draw_uniform(positions, filled, degree, size, state, work.marks)
        else:
            count = draw_weighted(
                positions, filled, low + values, degree, gap, skip, size, rows.weights, state, work
            )  # fmt: skip
        if by_path:
            paths[filled : filled + count] = 1
    else:
        count = _draw_again(
            positions, paths, filled, low, values, degree, gap, skip, size, strategy, rows.weights, state, work, draws
        )  # fmt: skip
    if by_path and (degree <= size or strategy in (TOP_K, LATEST_K)):
        paths[filled : filled + count] = draws
    return count


@nb.njit(nogil=True)
def _draw_again(
    positions: Any, paths: Any, filled: Any, low: Any, values: Any, degree: Any, gap: Any, skip: Any, size: Any,
    strategy: Any, weights: Any, state: Any, work: Any, draws: Any,
) -> Any:  # fmt: skip
    """Draw in one row for each path that leads to it; places that were drawn, and how often."""
    drawn = np.empty(degree + size, np.int64)
    drawn[:degree] = 0
    for path in range(draws):
        own = state if path == 0 else mix(state ^ (np.uint64(path) * _PATH))
        if strategy == RANDOM_UNIFORM or values == NO_VALUES:
            count = draw_uniform(drawn, degree, degree, size, own, work.marks)
        else:
            count = draw_weighted(drawn, degree, low + values, degree, gap, skip, size, weights, own, work)
        for k in range(degree, degree + count):
            drawn[drawn[k]] += 1
    count = 0
    for place in range(degree):
        if drawn[place]:
            positions[filled + count], paths[filled + count] = place, drawn[place]
            count += 1
    return count
