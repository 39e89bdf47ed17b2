"""Stage `publish_fields`: what a vertex program left of each node, as one table.

Files: `vertices.parquet` with column `node`, and one for each field; a vector is a list. If a table gave classes,
`classes.json`: by field their names, in the order of vectors with a value for each class.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_PROCESS = Process(start_s=0.4, memory_bytes=130 << 20)


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Rows pass by in groups."""
    vertices, given = int(inputs.get("graph", {}).get("vertices") or 0), int(inputs.get("values", {}).get("bytes") or 0)
    return _PROCESS.estimate(
        memory_bytes=min(given, 64 << 20), cpu_s=2e-7 * vertices, output_bytes=given + 12 * vertices,
        stats={"vertices": vertices},
    )  # fmt: skip


STAGE = Stage(
    name="publish_fields",
    version="2",
    params=StageParams,
    inputs={"graph": Input("index dataset"), "values": Input("dataset of a vertex program on that graph")},
    run="superworkflow.tasks.publish_fields.run:run",
    estimate=estimate,
    help="fields of a vertex program by node, as one table",
)
