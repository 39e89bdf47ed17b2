"""Stage `partition`: assigns each node of a typed graph to a part, so that few edges cross parts.

METIS (Karypis and Kumar, SIAM J. Sci. Comput. 1998) divides the graph by recursive bisection: all node sets are one
graph for it, with every edge in both directions, and an edge weighs as many edges as there are between its ends. Parts
are even in the nodes of each set, in nodes to train on, and in edges. Of a graph with more than 10 million entries it
divides clusters of nodes, and its parts are improved across their borders (`tasks.partition.clusters`).

One order serves every number of workers: parts are numbered by bisection, so that the first half of them is one side of
the first cut, its first half one side of the second, and so on. W workers take W contiguous ranges of parts.

Files: `nodes-<i>-order.npy`, the old number of each new one [nodes], parts one after the other, and ascending within a
part; `book.npy` int64 [node sets, parts + 1], where the new numbers of each part begin; `partition.json`: sets, and
what is cut at each level. Of 1, 2, 4, … ranges of parts, `cut` edges have ends in two of them, `halo` is how many nodes
the ranges read in addition to their own, together, and `imbalance` is the largest range over the mean one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

AUTO: Literal["auto"] = "auto"
MOST_PARTS = 1024
MOST_ENTRIES = 10_000_000
"""Most rows that METIS divides by itself: of ten times as many it needs minutes for each level of bisection."""
_NODES_A_PART = 50_000
_LEAST_AUTO, _MOST_AUTO = 8, 256


class PartitionParams(StageParams):
    """Parameters of the stage partition."""

    parts: int | Literal["auto"] = Field(
        default=AUTO,
        description="Parts, a power of two up to 1024; auto: one for every 50,000 nodes, 8 to 256. As many workers or "
        "fewer can share them.",
    )
    method: Literal["metis", "contiguous"] = Field(
        default="metis",
        description="metis: few edges cross parts. contiguous: nodes in the order of their ids, whatever crosses.",
    )
    imbalance: float = Field(
        default=1.05, ge=1.01, le=1.5,
        description="How many times the mean a part may have of nodes, training nodes and edges, 1.01 to 1.5; only for "
        "metis, which exceeds it where a node or a set is too large for it.",
    )  # fmt: skip
    seed: int = Field(default=42, ge=0, lt=2**31, description="Seed of METIS, 0 to 2**31 - 1.")

    @field_validator("parts")
    @classmethod
    def _power_of_two(cls, value: int | str) -> int | str:
        if isinstance(value, int) and not (1 <= value <= MOST_PARTS and value & (value - 1) == 0):
            raise ValueError(f"must be a power of two, 1 to {MOST_PARTS}, or auto")
        return value

    def parts_of(self, nodes: int) -> int:
        """Number of parts of a graph with this many nodes."""
        if isinstance(self.parts, int):
            return self.parts
        parts = _LEAST_AUTO
        while parts < min(_MOST_AUTO, nodes // _NODES_A_PART):
            parts *= 2
        while parts > max(1, nodes):
            parts //= 2
        return parts


_PROCESS = Process(start_s=0.7, memory_bytes=140 << 20)
_ENTRY_BYTES, _COARSE_BYTES = 24.0, 38.0
"""Bytes of an entry where METIS divides the graph: it, METIS's copy and the next coarser one; and all coarser ones."""
_CLUSTERED_BYTES, _CLUSTERED_S = 18.5, 1e-6
"""Bytes of an entry where METIS divides clusters: the graph while its rows are merged; and CPU seconds."""
_CACHED = 100_000
"""Nodes of which what METIS keeps of each lies in the cache."""


def entries_of(graph: Stats) -> int:
    """Entries of the rows that METIS reads: two for each edge, and none for the edges of sets that reverse another.

    Without the statistic `reversed_edges`, half of the edges are taken to be reversed.
    """
    edges = int(graph.get("edges") or 0)
    return edges if "reversed_edges" not in graph else 2 * (edges - int(graph["reversed_edges"] or 0))


def estimate(params: PartitionParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """METIS keeps the graph with weights, and coarser ones that have nearly as many edges; of a large graph those of
    its clusters are small."""
    graph = inputs.get("graph", {})
    nodes, edges = max(1, int(graph.get("nodes") or 1)), int(graph.get("edges") or 0)
    parts = params.parts_of(nodes)
    levels = parts.bit_length() - 1
    metis = params.method == "metis" and parts > 1
    counting = 6e-9 * edges * (levels + 1) + 1e-7 * nodes
    read_s = 1.5e-7 * max(1.0, nodes / _CACHED) ** 0.19  # an entry at each level: of larger graphs they are farther off
    entries = entries_of(graph)
    clustered = entries > MOST_ENTRIES
    held = (_CLUSTERED_BYTES if clustered else _ENTRY_BYTES + _COARSE_BYTES) * entries + 120 * nodes
    dividing = _CLUSTERED_S * entries if clustered else (read_s * entries + 6e-7 * nodes) * max(1, levels)
    facts = {name: value for name, value in graph.items() if name in ("nodes", "edges", "node_sets", "edge_sets")}
    return _PROCESS.estimate(
        memory_bytes=int(held if metis else 30 * nodes),
        cpu_s=counting + (dividing if metis else 0.0),
        output_bytes=4 * nodes + 8 * parts + (1 << 10),
        stats={**facts, "parts": parts},
        mapped_bytes=4 * edges + 8 * nodes,
        kind=params.method,
    )


STAGE = Stage(
    name="partition",
    version="3",
    params=PartitionParams,
    inputs={"graph": Input("heterograph dataset: the graph to divide")},
    run="superworkflow.tasks.partition.run:run",
    estimate=estimate,
    help="divide a typed graph into parts between which few edges run",
)
