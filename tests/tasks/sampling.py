"""Heterographs to sample from, and a slow reference sampler in plain Python, which the compiled one must equal."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, Feature, HeteroGraph, NodeSet, feature_stem, index_dtype
from superworkflow.tasks.lib.graph.heterograph_writer import (
    stats_of,
    write_feature,
    write_graph_file,
    write_ids,
    write_rows,
)
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.spec import Op, SamplingSpec
from tests.datasets import commit

GAMMA, WORD = 0x9E3779B97F4A7C15, 2**64 - 1
Edge = tuple[int, int]


@dataclass
class PlainGraph:
    """Sets by name: numbers of nodes, and edges as sorted (source, target) pairs with their features.

    Args:
        nodes: how many of each set; ids are the set's name and the number.
        ends: (source, target) node set of each edge set.
        edges: pairs, sorted.
        features: of edge sets, `weight` and `timestamp`.
        node_features: of node sets, numbers or strings.
        rows: of edge sets, the row of the table in which each edge stands; where there are none, their positions.
    """

    nodes: dict[str, int]
    ends: dict[str, tuple[str, str]]
    edges: dict[str, list[Edge]]
    features: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    node_features: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, np.ndarray] = field(default_factory=dict)

    def write(self, folder: Path) -> Dataset:
        """As a heterograph dataset."""
        output = DatasetWriter(str(folder), "d" * 32)
        node_sets = [
            NodeSet(name, self.nodes[name], _features(self.node_features.get(name, {}))) for name in sorted(self.nodes)
        ]
        edge_sets = [
            EdgeSet(name, *self.ends[name], len(self.edges[name]), None, _features(self.features.get(name, {})))
            for name in sorted(self.ends)
        ]
        for i, nodes in enumerate(node_sets):
            write_ids(output, i, pa.array([id_of(nodes.name, n) for n in range(nodes.count)], pa.large_string()))
            for f, feature in enumerate(nodes.features):
                values = self.node_features[nodes.name][feature.name]
                write_feature(output, feature_stem("nodes", i, f), feature, values)
        for j, edges in enumerate(edge_sets):
            pairs = np.array(self.edges[edges.name], np.int64).reshape(-1, 2)
            counts = np.bincount(pairs[:, 0], minlength=self.nodes[edges.source])
            indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            indices = pairs[:, 1].astype(index_dtype(self.nodes[edges.target]))
            write_rows(output, j, indptr, indices, table_rows=self.rows.get(edges.name))
            for f, feature in enumerate(edges.features):
                values = self.features[edges.name][feature.name]
                write_feature(output, feature_stem("edges", j, f), feature, values)
        write_graph_file(output, node_sets, edge_sets)
        return commit(output, "heterograph", stats=stats_of(node_sets, edge_sets))

    def open(self, folder: Path) -> HeteroGraph:
        return HeteroGraph.open(self.write(folder))


def id_of(node_set: str, number: int) -> str:
    return f"{node_set}{number:04}"


def _features(given: dict[str, Any]) -> tuple[Feature, ...]:
    kinds = {"f4": "float", "f8": "double", "i8": "int64", "i4": "int32"}
    return tuple(
        Feature(name, kinds[given[name].dtype.str[1:]] if isinstance(given[name], np.ndarray) else "string", ())
        for name in sorted(given)
    )


def random_graph(
    rng: np.random.Generator, nodes: dict[str, int], ends: dict[str, tuple[str, str]], edges: int, *, parallel: bool
) -> PlainGraph:
    """Edges between random nodes, more at those of low numbers; weights with ties and zeros, timestamps with ties.

    They stand in their tables in any order, but for parallel ones, whose order is that of the table.
    """
    made, features, rows = {}, {}, {}
    for name, (source, target) in ends.items():
        share = rng.random((edges if nodes[source] and nodes[target] else 0, 2)) ** 2
        pairs = [(int(a * nodes[source]), int(b * nodes[target])) for a, b in share]
        made[name] = sorted(pairs if parallel else set(pairs))
        count = len(made[name])
        weights = rng.choice([0, 0.5, 0.5, 1, 3, 1e-30, 1e30], count).astype(np.float32)
        features[name] = {"weight": weights, "timestamp": rng.integers(-3, 6, count) * 2**55}
        shuffled = rng.permutation(count + 2)[:count].astype(np.int32)
        pairs = np.array(made[name], np.int64).reshape(-1, 2)
        order = np.lexsort((shuffled, pairs[:, 1], pairs[:, 0]))
        rows[name] = shuffled[order]
    return PlainGraph(nodes, ends, made, features, rows=rows)


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def step(state: int, number: int) -> int:
    return mix((state + number * GAMMA) & WORD)


@dataclass
class PlainSubgraph:
    """Node numbers by set, in order; edges by set, (source place, target place, position), in order."""

    nodes: dict[str, list[int]]
    edges: dict[str, list[tuple[int, int, int]]]


class PlainSampler:
    """Slow reference of `tasks.sample.kernel.sample`; the two share the definition of the random numbers alone."""

    def __init__(self, graph: PlainGraph, spec: SamplingSpec, params: SampleParams):
        self.graph, self.spec, self.params = graph, spec, params
        self.rows: dict[str, dict[int, list[tuple[int, int]]]] = {}
        for name, pairs in graph.edges.items():
            rows: dict[int, list[tuple[int, int]]] = {}
            for position, (source, target) in enumerate(pairs):
                rows.setdefault(source, []).append((position, target))
            self.rows[name] = rows

    def subgraph(self, seeds: Sequence[int], repeat: int = 0, time: int = 2**63 - 1) -> PlainSubgraph:
        key = mix((self.params.seed + GAMMA) & WORD)
        for seed in seeds:
            key = step(key, seed + 1)
        key = step(key, repeat + 1)
        reached = {self.spec.seed_op: Counter(dict.fromkeys(seeds, 1))}
        positions: dict[str, set[int]] = {}
        members: dict[str, set[int]] = {self.spec.node_set: set(seeds)}
        for number, op in enumerate(self.spec.ops):
            front: Counter[int] = Counter()
            for given in op.inputs:
                front += reached[given]
            found: Counter[int] = Counter()
            for node in sorted(front):
                paths = front[node] if self.params.inputs == "path" else 1
                row = self.row(op.edge_set, node, seeds)
                state = step(step(key, number + 1), node + 1)
                for place, times in self.draws(op, row, state, time, paths).items():
                    position, target = row[place]
                    found[target] += times
                    positions.setdefault(op.edge_set, set()).add(position)
            if self.params.inputs == "once":
                found = Counter(dict.fromkeys(found, 1))
            reached[op.name] = found
            members.setdefault(self.graph.ends[op.edge_set][1], set()).update(found)
        order = {
            name: [*dict.fromkeys(seeds), *sorted(nodes - set(seeds))] if name == self.spec.node_set else sorted(nodes)
            for name, nodes in members.items()
        }
        if self.params.aggregation == "node":
            positions = {
                name: {
                    position
                    for source in members[a]
                    for position, target in self.row(name, source, seeds)
                    if target in members[b]
                }
                for name, (a, b) in self.graph.ends.items()
                if a in members and b in members
            }
        edges = {}
        for name, taken in positions.items():
            a, b = self.graph.ends[name]
            pairs = [(*self.graph.edges[name][position], position) for position in taken]
            edges[name] = sorted((order[a].index(s), order[b].index(t), position) for s, t, position in pairs)
        return PlainSubgraph(order, edges)

    def row(self, edge_set: str, node: int, seeds: Sequence[int]) -> list[tuple[int, int]]:
        """(position, target) of a node's edges, but for those between the two seeds of a link."""
        row = self.rows[edge_set].get(node, [])
        if len(seeds) < 2 or set(self.graph.ends[edge_set]) != {self.spec.node_set}:
            return row
        return [(p, t) for p, t in row if (node, t) not in {tuple(seeds), tuple(reversed(seeds))}]

    def draws(self, op: Op, row: list[tuple[int, int]], state: int, time: int, paths: int) -> Counter[int]:
        """Places in a row that are drawn, and how often each is."""
        size, every = op.size, range(len(row))
        values = self.graph.features.get(op.edge_set, {})
        if op.strategy == "LATEST_K":
            stamps = [int(values["timestamp"][position]) for position, _ in row]
            latest = sorted((p for p in every if stamps[p] <= time), key=lambda p: (stamps[p], p))[-size:]
            return Counter(dict.fromkeys(latest, paths))
        if len(row) <= size:
            return Counter(dict.fromkeys(every, paths))
        weights = [float(values["weight"][position]) if "weight" in values else 1.0 for position, _ in row]
        if op.strategy == "TOP_K":
            rows = self.graph.rows.get(op.edge_set, range(len(self.graph.edges[op.edge_set])))
            best = sorted(every, key=lambda p: (weights[p], rows[row[p][0]]))[-size:]
            return Counter(dict.fromkeys(best, paths))
        drawn: Counter[int] = Counter()
        for path in range(paths):
            own = state if path == 0 else mix(state ^ (path * 0xD1B54A32D192ED03) & WORD)
            if op.strategy == "RANDOM_UNIFORM" or "weight" not in values:
                drawn.update(floyd(len(row), size, own))
            else:
                drawn.update(by_weight(weights, size, own))
        return drawn


def floyd(degree: int, size: int, state: int) -> set[int]:
    chosen: set[int] = set()
    for i in range(size):
        last = degree - size + i
        place = (step(state, i + 1) * (last + 1)) >> 64
        chosen.add(last if place in chosen else place)
    return chosen


def by_weight(weights: Sequence[float], size: int, state: int) -> list[int]:
    arrivals = []
    for place, weight in enumerate(weights):
        if weight > 0:
            u = ((step(state, place + 1) >> 11) + 0.5) * 2.0**-53
            arrivals.append((-math.log(u) / weight, -place))
    return [-place for _, place in sorted(arrivals)[:size]]


def plain(block: SubgraphBlock, graph: PlainGraph, number: int) -> PlainSubgraph:
    """One subgraph of a block; sets of which it has nothing are left out."""
    nodes, edges = {}, {}
    for i, name in enumerate(sorted(graph.nodes)):
        a, b = block.node_starts[i][number : number + 2]
        if b > a:
            nodes[name] = block.nodes[i][a:b].tolist()
    for j, name in enumerate(sorted(graph.ends)):
        a, b = block.edge_starts[j][number : number + 2]
        columns = (block.sources[j], block.targets[j], block.positions[j])
        if b > a:
            edges[name] = list(zip(*(column[a:b].tolist() for column in columns), strict=True))
    return PlainSubgraph(nodes, edges)


def same(made: PlainSubgraph, wanted: PlainSubgraph) -> bool:
    """True if a compiled subgraph equals the plain one; the order of sets does not matter."""
    return made.nodes == {name: nodes for name, nodes in wanted.nodes.items() if nodes} and made.edges == {
        name: edges for name, edges in wanted.edges.items() if edges
    }
