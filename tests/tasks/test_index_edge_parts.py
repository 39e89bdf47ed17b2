"""Numbers of vertices and blocks of rows that follow from counts of degrees."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from superworkflow.tasks.index.edge_parts import Degrees, cut_blocks, first_numbers


@given(st.lists(st.dictionaries(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=4))
def test_numbers_are_by_degree_then_range_then_place(ranges: list[dict[int, int]]) -> None:
    found = [
        Degrees(np.array(sorted(each), np.int64), np.array([each[d] for d in sorted(each)], np.int64), 0, 0)
        for each in ranges
    ]
    every = sorted(((-d, place) for place, each in enumerate(ranges) for d, n in each.items() for _ in range(n)))
    for place, (each, firsts) in enumerate(zip(ranges, first_numbers(found), strict=True)):
        assert firsts.tolist() == [every.index((-degree, place)) for degree in sorted(each)]
    if every:
        cut = cut_blocks(found, 20, 6)
        assert [cut[0], cut[-1]] == [0, len(every)]
        assert (np.diff(cut) <= 7).all()
