"""Projection of node vectors into the plane, with labels, degrees and neighbours, for a panel.

Some nodes are placed by principal components and t-SNE; each other one between those whose vectors are the most
similar to its own, as new points are placed on an existing map (Poličar et al., openTSNE, 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.contract.panel import MOST_POINTS, Colouring, Links, Part, points
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.embeddings import EMBEDDINGS, dimensions_of, open_embeddings, vectors_of
from superworkflow.tasks.lib.graph.heterograph import GRAPH_FILE, HeteroGraph
from superworkflow.tasks.lib.projection import project

ANCHORS = 1500
"""Nodes that t-SNE places; it takes two seconds for them."""
_NEAREST, _SHARPNESS = 5, 20.0
_MOST_NEIGHBOURS, _MOST_LINKS = 30, 400_000
_MOST_BYTES = 4 << 30
"""Size of vectors above which there is no projection: reading them would take long."""
_PIECE = 4096
_SEED = 0


class _Graph(NamedTuple):
    """Nodes of a graph by name, and its rows."""

    names: pa.Array
    indptr: NDArray[np.int64]
    indices: NDArray[Any]


def projection(datasets: Mapping[str, Dataset]) -> Part | None:
    """Projection of the vectors of the first dataset.

    Of the others are taken, where there are any: a graph for degrees and neighbours, labels of its nodes or
    predictions, and places of some nodes (`projection.parquet`).
    """
    embeddings, *others = datasets.values()
    if EMBEDDINGS not in embeddings or embeddings.manifest.bytes > _MOST_BYTES:
        return None
    names, vectors, nodes = _sampled(embeddings)
    if len(names) < 3:
        return None
    plane, placed = _plane(names, vectors, others)
    graph = next((found for each in others if (found := _graph(each)) is not None), None)
    vertices = None if graph is None else _found(names, graph.names)
    colourings = []
    for dataset in (embeddings, *others):
        colourings += _labels(dataset, names, vertices)
    links = None
    if graph is not None and vertices is not None:
        degrees = np.where(vertices >= 0, np.diff(graph.indptr)[np.maximum(vertices, 0)], 0)
        colourings.append(Colouring("degree", values=degrees))
        links = _links(graph, vertices)
    sampled = f"{len(names):,} of {nodes:,} nodes" if nodes > len(names) else f"{nodes:,} nodes"
    method = "principal components, then t-SNE"
    if placed < len(names):
        method += f" of {placed:,}; the others are placed between those with the most similar vectors"
    most = "" if links is None else f" Of a node's neighbours {_most_neighbours(len(names))} at most are shown."
    return points(plane[:, 0], plane[:, 1], names.to_pylist(), colourings=colourings, links=links,
                  note=f"{sampled}: {method}.{most}")  # fmt: skip


def _sampled(embeddings: Dataset) -> tuple[pa.Array, NDArray[np.float32], int]:
    """Names and vectors of evenly spaced nodes, and the number of all; of large files some row groups are read."""
    with open_embeddings(embeddings) as file:
        width = dimensions_of(file.schema_arrow, embeddings)
        nodes, groups = file.metadata.num_rows, file.metadata.num_row_groups
        chosen = np.arange(groups)
        if nodes > 4 * MOST_POINTS:
            wanted = max(1, int(np.ceil(groups * 2 * MOST_POINTS / nodes)))
            chosen = np.unique(np.linspace(0, groups - 1, wanted).astype(np.int64))
        found = file.read_row_groups(chosen.tolist(), columns=["node", "vector"]) if groups else None
    if found is None or not len(found):
        return pa.array([], pa.large_string()), np.zeros((0, width), np.float32), 0
    rows = np.arange(len(found)) if len(found) <= MOST_POINTS else np.linspace(0, len(found) - 1, MOST_POINTS)
    part = found.take(pa.array(rows.astype(np.int64))).combine_chunks()
    vectors = np.concatenate([vectors_of(each, width) for each in part.to_batches()])
    return part["node"].cast(pa.large_string()).combine_chunks(), vectors, nodes


def _plane(
    names: pa.Array, vectors: NDArray[np.float32], others: list[Dataset]
) -> tuple[NDArray[np.float32], int]:  # fmt: skip
    """Places of all nodes, and the number of those placed by t-SNE."""
    rows, places = np.zeros(0, np.int64), np.zeros((0, 2), np.float32)
    for dataset in others:
        if "projection.parquet" in dataset:
            table = dataset.table("projection.parquet", ["node", "x", "y"])
            found = _found(table["node"].combine_chunks().cast(pa.large_string()), names)
            rows = found[found >= 0]
            places = np.stack([table[axis].to_numpy()[found >= 0] for axis in "xy"], axis=1).astype(np.float32)
    if len(rows) < min(ANCHORS, len(names)) // 2:
        rows = np.unique(np.linspace(0, len(names) - 1, min(ANCHORS, len(names))).astype(np.int64))
        places = project(vectors[rows], _SEED)
    plane = np.zeros((len(names), 2), np.float32)
    plane[rows] = places
    rest = np.setdiff1d(np.arange(len(names)), rows)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    nearest = min(_NEAREST, len(rows))
    for first in range(0, len(rest), _PIECE):
        piece = rest[first : first + _PIECE]
        alike = unit[piece] @ unit[rows].T
        best = np.argpartition(-alike, nearest - 1, axis=1)[:, :nearest]
        near = np.take_along_axis(alike, best, axis=1)
        weights = np.exp(_SHARPNESS * (near - near.max(axis=1, keepdims=True)))
        weights /= weights.sum(axis=1, keepdims=True)
        plane[piece] = np.einsum("nk,nkd->nd", weights, places[best])
    return plane, len(rows)


def _graph(dataset: Dataset) -> _Graph | None:
    """A graph of one set of nodes and its rows."""
    if "vertices.parquet" in dataset and "indptr.npy" in dataset:
        names = dataset.table("vertices.parquet", ["node"])["node"]
        return _Graph(_texts(names), dataset.array("indptr.npy"), dataset.array("indices.npy"))
    if GRAPH_FILE not in dataset:
        return None
    graph = HeteroGraph.open(dataset)
    if len(graph.node_sets) != 1 or not graph.edge_sets:
        return None
    rows = graph.rows(next(iter(graph.edge_sets)))
    return _Graph(_texts(graph.ids(next(iter(graph.node_sets)))), rows.indptr, rows.indices)


def _texts(column: pa.ChunkedArray) -> pa.Array:
    return column.cast(pa.large_string()).combine_chunks()


def _found(names: pa.Array, among: pa.Array) -> NDArray[np.int64]:
    """Place of each name among others; -1 for none."""
    if isinstance(among, pa.ChunkedArray):
        among = among.combine_chunks()
    places = pc.fill_null(pc.index_in(names, value_set=among), -1)
    return np.asarray(places.to_numpy(zero_copy_only=False), np.int64)


def _most_neighbours(nodes: int) -> int:
    return max(1, min(_MOST_NEIGHBOURS, 2 * _MOST_LINKS // max(1, nodes)))


def _links(graph: _Graph, vertices: NDArray[np.int64]) -> Links:
    """Neighbours among the sampled nodes; of a node with very many the first ones."""
    most = _most_neighbours(len(vertices))
    row_of = np.full(len(graph.names), -1, np.int64)
    row_of[vertices[vertices >= 0]] = np.flatnonzero(vertices >= 0)
    starts, counts = np.zeros(len(vertices) + 1, np.int64), np.zeros(len(vertices), np.int64)
    ends: list[NDArray[np.int64]] = []
    for row, vertex in enumerate(vertices.tolist()):
        if vertex >= 0:
            near = row_of[graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]]
            near = near[near >= 0][:most]
            counts[row] = len(near)
            ends.append(near)
    starts[1:] = np.cumsum(counts)
    return Links(starts, np.concatenate(ends) if ends else np.zeros(0, np.int64))


def _labels(dataset: Dataset, names: pa.Array, vertices: NDArray[np.int64] | None) -> list[Colouring]:
    """Labels of a label dataset or of predictions."""
    if "kinds.npy" in dataset and "names.json" in dataset and vertices is not None:
        kinds = dataset.json("names.json")
        offsets, own = dataset.array("offsets.npy"), dataset.array("kinds.npy")
        labelled = dataset.array("vertices.npy")
        first = np.full(max(vertices.max(initial=0), labelled.max(initial=0)) + 1, -1, np.int64)
        first[labelled] = own[offsets[:-1]]
        codes = np.where(vertices >= 0, first[np.maximum(vertices, 0)], -1)
        return [_by_frequency("label", kinds, codes)]
    if "predictions.parquet" not in dataset:
        return []
    with dataset.parquet("predictions.parquet") as file:
        if not {"node", "label", "predicted"} <= set(file.schema_arrow.names):
            return []
        table = file.read(["node", "label", "predicted"])
    rows = _found(names, _texts(table["node"]))
    found = []
    for name in ("label", "predicted"):
        column = table[name].combine_chunks()
        if pa.types.is_floating(column.type):
            values = column.to_numpy(zero_copy_only=False)[np.maximum(rows, 0)]
            found.append(Colouring(name, values=np.where((rows >= 0) & np.isfinite(values), values, 0.0)))
            continue
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            column = pc.list_element(pc.if_else(pc.greater(pc.list_value_length(column), 0), column, None), 0)
        coded = pc.dictionary_encode(column.cast(pa.large_string()))
        codes = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        codes = np.where(rows >= 0, codes[np.maximum(rows, 0)], -1)
        found.append(_by_frequency(name, coded.dictionary.to_pylist(), codes))
    return found


def _by_frequency(name: str, kinds: list[str], codes: NDArray[np.int64]) -> Colouring:
    """Kinds in the order of their frequencies, which is that of their colours."""
    counts = np.bincount(codes[codes >= 0], minlength=len(kinds))
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(kinds), np.int64)
    place[order] = np.arange(len(kinds))
    recoded = np.where(codes >= 0, place[np.maximum(codes, 0)], -1) if len(kinds) else codes
    return Colouring(name, [str(kinds[number]) for number in order], recoded)
