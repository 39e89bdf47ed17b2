"""Stage `publish_lattice`: what a vertex program left of each vertex of a lattice, as arrays of the lattice's shape.

Files: `<field>.npy` [*shape], or [*shape, length] of a vector; `label` has the values of the lattice's own file,
and of a picture is also `label.png`; its `segment.png` has evenly spaced greys.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Resources, Stage, StageParams, Stats

_PROCESS_BYTES = 100 << 20
_START_S = 0.4


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Fields pass by one after the other."""
    given = int(inputs.get("values", {}).get("bytes") or 0)
    return Estimate(
        memory_bytes=_PROCESS_BYTES + 2 * given, cpu_s=_START_S + 2e-9 * given, output_bytes=given, parallel=0.0,
        start_s=_START_S, base_bytes=_PROCESS_BYTES,
    )  # fmt: skip


STAGE = Stage(
    name="publish_lattice",
    version="2",
    params=StageParams,
    inputs={"graph": Input("grid dataset"), "values": Input("dataset of a vertex program on that lattice")},
    run="superworkflow.tasks.publish_lattice.run:run",
    estimate=estimate,
    help="fields of a vertex program on a lattice, as arrays of its shape",
)
