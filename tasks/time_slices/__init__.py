"""Stage `time_slices`: the slice of time of each edge of a graph.

The edge list is read once more, with `index.time`. Slices have as many edges each as equal times allow, so that they
are short where much happens. An edge with several rows has the time of the last.

Files: `slice.npy` int32 [arcs], in the order of the graph's `indices.npy`; `starts.npy` int64 [slices - 1], the first
time of each slice but the first, in the unit of the file, or in seconds from 1970 where times are dates.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, Stats
from superworkflow.tasks.index import IndexParams

STARTS = "starts.npy"
_PROCESS = Process(start_s=0.8, memory_bytes=230 << 20)


class TimeSlicesParams(IndexParams):
    """Parameters by which an edge list is read, and the number of slices."""

    slices: int = Field(default=1, ge=1, le=1000, description="See `bptf.slices`.")


def estimate(params: TimeSlicesParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Names of all rows and keys of all arcs are in memory."""
    graph = inputs.get("graph", {})
    edges, vertices = int(graph.get("edges") or 0), int(graph.get("vertices") or 0)
    return _PROCESS.estimate(
        memory_bytes=130 * edges + 60 * vertices, cpu_s=2e-6 * edges, output_bytes=8 * edges,
        stats={"slices": params.slices},
    )  # fmt: skip


STAGE = Stage(
    name="time_slices",
    params=TimeSlicesParams,
    params_of=("index", "bptf"),
    inputs={
        "graph": Input("index dataset"),
        "edges": Input(
            "the edge list that it is made of, with times; or a folder of part files", file=True, parts=True
        ),
    },
    run="superworkflow.tasks.time_slices.run:run",
    estimate=estimate,
    help="slice of time of each edge",
)
