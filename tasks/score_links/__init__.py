"""Stage `score_links`: what predicted links are worth, on those to validate on and to test.

Files: `hits.json`, of each split the shares of ranks up to 1, 2, 3, 5, 10, 20, 50 and 100; and `metrics.json`, of each
split (a simpler method that is better is a warning, where its figures are given):

- `auc`, `ap`: area under the ROC curve, and average precision, of the held-out links among as many pairs without one.
- `mrr`, `hits_at_1`, `hits_at_3`, `hits_at_k`: each held-out link is ranked among the pairs of its source with every
  node of the target's set,
  and among those of its target with every node of the source's set. Pairs that are links themselves, held out or not,
  are left out, and so is a node with itself (filtered; Bordes et al., NeurIPS 2013). Of equal scores half rank before
  it. In the graph of a bipartite edge list these are the nodes of the other side. Where pairs to compare with were
  given, all figures are by these, and links are ranked among them (`among`), as they are, without a filter. The mean of
  the reciprocal ranks, and the shares of ranks up to 1, 3 and `k`.
- `direction`: where links have a direction, the share of those without one back that score higher than their reverse.

Corrected scores (stage `correct_links`) are judged where they are given, and as `network_…` those of the network
alone; of the links to rank, as many as paths can be followed for in some minutes.

Triples of all relations have a direction, and a node may be both ends. Each is ranked among those with any other tail
and with any other head, by the same figures; triples to train on, validate and test are left out (Bordes et al., 2013).
`auc` and `ap` compare them with as many of the same relations that the graph does not have. `relations.parquet` has the
figures of each relation and split, those with most triples first, with columns `learned` and `ranked`, numbers of
triples; null where none is ranked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats


class ScoreLinksParams(StageParams):
    """Parameters of scoring links."""

    among: Literal["auto", "source", "all"] = Field(
        default="auto",
        description="With given pairs that are no links, those that a link is ranked among: source, those of its "
        "source; all, those of its split; auto takes source where each source, or each link, has equally many, and no "
        "other node any.",
    )
    k: int = Field(default=10, ge=1, le=1_000_000, description="Ranks that count as hits, 1 to 1,000,000.")
    ranked: int = Field(
        default=10_000,
        ge=1,
        description="Links of each split that are ranked at most, the first of their random order.",
    )


FIGURES = ("auc", "ap", "mrr", "hits_at_1", "hits_at_3", "hits_at_k", "direction")
MOST_STEPS = 1 << 34
"""Edges of short paths followed at most to rank the links of a split by corrected scores."""
_PROCESS = Process(start_s=0.9, memory_bytes=216 << 20)
_BLOCK_BYTES = 96 << 20


def estimate(params: ScoreLinksParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """A product of vectors for each ranked link and node, twice; all links are sorted to filter by."""
    graph, found = inputs.get("graph", {}), inputs.get("predictions", {})
    nodes, edges = int(found.get("nodes") or graph.get("nodes") or 0), int(graph.get("edges") or 0)
    width = int(found.get("dimensions") or 256)
    ranked = min(params.ranked, int(graph.get("test_links") or params.ranked)) * 1.5
    paths = 0.0
    if "corrected" in inputs:
        paths = min(2 * MOST_STEPS, 2 * ranked * (nodes + min(edges, 10 * (edges / max(1, nodes)) ** 3)))
    return _PROCESS.estimate(
        memory_bytes=min(_BLOCK_BYTES, round(12 * ranked * nodes)) + 8 * nodes * width + (100 if paths else 64) * edges,
        cpu_s=2 * ranked * nodes * (2.0 * width / 2e10 + 2e-9) * (1 + (paths > 0)) + 4e-9 * paths + 3e-7 * edges,
        output_bytes=1 << 10,
        parallel=0.4,
    )


STAGE = Stage(
    name="score_links",
    version="5",
    params=ScoreLinksParams,
    inputs={
        "graph": Input("holdout_links dataset: the graph, and what was held out of it"),
        "predictions": Input("infer dataset: vectors of its nodes"),
        "corrected": Input("correct_links dataset: the correction of scores by short paths", optional=True),
        "baselines": Input("baselines_links dataset: figures of simpler methods, to compare with", optional=True),
    },
    run="superworkflow.tasks.score_links.run:run",
    estimate=estimate,
    help="AUC, average precision and ranks of predicted links",
    metrics=(*FIGURES, *(f"network_{name}" for name in FIGURES)),
)
