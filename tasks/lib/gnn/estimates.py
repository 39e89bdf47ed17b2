"""Facts of a typed graph that estimates read; see `_heterograph_files.stats_of`."""

from __future__ import annotations

from superworkflow.infra.contract.estimate import Stats
from superworkflow.infra.contract.resources import Resources

USUAL_CLASSES = 40
"""Taken for granted where neither graph nor network tells."""


def stored_features(graph: Stats) -> int:
    """About how many bytes the features of all nodes take in the graph's files."""
    nodes, edges = int(graph.get("nodes") or 0), int(graph.get("edges") or 0)
    return max(0, int(graph.get("bytes") or 0) - 4 * edges - 20 * nodes)


def mapped_graph(graph: Stats) -> int:
    """Bytes of the files that a stage maps which reads all rows and features."""
    return stored_features(graph) + 4 * int(graph.get("edges") or 0) + 8 * int(graph.get("nodes") or 0)


def feature_values(graph: Stats) -> int:
    """Numbers in the features of all nodes; without the facts of each set as many as are stored in four bytes each."""
    found = [name.removeprefix("values.") for name in graph if name.startswith("values.nodes.")]
    if not found:
        return stored_features(graph) // 4
    return sum(int(graph[f"values.{name}"] or 0) * int(graph.get(name) or 0) for name in found)


def edge_values(graph: Stats) -> int:
    """Numbers of all edges that can be weights; see `record_stats`."""
    found = [name.removeprefix("values.") for name in graph if name.startswith("values.edges.")]
    return sum(int(graph[f"values.{name}"] or 0) * int(graph.get(name) or 0) for name in found)


def mean_values(graph: Stats) -> int:
    """Numbers in the means of neighbours' features, for each edge set a row for each node where its edges start.

    Without the facts of each end, or where a set is known by its number alone, each edge set has as many as there are
    features.
    """
    found = []
    for name, source in graph.items():
        if name.endswith(".source") and isinstance(source, str):
            target = graph.get(f"{name.removesuffix('source')}target")
            found.append((graph.get(f"nodes.{source}"), graph.get(f"values.nodes.{target}")))
    if not found or any(None in each for each in found):
        return feature_values(graph) * max(1, int(graph.get("edge_sets") or 1))
    return sum(int(rows or 0) * int(width or 0) for rows, width in found)


def workers_of(resources: Resources) -> int:
    """Members of a stage's worker groups, 1 where it has none."""
    return max(1, sum(each.count for each in (resources.workers or {}).values()))
