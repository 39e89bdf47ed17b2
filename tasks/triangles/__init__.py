"""Stage `triangles`: triangles of each vertex, and how many of its pairs of neighbours are neighbours themselves.

Direction and weight of edges do not count.

Files, as those of vertex programs (`VertexProgram.__call__`): `triangles-<number>.npy` int64 and
`clustering-<number>.npy` float64, 0 of vertices with fewer than two neighbours; `globals.json` with `triangles` of the
graph, `transitivity` (three times these by all pairs of neighbours of one vertex) and `mean_clustering`, which are also
in the stats.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_PROCESS = Process(start_s=0.6, memory_bytes=160 << 20)


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Each edge is followed by those of its end of higher degree, of which there are the square root at most."""
    graph = inputs.get("graph", {})
    vertices, edges = int(graph.get("vertices") or 0), int(graph.get("edges") or 0)
    both = 3 if graph.get("directed") else 1
    return _PROCESS.estimate(
        memory_bytes=both * 12 * edges + vertices * (32 + 9 * resources.threads),
        cpu_s=1e-9 * edges * min(edges**0.5, 8 * edges / max(1, vertices)), output_bytes=16 * vertices,
        stats={"vertices": vertices}, parallel=0.9,
    )  # fmt: skip


STAGE = Stage(
    name="triangles",
    params=StageParams,
    inputs={"graph": Input("index dataset")},
    run="superworkflow.tasks.triangles.run:run",
    estimate=estimate,
    help="triangles and clustering coefficient of each node",
)
