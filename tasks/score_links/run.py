"""The work of stage `score_links`."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.baseline_warnings import link_warnings
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.gnn.sampler.links import (
    HELD_OUT,
    is_one_way,
    read_held_out,
    scores_of,
    sides_of_nodes,
    true_links_of,
)
from superworkflow.tasks.lib.gnn.sampler.triples import has_triples
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.auc import area_under_curve, average_precision
from superworkflow.tasks.lib.metrics.ranks import HITS_FILE, filtered_ranks, hits_of, rank_figures
from superworkflow.tasks.score_links import ScoreLinksParams
from superworkflow.tasks.score_links.candidates import candidate_ranks, has_own
from superworkflow.tasks.score_links.triples import score_triples
from superworkflow.tasks.score_links.vectors import read_vectors

load_kernels_fast()


def run(job: StageRun[ScoreLinksParams]) -> Output:
    """Judge vectors by the links that were held out; see `tasks.score_links`.

    Raises:
        UserError: no links were held out of the graph, or the vectors are not of its nodes.
    """
    graph, predictions, params = HeteroGraph.open(job.inputs["graph"]), job.inputs["predictions"], job.params
    if has_triples(graph.dataset):
        return score_triples(job, graph)
    held_out = read_held_out(graph)
    edges = graph.edge_sets[held_out.edges]
    one_set = edges.source == edges.target
    sources = read_vectors(predictions, "embeddings.parquet", graph.node_sets[edges.source].count)
    targets = sources
    if not one_set or "target_embeddings.parquet" in predictions:
        targets = read_vectors(predictions, "target_embeddings.parquet", graph.node_sets[edges.target].count)
    factors = predictions.array("factors.npy", mmap=False)
    if factors.shape != (sources.shape[1],) or sources.shape[1] != targets.shape[1]:
        raise damaged(predictions, "factors.npy", "vectors have other widths")
    directed = held_out.directed
    true_links, no_order = true_links_of(graph, held_out)
    sides = sides_of_nodes(graph, edges)
    metrics: dict[str, float] = {}
    hits: dict[str, dict[str, float]] = {}
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
                filtered_ranks(sources * factors, targets, ranked, true_links, no_order, sides),
                filtered_ranks(targets * factors, sources, ranked[:, ::-1], true_links[:, ::-1], no_order, sides),
            ])  # fmt: skip
        metrics |= {f"{name}@{split}": value for name, value in rank_figures(ranks, params.k).items()}
        hits[split] = hits_of(ranks)
    job.output.json("metrics.json", metrics)
    job.output.json(HITS_FILE, hits)
    judged = sum(map(len, held_out.links.values()))
    simple = job.inputs["baselines"].json("metrics.json") if "baselines" in job.inputs else {}
    warnings = link_warnings(metrics, simple)
    log_warnings(job.progress, warnings)
    return Output(rows=judged, metrics=metrics, stats=warning_stats(warnings))


def _predicted(predictions: Dataset, split: str, links: int) -> list[NDArray[np.float32]]:
    """Scores that a network whose links have times gave the links of a split, and the pairs without one."""
    table = predictions.table("predictions.parquet", ["linked", "split", "score"])
    found = []
    for linked in (True, False):
        chosen = pc.and_(pc.equal(table["split"], split), pc.equal(table["linked"], linked))
        found.append(table["score"].filter(chosen).to_numpy().astype(np.float32))
    if [len(each) for each in found] != [links, links]:
        raise damaged(predictions, "predictions.parquet", f"{links} links and as many pairs of the split {split}")
    return found
