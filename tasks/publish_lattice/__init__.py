"""Stage `publish_lattice`: what a vertex program left of each vertex of a lattice, as arrays of the lattice's shape.

Files: `<field>.npy` [*shape], or [*shape, length] of a vector; `label` has the values of the lattice's own file,
and of a picture is also `label.png`; its `segment.png` has evenly spaced greys.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_PROCESS = Process(start_s=0.4, memory_bytes=100 << 20)


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Fields pass by one after the other."""
    given = int(inputs.get("values", {}).get("bytes") or 0)
    return _PROCESS.estimate(memory_bytes=2 * given, cpu_s=2e-9 * given, output_bytes=given)


STAGE = Stage(
    name="publish_lattice",
    version="2",
    params=StageParams,
    inputs={"graph": Input("grid dataset"), "values": Input("dataset of a vertex program on that lattice")},
    run="superworkflow.tasks.publish_lattice.run:run",
    estimate=estimate,
    help="fields of a vertex program on a lattice, as arrays of its shape",
)
