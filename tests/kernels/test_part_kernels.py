"""The kernels of workers that have a part of a graph, with guard zones; see `tests.kernels.guarded`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.distributed.kv_store import RemoteRows, TableSource
from superworkflow.tasks.lib.distributed.partition_book import PartitionBook
from superworkflow.tasks.lib.gnn.distributed.edge_split import divided
from superworkflow.tasks.lib.gnn.distributed.feature_window import WindowRows
from superworkflow.tasks.lib.gnn.distributed.kernels import place_edges, place_in_rows, rename
from superworkflow.tasks.lib.gnn.distributed.partial_sums import PartialSumSource
from superworkflow.tasks.lib.gnn.model.concat import RowMeansPart, RowsPart
from superworkflow.tasks.lib.gnn.model.dropout import NOTHING, RowDropout
from superworkflow.tasks.lib.gnn.model.remote_rows import RemoteRowsPart, RowTable, SharedMeansPart
from superworkflow.tasks.lib.kernels.arrays import read_only
from tests.kernels.test_gnn_kernels import rounded, rows_of

widths = st.sampled_from([1, 3, 16, 17, 40])


class Divided(NamedTuple):
    """Nodes that workers own: old numbers of the new ones, and new numbers at which each worker's begin."""

    order: np.ndarray
    bounds: np.ndarray

    @classmethod
    def random(cls, rng: np.random.Generator, nodes: int, workers: int) -> Divided:
        """Some workers may have none."""
        cuts = np.sort(rng.integers(0, nodes + 1, workers - 1))
        return cls(rng.permutation(nodes).astype(np.int32), np.concatenate([[0], cuts, [nodes]]))

    def own(self, rank: int) -> np.ndarray:
        return self.order[self.bounds[rank] : self.bounds[rank + 1]]


@given(
    nodes=st.integers(1, 60), workers=st.integers(1, 4), width=widths, dropped=st.sampled_from([0, 32768]),
    column=st.sampled_from([0, 5]), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=25, deadline=None, print_blob=True)
def test_rows_of_a_window_are_those_of_its_nodes_and_others_are_asked_for_once(
    nodes, workers, width, dropped, column, seed
):
    rng = np.random.default_rng(seed)
    table, split = rng.random((nodes, width), np.float32), Divided.random(rng, nodes, workers)
    rank, found = int(rng.integers(workers)), np.full(nodes, -1, np.int32)
    lists = [rng.choice(nodes, size, replace=False).astype(np.int64) for size in rng.integers(0, nodes + 1, 3)]
    book = PartitionBook({"n": split.order}, {"n": split.bounds})
    window = WindowRows(book, rank, "n", lists, found)
    assert sorted(window.remote) == sorted(set(np.concatenate(lists).tolist()) - set(split.own(rank).tolist()))
    assert (found == -1).all()
    values = [np.empty(0, np.float32)]
    for other in range(workers):  # what each owner answers; the order of the questions is that of the answers here
        mine = window.remote[np.isin(window.remote, split.own(other))]
        source = TableSource(book, "n", other, table[split.own(other)])
        values.append(np.empty(source.count(mine) * source.width, np.float32))
        if other != rank:
            source.write(mine, values[-1])
    begins = np.empty(len(window.remote), np.int64)
    begins[np.argsort(book.owners("n", window.remote), kind="stable")] = width * np.arange(len(begins))
    mask, out = RowDropout(dropped, seed), np.full((nodes, column + width + 1), 7, np.float32)
    for each, where in zip(lists, window.of_batches(~begins), strict=True):
        near = RemoteRows(table[split.own(rank)], np.concatenate(values), where)
        np.testing.assert_array_equal(near.rows(), table[each])
        whole = RowTable(each, near)
        np.testing.assert_array_equal(whole[each], table[each])
        np.testing.assert_array_equal(whole[each[::-2]], table[each[::-2]])
        wanted, some = out.copy(), each[: len(each) // 2]
        RowsPart(table, some, mask).fill(wanted[: len(some)], column)
        whole.fixed(some, mask).fill(out[: len(some)], column)
        np.testing.assert_array_equal(out, wanted)
        short, filled = np.zeros((len(some), out.shape[1]), np.int16), np.s_[: len(some), column : column + width]
        whole.fixed(some, mask).fill(short, column)
        np.testing.assert_array_equal(short[filled], rounded(out[filled].copy()))
        assert RemoteRowsPart(near, each, mask).width == width


@given(
    nodes=st.integers(1, 60), receivers=st.integers(0, 9), most=st.sampled_from([0, 1, 5, 40]),
    workers=st.integers(1, 4), width=widths, dropped=st.sampled_from([0, 32768]), column=st.sampled_from([0, 5]),
    seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=40, deadline=None, print_blob=True)
def test_means_to_which_owners_add_their_shares(nodes, receivers, most, workers, width, dropped, column, seed):
    """They are those of the whole table, and of one worker with the same bits."""
    rng = np.random.default_rng(seed)
    table, split = rng.random((nodes, width), np.float32), Divided.random(rng, nodes, workers)
    starts, senders = rows_of(rng, receivers, nodes, most)
    mask, out = RowDropout(dropped, seed), np.full((receivers, column + width + 1), 7, np.float32)
    wanted = out.copy()
    RowMeansPart(table, split.order, senders.astype(np.int64), starts, mask).fill(wanted, column)
    tables = [table[split.own(rank)] for rank in range(workers)]
    for rank in range(workers):
        edges = divided("n", starts, senders.astype(np.int64), split.bounds, rank, np.empty)
        order, counts = edges.remote.route
        assert counts[rank] == len(edges.remote.parts[rank]) == 0
        values = [np.empty(0, np.float32)]
        for other, requested in enumerate(edges.remote.parts):
            source = PartialSumSource(tables[other], int(split.bounds[other]), split.own(other), mask)
            assert source.count(requested) == counts[other]
            values.append(np.empty(source.count(requested) * width, np.float32))
            if len(requested):
                source.write(requested, values[-1])
        where = np.empty(len(order), np.int64)
        where[order] = ~(width * np.arange(len(order)))
        means = SharedMeansPart(tables[rank], split.own(rank), edges.own_starts, edges.own, np.concatenate(values),
                            edges.sum_starts, where, starts)  # fmt: skip
        assert means.width == width
        means._replace(dropped=mask).fill(out, column)
        np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)
        short, filled = np.zeros(out.shape, np.int16), np.s_[:, column : column + width]
        means._replace(dropped=mask).fill(short, column)
        np.testing.assert_array_equal(short[filled], rounded(out[filled].copy()))
        if workers == 1:
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("requested", [[~4], [~10], [~5, 10], [7], [~5, 4]])
def test_what_is_asked_of_another_worker_is_refused(requested):
    """It has the nodes with the new numbers 5 to 9."""
    table, out = np.zeros((5, 3), np.float32), np.zeros(3, np.float32)
    with pytest.raises(IndexError, match="requested"):
        PartialSumSource(table, 5, np.arange(5), NOTHING).write(read_only(np.array(requested)), out)
    book = PartitionBook({"n": np.arange(12)}, {"n": np.array([0, 5, 10, 12])})
    for node in (4, 10):
        with pytest.raises(IndexError, match="requested"):
            TableSource(book, "n", 1, table).write(np.array([node]), out)


@given(receivers=st.integers(0, 9), most=st.sampled_from([0, 1, 5]), seed=st.integers(0, 2**20))
@settings(max_examples=25, deadline=None, print_blob=True)
def test_drawn_edges_are_named_and_put_in_place(receivers, most, seed):
    rng = np.random.default_rng(seed)
    indptr, indices = rows_of(rng, 12, 20, most + 2)
    rows = rng.choice(12, receivers, replace=False)
    begins = read_only(indptr[:-1] + 100 * rng.integers(0, 9, 12))
    places = [np.sort(rng.choice(np.arange(indptr[row], indptr[row + 1]), min(most, indptr[row + 1] - indptr[row]),
                                 replace=False)) for row in rows]  # fmt: skip
    starts = np.concatenate([[0], np.cumsum([len(each) for each in places])]).astype(np.int64)
    wanted = np.concatenate([*places, np.empty(0)]).astype(np.int64)
    positions = wanted + np.repeat(begins[rows] - indptr[rows], np.diff(starts))
    found = np.empty(len(wanted), np.int64)
    place_in_rows(indptr, rows, begins, starts, positions, found)
    np.testing.assert_array_equal(found, wanted)
    rename(indices, found)
    np.testing.assert_array_equal(found, indices[wanted])
    out, half = np.full(len(found), -1, np.int64), rng.permutation(receivers)
    for some in np.array_split(half, 2):
        values = [found[starts[i] : starts[i + 1]] for i in some]
        place_edges(some, starts, read_only(np.concatenate([*values, np.empty(0, np.int64)])), out)
    np.testing.assert_array_equal(out, found)
