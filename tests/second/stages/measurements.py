"""Stage `measurements`: a table of numbers as arrays."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.params import StageParams
from superworkflow.infra.resources import Resources
from superworkflow.infra.stage import Estimate, Input, Stage, Stats


class MeasurementsParams(StageParams):
    """How the table is read."""

    target: str = Field(default="progression", description="Column that is predicted from the others.")


def estimate(params: MeasurementsParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """From the bytes of the file, about ten for a number."""
    numbers = int(inputs["table"]["bytes"] or 0) // 10
    return Estimate(
        memory_bytes=(60 << 20) + 24 * numbers, cpu_s=0.3 + 1e-6 * numbers, output_bytes=8 * numbers,
        stats={"rows": numbers // 11}, start_s=0.3, base_bytes=60 << 20,
    )  # fmt: skip


STAGE = Stage(
    name="measurements",
    version="1",
    params=MeasurementsParams,
    inputs={"table": Input("a CSV file of numbers with a header", file=True)},
    run="tests.second.work:measurements",
    estimate=estimate,
    help="A table of numbers as arrays.",
)
