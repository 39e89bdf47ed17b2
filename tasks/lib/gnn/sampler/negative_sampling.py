"""Compiled loops of link prediction: positions of edges between pairs of nodes, and pairs without a link.

A set's rows are ascending. A pair is (source, target); within one node set its ends have no order, and an edge in
either direction is the link between them.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.permutation import half_bits_of, permuted, unordered_pair
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.subgraphs.draw import below

TRIES = 32
"""Draws of an end, if the earlier ones made a link or a loop."""
PAIRS, UNIFORM, DEGREE = 0, 1, 2
"""How pairs without a link are drawn: both ends uniformly; or links with one end replaced, uniformly or by degree."""


@nb.njit(inline="always")
def _find(indptr: Any, indices: Any, source: Any, target: Any) -> Any:
    """Position of the first edge from source to target, or the end of the row where there is none."""
    low, high = indptr[source], indptr[source + 1]
    end = high
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < target:
            low = middle + 1
        else:
            high = middle
    if low < end and indices[low] == target:
        return low
    return end


@nb.njit(inline="always")
def _linked(indptr: Any, indices: Any, source: Any, target: Any, one_set: Any) -> Any:
    if _find(indptr, indices, source, target) < indptr[source + 1]:
        return True
    return one_set and _find(indptr, indices, target, source) < indptr[target + 1]


@nb.njit(nogil=True, cache=True)
def edges_between(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    firsts: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Edges from sources to targets; parallel edges have consecutive positions.

    Args:
        indptr, indices: rows of the edge set.
        sources, targets: nodes [n].
        firsts, counts: position of the first edge of each pair, and the number of its edges, [n], filled.
    """
    for i in range(len(sources)):
        first = _find(indptr, indices, sources[i], targets[i])
        end = first
        while end < indptr[sources[i] + 1] and indices[end] == targets[i]:
            end += 1
        firsts[i], counts[i] = first, end - first


@nb.njit(nogil=True, cache=True)
def draw_negatives(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    one_set: bool,
    targets: int,
    links: NDArray[np.int64],
    by: int,
    numbers: NDArray[np.int64],
    each: int,
    state: np.uint64,
    out: NDArray[np.int64],
    sides: NDArray[np.int8],
) -> None:
    """Pairs without a link: any two nodes, or links with an end replaced, within one set a random one, else the target.

    Where `TRIES` draws of both ends fail, as they may where two sides are of very different sizes, one end is replaced.

    Args:
        indptr, indices: rows of the edge set, which must not have the pairs.
        one_set: its edges start and end in the same node set.
        targets: number of nodes where its edges end.
        links: all links [l, 2]; with `DEGREE` their ends are drawn from.
        by: `PAIRS`, `UNIFORM` or `DEGREE`.
        numbers: numbers of the links [n] for which pairs are drawn; draws depend on these and the state alone.
        each: pairs for each link.
        state: state of the random stream of this step.
        out: [n * each, 2], filled; if every try fails, the pair of the last one stays.
        sides: side of each node, of which a pair has two; empty where any pair may be linked.
    """
    turns = 2 * TRIES if by == PAIRS else TRIES
    for i in range(len(numbers)):
        link = numbers[i]
        for k in range(each):
            own = mix(mix(state + np.uint64(link + 1) * GAMMA) + np.uint64(k + 1) * GAMMA)
            kept, row = np.int64(0), i * each + k
            if one_set:
                kept = np.int64(own & np.uint64(1))
            for turn in range(turns):
                word = mix(own + np.uint64(turn + 1) * GAMMA)
                node = links[link, kept]
                if by == PAIRS and turn < TRIES:
                    node = below(mix(word + GAMMA), len(indptr) - 1)
                if by == DEGREE:
                    end = np.int64(1)
                    if one_set:
                        end = np.int64(word & np.uint64(1))
                    other = links[below(mix(word + GAMMA), len(links)), end]
                else:
                    other = below(word, targets)
                source, target = (other, node) if kept == 1 else (node, other)
                out[row, 0], out[row, 1] = source, target
                if (one_set and source == target) or _linked(indptr, indices, source, target, one_set):
                    continue
                if len(sides) and sides[source] == sides[target]:
                    continue
                break


@nb.njit(nogil=True, cache=True)
def draw_non_links(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    one_set: bool,
    targets: int,
    state: np.uint64,
    out: NDArray[np.int64],
) -> int:
    """Distinct pairs of nodes without a link, uniform among all such pairs, in random order.

    Args:
        indptr, indices: rows of the edge set [sources + 1], [edges].
        one_set: its edges start and end in the same node set; the smaller number then comes first.
        targets: number of nodes where its edges end.
        state: key of the order.
        out: [n, 2]; its first rows are filled.

    Returns:
        Number of pairs found, at most n.
    """
    sources = np.int64(len(indptr) - 1)
    size = np.uint64(sources * (sources - 1) // 2 if one_set else sources * targets)
    half_bits, found = half_bits_of(size), 0
    for turn in range(np.int64(size)):
        if found == len(out):
            break
        number = np.int64(permuted(np.uint64(turn), size, half_bits, state))
        if one_set:
            target, source = unordered_pair(number)
        else:
            source, target = number // targets, number % targets
        if not _linked(indptr, indices, source, target, one_set):
            out[found, 0], out[found, 1] = source, target
            found += 1
    return found
