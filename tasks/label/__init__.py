"""Stage `label`: the file of labels that a user gives, matched with the nodes of a graph.

It needs the graph alone and takes seconds, so that a faulty file, or one about other nodes, is refused before hours of
walks and training and not after them.

Files: `vertices.npy` int64 [n], the labelled vertices, ascending; `kinds.npy` int32, the labels of each one after the
other, ascending, cut at `offsets.npy` int64 [n + 1]; `names.json`, the labels' names by their number, names that are
numbers by value and before others, which go by text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats


class LabelParams(StageParams):
    """Parameters that say how labels are read."""

    retired: ClassVar[Mapping[str, Any]] = {"unknown_nodes": "error"}

    max_unknown: float = Field(
        default=0.05, ge=0, le=1,
        description="Largest share of rows, 0 to 1, that may be about nodes outside the graph; they are dropped and "
        "counted. A larger share is an error.",
        json_schema_extra={"affects_result": False},
    )  # fmt: skip
    several_labels: bool = Field(
        default=False,
        description="Nodes may have several labels even if fewer than 1 in 100 does; otherwise that is an error.",
        json_schema_extra={"affects_result": False},
    )


_PROCESS = Process(start_s=0.45, memory_bytes=102 << 20)
"""Resident set of the interpreter with NumPy and Arrow, before anything is read."""
_KINDS = 40
"""Number of labels that estimates assume where the file's statistics do not contain it."""


def estimate(params: LabelParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """From the rows of the file, which are held as text, and the graph's nodes."""
    vertices = int(inputs.get("graph", {}).get("vertices") or 0)
    file = inputs.get("labels", {})
    rows = int(file.get("rows") or int(file.get("bytes") or 0) // 8)
    labelled = min(rows, vertices) if vertices else rows
    kinds = int(file.get("kinds") or _KINDS)
    output = 16 * labelled + 4 * rows + 24 * kinds + (1 << 10)
    return _PROCESS.estimate(
        memory_bytes=rows * 480 + vertices * 48,
        cpu_s=rows * 3e-6 + vertices * 2e-7,
        output_bytes=output,
        stats={"labelled_nodes": labelled, "labels": kinds, "bytes": output},
    )


STAGE = Stage(
    name="label",
    version="1",
    params=LabelParams,
    inputs={
        "graph": Input("index dataset: the graph whose nodes have the labels"),
        "labels": Input(
            "labels of nodes, rows `node,label`; a file, or a folder of part files",
            file=True,
            parts=True,
            stats="superworkflow.tasks.heterograph.file_sample:table_stats",
        ),
    },
    run="superworkflow.tasks.label.run:run",
    estimate=estimate,
    help="match a file of labels with the nodes",
    drift=("labels_unknown_share",),
)
