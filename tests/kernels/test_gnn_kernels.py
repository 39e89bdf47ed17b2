"""The kernels of training, with guard zones; see `tests.kernels.guarded`."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.gnn.model import mean_kernels
from superworkflow.tasks.lib.gnn.model.concat import RowMeansPart, RowsPart
from superworkflow.tasks.lib.gnn.model.dropout import RowDropout
from superworkflow.tasks.lib.gnn.model.short_rows import numbers_of, tensor_of
from superworkflow.tasks.lib.gnn.sampler.kernels import (
    ALL_NEIGHBORS,
    Renumbered,
    compact,
    count_draws,
    draw_edges,
    enter,
    fill_masks,
    keys_of,
    leave,
    spread_edges,
    sum_edges,
)
from superworkflow.tasks.lib.gnn.sampler.time_draws import NO_LIMIT, Receivers, count_by_time, draw_by_time
from superworkflow.tasks.lib.gnn.sampler.weighted_kernels import (
    count_weighted,
    draw_by_weight,
    spread_weighted,
    sum_weighted,
)
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.float16 import as_read
from superworkflow.tasks.lib.kernels.transposed_products import by_tiles, multiply_transposed
from superworkflow.tasks.lib.subgraphs.draw import DrawScratch


def rounded(numbers: np.ndarray) -> np.ndarray:
    """Bits of bfloat16, by torch."""
    return numbers_of(torch.from_numpy(numbers).bfloat16())


def rows_of(rng: np.random.Generator, receivers: int, senders: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    lists = [np.sort(rng.integers(0, senders, rng.integers(0, most + 1))) for _ in range(receivers)]
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    indices = np.concatenate([*lists, np.empty(0)]).astype(np.int32)
    return read_only(indptr), read_only(indices)


@given(
    receivers=st.integers(1, 9), most=st.sampled_from([0, 1, 5, 200]),
    size=st.sampled_from([ALL_NEIGHBORS, 1, 2, 3, 40]), kinds=st.sampled_from([1, 3, 1000]),
    seed=st.integers(0, 2**32), share=st.sampled_from([0, 0.1, 0.9]), latest=st.booleans(), limited=st.booleans(),
    part=st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None, print_blob=True)
def test_draws_by_time(receivers, most, size, kinds, seed, share, latest, limited, part):
    """Draws of a whole graph, or of a part whose rows begin elsewhere in the whole, are those of a plain loop."""
    rng = np.random.default_rng(seed)
    indptr, indices = rows_of(rng, receivers, 70, most)
    least = np.iinfo(np.int64).max - kinds + 1
    times = read_only(rng.integers(0, kinds, len(indices)) + least)
    rows = rng.integers(0, receivers, rng.integers(0, 2 * receivers)).astype(np.int64)
    limits = rng.integers(-1, kinds, len(rows)) + least if limited else np.full(len(rows), NO_LIMIT)
    moved = 1000 * part + 10 * part * np.arange(receivers)
    whole = Renumbered(np.arange(70, dtype=np.int32), indptr[:-1] + moved) if part else None
    gone = np.flatnonzero(rng.random(len(indices)) < share)
    lost = read_only(gone + moved[np.searchsorted(indptr, gone, "right") - 1])
    starts, degrees = np.empty(len(rows) + 1, np.int64), np.empty(len(rows), np.int64)
    given_to = Receivers(read_only(rows), read_only(rows + 5), read_only(limits))
    count_by_time(indptr, times, given_to, size, lost, starts, degrees, whole)
    longest, drawn = int(np.diff(indptr).max(initial=0)), max(1, size)
    work = DrawScratch(np.zeros((longest >> 6) + 1, np.uint64), np.empty(drawn, np.int64), np.empty(drawn, np.int64))
    scratch, positions = (np.empty(longest, np.int64), np.empty(longest, np.int64)), np.empty(starts[-1], np.int64)
    draw_by_time(
        indptr, times, given_to, size, latest, np.uint64(seed), lost, starts, whole, work, scratch, positions
    )  # fmt: skip
    assert not work.marks.any()
    for i, row in enumerate(rows):
        free = [p for p in np.setdiff1d(np.arange(indptr[row], indptr[row + 1]), gone) if times[p] <= limits[i]]
        found = positions[starts[i] : starts[i + 1]] - moved[row]
        assert degrees[i] == len(free)
        if latest or size < 0 or len(free) <= size:
            wanted = sorted(free, key=lambda p: (times[p], p))[-size if size > 0 else 0 :]
            assert found.tolist() == sorted(wanted)
        else:
            assert len(found) == size
            assert (np.diff(found) > 0).all()
            assert np.isin(found, free).all()


@given(
    receivers=st.integers(1, 9), senders=st.integers(1, 70), most=st.sampled_from([0, 1, 5, 200]),
    size=st.sampled_from([ALL_NEIGHBORS, 1, 2, 3, 40]), labor=st.booleans(), seed=st.integers(0, 2**32),
    share=st.sampled_from([0, 0.1, 0.9]),
)  # fmt: skip
@settings(max_examples=25, deadline=None, print_blob=True)
def test_draws(receivers, senders, most, size, labor, seed, share):
    rng = np.random.default_rng(seed)
    indptr, indices = rows_of(rng, receivers, senders, most)
    nodes = rng.permutation(receivers)[: rng.integers(0, receivers + 1)].astype(np.int64)
    starts = np.empty(len(nodes) + 1, np.int64)
    lost = read_only(np.flatnonzero(rng.random(len(indices)) < share))
    count_draws(indptr, indices, nodes, size, labor, np.uint64(seed), lost, starts, None)
    positions = np.empty(starts[-1], np.int64)
    marks = np.zeros((int(np.diff(indptr).max(initial=0)) >> 6) + 1, np.uint64)
    draw_edges(indptr, indices, nodes, nodes, size, labor, np.uint64(seed), lost, starts, None, marks, positions)
    assert not marks.any()
    for i, node in enumerate(nodes):
        mine = positions[starts[i] : starts[i + 1]]
        gone = ((lost >= indptr[node]) & (lost < indptr[node + 1])).sum()
        degree = indptr[node + 1] - indptr[node] - gone
        assert not np.isin(mine, lost).any()
        assert (np.diff(mine) > 0).all()
        assert ((mine >= indptr[node]) & (mine < indptr[node + 1])).all()
        if size == ALL_NEIGHBORS or degree <= size:
            assert len(mine) == degree
        elif not labor:
            assert len(mine) == size
    places = np.full(senders, -1, np.int32)
    first = rng.permutation(senders)[: rng.integers(0, senders + 1)].astype(np.int64)
    frontier = np.empty(len(first) + len(positions), np.int64)
    frontier[: len(first)] = first
    enter(first, places)
    found = np.empty(len(positions), np.int32)
    distinct = compact(indices, positions, places, frontier, len(first), found)
    assert (frontier[found] == indices[positions]).all()
    assert len(set(frontier[:distinct].tolist())) == distinct
    leave(frontier[:distinct].copy(), places)
    assert (places == -1).all()


@given(
    receivers=st.integers(0, 7), senders=st.integers(1, 9), width=st.sampled_from([1, 3, 16, 17, 40]),
    seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=20, deadline=None, print_blob=True)
def test_sums_and_their_transpose(receivers, senders, width, seed):
    rng = np.random.default_rng(seed)
    indptr, indices = rows_of(rng, receivers, senders, 5)
    dense = np.zeros((receivers, senders))
    np.add.at(dense, (np.repeat(np.arange(receivers), np.diff(indptr)), indices), 1)
    values = rng.normal(size=(senders, width)).astype(np.float32)
    out = np.empty((receivers, width), np.float32)
    sum_edges(read_only(values), indptr, indices, out)
    assert out == pytest.approx(dense @ values, abs=1e-4)
    back = np.empty((senders, width), np.float32)
    spread_edges(read_only(out), indptr, indices, back)
    assert back == pytest.approx(dense.T @ out, abs=1e-3)


@given(
    receivers=st.integers(0, 7), senders=st.integers(1, 9), width=st.sampled_from([1, 16, 17, 40]),
    seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=15, deadline=None, print_blob=True)
def test_sums_by_weight_their_transpose_and_sums_of_float16(receivers, senders, width, seed):
    rng = np.random.default_rng(seed)
    indptr, indices = rows_of(rng, receivers, senders, 5)
    weights = rng.random(len(indices)).astype(np.float32)
    dense, counts = np.zeros((receivers, senders)), np.zeros((receivers, senders))
    ends = np.repeat(np.arange(receivers), np.diff(indptr)), indices
    np.add.at(dense, ends, weights)
    np.add.at(counts, ends, 1)
    values = (rng.normal(size=(senders, width)) * 10.0 ** rng.integers(-7, 3)).astype(np.float16)
    out = np.empty((receivers, width), np.float32)
    sum_edges(read_only(as_read(values)), indptr, indices, out)
    assert out == pytest.approx(counts @ values.astype(np.float64), rel=1e-5, abs=1e-3)
    sum_weighted(read_only(values.astype(np.float32)), indptr, indices, read_only(weights), out)
    assert out == pytest.approx(dense @ values.astype(np.float64), rel=1e-4, abs=1e-3)
    back = np.empty((senders, width), np.float32)
    spread_weighted(read_only(out), indptr, indices, read_only(weights), back)
    assert back == pytest.approx(dense.T @ out, rel=1e-4, abs=1e-2)


@given(
    receivers=st.integers(1, 9), most=st.sampled_from([0, 1, 5, 200]), size=st.sampled_from([1, 2, 40]),
    seed=st.integers(0, 2**32), share=st.sampled_from([0, 0.1, 0.9]),
)  # fmt: skip
@settings(max_examples=20, deadline=None, print_blob=True)
def test_draws_by_weight(receivers, most, size, seed, share):
    rng = np.random.default_rng(seed)
    indptr, indices = rows_of(rng, receivers, 70, most)
    nodes = rng.permutation(receivers)[: rng.integers(0, receivers + 1)].astype(np.int64)
    weights = rng.integers(0, 3, len(indices)).astype(np.float32)
    lost = read_only(np.flatnonzero(rng.random(len(indices)) < share))
    starts, longest = np.empty(len(nodes) + 1, np.int64), int(np.diff(indptr).max(initial=0))
    count_weighted(indptr, read_only(weights), nodes, size, lost, starts, None)
    positions = np.empty(starts[-1], np.int64)
    work = DrawScratch(np.zeros(1, np.uint64), np.empty(size, np.int64), np.empty(size, np.int64))
    left = np.empty(longest, np.float32)
    how = size, np.uint64(seed), lost, starts
    draw_by_weight(indptr, read_only(weights), nodes, nodes, *how, None, work, left, positions)
    there = weights > 0
    there[lost] = False
    for i, node in enumerate(nodes):
        mine = positions[starts[i] : starts[i + 1]]
        assert there[mine].all()
        assert (np.diff(mine) > 0).all()
        assert ((mine >= indptr[node]) & (mine < indptr[node + 1])).all()
        assert len(mine) == min(size, there[indptr[node] : indptr[node + 1]].sum())


@given(
    nodes=st.integers(1, 9), most=st.sampled_from([0, 1, 5, 200]), size=st.sampled_from([1, 2, 40]),
    seed=st.integers(0, 2**32), share=st.sampled_from([0, 0.1, 0.9]), by_weight=st.booleans(),
)  # fmt: skip
@settings(max_examples=25, deadline=None, print_blob=True)
def test_a_part_draws_what_the_whole_graph_does(nodes, most, size, seed, share, by_weight):
    """Its rows stand elsewhere, and name neighbours by new numbers."""
    rng = np.random.default_rng(seed)
    indptr, indices = rows_of(rng, nodes, 70, most)
    weights = read_only(rng.integers(0, 3, len(indices)).astype(np.float32))
    lost = read_only(np.flatnonzero(rng.random(len(indices)) < share))
    order = read_only(rng.permutation(70).astype(np.int32))
    mine = rng.permutation(nodes)[: rng.integers(1, nodes + 1)].astype(np.int64)
    counts = np.diff(indptr)[mine]
    starts = np.concatenate([[0], np.cumsum(counts)])
    edges = np.arange(starts[-1]) + np.repeat(indptr[mine] - starts[:-1], counts)
    renumbered = read_only(np.argsort(order).astype(np.int32)[indices[edges]])
    rows = rng.permutation(len(mine))[: rng.integers(0, len(mine) + 1)].astype(np.int64)
    part = Renumbered(order, read_only(indptr[mine]))
    longest = int(np.diff(indptr).max(initial=0))
    found = []
    for bounds, ends, heavy, where, by in (
        (indptr, indices, weights, mine[rows], None),
        (read_only(starts), renumbered, read_only(weights[edges]), rows, part),
    ):
        begins, receivers = np.empty(len(rows) + 1, np.int64), read_only(mine[rows])
        if by_weight:
            count_weighted(bounds, heavy, where, size, lost, begins, by)
            positions = np.empty(begins[-1], np.int64)
            work = DrawScratch(np.zeros(1, np.uint64), np.empty(size, np.int64), np.empty(size, np.int64))
            how = size, np.uint64(seed), lost, begins, by, work, np.empty(longest, np.float32)
            draw_by_weight(bounds, heavy, where, receivers, *how, positions)
        else:
            how = size, False, np.uint64(seed), lost, begins, by
            count_draws(bounds, ends, where, *how)
            positions = np.empty(begins[-1], np.int64)
            draw_edges(bounds, ends, where, receivers, *how, np.zeros((longest >> 6) + 1, np.uint64), positions)
        found.append((begins.tolist(), positions.tolist()))
    assert found[0] == found[1]


@given(
    rows=st.integers(0, 9), width=st.integers(1, 21), dropped=st.sampled_from([1, 6554, 32768, 62259]),
    seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=20, deadline=None, print_blob=True)
def test_masks_are_the_items_own(rows, width, dropped, seed):
    numbers = np.random.default_rng(seed).permutation(50)[:rows].astype(np.int64)
    mask = np.empty((rows, width), np.float32)
    fill_masks(numbers, dropped, np.uint64(seed), mask)
    scale = np.float32(65536 / (65536 - dropped))
    assert np.isin(mask, [0, scale]).all()
    again = np.empty((rows, width), np.float32)
    fill_masks(numbers[::-1].copy(), dropped, np.uint64(seed), again)
    assert (again[::-1] == mask).all()


def test_masks_drop_the_share_that_is_asked_for():
    mask = np.empty((2000, 50), np.float32)
    fill_masks(np.arange(2000), 19661, np.uint64(7), mask)
    assert (mask == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert mask.mean() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("labor", [False, True])
def test_each_neighbour_is_drawn_as_often(labor):
    """Three of 12 neighbours (and 3 lost ones): in 1,200 draws each is drawn a quarter of the time; chi-square, 11
    degrees of freedom.
    """
    indptr, indices = read_only(np.array([0, 15], np.int64)), read_only(np.arange(15, dtype=np.int32))
    lost = read_only(np.array([0, 7, 8]))
    counts, marks, node = np.zeros(15), np.zeros(1, np.uint64), np.zeros(1, np.int64)
    keys = np.empty(1200, np.uint64)
    keys_of(np.arange(1200), np.uint64(5), keys)
    for state in keys:
        starts = np.empty(2, np.int64)
        count_draws(indptr, indices, node, 3, labor, state, lost, starts, None)
        positions = np.empty(starts[-1], np.int64)
        draw_edges(indptr, indices, node, node, 3, labor, state, lost, starts, None, marks, positions)
        counts[positions] += 1
    assert not counts[lost].any()
    counts = np.delete(counts, lost)
    spread = ((counts - 300) ** 2 / (300 * 0.75)).sum()
    assert spread < 31  # 0.1%


@given(
    receivers=st.integers(0, 7), more=st.integers(1, 9), width=st.sampled_from([1, 3, 16, 17, 40]),
    dropped=st.sampled_from([0, 32768]), column=st.sampled_from([0, 5]), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=20, deadline=None, print_blob=True)
def test_means_and_their_transpose(receivers, more, width, dropped, column, seed):
    """From a table, from rows, and what a dense matrix of shares makes of them."""
    rng, senders = np.random.default_rng(seed), receivers + more
    starts, indices = rows_of(rng, receivers, senders, 9)
    table = rng.normal(size=(senders, width)).astype(np.float32)
    mask = np.ones_like(table)
    if dropped:
        fill_masks(np.arange(senders), dropped, np.uint64(seed), mask)
    dense = np.zeros((receivers, senders))
    np.add.at(dense, (np.repeat(np.arange(receivers), np.diff(starts)), indices), 1)
    dense /= np.maximum(1, dense.sum(1, keepdims=True))
    out = np.full((receivers, column + width + 1), 7, np.float32)
    positions, nodes = read_only(np.arange(len(indices))), read_only(rng.permutation(senders)[:receivers])
    given = dropped, np.uint64(seed), out, column
    mean_kernels.gather_means(read_only(table), indices, positions, starts, *given)
    assert out[:, column : column + width] == pytest.approx(dense @ (table * mask), abs=1e-5)
    mean_kernels.gather_rows(read_only(table), nodes, *given)
    assert (out[:, column : column + width] == (table * mask)[nodes]).all()
    half, found = table.astype(np.float16), out.copy()
    RowsPart(half, nodes, RowDropout(dropped, seed)).fill(found, column)
    np.testing.assert_array_equal(found[:, column : column + width], (half.astype(np.float32) * mask)[nodes])
    for values, rows in ((half, found), (half.astype(np.float32), out)):
        RowMeansPart(values, indices, positions, starts, RowDropout(dropped, seed)).fill(rows, column)
    np.testing.assert_array_equal(found, out)
    mean_kernels.mean_rows(read_only(table), starts, indices, out, column)
    assert out[:, column : column + width] == pytest.approx(dense @ table, abs=1e-5)
    assert (np.delete(out, np.s_[column : column + width], 1) == 7).all()
    begins, ends = np.zeros(senders + 2, np.int64), np.empty(len(indices), np.int32)
    mean_kernels.transpose(starts, indices, begins, ends)
    ends_of = starts, read_only(begins), read_only(ends)
    mine = out[:, column : column + width]
    for own in (column, -1):
        back = np.empty((senders, width), np.float32)
        mean_kernels.spread_back(read_only(out), own, column, *ends_of, read_only(table[:0]), False, back)
        wanted = dense.T @ mine
        wanted[:receivers] += mine if own == column else 0
        assert back == pytest.approx(wanted, abs=1e-4)
        kept = back.copy()
        mean_kernels.spread_back(read_only(out), own, column, *ends_of, read_only(table), True, kept)
        assert kept == pytest.approx(np.where(table > 0, back + wanted, 0), abs=1e-4)
    nowhere = read_only(np.zeros(1, np.int64)), read_only(np.zeros(senders + 2, np.int64)), read_only(ends[:0])
    mean_kernels.spread_back(read_only(out), column, 0, *nowhere, read_only(table), False, kept)
    assert (kept[:receivers] == np.where(table[:receivers] > 0, mine, 0)).all()
    assert not kept[receivers:].any()


@given(
    receivers=st.integers(0, 200), more=st.integers(1, 9), width=st.sampled_from([1, 16, 17, 130]),
    dropped=st.sampled_from([0, 32768]), column=st.sampled_from([0, 5]), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=20, deadline=None, print_blob=True)
def test_rows_of_bfloat16(receivers, more, width, dropped, column, seed):
    """Results in bfloat16 are those in float32, rounded; rows of bfloat16 are read without loss."""
    rng, senders = np.random.default_rng(seed), receivers + more
    starts, indices = rows_of(rng, receivers, senders, 9)
    positions, nodes = read_only(np.arange(len(indices))), read_only(rng.permutation(senders)[:receivers])
    table = rng.normal(size=(senders, width)).astype(np.float32)
    short = rounded(table)
    given = dropped, np.uint64(seed)
    shape = receivers, column + width + 1
    calls = [
        (mean_kernels.gather_rows, (read_only(table), nodes, *given)),
        (mean_kernels.gather_means, (read_only(table), indices, positions, starts, *given)),
        (mean_kernels.gather_means, (read_only(as_read(table.astype(np.float16))), indices, positions, starts, *given)),
        (mean_kernels.mean_rows, (read_only(short), starts, indices)),
    ]
    for kernel, taken in calls:
        long, found = np.full(shape, 7, np.float32), np.full(shape, 7, np.int16)
        kernel(*taken, long, column)
        kernel(*taken, found, column)
        filled = np.s_[:, column : column + width]
        np.testing.assert_array_equal(found[filled], rounded(long[filled].copy()))
        assert (np.delete(found, np.s_[column : column + width], 1) == 7).all()
    wide = tensor_of(short).float().numpy()
    mean_kernels.mean_rows(read_only(wide), starts, indices, again := np.full(shape, 7, np.float32), column)
    np.testing.assert_array_equal(again, long)
    begins, ends = np.zeros(senders + 2, np.int64), np.empty(len(indices), np.int32)
    mean_kernels.transpose(starts, indices, begins, ends)
    ends_of = starts, read_only(begins), read_only(ends)
    long = tensor_of(found).float().numpy()
    for own in (column, -1):
        wanted, made = (np.empty((senders, width), kind) for kind in (np.float32, np.int16))
        for more_of in (False, True):
            mean_kernels.spread_back(read_only(long), own, column, *ends_of, read_only(wide), more_of, wanted)
            mean_kernels.spread_back(read_only(found), own, column, *ends_of, read_only(short), more_of, made)
            np.testing.assert_array_equal(made, rounded(wanted))
            wanted = tensor_of(made).float().numpy()


@pytest.mark.skipif(not by_tiles(), reason="this processor has no tiles")
@given(
    rows=st.sampled_from([0, 1, 31, 32, 33, 257, 600]), width=st.sampled_from([1, 16, 31, 32, 100]),
    columns=st.sampled_from([1, 33, 64, 200]), threads=st.integers(1, 3), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=20, deadline=None, print_blob=True)
def test_transposed_products(rows, width, columns, threads, seed):
    rng = np.random.default_rng(seed)
    left, right = (rounded(rng.normal(size=(rows, each)).astype(np.float32)) for each in (width, columns))
    one, other = (tensor_of(each).double().numpy() for each in (left, right))
    out, sums = np.full((threads, width, columns), 7, np.float32), np.full((threads, width), 7, np.float32)
    multiply_transposed(read_only(left), read_only(right), out, sums)
    assert out.sum(0) == pytest.approx(one.T @ other, abs=1e-3)
    assert sums.sum(0) == pytest.approx(one.sum(0), abs=1e-3)
