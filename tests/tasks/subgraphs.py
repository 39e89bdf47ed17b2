"""Random subgraphs of small heterographs, as blocks and as datasets of stage `sample`, without the stage."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks.lib.graph.dtypes import DTYPES, FLOATS
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.subgraphs.blocks import (
    DESCRIPTION,
    SubgraphBlock,
    SubgraphLayout,
    shard_schema,
    shard_writer,
)
from superworkflow.tasks.lib.subgraphs.shard_layout import shard_name
from superworkflow.tasks.sample.sizes import Sizes
from tests.datasets import commit
from tests.tasks.heterographs import Edges, Nodes


def some_graph(rng: np.random.Generator, papers: int = 9) -> tuple[dict[str, Nodes], dict[str, Edges]]:
    """Sets with features of all kinds, one that reverses another, one without features and one without items."""
    from superworkflow.tasks.lib.graph.heterograph import Ragged

    def numbers(dtype: str, *shape: int) -> np.ndarray:
        if dtype in FLOATS:
            return rng.normal(size=shape).astype(DTYPES[dtype])
        return rng.integers(0, 2**64, shape, np.uint64).view(np.int64).astype(DTYPES[dtype])

    def words(count: int) -> list[bytes]:
        return [rng.bytes(int(length)) for length in rng.integers(0, 200, count)]

    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 4, papers))])
    features = {f"f.{dtype}": numbers(dtype, papers, *([2] if i % 2 else [])) for i, dtype in enumerate(DTYPES)}
    features |= {
        "embedding": numbers("float", papers, 5), "ragged": Ragged(numbers("float", starts[-1], 3), starts),
        "ragged int": Ragged(numbers("int16", starts[-1]), starts), "title": words(papers),
        "tags": [words(int(count)) for count in rng.integers(0, 3, papers)], "none wide": numbers("float", papers, 0),
    }  # fmt: skip
    ids = [f"p{i}" for i in range(papers)]
    people = [f"ä{i}" for i in range(5)]

    def pairs(count: int, one: list[str], other: list[str]) -> list[tuple[str, str]]:
        return [(one[rng.integers(len(one))], other[rng.integers(len(other))]) for _ in range(count)]

    nodes = {
        "paper": Nodes(ids, features),
        "author": Nodes(people),
        "empty.set": Nodes([], {"x": numbers("float", 0, 2)}),
    }
    edges = {
        "cites": Edges("paper", "paper", pairs(25, ids, ids)),
        "writes": Edges(
            "author", "paper", pairs(14, people, ids), {"weight": np.abs(numbers("float", 14)), "why": words(14)}
        ),
        "written by": Edges("paper", "author", reversed_of="writes"),
        "unmet": Edges("author", "empty.set"),
    }
    return nodes, edges


def some_block(graph: HeteroGraph, rng: np.random.Generator, count: int, seed_sets: tuple[str, ...]) -> SubgraphBlock:
    """`count` subgraphs: the seeds, random edges and their ends."""
    nodes: list[list[np.ndarray]] = [[] for _ in graph.node_sets]
    edges: list[list[np.ndarray]] = [[] for _ in graph.edge_sets]
    numbers = {name: i for i, name in enumerate(graph.node_sets)}
    seeds, ids = [], []
    for _ in range(count):
        ends = [int(rng.integers(graph.node_sets[name].count)) for name in seed_sets]
        here: list[list[int]] = [[] for _ in graph.node_sets]
        for name, seed in zip(seed_sets, ends, strict=True):
            if seed not in here[numbers[name]]:
                here[numbers[name]].append(seed)
        drawn = []
        for name, edge_set in graph.edge_sets.items():
            positions = np.flatnonzero(rng.random(edge_set.count) < rng.choice([0, 0.1, 0.5]))
            rows = graph.rows(name)
            sources = np.searchsorted(rows.indptr, positions, side="right") - 1
            drawn.append((positions, sources, np.asarray(rows.indices)[positions]))
        for place, edge_set in enumerate(graph.edge_sets.values()):
            for end, found in ((edge_set.source, drawn[place][1]), (edge_set.target, drawn[place][2])):
                here[numbers[end]] += sorted(set(found.tolist()) - set(here[numbers[end]]))
        for i, each in enumerate(here):
            first = len({seed for name, seed in zip(seed_sets, ends, strict=True) if numbers[name] == i})
            nodes[i].append(np.array(each[:first] + sorted(each[first:]), np.int32))
        for j, edge_set in enumerate(graph.edge_sets.values()):
            places = [
                [here_i.index(node) for node in found.tolist()]
                for here_i, found in (
                    (nodes[numbers[edge_set.source]][-1].tolist(), drawn[j][1]),
                    (nodes[numbers[edge_set.target]][-1].tolist(), drawn[j][2]),
                )
            ]
            rows = np.stack([*map(np.array, places), drawn[j][0]]).astype(np.int32)
            edges[j].append(rows[:, np.lexsort(rows[::-1])])
        seeds.append(ends)
        ids.append(f"{ends[0]}:{len(ids)}")

    def starts(lists: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([[0], np.cumsum([each.shape[-1] for each in lists])]).astype(np.int64)

    def joined(lists: list[np.ndarray], row: int) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.int32), *(each[row] for each in lists)])

    array = np.array(seeds, np.int32).reshape(count, len(seed_sets))
    return SubgraphBlock(
        pa.array(ids, pa.string()), array if len(seed_sets) == 2 else array[:, 0],
        [starts(each) for each in nodes], [np.concatenate([np.zeros(0, np.int32), *each]) for each in nodes],
        [starts(each) for each in edges], *([joined(each, row) for each in edges] for row in range(3)),
    )  # fmt: skip


def layout_of(graph: HeteroGraph) -> SubgraphLayout:
    """The layout of subgraphs that may hold nodes and edges of all sets."""
    nodes, edges = len(graph.node_sets), len(graph.edge_sets)
    return SubgraphLayout(nodes, edges, tuple(range(nodes)), tuple(range(edges)))


def write_subgraphs(
    folder: Path,
    graph: HeteroGraph,
    blocks: Mapping[str, list[list[SubgraphBlock]]],
    seed_sets: tuple[str, ...] = ("paper",),
) -> Dataset:
    """A dataset of blocks: of each split the shards, of each shard the row groups."""
    output, layout = DatasetWriter(folder), layout_of(graph)
    sizes = Sizes(layout)
    for split, shards in blocks.items():
        for number, groups in enumerate(shards):
            with output.file(shard_name(split, number)) as path:
                with shard_writer(path, shard_schema(groups[0], layout)) as write:
                    for block in groups:
                        write(block)
                        sizes.add(block)
    output.json(DESCRIPTION, {
        "node_sets": layout.node_sets, "edge_sets": layout.edge_sets, "used_node_sets": list(layout.used_nodes),
        "used_edge_sets": list(layout.used_edges), "seed_node_set": list(graph.node_sets).index(seed_sets[0]),
        "spec": {"symmetric_link_seed_op" if len(seed_sets) == 2 else "seed_op": {}},
    })  # fmt: skip
    stats = sizes.stats(list(graph.node_sets), list(graph.edge_sets))
    return commit(output, "sample", {"name": f"sample-{folder.name}"}, stats, sizes.subgraphs)
