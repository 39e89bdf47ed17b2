"""The work of stage `shard`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.infra.storage.dataset import DatasetWriter
from superworkflow.tasks.lib.distributed.partition import BOOK_FILE, NodePartition
from superworkflow.tasks.lib.distributed.shards import (
    SHARDS_FILE,
    ShardedEdges,
    ShardedNodes,
    document_of,
    feature_file,
    folder_of,
)
from superworkflow.tasks.lib.gnn.features import features_of
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, Feature, HeteroGraph, index_dtype
from superworkflow.tasks.lib.graph.stat_names import is_matrix, is_single
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.shard.kernel import renumber_rows

load_kernels_fast()


def run(job: StageRun[StageParams]) -> Output:
    """Write the parts; see `tasks.shard`.

    Raises:
        UserError: the parts are another graph's, or a feature is not a finite number.
    """
    graph = HeteroGraph.open(job.inputs["graph"])
    parts = NodePartition.open(job.inputs["partition"], graph)
    features = {name: features_of(graph, name) for name in graph.node_sets}
    places = {name: _inverse(order) for name, order in parts.orders.items()}
    stamps = {name: np.full(each.count, -1, np.int16) for name, each in graph.node_sets.items()}
    job.output.array(BOOK_FILE, parts.book)
    for part in range(parts.count):
        _write_part(job.output, graph, parts, part, places, stamps, features)
        job.progress.update(part + 1, parts.count, "parts")
    widths = {name: 0 if values is None else values.shape[1] for name, values in features.items()}
    nodes = [ShardedNodes(name, each.count, widths[name]) for name, each in graph.node_sets.items()]
    edge_sets = [
        ShardedEdges(
            each.name,
            each.source,
            each.target,
            each.count,
            tuple(feature.name for feature in _matrices(each)),
            tuple(feature.width for feature in _matrices(each)),
            tuple(_whole_of(each)),
        )
        for each in graph.edge_sets.values()
    ]
    job.output.json(SHARDS_FILE, document_of(parts.count, nodes, edge_sets))
    counts = {"nodes": sum(each.count for each in nodes), "edges": sum(each.count for each in edge_sets)}
    return Output(rows=parts.count, stats={**counts, "parts": parts.count, "bytes": job.output.bytes_written})


def _inverse(order: NDArray[Any]) -> NDArray[Any]:
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    return places


def _write_part(
    output: DatasetWriter, graph: HeteroGraph, parts: NodePartition, part: int, places: dict[str, NDArray[Any]],
    stamps: dict[str, NDArray[np.int16]], features: Mapping[str, NDArray[Any] | None],
) -> None:  # fmt: skip
    folder = folder_of(part)
    bounds = {name: parts.book[number, part : part + 2] for number, name in enumerate(graph.node_sets)}
    owned = {name: read_only(parts.orders[name][low:high]) for name, (low, high) in bounds.items()}
    met: dict[str, list[NDArray[np.int64]]] = {name: [] for name in graph.node_sets}
    for number, edges in enumerate(graph.edge_sets.values()):
        indptr, indices = map(read_only, graph.rows(edges.name))
        mine, (low, high) = owned[edges.source], bounds[edges.target]
        firsts = indptr[mine]
        starts = np.zeros(len(mine) + 1, np.int64)
        np.cumsum(indptr[mine.astype(np.int64) + 1] - firsts, out=starts[1:])
        count = int(starts[-1])
        out, halo = np.empty(count, places[edges.target].dtype), np.empty(count, np.int64)
        found = renumber_rows(
            indptr, indices, mine, read_only(places[edges.target]), low, high, stamps[edges.target], part, out, halo
        )
        met[edges.target].append(halo[:found])
        output.array(f"{folder}/edges-{number}-indptr.npy", starts)
        output.array(f"{folder}/edges-{number}-indices.npy", out)
        output.array(f"{folder}/edges-{number}-first.npy", firsts)
        _write_edge_features(output, folder, graph, number, edges, firsts, starts)
    for number, name in enumerate(graph.node_sets):
        halo = np.sort(np.concatenate([*met[name], np.empty(0, np.int64)]))
        kind = index_dtype(graph.node_sets[name].count)
        output.array(f"{folder}/nodes-{number}-numbers.npy", np.ascontiguousarray(owned[name]))
        output.array(f"{folder}/nodes-{number}-halo.npy", halo.astype(kind))
        output.array(f"{folder}/nodes-{number}-halo-numbers.npy", parts.orders[name][halo])
        values = features[name]
        if values is not None:
            output.array(f"{folder}/nodes-{number}-features.npy", np.ascontiguousarray(values[owned[name]], np.float32))


def _matrices(edges: EdgeSet) -> list[Feature]:
    """Features of numbers; which of them is a weight or a time, or is read by layers, training says."""
    return [each for each in edges.features if is_matrix(each)]


def _whole_of(edges: EdgeSet) -> list[str]:
    """Features of edges that can be times: whole numbers, which float32 would round."""
    return [each.name for each in edges.features if is_single(each) and "int" in each.dtype]


def _write_edge_features(
    output: DatasetWriter, folder: str, graph: HeteroGraph, number: int, edges: EdgeSet, firsts: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> None:  # fmt: skip
    """Features of a part's edges, of rows that begin at `firsts` in the whole graph and at `starts` in the part."""
    features = _matrices(edges)
    if not features:
        return
    positions = np.repeat(firsts - starts[:-1], np.diff(starts))
    positions += np.arange(len(positions))
    origin = graph.origin(edges.name)
    if origin is not None:  # where the set has them that this one reverses, so that they stay mapped
        positions = origin[positions]
    whole = _whole_of(edges)
    for place, feature in enumerate(features):
        values = np.asarray(graph.edge_feature(edges.reversed_of or edges.name, feature.name)[positions])
        with np.errstate(over="ignore"):  # training refuses what becomes infinite
            kind = np.int64 if feature.name in whole else np.float32
            output.array(f"{folder}/{feature_file(number, place)}", values.astype(kind).reshape(-1, feature.width))
