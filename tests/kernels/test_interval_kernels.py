"""The kernels of intervals of full-graph training, with guard zones, against counts by brute force."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.train_full.interval_kernels import (
    count_arcs,
    even_out,
    loads_of,
    rows_by_position,
)
from tests.kernels.test_whole_graph_kernels import GRAPHS, arcs_of


def loads_by_hand(counts: np.ndarray, labels: np.ndarray, intervals: int, crossing: bool) -> np.ndarray:
    """Arcs that receivers of each interval have, and those from elsewhere, or those of its senders."""
    found = np.zeros((intervals, 2), np.int64)
    for receiver, sender in np.argwhere(counts):
        arcs = int(counts[receiver, sender])
        found[labels[receiver], 0] += arcs
        found[labels[receiver if crossing else sender], 1] += arcs * (
            not crossing or labels[receiver] != labels[sender]
        )
    return found


@given(**GRAPHS, symmetric=st.booleans(), intervals=st.integers(1, 4), limit=st.sampled_from([0.0, 0.2]))
@settings(max_examples=60, deadline=None, print_blob=True)
def test_exchanges_keep_account_and_make_intervals_more_even(nodes, most, seed, symmetric, intervals, limit):
    """Also with loops and parallel arcs."""
    rng = np.random.default_rng(seed)
    starts, senders, counts = arcs_of(rng, nodes, most)
    if symmetric:
        counts = counts + counts.T
        starts = read_only(np.concatenate([[0], np.cumsum(counts.sum(1))]).astype(np.int64))
        senders = np.repeat(np.tile(np.arange(nodes), nodes), counts.reshape(-1).astype(int)).astype(np.int32)
        senders = read_only(senders)
    ways = np.zeros((nodes, 2), np.int64)
    is_symmetric = count_arcs(starts, senders, ways)
    assert is_symmetric == (counts == counts.T).all()
    assert ways.tolist() == np.stack([counts.sum(1), counts.sum(0)], 1).tolist()
    bounds = np.linspace(0, nodes, intervals + 1).astype(np.int64)
    order = rng.permutation(nodes).astype(np.int32)
    labels = np.empty(nodes, np.int32)
    labels[order] = np.repeat(np.arange(intervals), np.diff(bounds))
    loads = np.zeros((intervals, 2), np.int64)
    loads_of(starts, senders, ways, labels, is_symmetric, loads)
    before, given_order = loads_by_hand(counts, labels, intervals, is_symmetric), order.copy()
    assert loads.tolist() == before.tolist()
    moved = even_out(starts, senders, ways, bounds, order, labels, is_symmetric, loads, limit)
    assert sorted(order) == list(range(nodes))
    assert labels[order].tolist() == np.repeat(np.arange(intervals), np.diff(bounds)).tolist()
    after = loads_by_hand(counts, labels, intervals, is_symmetric)
    assert loads.tolist() == after.tolist()
    assert bool(moved) == bool((order != given_order).any())
    scales = np.maximum(before.mean(0), 1) ** 2
    assert ((after.var(0) / scales).sum() < (before.var(0) / scales).sum()) == bool(moved)


@given(**GRAPHS)
@settings(max_examples=20, deadline=None, print_blob=True)
def test_rows_by_position(nodes, most, seed):
    rng = np.random.default_rng(seed)
    starts, senders, counts = arcs_of(rng, nodes, most)
    order, positions = rng.permutation(nodes).astype(np.int32), np.empty(nodes, np.int32)
    positions[order] = np.arange(nodes)
    own = order[nodes // 3 :].copy()
    begins = np.concatenate([[0], np.cumsum(np.diff(starts)[own])]).astype(np.int64)
    out = np.empty(begins[-1], np.int32)
    rows_by_position(starts, senders, read_only(own), read_only(positions), begins, out)
    found = np.zeros((len(own), nodes))
    np.add.at(found, (np.repeat(np.arange(len(own)), np.diff(begins)), out), 1)
    assert (found == counts[own][:, order]).all()
    assert all((np.diff(out[begin:end]) >= 0).all() for begin, end in itertools.pairwise(begins))
