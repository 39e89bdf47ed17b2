"""Results of a network that predicts pairs of nodes: links, and classes and numbers of edges."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output
from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.tasks.infer.at_times import AtTimes
from superworkflow.tasks.infer.files import (
    FACTORS,
    PIECE,
    PREDICTIONS,
    RELATIONS,
    ROW_GROUP,
    TARGET_VECTORS,
    VECTORS,
    write_probabilities,
    write_vectors,
)
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.gnn.model.config import Head
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.objective.edge_labels import EdgeLabels, has_edge_labels, read_edge_labels
from superworkflow.tasks.lib.gnn.objective.splits import SPLITS
from superworkflow.tasks.lib.gnn.sampler.links import HELD_OUT, is_directed, read_held_out, scores_of
from superworkflow.tasks.lib.gnn.sampler.triples import has_triples, queries, read_triples, triple_scores
from superworkflow.tasks.lib.graph.heterograph import PAIRS_FILE, EdgeSet, HeteroGraph

RowsByNodeSet = Mapping[str, NDArray[np.float32]]


def write_links(
    output: FileWriter, graph: HeteroGraph, network: Network, rows: RowsByNodeSet, at_times: AtTimes | None
) -> Output:  # fmt: skip
    """Write the rows of both ends' node sets, and the decoder's scores of the held-out pairs."""
    if has_triples(graph.dataset):
        return _write_triples(output, graph, network, rows)
    held_out = read_held_out(graph)
    edges = graph.edge_sets[held_out.edges]
    sources, targets = rows[edges.source], rows[edges.target]
    factors = np.ones(sources.shape[1], np.float32)
    learned = None if network.factors is None else network.factors.detach().cpu().numpy()
    is_complex = network.shape.head.decoder == "complex"
    if is_complex:
        targets = queries(targets, learned, "complex", True)
    elif learned is not None:
        factors = learned
    ids = _write_ends(output, graph, edges, sources, targets, is_complex)
    output.array(FACTORS, factors)
    parts, timed = [], {} if at_times is None else at_times.pairs(held_out, factors)
    for split in HELD_OUT:
        for linked, pairs in ((True, held_out.links[split]), (False, held_out.others[split])):
            found = timed.get((split, linked))
            found = scores_of(sources, targets, factors, pairs) if found is None else found
            scores = torch.from_numpy(found)
            parts.append(pa.table({
                "source": ids[edges.source].take(column(pairs[:, 0])).cast(pa.string()),
                "target": ids[edges.target].take(column(pairs[:, 1])).cast(pa.string()),
                "linked": pa.array(np.full(len(pairs), linked)),
                "split": pa.array([split] * len(pairs), pa.string()),
                "score": column(scores.numpy()),
                "probability": column(torch.sigmoid(scores).numpy()),
            }))  # fmt: skip
    output.table(PREDICTIONS, pa.concat_tables(parts), ROW_GROUP)
    count, pairs_there = sum(map(len, ids.values())), sum(map(len, parts))
    stats = {"rows": count, "nodes": count, "dimensions": sources.shape[1], "pairs": pairs_there}
    return Output(rows=count, stats=stats if at_times is None else stats | {"timed": pairs_there})


def _write_triples(output: FileWriter, graph: HeteroGraph, network: Network, rows: RowsByNodeSet) -> Output:
    """Write the rows of heads' and tails' node sets, the relations' factors, and the scores of held-out triples."""
    held_out, head = read_triples(graph), network.shape.head
    edges = graph.edge_sets[head.edges]
    if head.relations != held_out.relations or network.factors is None:
        raise UserError("the network has other relations", where=graph.dataset.uri,
                        value=", ".join(head.relations)[:200], remedy="Give its own graph")  # fmt: skip
    heads, tails = rows[edges.source], rows[edges.target]
    ids = _write_ends(output, graph, edges, heads, tails)
    factors = network.factors.detach().cpu().numpy()
    output.array(FACTORS, factors)
    output.json(RELATIONS, {"decoder": head.decoder, "relations": list(head.relations)})
    names, parts = pa.array(head.relations, pa.string()), []
    for split in HELD_OUT:
        for linked, triples in ((True, held_out.triples[split]), (False, held_out.others[split])):
            scores = torch.from_numpy(triple_scores(heads, tails, factors, head.decoder, triples))
            parts.append(pa.table({
                "source": ids[edges.source].take(column(triples[:, 0])).cast(pa.string()),
                "relation": names.take(column(triples[:, 1])),
                "target": ids[edges.target].take(column(triples[:, 2])).cast(pa.string()),
                "linked": pa.array(np.full(len(triples), linked)),
                "split": pa.array([split] * len(triples), pa.string()),
                "score": column(scores.numpy()),
                "probability": column(torch.sigmoid(scores).numpy()),
            }))  # fmt: skip
    output.table(PREDICTIONS, pa.concat_tables(parts), ROW_GROUP)
    count = sum(map(len, ids.values()))
    return Output(rows=count, stats={
        "rows": count, "nodes": count, "dimensions": heads.shape[1], "pairs": sum(map(len, parts)),
        "relations": len(names),
    })  # fmt: skip


def write_edges(output: FileWriter, graph: HeteroGraph, network: Network, rows: RowsByNodeSet) -> Output:
    """Write the rows of both ends' node sets, and the predictions of labelled edges; of a graph without, of all.

    Of an edge list without direction that was read for the network each pair is written once, its ends in the order of
    the row; of other edges without direction with the mean of the outputs of its two orders.
    """
    head = network.shape.head
    labels = read_edge_labels(graph) if has_edge_labels(graph.dataset) else None
    edges = graph.edge_sets[labels.edges if labels else head.edges]
    pairs = labels.pairs if labels else _pairs_of(graph, edges)
    ids = _write_ends(output, graph, edges, rows[edges.source], rows[edges.target])
    if labels is None and PAIRS_FILE in graph.dataset:
        pairs = graph.dataset.array(PAIRS_FILE).astype(np.int64)
        outputs = decoded(network, edges, rows, pairs)
    elif labels is None and not is_directed(graph, edges):
        pairs = pairs[pairs[:, 0] <= pairs[:, 1]]
        orders = [decoded(network, edges, rows, each) for each in (pairs, pairs[:, ::-1])]
        outputs = np.asarray((orders[0] + orders[1]) / 2, np.float32)
    else:
        outputs = decoded(network, edges, rows, pairs)
    columns = edge_columns(head, (ids[edges.source], ids[edges.target]), pairs, outputs, labels)
    if head.classes:
        write_probabilities(output, network.shape, outputs)
    output.table(PREDICTIONS, pa.table(columns), ROW_GROUP)
    count, kinds = sum(map(len, ids.values())), {"classes": len(head.classes)} if head.classes else {}
    return Output(rows=count, stats={
        "rows": count, "nodes": count, "dimensions": head.width, "pairs": len(pairs), **kinds,
    })  # fmt: skip


def _write_ends(
    output: FileWriter, graph: HeteroGraph, edges: EdgeSet, sources: NDArray[np.float32], targets: NDArray[np.float32],
    apart: bool = False,
) -> dict[str, pa.Array]:  # fmt: skip
    """Write vectors of the nodes in which edges start and end, of one node set once unless `apart`; their names."""
    ids = {name: graph.ids(name).combine_chunks() for name in (edges.source, edges.target)}
    with output.file(VECTORS) as path:
        write_vectors(path, ids[edges.source], sources)
    if apart or edges.source != edges.target:
        with output.file(TARGET_VECTORS) as path:
            write_vectors(path, ids[edges.target], targets)
    return ids


def decoded(network: Network, edges: EdgeSet, rows: RowsByNodeSet, pairs: NDArray[np.int64]) -> NDArray[np.float32]:
    """Outputs of the decoder for pairs, float32 [pairs, outputs].

    Args:
        network: the trained network.
        edges: set of the pairs.
        rows: rows of the nodes after the last layer, by node set.
        pairs: source and target, int64 [pairs, 2].
    """
    assert network.decoder is not None
    made = np.empty((len(pairs), network.shape.head.outputs), np.float32)
    for first in range(0, len(pairs), PIECE):
        part = pairs[first : first + PIECE]
        ends = [
            torch.from_numpy(rows[name][part[:, i]]).to(network.device)
            for i, name in enumerate((edges.source, edges.target))
        ]
        made[first : first + PIECE] = network.decoder(*ends).detach().cpu().numpy()
    return made


def _pairs_of(graph: HeteroGraph, edges: EdgeSet) -> NDArray[np.int64]:
    """Source and target of all edges of a set, int64 [edges, 2], in its order."""
    indptr, indices = graph.rows(edges.name)
    return np.stack([np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), indices], 1).astype(np.int64, copy=False)


def edge_columns(
    head: Head, ends: tuple[pa.Array, pa.Array], pairs: NDArray[np.int64], outputs: NDArray[np.float32],
    labels: EdgeLabels | None,
) -> dict[str, pa.Array]:  # fmt: skip
    """Columns of the predictions of edges.

    Args:
        head: classes, or mean and scale of the numbers.
        ends: names of the nodes of the sets in which edges start and end.
        pairs: source and target of each edge, int64 [edges, 2].
        outputs: of the decoder, [edges, classes], or [edges, 1] standardised numbers.
        labels: of these edges; None for a graph without, whose labels and splits are null.
    """
    found = {name: ids.take(column(pairs[:, i])).cast(pa.string())
             for i, (name, ids) in enumerate(zip(("source", "target"), ends, strict=True))}  # fmt: skip
    kind = pa.string() if head.classes else pa.float64()
    if head.classes:
        likely, best = torch.softmax(torch.from_numpy(outputs), 1).max(1)
        found["predicted"] = pa.array(head.classes, kind).take(column(best.numpy()))
        found["probability"] = column(likely.numpy())
    else:
        found["predicted"] = column(outputs[:, 0].astype(np.float64) * head.scale + head.mean)
    if labels is None:
        return found | {"label": pa.nulls(len(pairs), kind), "split": pa.nulls(len(pairs), pa.string())}
    own = pa.array(labels.classes, kind).take(column(labels.values)) if labels.classes else column(labels.values)
    return found | {"label": own, "split": pa.array(SPLITS, pa.string()).take(column(labels.splits.astype(np.int64)))}
