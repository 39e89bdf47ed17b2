"""Splashes: blocks are connected and coloured, runs equal a plain loop over their trees, a chain takes 2n updates."""

import dataclasses
import itertools
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.bp.program import PROGRAM as BP
from superworkflow.tasks.bp.program import BpParams
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.components import STAGE as COMPONENTS
from superworkflow.tasks.index import STAGE as INDEX
from superworkflow.tasks.lib.vertex.blocks import coloured_blocks, conflict
from superworkflow.tasks.lib.vertex.program import DISTANCES, ProgramParams, VertexProgram
from superworkflow.tasks.lib.vertex.run import ChromaticEngine, Coloured
from superworkflow.tasks.lib.vertex.transpose import transposed
from tests.tasks.index_helpers import run_stage
from tests.tasks.lib.vertex.graphs import NONE, coloured, graph_of
from tests.tasks.lib.vertex.test_engine import PROGRAMS, Plain, _large_graph, start
from tests.tasks.test_lattice import grid

EDGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=80)


def in_blocks(graph: Coloured, size: int, distance: int) -> Coloured:
    into = transposed(graph.indptr, graph.indices, None)[:2] if graph.directed else NONE
    colours, count, order, blocks = coloured_blocks(graph.indptr, graph.indices, *into, size, distance)
    block = np.empty(len(order), np.int32)
    block[order] = np.repeat(np.arange(len(blocks) - 1), np.diff(blocks))
    assert conflict(graph.indptr, graph.indices, *into, distance, colours, block) == -1
    bounds = np.concatenate([[0], np.cumsum(np.bincount(colours, minlength=count))]).astype(np.int64)
    return dataclasses.replace(graph, order=order, bounds=bounds, blocks=blocks)


@settings(max_examples=40, deadline=None)
@given(edges=EDGES, size=st.integers(1, 30), most=st.integers(1, 9), distance=st.integers(0, 2), directed=st.booleans())
def test_blocks(edges: list[tuple[int, int]], size: int, most: int, distance: int, directed: bool) -> None:
    matrix = graph_of(edges, size)
    graph = coloured(sp.csr_array(sp.triu(matrix)) if directed else matrix, distance, directed)
    made = in_blocks(graph, most, distance)
    assert made.blocks is not None
    assert np.diff(made.blocks).max() <= most
    assert np.sort(made.order).tolist() == list(range(size))
    near = matrix + matrix @ matrix if distance == 2 else matrix
    colour, block = np.empty(size, int), np.empty(size, int)
    colour[made.order] = np.repeat(np.arange(len(made.bounds) - 1), np.diff(made.bounds))
    block[made.order] = np.repeat(np.arange(len(made.blocks) - 1), np.diff(made.blocks))
    u, v = near.nonzero()
    assert distance == 0 or ((colour[u] != colour[v]) | (block[u] == block[v])).all()
    for number in range(len(made.blocks) - 1):
        inside = np.flatnonzero(block == number)
        assert connected_components(matrix[inside][:, inside])[0] == 1
    if distance:
        merged = np.zeros(size, np.int32)
        wrong = (block[u] != block[v]).any()
        into = transposed(graph.indptr, graph.indices, None)[:2] if directed else NONE
        found = conflict(graph.indptr, graph.indices, *into, distance, merged, block.astype(np.int32))
        assert (found >= 0) == wrong


def plainly(program: Any, graph: Coloured, params: ProgramParams) -> list[int]:
    """Values after a loop over steps and blocks, whose places decide ties."""
    size, blocks = len(graph.order), graph.blocks
    assert blocks is not None
    values, signals = [vertex * 7 + 1 for vertex in range(size)], [1.0] * size
    for step in range(1, params.max_steps + 1):
        members = [graph.order[low:high].tolist() for low, high in itertools.pairwise(blocks)]
        tops = [1.0 if params.scheduler == "sweep" else max(signals[v] for v in each) for each in members]
        top = max(tops)
        lowest = 2.0 ** int(np.floor(np.log2(top))) if params.scheduler == "priority" and top else 1e-30
        active = [each for each, most in zip(members, tops, strict=True) if most >= lowest]
        for each in active:
            path, reached, queue = [], set(), deque()
            while len(path) < len(each):
                first = max(each, key=lambda v: signals[v]) if not path else next(v for v in each if v not in reached)
                queue.append(first)
                reached.add(first)
                while queue:
                    vertex = queue.popleft()
                    path.append(vertex)
                    for other in graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]].tolist():
                        if other in each and other not in reached:
                            reached.add(other)
                            queue.append(other)
            for vertex in [*path[::-1], *path[1:]]:
                signals[vertex] = 0.0
                program(Plain(graph, values, signals, vertex, step), None)
    return values


@pytest.mark.parametrize("consistency", ["vertex", "edge", "full"])
@settings(max_examples=20, deadline=None)
@given(
    edges=EDGES, size=st.integers(2, 30), most=st.integers(2, 9),
    scheduler=st.sampled_from(["sweep", "fifo", "priority"]), steps=st.integers(1, 5),
)  # fmt: skip
def test_equals_a_plain_loop(
    consistency: Any, edges: list[tuple[int, int]], size: int, most: int, scheduler: Any, steps: int
) -> None:
    distance = DISTANCES[consistency]
    graph = in_blocks(coloured(graph_of(edges, size), distance), most, distance)
    program = VertexProgram(consistency, {"value": "int64"}, PROGRAMS[consistency], start, consistency=consistency)
    params = ProgramParams(scheduler=scheduler, max_steps=steps)
    expected = plainly(PROGRAMS[consistency], graph, params)
    assert ChromaticEngine(program, params, graph).run().fields["value"].tolist() == expected
    assert ChromaticEngine(program, params, graph, threads=3).run().fields["value"].tolist() == expected


@pytest.mark.parametrize("scheduler", ["sweep", "fifo", "priority"])
def test_threads_change_no_bit_where_blocks_of_one_colour_signal_each_other(scheduler: Any) -> None:
    """Under vertex consistency blocks of one colour are neighbours: trees begin where earlier ones have signalled."""
    graph = in_blocks(_large_graph(0), 4, 0)
    program = VertexProgram("vertex", {"value": "int64"}, PROGRAMS["vertex"], start, consistency="vertex")
    params = ProgramParams(scheduler=scheduler, max_steps=5)
    expected, found = (ChromaticEngine(program, params, graph, threads=count).run() for count in (1, 3))
    assert found.trace == expected.trace
    assert found.fields["value"].tolist() == expected.fields["value"].tolist()


@pytest.mark.slow
def test_a_chain_in_two_passes() -> None:
    """Neighbours that hardly differ, so that each end matters at the other: 2n updates, by rounds some n²."""
    size = 10_000
    observed = np.zeros((1, size), int)
    observed[0, -1] = 1
    graph = grid(observed, 2)
    params = BpParams(noise=0.9999, smoothing=1e7, precision=1e-5, scheduler="fifo")
    splash = ChromaticEngine(BP, params, in_blocks(graph, size, 1)).run()
    assert sum(row["updates"] for row in splash.trace) == 2 * size - 1
    short = grid(observed[:, -500:], 2)
    rounds, again = (ChromaticEngine(BP, params, each).run() for each in (short, in_blocks(short, 500, 1)))
    assert np.abs(rounds.fields["belief"] - again.fields["belief"]).max() < 1e-3
    assert sum(row["updates"] for row in rounds.trace) > 500**2 / 4


def test_blocks_through_stages(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("".join(f"n{n} n{n + 1}\n" for n in range(200)))
    graph = run_stage(INDEX, {}, {"edges": str(tmp_path / "e.txt")}, tmp_path / "index")
    inputs = {"graph": graph.uri}
    plain, blocks = (run_stage(COLOUR, params, inputs, tmp_path / f"{params}") for params in ({}, {"block": 50}))
    assert plain.digest != blocks.digest
    assert "block" not in plain.manifest.params
    inputs["colours"] = blocks.uri
    found = run_stage(COMPONENTS, {"execution": "consistent", "scheduler": "fifo"}, inputs, tmp_path / "components")
    assert found.array("component-00000.npy").tolist() == [0] * 201
    assert found.stats["updates"] <= 3 * 2 * 201
    with pytest.raises(UserError, match="blocks need consistent execution"):
        run_stage(COMPONENTS, {"execution": "synchronous"}, inputs, tmp_path / "synchronous")
