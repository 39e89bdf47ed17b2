"""Estimate of sampling, from the sizes of the graph's sets and the spec."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from superworkflow.infra.contract.stage import Estimate, Process, Resources, Stats
from superworkflow.infra.storage.manifest import Stat
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.lib.subgraphs.shard_layout import GROUP_ENTRIES, shard_spans
from superworkflow.tasks.lib.subgraphs.spec_paths import paths_in

if TYPE_CHECKING:
    from superworkflow.tasks.sample.params import SampleParams

_PROCESS = Process(start_s=1.1, memory_bytes=232 << 20)
"""With NumPy, Arrow and compiled kernels, before a graph is read."""
_THREAD_BYTES, _GROUP_BYTES = 12 << 20, 45 << 20
"""Bytes of each thread, and of a full row group that it samples, holds as columns and encodes."""
_SEED_SET_BYTES, _SEED_BYTES = 60, 60
"""Bytes of each node of the seeds' set, and of each seed, in a table of them."""
_HUB_BIAS = 1.3
"""Times the mean degree that nodes have which edges lead to."""
_NEW_NODES = 0.8
"""Nodes of a subgraph for each of its edges, besides the seed."""
_EDGE_NS = 60.0
_VALUE_BYTES = {"RANDOM_WEIGHTED": 4, "TOP_K": 8, "LATEST_K": 8}
"""Bytes of an edge for an op of this strategy."""
_EDGE_BYTES, _NODE_BYTES = 1.7, 1.2


class ExpectedSizes(NamedTuple):
    """Mean sizes of a subgraph: nodes, and edges by edge set."""

    nodes: float
    edges: Mapping[str, float]


def spec_stats(source: Source, look_bytes: int) -> dict[str, Stat]:
    """The spec itself, for `estimate`; nothing of one that is longer than may be looked at."""
    from superworkflow.tasks.sample.spec import read_spec

    if source.total_bytes > look_bytes:
        return {}
    return {"spec": json.dumps(read_spec(source).canonical())}


def estimate(params: SampleParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Memory by counting the arrays; time by what one 3 GHz core of 2025 needed for an edge."""
    graph, spec = inputs["graph"], json.loads(str(inputs["spec"].get("spec") or '{"sampling_ops": []}'))
    expected = expect(params, graph, spec)
    seed_set = next((spec[key]["node_set_name"] for key in spec if key.endswith("seed_op")), "")
    given = inputs.get("seeds", {})
    listed = int(given.get("rows") or int(given.get("bytes") or 0) // 16)
    seeds = listed if "seeds" in inputs else _count(graph, "nodes", seed_set)
    subgraphs = seeds * params.repeats
    edges, nodes = sum(expected.edges.values()) * subgraphs, expected.nodes * subgraphs

    item = 4 if max((int(graph[key] or 0) for key in graph if key.startswith("nodes.")), default=0) < 2**31 else 8
    rows = sum(_count(graph, "edges", name) for name in expected.edges)
    begins = sum(_sources(graph, name) for name in expected.edges)
    valued = {(op["edge_set_name"], _VALUE_BYTES.get(op["strategy"], 0)) for op in spec["sampling_ops"]}
    values = sum(size * _count(graph, "edges", name) for name, size in valued)
    memory = item * rows + 8 * begins + values
    shard = next((last for _, last in shard_spans(subgraphs)), 0) * (edges + nodes) / max(1, subgraphs)
    filled = min(1.0, shard / GROUP_ENTRIES)
    memory += max(1, resources.threads) * (_THREAD_BYTES + int(_GROUP_BYTES * filled))
    memory += _SEED_SET_BYTES * _count(graph, "nodes", seed_set) + (_SEED_BYTES * seeds if "seeds" in inputs else 0)
    work_s = 1e-9 * _EDGE_NS * edges + 3e-9 * rows + 5e-7 * _count(graph, "nodes", seed_set)
    return _PROCESS.estimate(
        memory_bytes=int(memory),
        cpu_s=work_s,
        output_bytes=int(_EDGE_BYTES * edges + _NODE_BYTES * nodes + 12 * subgraphs),
        stats={
            "subgraphs": subgraphs,
            "nodes": int(nodes),
            "edges": int(edges),
            "path_values": path_values(graph, spec),
            **_means(graph, seed_set, expected.edges),
        },
        parallel=0.95,
    )


def expect(params: SampleParams, graph: Stats, spec: Mapping[str, Any]) -> ExpectedSizes:
    """Mean sizes of a subgraph, if targets were drawn at random and degrees were near their means.

    Args:
        params: sizes, and their factor.
        graph: stats of the heterograph.
        spec: `SamplingSpec.canonical`.
    """
    fronts: dict[str, float] = {}
    edges: dict[str, float] = {}
    seed = next((spec[key] for key in spec if key.endswith("seed_op")), {"op_name": "", "node_set_name": ""})
    fronts[seed["op_name"]] = 1.0
    for op in spec["sampling_ops"]:
        name, edge_set = op["op_name"], op["edge_set_name"]
        size = params.sizes.get(name, max(1, round(op["sample_size"] * params.size_factor)))
        first = op["input_op_names"] == [seed["op_name"]]
        degree = _count(graph, "edges", edge_set) / max(_sources(graph, edge_set), 1) * (1.0 if first else _HUB_BIAS)
        front = sum(fronts.get(given, 1.0) for given in op["input_op_names"])
        drawn = front * min(size, degree)
        edges[edge_set] = edges.get(edge_set, 0.0) + drawn
        fronts[name] = drawn
    return ExpectedSizes(1 + _NEW_NODES * sum(edges.values()), edges)


def _means(graph: Stats, seed_set: str, edges: Mapping[str, float]) -> dict[str, float]:
    """Mean sizes by set, as the stage counts them; none where the name of a set is no plain word."""
    targets = {name: graph.get(f"edges.{name}.target") for name in edges}
    if not all(f"nodes.{each}" in graph for each in (seed_set, *targets.values())):
        return {}
    nodes = {seed_set: 1.0}
    for name, target in targets.items():
        nodes[str(target)] = nodes.get(str(target), 0.0) + _NEW_NODES * edges[name]
    found = {f"nodes.{name}.mean": mean for name, mean in nodes.items()}
    return found | {f"edges.{name}.mean": mean for name, mean in edges.items()}


def path_values(graph: Stats, spec: Mapping[str, Any]) -> int:
    """Floating-point numbers of the nodes at the ends of all paths from the seed; 0 where seeds are links.

    Args:
        graph: stats of the heterograph.
        spec: `SamplingSpec.canonical`.
    """
    if "seed_op" not in spec:
        return 0
    ends = [
        graph.get(f"edges.{path[-1]}.target") if path else spec["seed_op"]["node_set_name"] for path in paths_in(spec)
    ]
    return sum(int(graph.get(f"values.nodes.{end}") or 0) for end in ends)


def _count(graph: Stats, kind: str, name: str) -> int:
    """Items of a set; where its name is no plain word, as many as all sets have on average."""
    count = graph.get(f"{kind}.{name}")
    if count is not None:
        return int(count)
    sets = sum(key.startswith(f"{kind}.") and not isinstance(graph[key], str) for key in graph)
    return int(graph.get(kind) or 0) // max(sets, 1)


def _sources(graph: Stats, edge_set: str) -> int:
    """Nodes of the set that an edge set starts from."""
    return _count(graph, "nodes", str(graph.get(f"edges.{edge_set}.source")))
