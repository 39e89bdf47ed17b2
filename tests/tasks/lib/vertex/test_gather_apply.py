"""Gather, apply and scatter are the update that a loop over them is, and programs name one way or the other."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.vertex.gather_apply import BLOCK
from superworkflow.tasks.lib.vertex.program import ProgramParams, VertexProgram
from superworkflow.tasks.lib.vertex.run import ChromaticEngine
from tests.tasks.lib.vertex.graphs import coloured


def begin(scope: Any, params: Any) -> None:
    scope.level = 1.0 / (scope.vertex + 1)


def flowing(scope: Any, other: Any, weight: Any, params: Any) -> float:
    return float(other.level * weight)


def settle(scope: Any, total: float, params: Any) -> float:
    level = 0.3 * total + scope.step
    change: float = abs(level - scope.level)
    scope.level = level
    return change


def behind(scope: Any, other: Any, params: Any) -> float:
    return 1.0 if other.vertex % 3 else 0.0


def in_one(scope: Any, params: Any) -> float:
    total, part = 0.0, 0.0
    for i in range(scope.in_degree):
        part += scope.in_neighbour(i).level * scope.in_weight(i)
        if (i + 1) % BLOCK == 0:
            total += part
            part = 0.0
    level = 0.3 * (total + part) + scope.step
    change: float = abs(level - scope.level)
    scope.level = level
    for i in range(scope.out_degree):
        if scope.neighbour(i).vertex % 3:
            scope.signal(scope.neighbour(i))
    return change


def test_equals_one_update() -> None:
    """On a directed graph with weights, and a hub of two blocks of in-neighbours."""
    rng, size = np.random.default_rng(4), 2 * BLOCK - 100
    ends = np.concatenate([rng.integers(0, size, (2, 3 * size)), [np.arange(1, size), np.zeros(size - 1, np.int64)]], 1)
    rows, columns = ends[:, ends[0] != ends[1]]
    matrix = sp.csr_array((rng.random(len(rows)).astype(np.float32), (rows, columns)), shape=(size, size))
    graph = coloured(matrix, 1, directed=True, weighted=True)
    fields, params = {"level": "float64"}, ProgramParams(scheduler="fifo", max_steps=4)
    parts = VertexProgram("flow", fields, init=begin, gather=flowing, apply=settle, scatter=behind)
    found = ChromaticEngine(parts, params, graph, 2).run()
    wanted = ChromaticEngine(VertexProgram("flow", fields, in_one, begin), params, graph).run()
    assert found.fields["level"].tobytes() == wanted.fields["level"].tobytes()
    assert found.trace == wanted.trace
    assert 0 < found.trace[1]["updates"] < size


@pytest.mark.parametrize("given", [
    {}, {"gather": flowing}, {"apply": settle}, {"scatter": behind}, {"update": in_one, "gather": flowing},
])  # fmt: skip
def test_refuses_half_a_program(given: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="either update, or gather and apply"):
        VertexProgram("flow", {"level": "float64"}, **given)
