"""Subgraphs of odd graphs equal those of the plain sampler, whatever the strategy, with weights, times and links."""

from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.tasks.lib.subgraphs.edge_positions import joined_positions, split_positions
from superworkflow.tasks.sample import sampler
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.sampler import SeedRows, SpecSampler
from superworkflow.tasks.sample.spec import STRATEGIES, Op, SamplingSpec
from tests.tasks.sampling import PlainSampler, plain, random_graph, same

ENDS = {"aa": ("a", "a"), "ab": ("a", "b"), "ba": ("b", "a"), "bb": ("b", "b"), "cb": ("c", "b")}
_numbers = count()


@st.composite
def specs(draw: st.DrawFn) -> SamplingSpec:
    """DAGs of up to five ops from seeds of set a."""
    ops: list[Op] = []
    leads = {"seed": "a"}
    for number in range(draw(st.integers(0, 5))):
        edge_set = draw(st.sampled_from(sorted(name for name, (a, _) in ENDS.items() if a in leads.values())))
        valid = sorted(name for name, end in leads.items() if end == ENDS[edge_set][0])
        inputs = draw(st.lists(st.sampled_from(valid), min_size=1, max_size=3, unique=True))
        size = draw(st.sampled_from([1, 2, 3, 7, 30, 100]))
        ops.append(Op(f"op{number}", tuple(inputs), edge_set, size, draw(st.sampled_from(STRATEGIES))))
        leads[f"op{number}"] = ENDS[edge_set][1]
    return SamplingSpec("spec", "seed", "a", draw(st.booleans()), tuple(ops))


@given(
    spec=specs(), seed=st.integers(0, 2**63 - 1), nodes=st.sampled_from([1, 2, 9, 40, 3000]), weighted=st.booleans(),
    edges=st.sampled_from([0, 1, 30, 400]), parallel=st.booleans(), aggregation=st.sampled_from(["edge", "node"]),
    inputs=st.sampled_from(["once", "path"]), room=st.sampled_from([1, 4, 1 << 12]),
    most=st.sampled_from([1, 50, 1 << 40]),
)  # fmt: skip
@settings(max_examples=30, deadline=None, print_blob=True)
def test_subgraphs_equal_the_plain_samplers(
    tmp_path_factory: pytest.TempPathFactory, spec: SamplingSpec, seed: int, nodes: int, weighted: bool, edges: int,
    parallel: bool, aggregation: str, inputs: str, room: int, most: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed % 2**32)
    graph = random_graph(rng, {"a": nodes, "b": nodes // 2 + 1, "c": 3}, ENDS, edges, parallel=parallel)
    if not weighted:
        for features in graph.features.values():
            del features["weight"]
    params = SampleParams(seed=seed, aggregation=aggregation, inputs=inputs)
    subgraphs = 6
    numbers = rng.integers(0, nodes, (subgraphs, 1 + spec.is_link))
    times = rng.integers(-4, 7, subgraphs) * 2**55
    ids = [str(n) for n in range(subgraphs)]
    seeds = SeedRows(pa.array(ids), numbers, times, np.arange(subgraphs) % 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "FIRST_ROOM", room)
        compiled = SpecSampler(graph.open(_folder(tmp_path_factory)), spec, params)
        done = 0
        while done < subgraphs:
            block = compiled.block(seeds.part(done, subgraphs), most)
            for number in range(block.subgraphs):
                wanted = PlainSampler(graph, spec, params).subgraph(
                    numbers[done].tolist(), int(seeds.repeats[done]), int(times[done])
                )
                assert same(plain(block, graph, number), wanted)
                done += 1
            assert block.subgraphs


def _folder(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("graph") / str(next(_numbers))


@given(st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=5), st.integers(0, 99), st.booleans())
@settings(deadline=None)
def test_positions_as_they_are_stored(subgraphs: list[list[int]], seed: int, wide: bool) -> None:
    """Any positions are read as they were; what does not fit the edges is refused."""
    starts = np.cumsum([0, *map(len, subgraphs)])
    sources = np.array([place for each in subgraphs for place in sorted(each)], np.int32)
    kind = np.int64 if wide else np.int32
    positions = np.random.default_rng(seed).integers(0, np.iinfo(kind).max, len(sources), kind, endpoint=True)
    first_starts, firsts, step_starts, steps = split_positions(starts, sources, positions)
    assert np.diff(first_starts).tolist() == [len(set(each)) for each in subgraphs]
    assert (step_starts + first_starts).tolist() == starts.tolist()
    found = joined_positions(starts, sources, firsts, steps)
    assert found.dtype == kind
    assert found.tolist() == positions.tolist()
    longer = np.append(steps, kind(1))
    for wrong in (firsts[1:], steps), (firsts, longer), (firsts[1:], longer):
        if len(firsts):
            with pytest.raises(DatasetDamaged, match="do not fit"):
                joined_positions(starts, sources, *wrong)
