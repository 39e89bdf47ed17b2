"""The graph alone: labels of training nodes, spread over its edges, or means of neighbours' numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.tasks.baselines import MOST_CELLS, MOST_PROPAGATED
from superworkflow.tasks.baselines.labelled_nodes import LabelledNodes
from superworkflow.tasks.lib.gnn.objective.number_targets import NumberTargets
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, HeteroGraph

ALPHA, STEPS, FEWEST_STEPS = 0.9, 50, 5
MOST_EDGES = 50_000_000


def propagated_scores(
    graph: HeteroGraph, labelled: LabelledNodes, judged: NDArray[np.int64]
) -> tuple[NDArray[np.float32] | None, str]:
    """Scores [judged nodes, labels], and a note for the log; None with the reason if there are none."""
    direct, crossing = _edges_at(graph, labelled.node_set)
    used = direct or crossing
    note = "" if direct else _over_paths(labelled.node_set)
    if not used:
        return None, f"left out, since no edge set has an end in {labelled.node_set}"
    edges, nodes = sum(each.count for each in used) * 2, graph.node_sets[labelled.node_set].count
    steps = min(STEPS, MOST_PROPAGATED // max(1, edges * labelled.width))
    if steps < FEWEST_STEPS or nodes * labelled.width > MOST_CELLS or edges > 2 * MOST_EDGES:
        return None, f"left out, since {nodes:,} nodes, {edges // 2:,} edges and {labelled.width} classes take too long"
    if steps < STEPS:
        note = ", ".join(filter(None, [note, f"{steps} steps"]))
    operators = [_operator(graph, each) for each in used] if direct else [
        _two_step(graph, each, labelled.node_set) for each in used
    ]  # fmt: skip
    trained = labelled.nodes("train")
    given = np.zeros((nodes, labelled.width), np.float32)
    given[trained] = labelled.marks(trained)
    spread = given
    for _ in range(steps):
        # The mean over edge sets, which all count the same.
        made = sum(_product(each, spread) for each in operators)
        spread = np.float32(ALPHA / len(operators)) * made + np.float32(1 - ALPHA) * given
    # Nodes that no label reaches go to the most frequent class.
    counts = labelled.counts()
    found: NDArray[np.float32] = spread[judged] + (1e-9 * counts / counts.sum()).astype(np.float32)
    return found, note


def neighbor_means(
    graph: HeteroGraph, targets: NumberTargets, judged: NDArray[np.int64]
) -> tuple[NDArray[np.float64] | None, str]:
    """Mean of the training neighbours' numbers [judged nodes], of all training nodes where a node has no such
    neighbour, and a note for the log; None with the reason if there are none."""
    direct, crossing = _edges_at(graph, targets.node_set)
    if not direct and not crossing:
        return None, f"left out, since no edge set has an end in {targets.node_set}"
    if sum(each.count for each in direct or crossing) > MOST_EDGES:
        return None, f"left out, since more than {MOST_EDGES:,} edges take too long"
    is_trained = targets.splits == 0
    columns = np.stack([np.where(is_trained, targets.values - targets.mean, 0), is_trained], 1)
    sums = np.zeros_like(columns)
    for each in direct or crossing:
        matrix = _matrix(graph, each)
        if direct:
            sums += _both_ways(matrix) @ columns
        else:
            across = matrix if each.source == targets.node_set else sp.csr_matrix(matrix.T)
            sums += across @ (sp.diags(_inverse(across.T, 1.0)) @ (across.T @ columns))
    found = sums[judged, 0] / np.where(sums[judged, 1] > 0, sums[judged, 1], 1) + targets.mean
    alone = int((sums[judged, 1] == 0).sum())
    notes = [
        "" if direct else _over_paths(targets.node_set),
        f"{alone:,} nodes have no training neighbour" * bool(alone),
    ]
    return found, ", ".join(filter(None, notes))


def _edges_at(graph: HeteroGraph, node_set: str) -> tuple[list[EdgeSet], list[EdgeSet]]:
    """Edge sets within a node set, and those between it and another one."""
    own = list(_own_sets(graph))
    return (
        [each for each in own if each.source == each.target == node_set],
        [each for each in own if (each.source == node_set) != (each.target == node_set)],
    )


def _over_paths(node_set: str) -> str:
    return f"over paths {node_set} - other set - {node_set}"


def _own_sets(graph: HeteroGraph) -> Iterator[EdgeSet]:
    """Edge sets with edges that reverse no other one."""
    return (each for each in graph.edge_sets.values() if each.reversed_of is None and each.count)


def _matrix(graph: HeteroGraph, edges: EdgeSet) -> sp.csr_matrix:
    """An edge set as a matrix of ones; of several edges between two nodes one counts."""
    rows = graph.rows(edges.name)
    shape = graph.node_sets[edges.source].count, graph.node_sets[edges.target].count
    matrix = sp.csr_matrix((np.ones(len(rows.indices), np.float32), rows.indices, rows.indptr), shape=shape, copy=True)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _operator(graph: HeteroGraph, edges: EdgeSet) -> tuple[sp.csr_matrix, ...]:
    """D^-½ A D^-½ of the edges in both directions, without loops."""
    both = _both_ways(_matrix(graph, edges))
    scale = sp.diags(_inverse(both, 0.5))
    return (sp.csr_matrix(scale @ both @ scale, dtype=np.float32),)


def _both_ways(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """Edges in both directions, without loops; each counts 1."""
    both = sp.csr_matrix(matrix + matrix.T)
    both = sp.csr_matrix(both - sp.diags(both.diagonal()))
    both.eliminate_zeros()
    both.data[:] = 1
    return both


def _two_step(graph: HeteroGraph, edges: EdgeSet, node_set: str) -> tuple[sp.csr_matrix, ...]:
    """D^-½ B E^-1 Bᵀ D^-½ as two factors, B from the node set to the other one, E the degrees there."""
    matrix = _matrix(graph, edges)
    across = matrix if edges.source == node_set else sp.csr_matrix(matrix.T)
    # Each path through a node of the other set counts its inverse degree: rows of B E^-1 Bᵀ sum to those of B.
    left = sp.diags(_inverse(across, 0.5)) @ across @ sp.diags(_inverse(across.T, 1.0))
    right = across.T @ sp.diags(_inverse(across, 0.5))
    return sp.csr_matrix(left, dtype=np.float32), sp.csr_matrix(right, dtype=np.float32)


def _inverse(matrix: Any, power: float) -> NDArray[np.float32]:
    """The inverse power of the sums of rows; 0 for empty ones."""
    sums = np.asarray(matrix.sum(axis=1)).reshape(-1)
    return np.where(sums > 0, np.maximum(sums, 1) ** -power, 0).astype(np.float32)


def _product(factors: tuple[sp.csr_matrix, ...], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    for factor in reversed(factors):
        rows = factor @ rows
    return rows
