"""The work of stage `predict_links`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.gnn.link_scores import LinkPaths, LinkScores, probabilities, read_correction
from superworkflow.tasks.lib.gnn.sampler.links import read_held_out, sides_of_nodes, true_links_of
from superworkflow.tasks.lib.gnn.sampler.triples import has_triples, loop_free, read_triples, triples_of
from superworkflow.tasks.lib.gnn.triple_scores import TripleScores
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, HeteroGraph
from superworkflow.tasks.lib.kernels.largest import largest_in_blocks
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.ranks import TrueLinks, Vectors, products
from superworkflow.tasks.predict_links import LINKS, MOST_STEPS, PredictLinksParams, most_queries

load_kernels_fast()
_ROW_GROUP = 1 << 17
Nodes = NDArray[np.int64]


class _Queries(NamedTuple):
    """Nodes that links are predicted of.

    Args:
        nodes: numbers of sources, int64 [nodes], ascending.
        scores: of some of them with all targets, float32 [nodes, targets].
        left_out: pairs that are left out.
        relation: of the links; empty where there is but one.
    """

    nodes: Nodes
    scores: Callable[[Nodes], Vectors]
    left_out: TrueLinks
    relation: str = ""


def run(job: StageRun[PredictLinksParams]) -> Output:
    """Write the likeliest links; see `tasks.predict_links`.

    Raises:
        UserError: no links were held out of the graph, or the vectors are not of its nodes.
    """
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    graph = HeteroGraph.open(job.inputs["graph"])
    triples = has_triples(graph.dataset)
    edges, total, found = (_of_triples if triples else _of_links)(job, graph)
    sources, targets = (graph.ids(name).combine_chunks().cast(pa.string()) for name in (edges.source, edges.target))
    done, parts = 0, []
    for queries in found:
        for count, best in largest_in_blocks(
            queries.nodes, len(targets), job.params.k, queries.scores, queries.left_out.among
        ):  # fmt: skip
            parts.append(pa.table({
                "source": sources.take(column(best.sources)),
                **({"relation": pa.array([queries.relation] * len(best.ranks), pa.string())} if triples else {}),
                "target": targets.take(column(best.targets)),
                "rank": column(best.ranks),
                "score": column(best.scores),
                "probability": column(probabilities(best.scores)),
            }))  # fmt: skip
            done += count
            job.progress.update(done, total, "nodes")
    table = pa.concat_tables(parts)
    job.output.table(LINKS, table, _ROW_GROUP)
    return Output(rows=len(table), stats={"rows": len(table)})


def _of_links(job: StageRun[PredictLinksParams], graph: HeteroGraph) -> tuple[EdgeSet, int, Iterable[_Queries]]:
    """The edge set, the number of nodes, and these."""
    held_out = read_held_out(graph)
    edges = graph.edge_sets[held_out.edges]
    scores = LinkScores(graph, held_out, job.inputs["predictions"])
    true_links, no_order = true_links_of(graph, held_out)
    count = len(scores.sources)
    starts = true_links if no_order else true_links[:, :1]
    nodes = np.argsort(-np.bincount(starts.ravel(), minlength=count), kind="stable")
    nodes = nodes[: most_queries(job.params.nodes, *scores.targets.shape)]
    if correction := read_correction(job.inputs.get("corrected")):
        link_paths = LinkPaths.of(graph, held_out, whole=True)
        scores = scores.corrected(correction, link_paths)
        nodes = nodes[: max(1, link_paths.paths.affordable(nodes, MOST_STEPS))]
    _log_chosen(job, len(nodes), count, "nodes")
    left_out = TrueLinks.of_pairs(true_links, count, no_order, sides_of_nodes(graph, edges))
    return edges, len(nodes), [_Queries(np.sort(nodes), partial(scores.rows, 0, others=scores.targets), left_out)]


def _of_triples(job: StageRun[PredictLinksParams], graph: HeteroGraph) -> tuple[EdgeSet, int, Iterable[_Queries]]:
    """The first edge set, the number of heads with a relation, and these, a relation at a time."""
    held_out = read_triples(graph)
    scores = TripleScores(graph, held_out, job.inputs["predictions"])
    learned, heads = triples_of(graph, held_out.relations), np.arange(len(scores.heads))
    true_triples = np.concatenate([learned, *held_out.triples.values()])
    free = loop_free(learned, len(held_out.relations), scores.tails is scores.heads)
    pairs, counts = np.unique(true_triples[:, 1::-1], axis=0, return_counts=True)  # of relations and heads
    most = most_queries(job.params.nodes, *scores.tails.shape)
    chosen = pairs[np.sort(np.argsort(-counts, kind="stable")[:most])]
    _log_chosen(job, len(chosen), len(pairs), "heads with a relation")

    def of_relation(relation: int) -> _Queries:
        links = true_triples[true_triples[:, 1] == relation][:, ::2]
        if free[relation]:
            links = np.concatenate([links, np.stack([heads, heads], 1)])
        rows, tails = scores.sides(relation)[0]
        return _Queries(
            chosen[chosen[:, 0] == relation, 1], lambda nodes: products(rows[nodes], tails),
            TrueLinks.of_pairs(links, len(heads), False), held_out.relations[relation],
        )  # fmt: skip

    return graph.edge_sets[held_out.relations[0]], len(chosen), map(of_relation, np.unique(chosen[:, 0]).tolist())


def _log_chosen(job: StageRun[PredictLinksParams], chosen: int, count: int, unit: str) -> None:
    few = "" if chosen == count else f" of {count:,}, those with most links (predict_links.nodes)"
    job.progress.log(f"links are predicted of {chosen:,} {unit}{few}")
