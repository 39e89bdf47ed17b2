"""Stage `measurements`: what is known of each patient, from two node tables and two edge tables."""

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Resources, Stage, StageParams, Stats


class MeasurementsParams(StageParams):
    """Options for reading the tables."""

    target: str = Field(default="progression", description="Column that is predicted from the others.")


def estimate(params: MeasurementsParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """From the bytes of the tables, about ten for a number."""
    numbers = int(inputs["graph"]["bytes"] or 0) // 10
    return Estimate(
        memory_bytes=(60 << 20) + 24 * numbers, cpu_s=0.3 + 1e-6 * numbers, output_bytes=8 * numbers,
        stats={"rows": numbers // 11}, start_s=0.3, base_bytes=60 << 20,
    )  # fmt: skip


STAGE = Stage(
    name="measurements",
    version="1",
    params=MeasurementsParams,
    inputs={"graph": Input("a description of tables", tables="superworkflow.infra.storage.table_files:named_files")},
    run="tests.second.work:measurements",
    estimate=estimate,
    help="What is known of each patient.",
)
