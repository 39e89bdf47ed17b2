"""Frequencies of heads and tails in each relation, as scores of triples."""

from __future__ import annotations

import numpy as np

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.baselines_links import FREQUENCY, MOST_JUDGED, K
from superworkflow.tasks.lib.gnn.sampler.links import HELD_OUT
from superworkflow.tasks.lib.gnn.sampler.triples import Sides, loop_free, read_triples, triple_ranks, triples_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.metrics.ranks import rank_figures


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
