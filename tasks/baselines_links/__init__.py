"""Stage `baselines_links`: how well degrees, common neighbours and short paths predict the held-out links.

Figures by the links that a network learns from alone, for the pairs that it is judged by, 50,000 links and as many
pairs without one of each split at most:

- `degree_product`: the product of both nodes' degrees; where links have a direction, those out of the source and into
  the target.
- `common_neighbors`, `adamic_adar`: the number of neighbours that two nodes share, and the sum of 1 / log degree over
  these (Adamic and Adar, 2003); only for links within one node set, since nodes of two sets share none.
- `paths_of_length_3`: the number of paths of three links between two nodes, each divided by the root of the product of
  its inner nodes' degrees (Kovács et al., 2019); left out where hubs make it more than some seconds' work.
- `short_walks`: the number of paths of two and three links, each divided by the product of its inner nodes' degrees;
  left out likewise. It is as probable that a random walk takes one of them as its next two or three steps (Liu and Lü,
  2010).
- `relation_frequency`: for triples of all relations, how often the relation has the tail, or the head, that is ranked.

`_auc`, `_ap`: area under the ROC curve, and average precision, as stage `score_links` reports them; `_mrr` and
`_hits_at_k` (k = 10) of the first 1,000 test links, or of those to validate on if none are tested, fewer where hubs
make it more work, unless pairs to compare with were given. Of triples `_mrr`, `_hits_at_1`, `_hits_at_3` and
`_hits_at_k`, of their filtered ranks.

File: `metrics.json`. The same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

FREQUENCY = "relation_frequency"
DEGREES, PATHS, WALKS = "degree_product", "paths_of_length_3", "short_walks"
METHODS = (DEGREES, "common_neighbors", "adamic_adar", PATHS, WALKS)
K, RANK_FIGURES = 10, ("mrr", "hits_at_k")
MOST_JUDGED = 50_000
"""Links of a split that are judged at most, the first of their random order, and as many other pairs."""
_PROCESS = Process(start_s=1.5, memory_bytes=170 << 20)
_PAIR_BYTES = 3300
"""Bytes of a judged link and its pair: rows of neighbours, some at a time."""
MOST_RANKED, MOST_STEPS = 1000, 1 << 29
"""Links that are ranked at most; edges that are followed to rank them by paths of three links, and nodes that they are
ranked among, some seconds."""
_BLOCK_BYTES = 100 << 20


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Links are sorted once; rows of the judged pairs are intersected, some at a time, and paths followed."""
    graph = inputs.get("graph", {})
    nodes, edges, tested = (int(graph.get(name) or 0) for name in ("nodes", "edges", "test_links"))
    judged = min(tested or MOST_JUDGED, MOST_JUDGED)
    ranked = 2 * min(tested or MOST_RANKED, MOST_RANKED)
    return _PROCESS.estimate(
        memory_bytes=72 * edges + _PAIR_BYTES * judged + min(_BLOCK_BYTES, 24 * nodes * ranked),
        cpu_s=1e-6 * edges + 4e-9 * min(MOST_STEPS, ranked * (nodes + edges)),
        output_bytes=1 << 10,
    )


STAGE = Stage(
    name="baselines_links",
    version="4",
    params=StageParams,
    inputs={"graph": Input("holdout_links dataset: the graph, and what was held out of it")},
    run="superworkflow.tasks.baselines_links.run:run",
    estimate=estimate,
    help="degrees, common neighbours and short paths on the held-out links",
    metrics=(
        *(f"{method}_{figure}" for method in METHODS for figure in ("auc", "ap", *RANK_FIGURES)),
        *(f"{FREQUENCY}_{figure}" for figure in ("mrr", "hits_at_1", "hits_at_3", "hits_at_k")),
    ),
)
