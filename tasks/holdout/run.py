"""The work of the holdout stage; see the package for its protocol."""

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.holdout import HoldoutParams
from superworkflow.tasks.holdout.split import candidate_pairs, draw, edges_of, non_edges, spanning_forest
from superworkflow.tasks.lib.edge_list.bipartite import side_vertices
from superworkflow.tasks.lib.graph import csr
from superworkflow.tasks.lib.graph.graph_writer import write_graph
from superworkflow.tasks.lib.graph.integrity import check_rows, unfit
from superworkflow.tasks.lib.graph.two_sides import nodes_by_side, two_sides
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.kernels.permutation import key

load_kernels_fast()
_FOREST, _HIDDEN, _NEGATIVES, _TRAIN = range(4)  # what the keys of the random orders are for

_OTHERWISE = "; set node2vec.link_prediction=false to leave it out"


def run(job: StageRun[HoldoutParams]) -> Output:
    """Split one graph.

    Raises:
        UserError: no edge can be hidden, or there are too few pairs without an edge.
    """
    graph, params = job.inputs["graph"], job.params
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    directed, weighted = bool(graph.stats["directed"]), bool(graph.stats["weighted"])
    indptr, indices = graph.array("indptr.npy", mmap=False), graph.array("indices.npy")
    vertices = len(indptr) - 1
    check_rows(graph.uri, indptr, indices, graph.array("weights.npy") if weighted else None, vertices)
    count = len(indices) if directed else len(indices) // 2
    edges, arcs = np.empty(count, np.uint64), np.empty(count if weighted else 0, np.int64)
    if edges_of(indptr, indices, directed, edges, arcs) != count:
        raise unfit(graph.uri, "an undirected graph has arcs in one row only")
    weights = graph.array("weights.npy")[arcs] if weighted else None
    del arcs

    job.progress.log(f"{vertices} vertices, {count} edges; finding a spanning forest")
    taken = np.zeros(count, np.bool_)
    forest = spanning_forest(edges, vertices, key(params.seed, _FOREST), taken)
    removable, wanted = count - forest, max(1, round(params.fraction * count))
    if not removable:
        raise UserError(
            "no edge can be held out: removing any of them would disconnect the graph", where=graph.uri,
            value=f"{vertices} vertices, {count} edges",
            remedy=f"Link prediction needs a graph with cycles{_OTHERWISE}",
        )  # fmt: skip
    sides = side_vertices(_names(graph), graph.stats) if graph.stats.get("bipartite") else None
    if sides is None and not directed and len(found := two_sides(indptr, indices)):
        sides = nodes_by_side(found)
        job.progress.log(f"all edges join one of two sets of vertices with the other ({len(sides[0])} and "
                         f"{len(sides[1])}): pairs without an edge are drawn across them")  # fmt: skip
    free = candidate_pairs(vertices, directed, sides) - count
    if free < 2:
        which = "" if sides is None else " of different sides"
        raise UserError(
            f"too few pairs of vertices{which} without an edge: 2 needed", where=graph.uri, value=free,
            remedy=f"Link prediction needs a sparser graph{_OTHERWISE}",
        )  # fmt: skip
    few, why = min((removable, "the others keep the graph connected"),
                   (free // 2, "as many pairs without an edge are tested, and as many learned from"))  # fmt: skip
    if few < wanted:
        job.progress.log(f"only {few} of {wanted} edges can be held out; {why}")
    hidden = draw(taken, min(wanted, few), key(params.seed, _HIDDEN))
    del taken

    train = min(params.max_pairs, count - len(hidden), free - len(hidden))
    negatives = non_edges(indptr, indices, directed, len(hidden) + train, key(params.seed, _NEGATIVES), sides)
    kept = np.ones(count, np.bool_)
    kept[hidden] = False
    chosen = draw(~kept, train, key(params.seed, _TRAIN))
    output = job.output
    output.array("positives.npy", _pairs(edges[hidden]))
    output.array("negatives.npy", negatives[: len(hidden)])
    output.array("train_positives.npy", _pairs(edges[chosen]))
    output.array("train_negatives.npy", negatives[len(hidden) :])
    del negatives

    job.progress.log(f"{len(hidden)} edges held out; writing the residual graph")
    edges, weights = edges[kept], weights[kept] if weights is not None else None
    counts = csr.count_ends(edges, vertices, job.threads)
    stats = write_graph(output, edges, weights, counts, _names(graph), symmetric=not directed)
    return Output(
        rows=len(hidden),
        stats={
            **graph.stats,
            **stats,
            "positives": len(hidden),
            "negatives": len(hidden),
            "train_pairs": train,
            "removable": removable,
            "fraction_removed": len(hidden) / count,
            "components": vertices - forest,
            "bytes": output.bytes_written,
        },
    )


def _names(graph: Dataset) -> pa.Array:
    return graph.table("vertices.parquet", ["node"]).column(0).combine_chunks()


def _pairs(edges: csr.Edges) -> NDArray[np.int64]:
    return csr.unpack(edges).astype(np.int64)
