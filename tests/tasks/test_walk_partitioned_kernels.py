"""Walkers that travel between parts of a graph make the walks of `Walker`, bit for bit; no part does most of the work.

The parts exchange walkers as in `tasks.walk.partitioned`, in bytes, but in this process.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from superworkflow.infra.storage.location import Location
from superworkflow.tasks.lib.graph.npy_slices import array_header, read_slice
from superworkflow.tasks.lib.graph.ranges import find_cuts
from superworkflow.tasks.walk.kernels import edge_filter_size
from superworkflow.tasks.walk.partitioned import walker_batch
from superworkflow.tasks.walk.partitioned.advance import EXACT, owner, place_tokens
from superworkflow.tasks.walk.partitioned.vertex_ranges import VertexRanges, VertexRows, kept_rows, read_rows
from superworkflow.tasks.walk.partitioned.walker_batch import WalkerBatch, WalkRules, advance_walks, begin_walks
from superworkflow.tasks.walk.walker import Walker
from tests.tasks.test_walk_walker import Csr, random_csr

BIASES = [(1.0, 1.0), (0.5, 2.0), (0.25, 0.25), (4.0, 0.25), (1e-3, 1e3), (1e3, 1e-3), (1e4, 1e4), (2.0, 1.0)]
BIASES += [(1e-6, 1e6), (1e6, 1e-6), (1e-6, 1.0), (1e6, 1e6)]


class Parts:
    """A graph in parts, in a folder as index writes it."""

    def __init__(self, folder: Path, graph: Csr, parts: int, rules: WalkRules, *, weighted: bool):
        indptr, indices, weights = graph
        for name, values in (("indptr", indptr), ("indices", indices), ("weights", weights)):
            np.save(folder / f"{name}.npy", values)
        self.location, self.rules = Location.of(folder), rules
        self.vertices = len(indptr) - 1
        self.ranges = cut(self.location, self.vertices, parts)
        self.rows: list[VertexRows] = [
            read_rows(self.location, *self.ranges.of_task(t), weighted=weighted, second_order=rules.second_order)
            for t in range(self.ranges.tasks)
        ]
        self.handled = np.zeros(self.ranges.tasks, np.int64)
        self.supersteps = self.took_rows = 0

    def walk(self, first: int, last: int, starts: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int32]:
        """Walks as `Walker.walk` gives them."""
        tasks, rules = self.ranges.tasks, self.rules
        n_starts = self.vertices if starts is None else len(starts)
        starts = np.empty(0, np.int64) if starts is None else starts
        inbox: list[list[bytes]] = [[] for _ in range(tasks)]
        batch, to = begin_walks(first, last, first, starts, n_starts, self.ranges, rules)
        for task, blob in batch.split(to, tasks):
            inbox[task].append(blob)
        underway = True
        while underway:
            underway, outbox = False, [[] for _ in range(tasks)]
            for task, blobs in enumerate(inbox):
                batch = WalkerBatch.unpack(blobs, rules)
                self.handled[task] += len(batch.underway.walkers)
                batch, to = advance_walks(batch, self.rows[task], task, self.ranges, rules)
                self.took_rows += int((batch.walkers["phase"] == EXACT).sum())
                underway |= len(batch.underway.walkers) > 0
                for other, blob in batch.split(to, tasks):
                    outbox[other].append(blob)
            inbox = outbox
            self.supersteps += 1
        walks = np.full((last - first, rules.length), -1, rules.vertex)
        for blobs in inbox:
            batch = WalkerBatch.unpack(blobs, rules)
            w = batch.walkers
            place_tokens(w["walk"], w["position"] - w["tokens"] + 1, w["tokens"], batch.tokens, 0, walks)
        return walks


def cut(graph: Location, vertices: int, parts: int) -> VertexRanges:
    bounds = pairwise(np.linspace(0, vertices, 4).astype(int).tolist())
    found = [find_cuts(graph.join("indptr.npy"), parts, i, a, b) for i, (a, b) in enumerate(bounds)]
    return VertexRanges.cut([place for piece in found for place in piece])


def rules_of(p: float, q: float, length: int, *, directed: bool, seed: int = 42, vertex: str = "<i4") -> WalkRules:
    return WalkRules(float(p), float(q), length, directed, seed, vertex)


@pytest.mark.parametrize(
    ("p", "q", "large"), [*((p, q, False) for p, q in BIASES), *((p, q, True) for p, q in BIASES if q > 1)]
)
@pytest.mark.parametrize(("directed", "weighted"), [(False, False), (False, True), (True, True)])
def test_the_walks_of_one_process(tmp_path, monkeypatch, p, q, large, weighted, directed):
    if large:
        monkeypatch.setattr(edge_filter_size, "MATRIX_BYTES", 0)
    graph = random_csr(700, 6000, 1, directed=directed)
    rules = rules_of(p, q, 20, directed=directed)
    walker = Walker(*graph[:2], graph[2] if weighted else None, directed=directed, walk_length=20, p=p, q=q)
    travel = Parts(tmp_path, graph, 7, rules, weighted=weighted)
    np.testing.assert_array_equal(travel.walk(100, 1500), walker.walk(100, 1500))
    starts = np.array([5, 699, 0, 77])
    starting = Walker(
        *graph[:2], graph[2] if weighted else None, directed=directed, walk_length=20, p=p, q=q, starts=starts
    )
    np.testing.assert_array_equal(travel.walk(0, 50, starts), starting.walk(0, 50))


@given(
    st.integers(1, 60), st.integers(0, 400), st.booleans(), st.booleans(), st.sampled_from(BIASES),
    st.integers(1, 12), st.integers(1, 30), st.integers(0, 2**63 - 1), st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_graph_in_any_parts(tmp_path, n, edges, directed, weighted, bias, parts, length, seed, large):
    graph = random_csr(n, edges, seed % 2**20, directed=directed)
    rules = rules_of(*bias, length, directed=directed, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr(edge_filter_size, "MATRIX_BYTES", 0)
        walker = Walker(
            *graph[:2], graph[2] if weighted else None, directed=directed, walk_length=length, p=bias[0], q=bias[1],
            seed=seed,
        )  # fmt: skip
        travel = Parts(tmp_path, graph, parts, rules, weighted=weighted)
        np.testing.assert_array_equal(travel.walk(0, 3 * n), walker.walk(0, 3 * n))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("p", "q", "n", "edges", "large", "walks"),
    [(1e4, 1e4, 60, 900, False, 300), (1e3, 1e-3, 30, 3000, False, 90), (1e4, 1e4, 60, 900, True, 300)],
)
def test_short_lists_and_rows_that_wait(tmp_path, monkeypatch, weighted, p, q, n, edges, large, walks):
    if large:
        monkeypatch.setattr(edge_filter_size, "MATRIX_BYTES", 0)
    graph = random_csr(n, edges, 4)  # of few edges without a common neighbour, or of nearly all there can be
    walker = Walker(*graph[:2], graph[2] if weighted else None, walk_length=12, p=p, q=q)
    rules, supersteps = rules_of(p, q, 12, directed=False), []
    for list_words, row_words in ((256, 1 << 23), (256, 1), (2, 1)):
        monkeypatch.setattr(walker_batch, "LIST_WORDS", list_words)
        monkeypatch.setattr(walker_batch, "ROW_WORDS", row_words)
        travel = Parts(tmp_path, graph, 5, rules, weighted=weighted)
        np.testing.assert_array_equal(travel.walk(0, walks), walker.walk(0, walks))
        supersteps.append(travel.supersteps)
        assert travel.took_rows > 0
    assert supersteps == sorted(set(supersteps))  # waiting and asking in parts takes longer


@pytest.mark.slow
def test_wide_indices(tmp_path):
    indptr, indices, weights = random_csr(300, 2000, 2)
    travel = Parts(
        tmp_path, (indptr, indices.astype(np.int64), weights), 4,
        rules_of(0.5, 2, 10, directed=False, vertex="<i8"), weighted=True,
    )  # fmt: skip
    walks = travel.walk(0, 900)
    assert walks.dtype == np.int64
    np.testing.assert_array_equal(walks, Walker(indptr, indices, weights, walk_length=10, p=0.5, q=2).walk(0, 900))


def star(leaves: int) -> Csr:
    indptr = np.concatenate([[0], np.arange(leaves, 2 * leaves + 1)])
    indices = np.concatenate([np.arange(1, leaves + 1), np.zeros(leaves)])
    return indptr, indices.astype(np.int32), np.ones(2 * leaves, np.float32)


def hubs(n: int) -> Csr:
    """Preferential attachment gone wild: vertex v has a neighbour in proportion to v**-1.5, so a few have most arcs."""
    rng = np.random.default_rng(3)
    weight = np.arange(1, n + 1) ** -1.5
    pairs = np.stack([rng.choice(n, 2 * n, p=weight / weight.sum()), rng.integers(0, n, 2 * n)], 1)
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=n))])
    return indptr, pairs[:, 1].astype(np.int32), np.ones(len(pairs), np.float32)


@pytest.mark.parametrize(("p", "q"), [(1, 1), (0.5, 2), (0.5, 0.5)])
@pytest.mark.parametrize("make", [star, hubs])
def test_no_task_has_a_hub_alone(tmp_path, make, p, q):
    indptr, indices, weights = make(4000)
    largest = np.diff(indptr).max() / len(indices)
    travel = Parts(tmp_path, (indptr, indices, weights), 12, rules_of(p, q, 20, directed=False), weighted=False)
    walks = travel.walk(0, 8000)
    np.testing.assert_array_equal(walks, Walker(indptr, indices, walk_length=20, p=p, q=q).walk(0, 8000))
    even = 1 / travel.ranges.tasks
    assert largest > 1.5 * even  # one row alone is more than a task's share
    assert travel.handled.max() / travel.handled.sum() < 2 * even
    assert travel.ranges.tasks <= 2 * 12


@given(st.lists(st.integers(0, 300), min_size=1, max_size=80), st.integers(1, 20))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ranges_share_arcs_and_vertices(tmp_path, degrees, parts):
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    np.save(tmp_path / "indptr.npy", indptr)
    n, total = len(degrees), len(degrees) + sum(degrees)
    ranges = cut(Location.of(tmp_path), n, parts)
    assert (ranges.cuts[0], ranges.cuts[-1]) == (0, n)
    assert (np.diff(ranges.cuts) > 0).all()
    share = total / parts
    for low, high in pairwise(ranges.cuts.tolist()):
        load = high - low + int(indptr[high] - indptr[low])
        held = [t for t in range(ranges.tasks) if ranges.of_task(t) == (low, high)]
        assert load / len(held) <= 1.5 * share + 1 or load <= share + 1 + max(degrees[low:high])
        assert {int(owner(low, walk, ranges.cuts, ranges.copies)) for walk in range(50)} == set(held)
        assert {int(owner(high - 1, walk, ranges.cuts, ranges.copies)) for walk in range(50)} == set(held)


def test_rows_are_built_once_and_mapped(tmp_path):
    graph = random_csr(500, 9000, 6)
    for name, values in zip(("indptr", "indices", "weights"), graph, strict=True):
        np.save(tmp_path / f"{name}.npy", values)
    where, folder = Location.of(tmp_path), tmp_path / "rows"
    built = read_rows(where, 100, 400, weighted=True, second_order=True)
    for _ in range(2):
        kept = kept_rows(folder, where, 100, 400, weighted=True, second_order=True)
        for name in ("headers", "indices", "weights", "alias", "totals", "bits"):
            np.testing.assert_array_equal(getattr(kept, name), getattr(built, name))
        (tmp_path / "indices.npy").unlink(missing_ok=True)  # the second time nothing is read from the dataset


def test_a_slice_reads_its_part_alone(tmp_path):
    np.save(tmp_path / "values.npy", np.arange(1000, dtype=np.int32))
    file = Location.of(tmp_path / "values.npy")
    assert array_header(file) == (1000, np.dtype(np.int32))
    np.testing.assert_array_equal(read_slice(file, 10, 13, padding=2), [10, 11, 12, -1, -1])
    np.testing.assert_array_equal(read_slice(file, 997), [997, 998, 999])
    assert len(read_slice(file, 5, 5)) == 0
    with (tmp_path / "values.npy").open("r+b") as stream:
        stream.truncate(600)
    with pytest.raises(OSError, match="ended after"):
        read_slice(file)
