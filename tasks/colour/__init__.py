"""Stage `colour`: vertices that may be updated at the same time, for vertex programs.

Two vertices of one colour are further apart than `distance`, in whichever direction edges point. Vertices take, in the
order of their numbers and so from the highest degree, the smallest colour that is free (greedy colouring, largest
first: Welsh and Powell, 1967). At distance 1 the two node sets of a bipartite graph have a colour each, sources the
first. Where a program updates one of two node sets alone (`updated_side` in the graph's stats), its vertices have
colours such that two of one colour share no neighbour, and the other set has the last colour; constant features have
their turns after equal shares of the edges. With `block`, vertices of
one colour may be neighbours within one block, see `tasks.lib.vertex.blocks`.

Files: `colour.npy` int32 [vertices]; `order.npy` int32 [vertices], the vertices by colour, ascending in each;
`bounds.npy` int64 [colours + 1], where each colour begins in the order. With blocks the order is by colour,
block, and breadth first in each, and there is `blocks.npy` int64 [blocks + 1], where each block begins in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_PROCESS = Process(start_s=0.6, memory_bytes=160 << 20)
WORDS = 16
"""Words of 64 colours, beyond which the vertices of an updated node set have a colour each."""


class ColourParams(StageParams):
    """Parameters of the colouring."""

    distance: int | None = Field(
        default=None, ge=0, le=2,
        description="Distance within which no two vertices have one colour: 0 for one colour of all, 1 for updates "
        "that read their neighbours, 2 for updates that write them; 0 to 2. By default 2 for factors, else 1.",
    )  # fmt: skip

    block: int = Field(
        default=1, ge=1, le=10**6, description="Most vertices of a block, 1 to 10⁶. Blocks are grown breadth first; "
        "those that are signalled are updated as trees, from the leaves to the vertex of highest priority and back.",
    )  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """As of every stage; blocks came later than the first colours, which stay what they were."""
        values = super().identity()
        return values if self.block > 1 else {name: value for name, value in values.items() if name != "block"}

    def distance_of(self, graph: Stats) -> int:
        """The distance for a graph with these stats."""
        return self.distance if self.distance is not None else int(graph.get("distance") or 1)


def estimate(params: ColourParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Each arc is looked at once; at distance 2 so is each path of two, of which a hub has many."""
    graph = inputs.get("graph", {})
    vertices, arcs = (
        int(graph.get("vertices") or 0),
        int(graph.get("directed_edges") or 2 * int(graph.get("edges") or 0)),
    )
    of_side = graph.get("updated_side") is not None
    looks = arcs if of_side else (0, arcs, arcs * max(1.0, arcs / max(1, vertices)) * 4)[params.distance_of(graph)]
    both = 2 if graph.get("directed") else 1
    return _PROCESS.estimate(
        memory_bytes=both * arcs * 4 + vertices * (28 + 8 * both + 8 * WORDS * of_side),
        cpu_s=2.5e-9 * looks + 2e-8 * vertices, output_bytes=8 * vertices, stats={"vertices": vertices},
    )  # fmt: skip


STAGE = Stage(
    name="colour",
    version="2",
    params=ColourParams,
    inputs={"graph": Input("index dataset")},
    run="superworkflow.tasks.colour.run:run",
    estimate=estimate,
    help="vertices that may be updated at the same time, for vertex programs",
)
