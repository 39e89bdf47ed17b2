"""Features of nodes as means along sampled edges, seen from the seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.feature_matrix.columns import values_of_columns
from superworkflow.tasks.heterograph.feature_columns import CATEGORIES, NodeColumn, fill_missing
from superworkflow.tasks.heterograph.scaling import fit
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.gnn.column_scaling import STANDARD
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.sparse_rows import entries_of
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock
from superworkflow.tasks.lib.subgraphs.spec_paths import Path


def features_of(
    graph: HeteroGraph, node_set: str, columns: Sequence[NodeColumn]
) -> tuple[list[NDArray[Any]], list[InputWarning]]:
    """Features of a node set, [nodes, values] each, and warnings of missing values.

    Single numbers have mean 0 and deviation 1, categories are columns of 0 and 1.
    """
    found: list[NDArray[Any]] = []
    warnings: list[InputWarning] = []
    for column, values in zip(columns, values_of_columns(graph, node_set, columns), strict=True):
        if column.width > 1 and column.kind != CATEGORIES:
            vectors = values[:]
            found.append(vectors if vectors.dtype in (np.float32, np.float64) else vectors.astype(np.float32))
            continue
        single = np.array(values[:], np.float32)
        absent = np.isnan(single).sum(axis=0)
        warnings += fill_missing(single, absent, [column], f"schema, {node_set}")[0]
        found.append(single if column.kind == CATEGORIES else fit(single, STANDARD, [1]).apply(single))
    return found, warnings


def end_of(graph: HeteroGraph, path: Path, seed_set: str) -> str:
    """The node set to which a path leads."""
    return graph.edge_sets[path[-1]].target if path else seed_set


def weights_along(
    graph: HeteroGraph, block: SubgraphBlock, paths: Iterable[Path], seed_set: str
) -> Iterator[tuple[Path, NDArray[np.float64]]]:
    """Weight of each node in the mean along a path: 1 is divided evenly at every node.

    Args:
        graph: that was sampled.
        block: subgraphs.
        paths: each after the one that is without its last edge set.
        seed_set: of the seeds.

    Yields:
        Each path, and float64 [nodes of its end in the block]. What comes to a node without edges is lost there.
    """
    seed_number = graph.node_number(seed_set)
    weights_at: dict[Path, NDArray[np.float64]] = {}
    ends: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
    for path in paths:
        nodes = len(block.nodes[graph.node_number(end_of(graph, path, seed_set))])
        if path:
            if path[-1] not in ends:
                ends[path[-1]] = _ends(graph, block, path[-1])
            source, target = ends[path[-1]]
            before = weights_at[path[:-1]]
            degrees = np.bincount(source, minlength=len(before))
            weights: Any = np.bincount(target, (before / np.maximum(degrees, 1))[source], nodes)
        else:
            weights = np.zeros(nodes)
            weights[block.node_starts[seed_number][:-1]] = 1.0
        weights_at[path] = weights
        yield path, weights


def _ends(graph: HeteroGraph, block: SubgraphBlock, edge_set: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sources and targets of a set's edges as places in the block's nodes."""
    number, edges = graph.edge_number(edge_set), graph.edge_sets[edge_set]
    counts = np.diff(block.edge_starts[number])
    source, target = (
        places[number] + np.repeat(block.node_starts[graph.node_number(node_set)][:-1], counts)
        for places, node_set in ((block.sources, edges.source), (block.targets, edges.target))
    )
    return source, target


def chosen(block: SubgraphBlock, rows: NDArray[np.int64]) -> SubgraphBlock:
    """Some of a block's subgraphs."""
    if len(rows) == block.subgraphs:
        return block

    def pick(starts: NDArray[np.int64], *values: NDArray[Any]) -> list[NDArray[Any]]:
        begins, positions = entries_of(starts, rows)
        return [begins, *(each[positions] for each in values)]

    nodes = [pick(starts, values) for starts, values in zip(block.node_starts, block.nodes, strict=True)]
    edges = [
        pick(starts, *values)
        for starts, *values in zip(block.edge_starts, block.sources, block.targets, block.positions, strict=True)
    ]
    return SubgraphBlock(
        block.sample_ids.take(rows), block.seeds[rows], *map(list, zip(*nodes, strict=True)),
        *map(list, zip(*edges, strict=True)),
    )  # fmt: skip


def carried(
    graph: HeteroGraph,
    block: SubgraphBlock,
    paths: Sequence[Path],
    seed_set: str,
    features: Mapping[str, Sequence[NDArray[Any]]],
) -> list[NDArray[np.float32]]:
    """Means along each path of each feature at its end, [subgraphs, values] each; 0 where a path leads nowhere."""
    out = []
    for path, weights in weights_along(graph, block, paths, seed_set):
        end = end_of(graph, path, seed_set)
        number = graph.node_number(end)
        for values in features[end]:
            means = np.empty((block.subgraphs, values.shape[1]), np.float32)
            weighted_means(values, block.node_starts[number], block.nodes[number], weights, means)
            out.append(means)
    return out


@nb.njit(parallel=True, cache=True)
def weighted_means(
    values: NDArray[Any],
    starts: NDArray[np.int64],
    nodes: NDArray[Any],
    weights: NDArray[np.float64],
    out: NDArray[np.float32],
) -> None:
    """Weighted mean of rows of `values` [n, d] for each subgraph.

    Args:
        values: a row for each node of the graph.
        starts: begins of the subgraphs in `nodes` [b + 1].
        nodes: numbers of the subgraphs' nodes [k].
        weights: of these [k]; a subgraph whose weights are all 0 gets zeros.
        out: output, [b, d].
    """
    for s in nb.prange(len(starts) - 1):
        total = 0.0
        sums = np.zeros(values.shape[1])
        for place in range(starts[s], starts[s + 1]):
            weight = weights[place]
            if weight != 0.0:
                total += weight
                row = values[nodes[place]]
                for d in range(len(sums)):
                    sums[d] += weight * row[d]
        scale = 1.0 / total if total > 0.0 else 0.0
        for d in range(len(sums)):
            out[s, d] = np.float32(sums[d] * scale)
