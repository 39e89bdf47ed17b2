"""Stage `predict_links`: the links that a graph most probably lacks.

File: `links.parquet` with columns `source`, `target`, `rank` int32 from 1, `score` and `probability` float32, rows by
the source's number and rank: the `k` targets of highest score of each node in which links start, by default of the
10,000 with most links. Links of the graph, held out or not, are left out, and so are a node with itself and two nodes
of one side. Where links have no direction a pair may be in the table twice, as one of each node's best.

Scores are corrected (stage `correct_links`) where that is given, by paths over all links of the graph, also those that
were held out: with paths over the links to learn from alone 2 to 20% fewer of further hidden links were among the best
ten (13 graphs; docs/measurements/gnn.md). A probability is that of a link among as many pairs without one. Of links
with times scores are of all links in the graph, whatever their times.

Of triples of all relations there is a column `relation`, and in place of a node a head with a relation that it has.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

LINKS = "links.parquet"
MOST_STEPS = 1 << 36
"""Edges of short paths followed at most."""
_MOST_PRODUCTS = 1 << 42
_PROCESS = Process(start_s=0.9, memory_bytes=216 << 20)
_BLOCK_BYTES = 96 << 20


class PredictLinksParams(StageParams):
    """Parameters of predicted links."""

    k: int = Field(default=10, ge=1, le=1000, description="Links that are predicted of a node at most, 1 to 1000.")
    nodes: int = Field(
        default=10_000,
        ge=1,
        description="Nodes that links are predicted of at most, 1 or more: those with most links; of triples, heads "
        "with a relation. Fewer where all others of the graph and the paths to them are more than some minutes' work.",
    )


def most_queries(nodes: int, targets: int, width: int) -> int:
    """Number of nodes, at most `nodes`, whose products with all targets are some minutes' work."""
    return max(1, min(nodes, _MOST_PRODUCTS // max(1, targets * width)))


def estimate(params: PredictLinksParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """A product of vectors for each of the nodes and all others, and the paths between them."""
    graph, found = inputs.get("graph", {}), inputs.get("predictions", {})
    nodes, edges = int(found.get("nodes") or graph.get("nodes") or 0), int(graph.get("edges") or 0)
    width = int(found.get("dimensions") or 256)
    sources = most_queries(min(params.nodes, nodes * int(found.get("relations") or 1)), nodes, width)
    pairs, paths = sources * nodes, 0.0
    if "corrected" in inputs:
        paths = min(MOST_STEPS, sources * (nodes + min(edges, 10 * (edges / max(1, nodes)) ** 3)))
    rows = sources * min(params.k, max(1, nodes))
    return _PROCESS.estimate(
        memory_bytes=min(_BLOCK_BYTES, 28 * pairs) + 8 * nodes * width + (90 if paths else 60) * edges + 60 * rows,
        cpu_s=pairs * (2.0 * width / 2e10 + 2e-9 + 1e-8 * (paths > 0)) + 2.3e-9 * paths + 3e-7 * edges + 1e-6 * rows,
        output_bytes=16 * rows,
        stats={"rows": rows},
        parallel=0.6,
    )


STAGE = Stage(
    name="predict_links",
    version="1",
    params=PredictLinksParams,
    inputs={
        "graph": Input("holdout_links dataset: the graph, and what was held out of it"),
        "predictions": Input("infer dataset: vectors of its nodes"),
        "corrected": Input("correct_links dataset: the correction of scores by short paths", optional=True),
    },
    run="superworkflow.tasks.predict_links.run:run",
    estimate=estimate,
    help="the likeliest links that the graph does not have",
)
