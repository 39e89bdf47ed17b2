"""Estimates from the stats of a typed graph."""

from __future__ import annotations

from superworkflow.infra.contract.stage import Resources, Stats

USUAL_CLASSES = 40
"""Number of classes assumed if neither graph nor network has it in its stats."""


def stored_features(graph: Stats) -> int:
    """Approximate bytes of the features of all nodes in the graph's files."""
    nodes, edges = int(graph.get("nodes") or 0), int(graph.get("edges") or 0)
    return max(0, int(graph.get("bytes") or 0) - 4 * edges - 20 * nodes)


def mapped_graph(graph: Stats) -> int:
    """Bytes of the files that a stage maps if it reads all rows and features."""
    return stored_features(graph) + 4 * int(graph.get("edges") or 0) + 8 * int(graph.get("nodes") or 0)


def feature_values(graph: Stats) -> int:
    """Feature values of all nodes; without stats of each set, the stored bytes at four bytes each."""
    found = [name.removeprefix("values.") for name in graph if name.startswith("values.nodes.")]
    if not found:
        return stored_features(graph) // 4
    return sum(int(graph[f"values.{name}"] or 0) * int(graph.get(name) or 0) for name in found)


def edge_values(graph: Stats) -> int:
    """Values of all edges that can be weights."""
    found = [name.removeprefix("values.") for name in graph if name.startswith("values.edges.")]
    return sum(int(graph[f"values.{name}"] or 0) * int(graph.get(name) or 0) for name in found)


def mean_values(graph: Stats) -> int:
    """Values of the means of neighbours' features: for each edge set, a row for each node where its edges start.

    Without stats of both ends, or for sets named by number only, each edge set is assumed to have as many as the
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


def split_sizes(shares: tuple[float, float], labels: Stats, nodes: int) -> tuple[int, int]:
    """Numbers of nodes to train and to validate on: those of given splits, else shares of the labelled nodes.

    Args:
        shares: to train and to validate on, where no splits are given.
        labels: stats of what has the labels.
        nodes: of the graph, which all have a label where it is unknown how many do.
    """
    if labels.get("train_nodes"):
        return int(labels["train_nodes"] or 0), int(labels.get("validation_nodes") or 0)
    labelled = int(labels.get("labelled") or nodes)
    return max(1, int(shares[0] * labelled)), int(shares[1] * labelled)


def workers_of(resources: Resources) -> int:
    """Members of a stage's worker groups; 1 without any."""
    return max(1, sum(each.count for each in (resources.workers or {}).values()))
