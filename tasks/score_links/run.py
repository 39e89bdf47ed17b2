"""The work of stage `score_links`."""

from __future__ import annotations

from functools import partial

import numba as nb
import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.baseline_warnings import link_warnings
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.gnn.link_scores import LinkPaths, LinkScores, read_correction
from superworkflow.tasks.lib.gnn.sampler.links import (
    HELD_OUT,
    Pairs,
    is_one_way,
    read_held_out,
    sides_of_nodes,
    true_links_of,
)
from superworkflow.tasks.lib.gnn.sampler.triples import has_triples
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.figures import area_under_curve, average_precision
from superworkflow.tasks.lib.metrics.ranks import (
    HITS_FILE,
    candidate_ranks,
    filtered_ranks,
    has_own,
    hits_of,
    rank_figures,
)
from superworkflow.tasks.score_links import MOST_STEPS, ScoreLinksParams
from superworkflow.tasks.score_links.triples import score_triples

load_kernels_fast()


def run(job: StageRun[ScoreLinksParams]) -> Output:
    """Judge vectors by the links that were held out; see `tasks.score_links`.

    Raises:
        UserError: no links were held out of the graph, or the vectors are not of its nodes.
    """
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    graph, predictions, params = HeteroGraph.open(job.inputs["graph"]), job.inputs["predictions"], job.params
    if has_triples(graph.dataset):
        return score_triples(job, graph)
    held_out = read_held_out(graph)
    edges = graph.edge_sets[held_out.edges]
    correction = read_correction(job.inputs.get("corrected"))
    link_paths = LinkPaths.of(graph, held_out) if correction else None
    network = LinkScores(graph, held_out, predictions)
    scores = network.corrected(correction, link_paths) if correction and link_paths else network
    true_links, no_order = true_links_of(graph, held_out)
    sides = sides_of_nodes(graph, edges)
    timed = bool(predictions.stats.get("timed"))
    metrics: dict[str, float] = {}
    hits: dict[str, dict[str, float]] = {}

    def ranks_of(own: LinkScores, links: Pairs) -> NDArray[np.float64]:
        """Filtered ranks of links among the pairs of their sources, and then of their targets."""
        return np.concatenate([
            filtered_ranks(np.arange(len(ends)), others, links[:, ::way], true_links[:, ::way], no_order, sides,
                           partial(own.rows, side))
            for side, (ends, others, way) in enumerate(
                ((own.sources, own.targets, 1), (own.targets, own.sources, -1))
            )
        ])  # fmt: skip

    for split in HELD_OUT:
        links, others = held_out.links[split], held_out.negatives(split)
        if not len(links):
            continue
        ranked = links[: params.ranked]
        if link_paths is not None and split not in held_out.candidates:
            ranked = ranked[: max(1, link_paths.paths.affordable(link_paths.numbers(ranked), MOST_STEPS))]
            if len(ranked) < min(len(links), params.ranked):
                job.progress.log(f"the first {len(ranked):,} {split} links are ranked, whose paths are minutes' work")
        for prefix, own in (("", scores), *([("network_", network)] if correction else [])):
            if timed:
                scored = _predicted(predictions, split, len(links))
            else:
                scored = [own.of_pairs(pairs) for pairs in (links, others)]
            metrics |= {
                f"{prefix}auc@{split}": area_under_curve(*scored), f"{prefix}ap@{split}": average_precision(*scored),
            }  # fmt: skip
            if held_out.directed:
                one_way = is_one_way(links, links)
                better = np.sign(scored[0][one_way] - own.of_pairs(links[one_way][:, ::-1]))
                if len(better):
                    metrics[f"{prefix}direction@{split}"] = float((better + 1).mean() / 2)
            if timed:
                continue  # each rank would need the rows of all nodes at the link's time
            if split in held_out.candidates:
                by_source = params.among == "source" or (params.among == "auto" and has_own(links, others))
                if not prefix:
                    job.progress.log(f"{split} links are ranked among the given pairs{' of their sources' * by_source}")
                ranks = candidate_ranks(scored[0][: len(ranked)], ranked, scored[1], others, by_source)
            else:
                ranks = ranks_of(own, ranked)
            metrics |= {f"{prefix}{name}@{split}": value for name, value in rank_figures(ranks, params.k).items()}
            if not prefix:
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
