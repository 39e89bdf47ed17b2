"""Stage `choose`: the better one of two regressions."""

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Resources, Stage, StageParams, Stats


class ChooseParams(StageParams):
    """There is nothing to set."""


def estimate(params: ChooseParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """The start of a process is most of it."""
    rows = int(inputs["first"]["rows"] or 0)
    return Estimate(
        memory_bytes=60 << 20, cpu_s=0.3, output_bytes=16 * rows, stats={"rows": rows}, start_s=0.3,
        base_bytes=60 << 20,
    )  # fmt: skip


STAGE = Stage(
    name="choose",
    version="1",
    params=ChooseParams,
    inputs={"first": Input("fit dataset"), "second": Input("fit dataset")},
    run="tests.second.work:choose",
    estimate=estimate,
    metrics=("rmse", "rmse_std"),
    help="The regression with the smaller error.",
)
