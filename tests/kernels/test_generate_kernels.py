"""The kernels of the generators of graphs, with guard zones; see `tests.kernels.guarded`."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.generators import communities as _generate_communities
from superworkflow.tasks.lib.generators import edge_lists, mag
from superworkflow.tasks.lib.kernels.permutation import key


@given(nodes=st.integers(2, 30), edges=st.integers(0, 150), start=st.sampled_from([0, 1, 1 << 40]),
       prefix=st.sampled_from([b"", b"v", b"node "]), seed=st.integers(0, 2**20))  # fmt: skip
@settings(max_examples=40, deadline=None, print_blob=True)
def test_edges_and_their_text(nodes, edges, start, prefix, seed):
    pairs = np.full((edges, 2), -1, np.int64)
    edge_lists._chung_lu_edges(pairs, start, nodes, key(seed, 1), 1 / 3, 1.5)
    assert ((pairs >= 0) & (pairs < nodes)).all()
    assert (pairs[:, 0] != pairs[:, 1]).all()
    every = nodes * (nodes - 1) // 2
    some = np.full((min(edges, every), 2), -1, np.int64)
    edge_lists._er_edges(some, 0, nodes, key(seed, 2))
    assert len({tuple(sorted(pair)) for pair in some.tolist()}) == len(some)
    # The longest numbers fill the room that each part has.
    pairs[::3] = np.iinfo(np.int64).max // 4
    text, lengths = edge_lists.format_pairs(pairs, np.frombuffer(prefix, np.uint8), ord(","))
    written = b"".join(part[:length].tobytes() for part, length in zip(text, lengths, strict=True))
    assert written == b"".join(b"%b%d,%b%d\n" % (prefix, u, prefix, v) for u, v in pairs.tolist())


@given(nodes=st.integers(4, 40), share=st.floats(0, 1), edges=st.integers(0, 90), width=st.integers(1, 9),
       first=st.integers(0, 30), covers=st.booleans(), weights=st.sampled_from([(1 / 3, 1.5), (1.0, 0.0)]),
       seed=st.integers(0, 2**20))  # fmt: skip
@settings(max_examples=40, deadline=None, print_blob=True)
def test_communities(nodes, share, edges, width, first, covers, weights, seed):
    unit = np.float32(2.0**-16)
    covered = nodes if covers else 0
    communities = 2 + int(share * (nodes // 2 - 2))
    ends = np.full((2, edges), -1, np.int64)
    names = key(seed, 1)
    _generate_communities._draw_edges(ends, first, covered, nodes, communities, share, key(seed, 2), names, *weights)
    assert len(set(ends[0].tolist())) >= min(edges, max(0, covered - first))
    assert ((ends >= 0) & (ends < nodes)).all()
    assert (ends[0] != ends[1]).all()
    first = min(first, nodes - 1)
    values, named = np.full((nodes - first, width), np.nan, np.float32), np.full((nodes - first, 2), -1, np.int64)
    _generate_communities._make_nodes(first, nodes, communities, names, key(seed, 3), 4000, unit, values, named)
    assert np.isfinite(values).all()
    assert len(set(named[:, 0].tolist())) == nodes - first
    assert ((named[:, 0] >= 0) & (named[:, 0] < nodes)).all()
    assert named[:, 1].tolist() == [rank % communities for rank in range(first, nodes)]


@given(
    drawers=st.integers(1, 40), drawn=st.integers(1, 40), total=st.integers(0, 200), block=st.sampled_from([1, 3, 64]),
    same=st.booleans(), first=st.integers(0, 5), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=40, deadline=None, print_blob=True)
def test_edges_are_drawn_from_all_there_are(drawers, drawn, total, block, same, first, seed):
    drawn, first = drawers if same else drawn, min(first, drawers - 1)
    degrees = np.empty(drawers - first, np.int64)
    mag._degrees(first, drawers, total, 0, 0.5, 1.0, key(seed, 1), degrees)
    assert degrees.min() >= 0
    assert degrees.sum() <= total
    if first == 0:
        assert degrees.sum() == total
    starts = np.concatenate([[0], np.cumsum(degrees)])
    ends = np.empty((2, starts[-1]), np.int64)
    places = ends[1].copy()
    mag._draw(first, drawers, drawn, starts, block, 0.7, 0.3, key(seed, 2), key(seed, 3), same, places)
    for i, degree in enumerate(degrees):
        mine = places[starts[i] : starts[i + 1]]
        assert ((mine >= 0) & (mine < drawn)).all()
        if degree < drawn:
            assert len(set(mine.tolist())) == degree
            assert not same or first + i not in mine
    ends[1] = places
    mag._name(first, drawers, starts, key(seed, 4), key(seed, 5), drawn, ends)
    assert len(set(ends[0].tolist())) == (degrees > 0).sum()
