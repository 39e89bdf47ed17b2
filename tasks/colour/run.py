"""The work of stage `colour`."""

from __future__ import annotations

import numpy as np

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.colour import WORDS, ColourParams
from superworkflow.tasks.lib.graph.integrity import check_rows
from superworkflow.tasks.lib.vertex.blocks import coloured_blocks
from superworkflow.tasks.lib.vertex.colours import apart, by_colour, greedy, spread
from superworkflow.tasks.lib.vertex.program import CONSTANT
from superworkflow.tasks.lib.vertex.stage import sides
from superworkflow.tasks.lib.vertex.transpose import in_edges


def run(job: StageRun[ColourParams]) -> Output:
    """Colour a graph; see `tasks.colour`."""
    graph, distance = job.inputs["graph"], job.params.distance_of(job.inputs["graph"].stats)
    indptr, indices = graph.array("indptr.npy", mmap=False), graph.array("indices.npy")
    vertices = len(indptr) - 1
    check_rows(graph.uri, indptr, indices, None, vertices)
    colours, count = np.zeros(vertices, np.int32), min(1, vertices)
    blocks = None
    if job.params.block > 1:
        in_indptr, in_indices = in_edges(indptr, indices, bool(graph.stats["directed"]))
        colours, count, order, blocks = coloured_blocks(
            indptr, indices, in_indptr, in_indices, job.params.block, distance
        )
        bounds = np.concatenate([[0], np.cumsum(np.bincount(colours, minlength=count))]).astype(np.int64)
        job.output.array("blocks.npy", blocks)
    elif distance == 2 and (updated := graph.stats.get("updated_side")) is not None:
        side = sides(graph, "colour")
        count = apart(indptr, indices, (side > 0) == (updated == 1), WORDS, colours)
        if updated == 1:
            spread(colours, count, np.diff(indptr), side == CONSTANT)
    elif distance == 1 and graph.stats.get("bipartite"):
        colours, count = np.minimum(sides(graph, "colour"), 1), 2
    elif distance and vertices:
        in_indptr, in_indices = in_edges(indptr, indices, bool(graph.stats["directed"]))
        colours[:] = -1
        count = greedy(indptr, indices, in_indptr, in_indices, distance, colours)
    if blocks is None:
        order, bounds = np.empty(vertices, np.int32), np.zeros(count + 1, np.int64)
        by_colour(colours, count, order, bounds)
    largest = int(np.diff(bounds).max(initial=0))
    job.progress.log(f"{vertices} vertices in {count} colours; the largest has {largest}")
    for name, array in (("colour.npy", colours), ("order.npy", order), ("bounds.npy", bounds)):
        job.output.array(name, array)
    return Output(
        rows=vertices, stats={"vertices": vertices, "colours": count, "largest": largest, "distance": distance}
    )
