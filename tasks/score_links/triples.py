"""Figures of triples of all relations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.lib.baseline_warnings import triple_warnings
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.gnn.sampler.links import HELD_OUT
from superworkflow.tasks.lib.gnn.sampler.triples import Triples, loop_free, read_triples, triple_ranks, triples_of
from superworkflow.tasks.lib.gnn.triple_scores import TripleScores
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.metrics.figures import area_under_curve, average_precision
from superworkflow.tasks.lib.metrics.ranks import HITS_FILE, hits_of, rank_figures
from superworkflow.tasks.score_links import ScoreLinksParams

TABLE = "relations.parquet"


def score_triples(job: StageRun[ScoreLinksParams], graph: HeteroGraph) -> Output:
    """Judge vectors by the triples that were held out; see `tasks.score_links`.

    Raises:
        UserError: the vectors are not of the graph's nodes.
    """
    predictions, held_out, k = job.inputs["predictions"], read_triples(graph), job.params.k
    scores = TripleScores(graph, held_out, predictions)
    learned = triples_of(graph, held_out.relations)
    true_triples = np.concatenate([learned, *held_out.triples.values()])
    free = loop_free(learned, len(held_out.relations), scores.tails is scores.heads)
    metrics: dict[str, float] = {}
    hits: dict[str, dict[str, float]] = {}
    rows: list[pa.Table] = []
    for split in HELD_OUT:
        triples, others = held_out.triples[split], held_out.others[split]
        if not len(triples):
            continue
        scored = [scores.of(each) for each in (triples, others)]
        ranked = triples[: job.params.ranked]
        ranks = triple_ranks(ranked, true_triples, free, scores.sides)
        found = {"auc": area_under_curve(*scored), "ap": average_precision(*scored), **rank_figures(ranks, k)}
        metrics |= {f"{name}@{split}": value for name, value in found.items()}
        hits[split] = hits_of(ranks)
        rows.append(_table(split, held_out.relations, learned, ranked, ranks, k))
    job.output.table(TABLE, pa.concat_tables(rows))
    job.output.json("metrics.json", metrics)
    job.output.json(HITS_FILE, hits)
    simple = job.inputs["baselines"].json("metrics.json") if "baselines" in job.inputs else {}
    warnings = triple_warnings(metrics, simple)
    log_warnings(job.progress, warnings)
    judged = sum(map(len, held_out.triples.values()))
    return Output(rows=judged, metrics=metrics, stats=warning_stats(warnings))


def _table(
    split: str, relations: tuple[str, ...], learned: Triples, ranked: Triples, ranks: NDArray[np.float64], k: int
) -> pa.Table:  # fmt: skip
    """Figures of each relation, those with most triples first; null where no triple is ranked."""
    counts = [np.bincount(each[:, 1], minlength=len(relations)) for each in (learned, ranked)]
    order = np.argsort(-(counts[0] + counts[1]), kind="stable")
    figures = [rank_figures(ranks[ranked[:, 1] == number], k) if counts[1][number] else {} for number in order]
    names = rank_figures(np.ones((1, 2)), k)
    return pa.table({
        "split": pa.array([split] * len(order), pa.string()),
        "relation": pa.array([relations[number] for number in order], pa.string()),
        "learned": column(counts[0][order]), "ranked": column(counts[1][order]),
        **{name: pa.array([each.get(name) for each in figures], pa.float64()) for name in names},
    })  # fmt: skip
