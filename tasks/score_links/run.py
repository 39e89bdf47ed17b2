"""The work of stage `score_links`."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.baseline_warnings import link_warnings
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.gnn.sampler.links import (
    HELD_OUT,
    Pairs,
    is_one_way,
    links_of,
    read_held_out,
    scores_of,
    sides_of_nodes,
)
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.auc import area_under_curve, average_precision
from superworkflow.tasks.score_links import ScoreLinksParams
from superworkflow.tasks.score_links.candidates import candidate_ranks, has_own

load_kernels_fast()
Vectors = NDArray[np.float32]
_BLOCK_BYTES = 32 << 20
_NO_SIDES = np.empty(0, np.int8)


def run(job: StageRun[ScoreLinksParams]) -> Output:
    """Judge vectors by the links that were held out; see `tasks.score_links`.

    Raises:
        UserError: no links were held out of the graph, or the vectors are not of its nodes.
    """
    graph, predictions, params = HeteroGraph.open(job.inputs["graph"]), job.inputs["predictions"], job.params
    held_out = read_held_out(graph)
    edges = graph.edge_sets[held_out.edges]
    one_set = edges.source == edges.target
    sources = _vectors(predictions, "embeddings.parquet", graph.node_sets[edges.source].count)
    targets = sources
    if not one_set or "target_embeddings.parquet" in predictions:
        targets = _vectors(predictions, "target_embeddings.parquet", graph.node_sets[edges.target].count)
    factors = predictions.array("factors.npy", mmap=False)
    if factors.shape != (sources.shape[1],) or sources.shape[1] != targets.shape[1]:
        raise damaged(predictions, "factors.npy", "vectors have other widths")
    rows, directed = graph.rows(edges.name), held_out.directed
    true_links = np.concatenate([links_of(rows, one_set and not directed), *held_out.links.values()])
    if directed:  # a node has no link with itself
        true_links = np.concatenate([true_links, np.stack([np.arange(len(sources))] * 2, 1)])
        one_set = False
    sides = sides_of_nodes(graph, edges)
    metrics: dict[str, float] = {}
    for split in HELD_OUT:
        links, others = held_out.links[split], held_out.negatives(split)
        if not len(links):
            continue
        timed = bool(predictions.stats.get("timed"))
        if timed:
            scored = _predicted(predictions, split, len(links))
        else:
            scored = [scores_of(sources, targets, factors, pairs) for pairs in (links, others)]
        metrics |= {f"auc@{split}": area_under_curve(*scored), f"ap@{split}": average_precision(*scored)}
        if directed:
            one_way = is_one_way(links, links)
            back = scores_of(sources, targets, factors, links[one_way][:, ::-1])
            better = np.sign(scored[0][one_way] - back)
            if len(better):
                metrics[f"direction@{split}"] = float((better + 1).mean() / 2)
        if timed:
            continue  # each rank would need the rows of all nodes at the link's time
        ranked = links[: params.ranked]
        if split in held_out.candidates:
            by_source = params.among == "source" or (params.among == "auto" and has_own(links, others))
            job.progress.log(f"{split} links are ranked among the given pairs{' of their sources' * by_source}")
            ranks = candidate_ranks(scored[0][: params.ranked], ranked, scored[1], others, by_source)
        else:
            ranks = np.concatenate([
                filtered_ranks(sources * factors, targets, ranked, true_links, one_set, sides),
                filtered_ranks(targets * factors, sources, ranked[:, ::-1], true_links[:, ::-1], one_set, sides),
            ])  # fmt: skip
        metrics |= {f"mrr@{split}": float((1 / ranks).mean()), f"hits_at_k@{split}": float((ranks <= params.k).mean())}
    job.output.json("metrics.json", metrics)
    judged = sum(map(len, held_out.links.values()))
    simple = job.inputs["baselines"].json("metrics.json") if "baselines" in job.inputs else {}
    warnings = link_warnings(metrics, simple)
    log_warnings(job.progress, warnings)
    return Output(rows=judged, metrics=metrics, stats=warning_stats(warnings))


def _predicted(predictions: Dataset, split: str, links: int) -> list[NDArray[np.float32]]:
    """Scores that a network whose links have times gave the links of a split, and the pairs without one."""
    with predictions.parquet("predictions.parquet") as file:
        table = file.read(["linked", "split", "score"])
    found = []
    for linked in (True, False):
        chosen = pc.and_(pc.equal(table["split"], split), pc.equal(table["linked"], linked))
        found.append(table["score"].filter(chosen).to_numpy().astype(np.float32))
    if [len(each) for each in found] != [links, links]:
        raise damaged(predictions, "predictions.parquet", f"{links} links and as many pairs of the split {split}")
    return found


def filtered_ranks(
    sources: Vectors,
    targets: Vectors,
    links: Pairs,
    true_links: Pairs,
    one_set: bool,
    sides: NDArray[np.int8] = _NO_SIDES,
) -> NDArray[np.float64]:
    """Rank of each link among the pairs of its source with all targets but those that are links.

    Args:
        sources, targets: vectors of the nodes, of which a pair's score is the product.
        links: int64 [n, 2].
        true_links: all links, int64 [m, 2].
        one_set: sources are targets: links have no direction, and a node is no target of its own.
        sides: side of each node, whose targets are on another; empty where all nodes are targets.

    Returns:
        float64 [n], from 1.
    """
    if one_set:
        nodes = np.arange(len(sources))
        true_links = np.concatenate([true_links, true_links[:, ::-1], np.stack([nodes, nodes], 1)])
    order = np.lexsort((true_links[:, 1], true_links[:, 0]))
    ends = true_links[order, 1]
    starts = np.searchsorted(true_links[order, 0], np.arange(len(sources) + 1))
    ranks = np.empty(len(links))
    size = max(1, _BLOCK_BYTES // (4 * len(targets)))
    for first in range(0, len(links), size):
        part = links[first : first + size]
        scores = sources[part[:, 0]] @ targets.T
        own = scores[np.arange(len(part)), part[:, 1]]
        for i, source in enumerate(part[:, 0]):
            scores[i, ends[starts[source] : starts[source + 1]]] = -np.inf
            if len(sides):
                scores[i, sides == sides[source]] = -np.inf
        above, equal = (scores > own[:, None]).sum(axis=1), (scores == own[:, None]).sum(axis=1)
        ranks[first : first + size] = 1 + above + equal / 2
    return ranks


def _vectors(predictions: Dataset, name: str, nodes: int) -> Vectors:
    if name not in predictions:
        raise UserError(f"the predictions have no {name}: they are of no links", where=predictions.uri,
                        remedy="Give the output of stage infer, of a network that predicts links")  # fmt: skip
    with predictions.parquet(name) as file:
        column = file.read(["vector"])["vector"].combine_chunks()
    if len(column) != nodes:
        raise damaged(predictions, name, f"{nodes} vectors for as many nodes")
    vectors: Vectors = column.flatten().to_numpy().reshape(nodes, -1)
    if vectors.dtype != np.float32 or not np.isfinite(vectors).all():
        raise damaged(predictions, name, "vectors are finite numbers")
    return vectors
