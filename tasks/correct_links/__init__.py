"""Stage `correct_links`: scores of links corrected by the short paths between their nodes.

A network that embeds nodes knows little of how many neighbours two of them share, by which alone links of many graphs
are found (Zhang and Chen, NeurIPS 2018); a score of both predicts better than either (Ghasemian et al., PNAS 2020).
The corrected score of a pair is the logarithm of its odds, a sum of

- the network's score,
- log(1 + worth / unit) of its paths of two edges, and of those of three, over the links that the network learned from
  in either direction: a path is worth the product of 1 / degree of its inner nodes, and a unit is the median over the
  compared pairs that have paths,
- log(1 + degree) of both nodes,

each times a weight. The weights make the links to validate on, the first `MOST_FITTED`, as likely as can be among
`OTHERS` pairs at random each (conditional logit; among given pairs, where there are any); an intercept and a common
factor then make scores odds against as many pairs without a link. Links to test are never read.

Scores stay as they are, and the log says why: where the weights do not raise the likelihood of validation links that
they were not fitted by (five folds) by two standard errors; of fewer than `LEAST_LINKS` of these; of links with times,
whose paths may be later; of triples of all relations; and where hubs make it more than minutes' work to follow paths.

Files: `predictions.parquet` as of stage infer, and `link-correction.json`, the weights and units by the names of
`lib.gnn.link_scores.LinkCorrection` with the mean negative log-likelihoods `before` and `after`, if scores changed.
The same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

LEAST_LINKS, MOST_FITTED, OTHERS = 20, 2000, 100
MOST_STEPS = 1 << 35
"""Edges followed at most for the pairs that are judged, and for the first 100 links that are ranked."""
_PROCESS = Process(start_s=1.2, memory_bytes=200 << 20)


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Links are sorted once; from an end of each pair the neighbours of its neighbours are followed."""
    graph, found = inputs.get("graph", {}), inputs.get("predictions", {})
    nodes, edges = int(found.get("nodes") or graph.get("nodes") or 0), int(graph.get("edges") or 0)
    pairs = 3 * int(graph.get("test_links") or edges // 20)
    degree = edges / max(1, nodes)
    return _PROCESS.estimate(
        memory_bytes=90 * edges + 120 * nodes + 300 * pairs + 8 * nodes * int(found.get("dimensions") or 64),
        cpu_s=4e-7 * edges + min(MOST_STEPS, (pairs + OTHERS * MOST_FITTED) * (10 + 4 * degree**2)) * 4.5e-9,
        output_bytes=24 * pairs,
        stats={"rows": nodes, "nodes": nodes},
        parallel=0.6,
    )


STAGE = Stage(
    name="correct_links",
    version="1",
    params=StageParams,
    inputs={
        "predictions": Input("infer dataset: the scores to correct, and vectors of the nodes"),
        "graph": Input("holdout_links dataset: the graph, and what was held out of it"),
    },
    run="superworkflow.tasks.correct_links.run:run",
    estimate=estimate,
    help="scores of links, corrected by the short paths between their nodes",
)
