"""Node2vec walks on a graph in memory: the array interface of the walk stage."""

from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from superworkflow.tasks.walk.kernels.adjacency import PADDING, WalkGraph, degree_bits, pack_headers
from superworkflow.tasks.walk.kernels.alias_table import WIDE, build_alias, build_wide_alias
from superworkflow.tasks.walk.kernels.edge_filter import build_table
from superworkflow.tasks.walk.kernels.edge_filter_size import has_tries
from superworkflow.tasks.walk.kernels.first_order import uniform_walks, weighted_walks
from superworkflow.tasks.walk.kernels.mixture import inward_walks
from superworkflow.tasks.walk.kernels.rejection import dart_walks
from superworkflow.tasks.walk.kernels.second_order import WalkBias
from superworkflow.tasks.walk.kernels.starts import WalkRange
from superworkflow.tasks.walk.kernels.triangles import edges_of_no_triangle, pack_bits
from superworkflow.tasks.walk.params import LEAST_BIAS, MOST_BIAS

WALKS_PER_CALL = 2048  # of one thread: large against a batch of walkers, small against a shard


class Walker:
    """Biased second-order random walks, the same for any number of threads and any split into ranges.

    Walk ``w = r * n_starts + k`` is the ``k``-th of round ``r``. It depends on the graph, p, q, the starts, the
    walk length, the seed and w, and on nothing else, so any process can make any range of them by ``walk(a, b)``.

    Args:
        indptr: int64[n + 1], where the row of each vertex begins in ``indices``.
        indices: int32[m] or int64[m], neighbours, ascending in each row, no duplicates; copied unless ``padded``.
        weights: float32[m], positive, or None.
        padded: `PADDING` entries of any value stand behind the m neighbours; ``indices`` is used in place.
        directed: False if for every edge u -> v the edge v -> u exists, with the same weight.
        walk_length: vertices of a walk, its start included.
        p: return parameter, 1e-6 to 1e6; small values keep a walk near where it came from.
        q: in-out parameter, 1e-6 to 1e6; small values lead it away.
        seed: 0 <= seed < 2**64.
        starts: vertices that walks start from; None for every vertex.
        threads: used to prepare the tables.

    Raises:
        ValueError: a parameter out of range, a start that is no vertex, or a graph too large for the kernels (the
            index of an edge and the largest degree have to fit 64 bits together).
    """

    def __init__(
        self,
        indptr: npt.NDArray[np.int64],
        indices: npt.NDArray[Any],
        weights: npt.NDArray[np.float32] | None = None,
        *,
        padded: bool = False,
        directed: bool = False,
        walk_length: int = 80,
        p: float = 1.0,
        q: float = 1.0,
        seed: int = 42,
        starts: npt.NDArray[np.int64] | None = None,
        threads: int = 1,
    ) -> None:
        if not (LEAST_BIAS <= p <= MOST_BIAS and LEAST_BIAS <= q <= MOST_BIAS):
            raise ValueError(f"p and q must be in {LEAST_BIAS:g} to {MOST_BIAS:g}, got p={p}, q={q}")
        if walk_length < 1:
            raise ValueError(f"walk_length must be at least 1, got {walk_length}")
        self.vertices = len(indptr) - 1
        self.walk_length = walk_length
        self._seed = np.uint64(seed)
        self._starts = np.empty(0, np.int64) if starts is None else np.ascontiguousarray(starts, np.int64)
        self.n_starts = self.vertices if starts is None else len(self._starts)
        if starts is not None and self.n_starts and not 0 <= self._starts.min() <= self._starts.max() < self.vertices:
            raise ValueError(f"start vertices must be in 0..{self.vertices - 1}")
        self._second_order = not (p == 1 and q == 1)
        self._p, self._q, self._directed = float(p), float(q), bool(directed)
        self._tries = has_tries(q, self.vertices, self._directed)
        bits = degree_bits(indptr)
        self._bits = np.uint64(bits)
        self._nodes = pack_headers(indptr, bits)
        edges = int(indptr[-1])
        if not padded:
            indices = np.concatenate([indices, np.full(PADDING, -1, indices.dtype)])
        if len(indices) != edges + PADDING:
            raise ValueError(f"indptr counts {edges} edges, indices has {len(indices) - PADDING}")
        self._indices = indices
        self._weights = np.empty(0, np.float32)
        self._alias: npt.NDArray[Any] = np.empty(0, np.uint32)
        self._table, self._final = np.zeros(1, np.uint64), True
        clear = None
        if q != 1:
            with ThreadPoolExecutor(threads) as pool:
                self._table, self._final = build_table(indptr, indices[:edges], self._directed, pool, threads)
            if self._tries and not self._directed:
                clear = edges_of_no_triangle(np.ascontiguousarray(indptr), indices, threads)
        if weights is not None:
            marks = np.empty(0, np.uint8) if clear is None else clear
            self._prepare_weights(np.ascontiguousarray(indptr), weights, marks, threads)
        self._clear = np.empty(0, np.uint64) if clear is None else pack_bits(clear)

    def _prepare_weights(
        self, indptr: Any, weights: npt.NDArray[np.float32], clear: npt.NDArray[np.uint8], threads: int
    ) -> None:
        wide = self._second_order
        if wide and self.vertices > 2**31:
            raise ValueError(f"weighted second-order walks need a graph of at most 2**31 vertices, got {self.vertices}")
        self._alias = np.zeros(WIDE * (len(weights) + 1), np.uint32) if wide else np.zeros(len(weights) + 1, np.uint64)
        totals = np.zeros(self.vertices + 1)
        parts = 8 * threads
        cuts = np.searchsorted(indptr, np.linspace(0, len(weights), parts + 1))
        cuts[0], cuts[-1] = 0, self.vertices
        pending: list[Future[Any]] = []
        with ThreadPoolExecutor(threads) as pool:
            for a, b in pairwise(cuts):
                rows: tuple[Any, ...] = (weights, a, b, self._alias, totals)
                if wide:
                    pending.append(pool.submit(build_wide_alias, indptr, self._indices, weights, clear, *rows[1:]))
                else:
                    pending.append(pool.submit(build_alias, indptr, *rows))
            for done in pending:
                done.result()
        if wide:
            self._weights = weights
            self._nodes = np.stack([self._nodes, totals.view(np.uint64)], 1).reshape(-1)

    def walk(self, first: int, last: int, threads: int = 1, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Walks ``first`` to ``last - 1`` as [last - first, walk_length], padded by -1 after a sink.

        ``out`` may give a C-contiguous array of that shape and of the dtype of the graph's indices.
        """
        if out is None:
            out = np.empty((last - first, self.walk_length), self.dtype)
        with ThreadPoolExecutor(threads) as pool:
            for piece in self.submit(pool, first, last, out):
                piece.result()
        return out

    def submit(self, pool: ThreadPoolExecutor, first: int, last: int, out: npt.NDArray[Any]) -> list[Future[None]]:
        """Begin to fill ``out`` with the walks ``first`` to ``last - 1``; it is full when all futures are done."""
        return [
            pool.submit(self._fill, a, out[a - first : min(a + WALKS_PER_CALL, last) - first])
            for a in range(first, last, WALKS_PER_CALL)
        ]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the walks: that of the graph's indices."""
        return self._indices.dtype

    @property
    def weighted(self) -> bool:
        return len(self._alias) > 0

    def _fill(self, first: int, out: npt.NDArray[Any]) -> None:
        graph = WalkGraph(self._nodes, self._bits, self._indices, self._weights, self._alias, self._directed)
        bias = WalkBias(self._p, self._q, self._table, self._final)
        walks = WalkRange(self._starts, np.uint64(self.n_starts), self._seed, np.int64(first))
        if self._tries:
            inward_walks(graph, self._clear, bias, walks, out)
        elif self._second_order:
            dart_walks(graph, bias, walks, out)
        elif self.weighted:
            weighted_walks(graph, walks, out)
        else:
            uniform_walks(graph, walks, out)
