"""The holdout stage: hide edges of a graph, to ask embeddings of the rest for them (link prediction).

The protocol of node2vec (Grover and Leskovec, 2016, section 4.4), made exact:

- Test positives: `fraction` of the edges, drawn uniformly from those outside a random spanning forest. The residual
  graph keeps the forest, so that each connected component stays connected (weakly, in a directed graph). Where the
  forest leaves fewer edges than asked for, all of these are taken, and in a dense graph at most half as many as it has
  pairs without an edge; the stats say how many that is.
- Test negatives: as many pairs of different vertices, drawn uniformly from those that no edge of the whole graph
  joins; distinct, and without order unless the graph is directed. In a graph that index knows as bipartite, they are
  pairs of the two sides.
- Training pairs, to fit a classifier of edges: edges of the residual graph, drawn uniformly, at most `max_pairs`, and
  as many further non-edges of the whole graph. No training pair is a test pair. A dense graph has fewer.

Files: those of an index dataset for the residual graph (see `tasks.index`; same vertices in the same order, `degree`
is the residual one), and `positives.npy`, `negatives.npy`, `train_positives.npy`, `train_negatives.npy`: int64
[pairs, 2] of vertex ids, in random order; pairs without direction have the smaller id first.

The same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats


class HoldoutParams(StageParams):
    """Parameters of the holdout stage."""

    fraction: float = Field(default=0.5, gt=0, lt=1, description="Share of the edges to hold out, above 0 and below 1.")
    max_pairs: int = Field(
        default=200_000, ge=1, description="Most training positives, and most training negatives; at least 1."
    )
    seed: int = Field(default=0, ge=0, lt=2**31, description="Seed of the split, 0 to 2147483647.")


_PROCESS = Process(start_s=0.6, memory_bytes=216 << 20)
"""With the compiled kernels and one chunk of a million candidate pairs."""


def estimate(params: HoldoutParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Memory by counting the arrays that live at a time; the rest from the stats of the graph."""
    graph = inputs.get("graph", {})
    vertices, edges = int(graph.get("vertices") or 0), int(graph.get("edges") or 0)
    arcs = int(graph.get("directed_edges") or 2 * edges)
    weighted, directed = bool(graph.get("weighted")), bool(graph.get("directed"))
    per_arc = 8 if weighted else 4
    hidden, train = int(edges * params.fraction), min(params.max_pairs, int(edges * (1 - params.fraction)))
    kept_arcs = int(arcs * (1 - params.fraction))
    output = kept_arcs * per_arc + vertices * 16 + 32 * hidden + 32 * train
    return _PROCESS.estimate(
        memory_bytes=arcs * per_arc
        + edges * (9 + (4 if weighted else 0))
        + max(32 * hidden, kept_arcs * (per_arc + 8) + (edges - hidden) * 8)
        + vertices * 100
        + edges * 4,
        cpu_s=edges * 5.5e-7,
        output_bytes=output,
        stats={
            **{name: graph[name] for name in ("vertices", "directed", "weighted") if name in graph},
            "edges": edges - hidden,
            "directed_edges": kept_arcs,
            "directed": directed,
            "weighted": weighted,
            "positives": hidden,
            "negatives": hidden,
            "train_pairs": train,
            "bytes": output,
        },
        parallel=0.5,
    )


STAGE = Stage(
    name="holdout",
    version="3",
    params=HoldoutParams,
    inputs={"graph": Input("index dataset")},
    run="superworkflow.tasks.holdout.run:run",
    estimate=estimate,
    help="hide a share of the edges for link prediction",
)
