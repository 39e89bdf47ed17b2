"""Draws of edges by their times: each node's latest ones, or any, that are not after a time of the receiver's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.gnn.edge_weights import weighted_sets
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.gnn.sampler.kernels import ALL_NEIGHBORS, Renumbered, moved_on
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.subgraphs.draw import DrawScratch, draw_largest, draw_uniform

NO_LIMIT = np.iinfo(np.int64).max
"""Limit of a receiver that all edges pass messages to."""


def times_of(graph: HeteroGraph, relations: Iterable[Relation], name: str) -> dict[int, NDArray[np.int64]]:
    """Times of the edge sets that have this feature, int64 [edges] by number.

    Raises:
        UserError: no edge set has the feature, or it is not one whole number for each edge.
    """
    return {each.number: edge_times(graph, each.name, name) for each in timed_sets(graph, relations, name)}


def timed_sets(graph: HeteroGraph, relations: Iterable[Relation], name: str) -> list[Relation]:
    """Edge sets that have this feature.

    Raises:
        UserError: no edge set has it, or it is not one whole number for each edge.
    """
    found = weighted_sets(graph, relations, name, "train.time")
    for relation in found:
        dtype = next(each.dtype for each in graph.edge_sets[relation.name].features if each.name == name)
        if "int" not in dtype:
            raise UserError("a time is a whole number", where=f"{graph.dataset.uri}, {relation.name}.{name}",
                            value=dtype, remedy="Store times as int64, such as Unix times")  # fmt: skip
    return found


def edge_times(graph: HeteroGraph, edge_set: str, name: str) -> NDArray[np.int64]:
    """Times of the edges of a set by a feature of whole numbers, int64 [edges]."""
    values = np.asarray(graph.edge_feature(edge_set, name))
    return np.ascontiguousarray(values.reshape(-1), np.int64)


class Receivers(NamedTuple):
    """Receivers of a draw.

    Args:
        rows: their rows, int64 [r].
        nodes: the nodes by their numbers in the whole graph, int64 [r].
        limits: edges of later times are left out, int64 [r].
    """

    rows: NDArray[np.int64]
    nodes: NDArray[np.int64]
    limits: NDArray[np.int64]


class ByTime:
    """Draws by time, with the scratch of one thread.

    Args:
        rows: rows of the edge sets, by number.
        times: times of the edge sets that have any, int64 [edges of the rows].
        fanouts: fan-outs of all hops.
        latest: draw the latest edges instead of any.
    """

    def __init__(
        self, rows: Mapping[int, CsrRows], times: Mapping[int, NDArray[np.int64]], fanouts: Sequence[int], latest: bool
    ):  # fmt: skip
        self._indptr = {number: read_only(rows[number].indptr) for number in times}
        self._times, self._latest = {number: read_only(each) for number, each in times.items()}, latest
        most = max((int(np.diff(each).max(initial=0)) for each in self._indptr.values()), default=0)
        self._drawn = max(1, min(most, max(fanouts, default=0)))
        marks = np.zeros((most >> 6) + 1, np.uint64)
        self._work = DrawScratch(marks, *(np.empty(self._drawn, np.int64) for _ in range(2)))
        self._left, self._places = np.empty(most, np.int64), np.empty(most, np.int64)

    def draws(self, number: int, size: int, limited: bool) -> bool:
        """True if a hop of this fan-out reads the times of an edge set.

        Args:
            number: number of the edge set.
            size: fan-out; without limits `ALL_NEIGHBORS` needs no times.
            limited: receivers have limits.
        """
        return number in self._times and (limited or (self._latest and size != ALL_NEIGHBORS))

    def positions(
        self, number: int, receivers: Receivers, size: int, state: np.uint64, lost: NDArray[np.int64],
        starts: NDArray[np.int64], degrees: NDArray[np.int64], renumbered: Renumbered | None = None,
    ) -> NDArray[np.int64]:  # fmt: skip
        """Positions of the drawn edges in their set; for the arguments see `count_by_time` and `draw_by_time`."""
        indptr, times = self._indptr[number], self._times[number]
        receivers = Receivers(*map(read_only, receivers))
        size = min(size, self._drawn)  # the scratch has room for the largest degree
        count_by_time(indptr, times, receivers, size, lost, starts, degrees, renumbered)
        positions = np.empty(int(starts[-1]), np.int64)
        how = size, self._latest, state, lost, starts, renumbered
        draw_by_time(indptr, times, receivers, *how, self._work, (self._left, self._places), positions)
        return positions


@nb.njit(nogil=True, cache=True)
def count_by_time(
    indptr: NDArray[np.int64],
    times: NDArray[np.int64],
    receivers: Receivers,
    size: int,
    lost: NDArray[np.int64],
    starts: NDArray[np.int64],
    degrees: NDArray[np.int64],
    renumbered: Renumbered | None,
) -> None:
    """Offsets of each receiver's edges that `draw_by_time` draws.

    Args:
        indptr: row offsets of the edge set.
        times: of its edges.
        receivers: see `Receivers`.
        size: fan-out, or `ALL_NEIGHBORS`.
        lost: positions of removed edges, ascending.
        starts: [r + 1], filled.
        degrees: edges of each receiver that are neither removed nor after its limit [r], filled.
        renumbered: see `kernels.Renumbered`; None for rows of the whole graph.
    """
    starts[0] = 0
    for i in range(len(receivers.rows)):
        row, limit = receivers.rows[i], receivers.limits[i]
        first, last = indptr[row], indptr[row + 1]
        moved = moved_on(renumbered, row, first)
        gone, degree = np.searchsorted(lost, first + moved), 0
        for place in range(first, last):
            if gone < len(lost) and lost[gone] == place + moved:
                gone += 1
            elif times[place] <= limit:
                degree += 1
        degrees[i] = degree
        starts[i + 1] = starts[i] + (degree if size < 0 or degree <= size else size)


@nb.njit(nogil=True, cache=True)
def draw_by_time(
    indptr: NDArray[np.int64],
    times: NDArray[np.int64],
    receivers: Receivers,
    size: int,
    latest: bool,
    state: np.uint64,
    lost: NDArray[np.int64],
    starts: NDArray[np.int64],
    renumbered: Renumbered | None,
    work: DrawScratch,
    scratch: tuple[Any, Any],
    positions: NDArray[np.int64],
) -> None:
    """Draw edges that are not after the receivers' limits; ascending for each receiver.

    Args:
        indptr, times, receivers, size, lost, renumbered: as given to `count_by_time`.
        latest: take the edges of the largest times, of equal ones the later position; else each with the same chance.
        state: state of the random stream of this hop and edge set.
        starts: offsets, as `count_by_time` filled them.
        work: scratch for `size` draws.
        scratch: two arrays, int64 [most degree].
        positions: positions of the edges in their set, [starts[r]], filled.
    """
    left, places = scratch
    for i in range(len(receivers.rows)):
        row, limit, slot = receivers.rows[i], receivers.limits[i], starts[i]
        first, last = indptr[row], indptr[row + 1]
        moved = moved_on(renumbered, row, first)
        gone, degree = np.searchsorted(lost, first + moved), 0
        for place in range(first, last):
            if gone < len(lost) and lost[gone] == place + moved:
                gone += 1
            elif times[place] <= limit:
                left[degree], places[degree] = times[place], place + moved
                degree += 1
        if size < 0 or degree <= size:
            for j in range(degree):
                positions[slot + j] = places[j]
            continue
        if latest:
            draw_largest(positions, slot, 0, degree, degree, 0, size, left, limit, work)
        else:
            own = mix(state + np.uint64(receivers.nodes[i] + 1) * GAMMA)
            draw_uniform(positions, slot, degree, size, own, work.marks)
        for j in range(slot, starts[i + 1]):
            positions[j] = places[positions[j]]
