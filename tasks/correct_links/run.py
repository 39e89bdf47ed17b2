"""The work of stage `correct_links`."""

from __future__ import annotations

from dataclasses import replace

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.correct_links import LEAST_LINKS, MOST_FITTED, MOST_STEPS, OTHERS
from superworkflow.tasks.correct_links.fit import fitted, gains, odds
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.gnn.link_scores import (
    LINK_CORRECTION,
    LinkCorrection,
    LinkPaths,
    LinkScores,
    probabilities,
)
from superworkflow.tasks.lib.gnn.sampler.links import (
    HELD_OUT,
    HeldOut,
    Pairs,
    are_links,
    read_held_out,
    sides_of_nodes,
    true_links_of,
)
from superworkflow.tasks.lib.gnn.sampler.triples import has_triples
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged
from superworkflow.tasks.lib.graph.short_paths import Floats, PathSums
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()
PREDICTIONS = "predictions.parquet"
_FIRST_RANKED = 100


def run(job: StageRun[StageParams]) -> Output:
    """Write corrected scores; see `tasks.correct_links`.

    Raises:
        UserError: the predictions are of no links.
    """
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    graph, predictions, out = HeteroGraph.open(job.inputs["graph"]), job.inputs["predictions"], job.output
    found = _correction(job, graph)
    if isinstance(found, str):
        job.progress.log(f"scores of links stay as they are: {found}")
        out.copy(PREDICTIONS, predictions.local(PREDICTIONS))
    else:
        correction, scores, before, after = found
        held_out, table = read_held_out(graph), predictions.table(PREDICTIONS)
        pairs = np.concatenate([
            each for split in HELD_OUT for each in (held_out.links[split], held_out.others[split])
        ])  # fmt: skip
        if len(pairs) != len(table):
            raise damaged(predictions, PREDICTIONS, f"{len(pairs)} held-out pairs")
        made = scores.of_pairs(pairs)
        for name, values in (("score", made), ("probability", probabilities(made))):
            table = table.set_column(table.column_names.index(name), name, column(values))
        out.table(PREDICTIONS, table)
        out.json(LINK_CORRECTION, {**correction._asdict(), "before": before, "after": after})
        weights = ", ".join(
            f"{name} {getattr(correction, name):.3g}" for name in ("network", "two", "three", "degrees")
        )
        job.progress.log(f"negative log-likelihood of the links to validate on: {before:.4g}, corrected {after:.4g} "
                         f"({weights})")  # fmt: skip
    rows = sum(each.count for each in graph.node_sets.values())
    return Output(rows=rows, stats={"rows": rows, "nodes": rows})


def _correction(
    job: StageRun[StageParams], graph: HeteroGraph
) -> tuple[LinkCorrection, LinkScores, float, float] | str:
    """The correction, corrected scores, and the likelihoods before and after; or why there is none."""
    predictions = job.inputs["predictions"]
    if has_triples(graph.dataset):
        return "they are of all relations"
    if predictions.stats.get("timed"):
        return "paths may be of later links"
    held_out = read_held_out(graph)
    links = held_out.links["validation"][:MOST_FITTED]
    if len(links) < LEAST_LINKS:
        return f"{len(links)} links to validate on, and weights need {LEAST_LINKS}"
    link_paths = LinkPaths.of(graph, held_out)
    if _steps(link_paths, held_out) > MOST_STEPS:
        return "paths through hubs are too many to follow"
    scores = LinkScores(graph, held_out, predictions)
    compared = _compared(graph, held_out, links)
    job.progress.log(f"{len(links):,} links to validate on are compared with {OTHERS} pairs each")
    sums = _path_sums(link_paths, compared.reshape(-1, 2))
    units = [float(np.median(each[each > 0])) if (each > 0).any() else 1.0 for each in sums]

    def columns_of(pairs: Pairs, sums: PathSums) -> Floats:
        degrees = link_paths.log_degrees[link_paths.numbers(pairs)].sum(axis=1)
        logs = (np.log1p(each / unit) for each, unit in zip(sums, units, strict=True))
        return np.stack([scores.of_pairs(pairs).astype(np.float64), *logs, degrees], 1)

    columns = columns_of(compared.reshape(-1, 2), sums).reshape(*compared.shape[:2], -1)
    columns[:, 1:][_linked(graph, held_out, compared[:, 1:])] = np.nan
    before, after = gains(columns)
    gain = after - before
    if gain.mean() <= 2 * gain.std() / np.sqrt(len(gain)):
        return "paths and degrees do not make the links to validate on more likely"
    weights = fitted(columns)
    judged = held_out.links["validation"], held_out.others["validation"]
    made = [columns_of(each, _path_sums(link_paths, each)) @ weights for each in judged]
    factor, constant = odds(*made)
    if factor <= 0:
        return "pairs without a link have higher scores by paths and degrees"
    found = LinkCorrection._make([*factor * weights, constant, *units])
    return found, scores.corrected(found, link_paths), -before.mean(), -after.mean()


def _path_sums(link_paths: LinkPaths, pairs: Pairs) -> PathSums:
    return link_paths.paths.of_pairs(link_paths.worth, link_paths.numbers(pairs))


def _steps(link_paths: LinkPaths, held_out: HeldOut) -> float:
    """Edges to follow, about, for the pairs that are judged, or for the first that are ranked if these are more."""
    judged = [*held_out.links.values(), *map(held_out.negatives, HELD_OUT)]
    steps = sum(float(link_paths.paths.pair_steps(link_paths.numbers(each)).sum()) for each in judged)
    ranked = link_paths.numbers(held_out.links["test" if len(held_out.links["test"]) else "validation"][:_FIRST_RANKED])
    return max(steps, float(link_paths.paths.node_steps(ranked.ravel()).sum()))


def _compared(graph: HeteroGraph, held_out: HeldOut, links: Pairs) -> Pairs:
    """Each link and random pairs, int64 [links, 1 + others, 2]; where pairs are given, random ones of these."""
    rng, edges = np.random.default_rng(0), graph.edge_sets[held_out.edges]
    shape = len(links), OTHERS
    if len(given := held_out.candidates.get("validation", links[:0])):
        others = given[rng.integers(0, len(given), shape)]
    else:
        sizes = (graph.node_sets[name].count for name in (edges.source, edges.target))
        others = np.stack([rng.integers(0, size, shape) for size in sizes], -1)
    return np.concatenate([links[:, None], others], 1)


def _linked(graph: HeteroGraph, held_out: HeldOut, pairs: Pairs) -> NDArray[np.bool_]:
    """True for pairs [n, others, 2] that are links or none, as far as the links to learn and to validate on say."""
    if len(held_out.candidates.get("validation", ())):
        return np.zeros(pairs.shape[:2], bool)
    validated = replace(held_out, links={"validation": held_out.links["validation"]})
    links, no_order = true_links_of(graph, validated)
    hidden = are_links(pairs.reshape(-1, 2), links, no_order).reshape(pairs.shape[:2])
    if no_order:
        hidden |= pairs[..., 0] == pairs[..., 1]
    sides = sides_of_nodes(graph, graph.edge_sets[held_out.edges])
    if len(sides):
        hidden |= sides[pairs[..., 0]] == sides[pairs[..., 1]]
    return hidden
