"""Stage `fit`: a ridge regression by gradient descent, judged by cross-validation."""

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Resources, Stage, StageParams, Stats


class FitParams(StageParams):
    """The regression."""

    degree: int = Field(
        default=1, ge=1, le=4, description="Powers of each column that are used, 1 to 4.",
        json_schema_extra={"search": {"type": "int", "low": 1, "high": 3}},
    )  # fmt: skip
    penalty: float = Field(
        default=0.01, ge=0, description="Strength of the L2 penalty, 0 or more.",
        json_schema_extra={"search": {"type": "float", "low": 0.001, "high": 1.0, "log": True}},
    )  # fmt: skip
    rounds: int = Field(default=4, ge=1, description="Rounds of 50 steps of gradient descent each, 1 or more.")
    folds: int = Field(default=5, ge=2, description="Folds of the cross-validation, 2 or more.")
    seed: int = Field(default=0, ge=0, lt=2**32, description="Of the folds.")


def estimate(params: FitParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """From the number of rows."""
    rows = int(inputs["data"]["rows"] or 0)
    work_s = 1e-7 * rows * params.rounds * params.folds * params.degree
    return Estimate(
        memory_bytes=(60 << 20) + 800 * rows * params.degree, cpu_s=0.3 + work_s, output_bytes=8 * rows + 1000,
        stats={"rows": rows}, start_s=0.3, base_bytes=60 << 20, parallel=0.0,
    )  # fmt: skip


STAGE = Stage(
    name="fit",
    version="1",
    params=FitParams,
    inputs={"data": Input("measurements dataset")},
    run="tests.second.work:fit",
    engines={"workers": "tests.second.work:fit_in_group"},
    estimate=estimate,
    help="A ridge regression, judged by cross-validation.",
    metrics=("rmse", "rmse_std"),
    steps=lambda params: params.rounds,
)
