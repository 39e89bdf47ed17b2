"""Orders of vertices: even intervals, those of few exchanges, and intervals along parts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.train_full.vertex_order import LIMIT, Parts, VertexOrder, even_order, plain_order


def rows_of(receivers: np.ndarray, senders: np.ndarray, vertices: int) -> CsrRows:
    """Rows of arcs, each once."""
    pairs = np.unique(receivers.astype(np.int64) * vertices + senders)
    starts = np.concatenate([[0], np.cumsum(np.bincount(pairs // vertices, minlength=vertices))]).astype(np.int64)
    return CsrRows(read_only(starts), read_only((pairs % vertices).astype(np.int32)))


def both_ways(one: np.ndarray, other: np.ndarray, vertices: int) -> CsrRows:
    return rows_of(np.concatenate([one, other]), np.concatenate([other, one]), vertices)


def drawn(rng: np.random.Generator, vertices: int, symmetric: bool, sort: bool) -> CsrRows:
    """A graph of which some vertices have many times the arcs of others, first or last; none has most of an interval's.

    One that is not symmetric has most receivers where there are least senders.
    """
    shares = np.minimum(rng.pareto(1.5, vertices) + 1, 20)
    shares = np.sort(shares) if sort else shares
    one = rng.choice(vertices, 12 * vertices, p=shares / shares.sum())
    other = rng.choice(vertices, 12 * vertices, p=shares[::-1] / shares.sum())
    return both_ways(one, other, vertices) if symmetric else rows_of(one, other, vertices)


def measures(rows: CsrRows, order: VertexOrder) -> np.ndarray:
    """Arcs of each interval forwards, back, and from others: [intervals, 3]."""
    vertices = len(rows.indptr) - 1
    receivers = order.numbers_of(np.repeat(np.arange(vertices), np.diff(rows.indptr)))
    senders = order.numbers_of(rows.indices.astype(np.int64))
    ways = [receivers, senders, receivers[receivers != senders]]
    return np.stack([np.bincount(each, minlength=len(order.intervals)) for each in ways], 1)


def away(found: np.ndarray) -> np.ndarray:
    """Distance of the farthest interval from the mean of each measure, as a share of it."""
    mean = found.mean(0)
    return np.abs(found - mean).max(0) / np.maximum(mean, 1)


def check(order: VertexOrder, vertices: int) -> None:
    """Each vertex has one position, and all ways to ask for it agree."""
    everyone = np.arange(vertices)
    by_position = order.between(0, vertices)
    assert sorted(by_position.tolist()) == everyone.tolist()
    assert (order.vertices_of(everyone) == by_position).all()
    assert (order.positions_of(by_position.astype(np.int64)) == everyone).all()
    assert [(each.first, each.last) for each in order.intervals] == [*itertools.pairwise(order.bounds.tolist())]
    for each in order.intervals:
        own = order.between(each.first, each.last).astype(np.int64)
        assert (order.numbers_of(own) == each.number).all()
        assert len(own)


@given(
    vertices=st.integers(500, 900), intervals=st.integers(1, 12), symmetric=st.booleans(), sort=st.booleans(),
    seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=40, deadline=None, print_blob=True)
def test_intervals_are_even(vertices, intervals, symmetric, sort, seed):
    rows = drawn(np.random.default_rng(seed), vertices, symmetric, sort)
    order, read = even_order(rows, intervals), 3 if symmetric else 2
    check(order, vertices)
    assert len(order.intervals) == intervals
    sizes = np.diff(order.bounds)
    assert sizes.max() - sizes.min() <= 1
    assert (away(measures(rows, order))[:read] <= LIMIT).all()
    before = away(measures(rows, plain_order(vertices, intervals)))[:read]
    assert bool(len(order.vertices)) == bool((before > LIMIT).any())
    for first, last in itertools.pairwise(order.bounds.tolist()):
        assert (np.diff(order.between(first, last)) > 0).all()
    again = even_order(rows, intervals)
    assert (again.vertices == order.vertices).all()


def test_few_vertices_change_places():
    """A ring stays as it is; of one with a few hubs only these and as many others move."""
    ring = np.arange(1000)
    assert not len(even_order(both_ways(ring, (ring + 1) % 1000, 1000), 8).vertices)
    hubs, leaves = np.repeat(np.arange(8), 400), np.random.default_rng(1).integers(8, 1000, 3200)
    rows = both_ways(np.concatenate([ring, hubs]), np.concatenate([(ring + 1) % 1000, leaves]), 1000)
    order = even_order(rows, 8)
    assert sorted(order.numbers_of(np.arange(8)).tolist()) == [*range(8)]
    assert (order.numbers_of(ring) != plain_order(1000, 8).numbers_of(ring)).sum() < 200


@pytest.mark.parametrize("hubs", [1, 3])
def test_hubs_that_are_too_large_for_an_interval(hubs):
    """They come into different intervals, and the others stay nearly as even as those can be."""
    vertices = 800
    leaves = np.tile(np.arange(hubs, vertices), hubs)
    rows = both_ways(np.repeat(np.arange(hubs), vertices - hubs), leaves, vertices)
    order = even_order(rows, 8)
    check(order, vertices)
    own = order.numbers_of(np.arange(hubs))
    assert len(set(own.tolist())) == hubs
    rest = np.delete(measures(rows, order)[:, 0], own)
    assert rest.max() - rest.min() <= LIMIT * rest.mean()


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=9).filter(sum), intervals=st.integers(1, 20),
    symmetric=st.booleans(), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=60, deadline=None, print_blob=True)
def test_intervals_along_parts(sizes, intervals, symmetric, seed):
    """Parts are one after the other, each interval has its share of as few as can be, and no vertex leaves its part."""
    rng, vertices = np.random.default_rng(seed), sum(sizes)
    rows = drawn(rng, vertices, symmetric, True)
    book = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    part_of = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    parts = Parts(np.argsort(part_of, kind="stable"), book)
    order = even_order(rows, intervals, parts)
    check(order, vertices)
    assert (np.diff(part_of[order.between(0, vertices)]) >= 0).all()
    count = len(order.intervals)
    assert count == min(intervals, vertices)
    shares = np.interp(np.arange(count + 1) * len(sizes) / count, np.arange(len(sizes) + 1), book)
    assert (np.abs(order.bounds - shares) < 1).all() or (np.diff(np.floor(shares)) < 1).any()


def test_vertices_are_exchanged_within_a_part():
    """Two parts of four intervals each: even intervals in each part, but not parts that are not."""
    rng = np.random.default_rng(3)
    one = drawn(rng, 600, True, True)
    ends = np.repeat(np.arange(600), np.diff(one.indptr))
    denser = both_ways(rng.integers(600, 1200, 20_000), rng.integers(600, 1200, 20_000), 1200)
    more = np.repeat(np.arange(1200), np.diff(denser.indptr))
    rows = both_ways(np.concatenate([ends, more]), np.concatenate([one.indices, denser.indices]), 1200)
    order = even_order(rows, 8, Parts(np.arange(1200), np.array([0, 600, 1200])))
    found = measures(rows, order)
    assert max(away(found[:4])[0], away(found[4:])[0]) <= LIMIT
    assert away(found)[0] > LIMIT
    assert (order.numbers_of(np.arange(600)) < 4).all()
