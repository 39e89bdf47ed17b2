"""Slots of edges pair the arcs of each edge."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.vertex.slots import edge_slots
from superworkflow.tasks.lib.vertex.transpose import transposed
from tests.tasks.lib.vertex.graphs import graph_of

EDGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60)


@settings(max_examples=40, deadline=None)
@given(edges=EDGES, size=st.integers(1, 20), directed=st.booleans())
def test_slots_pair_both_arcs_of_each_edge(edges: list[tuple[int, int]], size: int, directed: bool) -> None:
    matrix = graph_of(edges, size)
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    in_indptr, in_indices = transposed(indptr, indices, None)[:2] if directed else (None, indices)
    count, slots, in_slots = edge_slots(indptr, indices, in_indptr)
    sources = np.repeat(np.arange(size), np.diff(indptr))
    into = np.repeat(np.arange(size), np.diff(indptr if in_indptr is None else in_indptr))
    there = {(int(u), int(v)): int(slot) for u, v, slot in zip(sources, indices, slots, strict=True)}
    back = {(int(u), int(v)): int(slot) for u, v, slot in zip(in_indices, into, in_slots, strict=True)}
    assert count == (len(indices) if directed else len(indices) // 2)
    assert len(set(slots.tolist())) == len(indices)
    assert not len(slots) or slots.max() < 2 * count
    for (u, v), slot in there.items():
        assert (back[u, v] if directed else there[v, u]) == slot ^ 1


def test_an_arc_without_its_opposite_is_refused() -> None:
    with pytest.raises(UserError, match="in the row of one end only"):
        edge_slots(np.array([0, 1, 1]), np.array([1], np.int32), None)
