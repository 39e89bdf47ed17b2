"""Members of elastic roles that serve ranks: shares by what ranks want, and as few moves as there may be."""

import numpy as np
import pytest

from superworkflow.infra.engines.workers.assignment import assigned


@pytest.mark.parametrize(
    ("wanted", "serving", "found"),
    [
        ({}, ["", "a"], ["", ""]),
        ({"a": 2}, ["", ""], ["a", "a"]),
        ({"a": 2}, ["", "", ""], ["a", "a", ""]),
        ({"a": 1}, ["a", "a"], ["a", "a"]),
        ({"a": 2, "b": 2}, ["", "a"], ["b", "a"]),
        ({"a": 4, "b": 2}, ["b", "b", "b"], ["b", "a", "a"]),
        ({"b": 3}, ["a", "b", "a"], ["b", "b", "b"]),
        ({"a": 3, "b": 3}, [""], ["a"]),
    ],
)
def test_assignments(wanted, serving, found):
    assert assigned(wanted, serving) == found


def test_shares_are_in_proportion_and_no_member_moves_twice():
    rng = np.random.default_rng(1)
    for _ in range(300):
        wanted = {f"tcp://{i}": int(count) for i, count in enumerate(rng.integers(1, 9, rng.integers(1, 5)))}
        serving = [f"tcp://{i}" if i < 5 else "" for i in rng.integers(0, 7, rng.integers(0, 20))]
        found = assigned(wanted, serving)
        assert assigned(wanted, found) == found
        there = min(len(serving), sum(wanted.values()))
        for address, count in wanted.items():
            exact = there * count / sum(wanted.values())
            assert found.count(address) > exact - 1
            assert found.count(address) < exact + 1 or serving.count(address) > exact
