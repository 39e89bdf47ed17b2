"""The work of stage `baselines_links`."""

from __future__ import annotations

import numba as nb
import numpy as np

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.baselines_links import DEGREES, FREQUENCY, METHODS, MOST_JUDGED, RANK_FIGURES, K
from superworkflow.tasks.baselines_links.paths import path_scores, simple_ranks
from superworkflow.tasks.lib.gnn.link_scores import LinkPaths
from superworkflow.tasks.lib.gnn.sampler.links import (
    HELD_OUT,
    directed_links_of,
    read_held_out,
    sides_of_nodes,
    true_links_of,
)
from superworkflow.tasks.lib.gnn.sampler.triples import (
    Sides,
    has_triples,
    loop_free,
    read_triples,
    triple_ranks,
    triples_of,
)
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.short_paths import Floats
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.figures import area_under_curve, average_precision
from superworkflow.tasks.lib.metrics.ranks import rank_figures

load_kernels_fast()


def run(job: StageRun[StageParams]) -> Output:
    """Judge simpler scores of pairs; see `tasks.baselines_links`.

    Raises:
        UserError: no links were held out of the graph.
    """
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    graph = HeteroGraph.open(job.inputs["graph"])
    if has_triples(graph.dataset):
        return judge_frequencies(job, graph)
    held_out = read_held_out(graph)
    edges = graph.edge_sets[held_out.edges]
    one_set = edges.source == edges.target
    link_paths = LinkPaths.of(graph, held_out)
    paths, shift = link_paths.paths, link_paths.shift
    degrees = [paths.degrees] * 2 if one_set else [paths.degrees[:shift], paths.degrees[shift:]]
    if held_out.directed:
        directed = directed_links_of(graph.rows(edges.name)).T
        degrees = [np.bincount(ends, minlength=len(paths.degrees)).astype(np.float64) for ends in directed]
    if not one_set:
        job.progress.log(
            f"common neighbours are left out, since nodes of {edges.source} and {edges.target} have none in common"
        )
    scores = path_scores(paths.degrees, one_set)
    metrics: dict[str, float] = {}
    judged = 0
    for split in HELD_OUT:
        others, given = held_out.negatives(split), split in held_out.candidates
        others = others[:: max(1, len(others) // MOST_JUDGED)] if given else others
        pairs = [held_out.links[split][:MOST_JUDGED], others[:MOST_JUDGED]]
        if not len(pairs[0]):
            continue
        judged += len(pairs[0])
        if len(pairs[0]) < len(held_out.links[split]):
            job.progress.log(f"{len(pairs[0]):,} of {len(held_out.links[split]):,} {split} links are judged")
        found = {DEGREES: [degrees[0][each[:, 0]] * degrees[1][each[:, 1]] for each in pairs]}
        found |= {
            name: [score.of_pairs(paths, link_paths.numbers(each)) for each in pairs] for name, score in scores.items()
        }
        found = {name: both for name, both in found.items() if all(map(len, both))}  # not more paths than are followed
        ranks: dict[str, Floats] = {}
        if not given and (split == "test" or not len(held_out.links["test"])):
            ranks = simple_ranks(
                paths,
                scores,
                degrees,
                shift,
                held_out.links[split],
                *true_links_of(graph, held_out),
                sides_of_nodes(graph, edges),
            )
            if not ranks:
                job.progress.log("links are not ranked by simpler methods, since paths between hubs are too many")
        for method in filter(found.__contains__, METHODS):
            metrics |= {
                f"{method}_auc@{split}": area_under_curve(*found[method]),
                f"{method}_ap@{split}": average_precision(*found[method]),
            }  # fmt: skip
            words = f"auc {metrics[f'{method}_auc@{split}']:.4f}"
            if method in ranks:
                figures = rank_figures(ranks[method], K)
                metrics |= {f"{method}_{name}@{split}": figures[name] for name in RANK_FIGURES}
                words += f", mrr {figures['mrr']:.4f}"
            job.progress.log(f"{method.replace('_', ' ')}: {words} ({split})")
    job.output.json("metrics.json", metrics)
    return Output(rows=judged, metrics=metrics)


def judge_frequencies(job: StageRun[StageParams], graph: HeteroGraph) -> Output:
    """Rank held-out triples by the number of triples to train on that have the other end in this relation."""
    held_out = read_triples(graph)
    edges = graph.edge_sets[held_out.relations[0]]
    sizes = graph.node_sets[edges.source].count, graph.node_sets[edges.target].count
    learned = triples_of(graph, held_out.relations)
    true_triples = np.concatenate([learned, *held_out.triples.values()])
    free = loop_free(learned, len(held_out.relations), edges.source == edges.target)

    def sides_of(relation: int) -> Sides:
        own = learned[learned[:, 1] == relation]
        heads, tails = (
            np.bincount(own[:, end], minlength=size).astype(np.float32)[:, None]
            for end, size in zip((0, 2), sizes, strict=True)
        )
        return (np.ones_like(heads), tails), (np.ones_like(tails), heads)

    metrics: dict[str, float] = {}
    judged = 0
    for split in HELD_OUT:
        triples = held_out.triples[split][:MOST_JUDGED]
        if not len(triples):
            continue
        judged += len(triples)
        found = rank_figures(triple_ranks(triples, true_triples, free, sides_of), K)
        metrics |= {f"{FREQUENCY}_{name}@{split}": value for name, value in found.items()}
        job.progress.log(f"{FREQUENCY.replace('_', ' ')}: mrr {found['mrr']:.4f} ({split})")
    job.output.json("metrics.json", metrics)
    return Output(rows=judged, metrics=metrics)
