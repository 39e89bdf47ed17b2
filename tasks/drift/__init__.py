"""Stage `drift`: how far a graph and its embeddings are from earlier ones.

Vertices are matched by label, edges by the labels of their ends; weights are not compared. All figures are 0 where
nothing has changed, and larger where more has. Shares are of the earlier graph's vertices and edges.

- `vertices_added`, `vertices_gone`, `edges_added`, `edges_gone`, and the same as `…_share`: exact counts. Edges are not
  compared where one of the graphs is directed and the other is not.
- `degree_psi`: population stability index of the degrees, Σ (p - q) ln(p / q) over ten bins that hold equally many of
  the earlier vertices; 0.1 is usually called small and 0.25 large.
- `neighbours_changed`: of the nearest neighbours of a node by cosine, the share that were not among its nearest
  before; the mean over nodes. Neighbours are looked for among a sample of the nodes that both have.
- `cosine_distance`: 1 less the mean cosine of a node's two vectors, after the orthogonal map that brings them closest
  (Schönemann, Psychometrika 1966; for embeddings over time Hamilton et al., ACL 2016). It is too small where both have
  fewer nodes in common than dimensions, and is left out where their dimensions differ.

File: `drift.json`, the figures.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats


class DriftParams(StageParams):
    """Parameters of the comparison of embeddings; graphs are compared as a whole."""

    sample: int = Field(
        default=20_000, ge=2, le=10_000_000,
        description="Nodes that both have, drawn at random, whose vectors are compared, 2 to 10,000,000.",
    )  # fmt: skip
    queries: int = Field(
        default=1000, ge=1, le=1_000_000, description="Nodes of the sample whose neighbours are looked for, from 1."
    )
    neighbours: int = Field(default=10, ge=1, le=1000, description="Nearest neighbours of a node, 1 to 1000.")
    seed: int = Field(default=42, ge=0, lt=2**63, description="Seed of the sample, 0 to 2**63 - 1.")


ARCS_AT_ONCE = 1 << 18
QUERIES_AT_ONCE = 256
_PROCESS = Process(start_s=0.5, memory_bytes=140 << 20)
"""With NumPy and Arrow."""
_ARC_BYTES = 90
"""Bytes of an arc in the search."""


def estimate(params: DriftParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Labels of both graphs and a table of them, arcs in flight, and the vectors of the sample."""
    graph, earlier = inputs.get("graph", {}), inputs.get("earlier_graph", {})
    vertices = int(graph.get("vertices") or 0)
    before = int(earlier.get("vertices") or vertices)
    arcs = int(graph.get("directed_edges") or 0)
    mapped = 4 * (arcs + int(earlier.get("directed_edges") or arcs)) + 8 * (vertices + before)
    memory = 60 * vertices + 130 * before
    memory += resources.threads * _ARC_BYTES * min(ARCS_AT_ONCE, arcs)
    looking_s = 1.6e-7 * arcs
    work_s = looking_s + 4e-7 * (vertices + before)
    if "embeddings" in inputs:
        dimensions = int(inputs["embeddings"].get("dimensions") or 128)
        sample, queries = min(params.sample, vertices), min(params.queries, vertices)
        memory += sample * dimensions * 32 + QUERIES_AT_ONCE * sample * 16
        work_s += 2e-10 * queries * sample * dimensions + 1e-8 * sample * dimensions**2 / 16 + 2e-8 * vertices
    return _PROCESS.estimate(
        memory_bytes=memory + mapped, cpu_s=work_s, output_bytes=1 << 10, parallel=looking_s / max(work_s, 1e-9),
        mapped_bytes=mapped,
    )  # fmt: skip


STAGE = Stage(
    name="drift",
    version="1",
    params=DriftParams,
    inputs={
        "graph": Input("index dataset: the graph"),
        "earlier_graph": Input("index dataset: the earlier graph"),
        "embeddings": Input("embed dataset of the graph", optional=True),
        "earlier_embeddings": Input("embed dataset of the earlier graph", optional=True),
    },
    run="superworkflow.tasks.drift.run:run",
    estimate=estimate,
    help="how far a graph and its embeddings are from earlier ones",
    drift=(
        "vertices_added", "vertices_added_share", "vertices_gone", "vertices_gone_share", "edges_added",
        "edges_added_share", "edges_gone", "edges_gone_share", "degree_psi", "neighbours_changed", "cosine_distance",
    ),
)  # fmt: skip
