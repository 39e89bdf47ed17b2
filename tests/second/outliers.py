"""A user's file: the second superworkflow's first stages, and one of its own for those whom the regression misses."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from superworkflow.infra.contract.diagram import Diagram
from superworkflow.infra.contract.stage import Estimate, Input, Output, Resources, Stage, StageParams, StageRun, Stats
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.source import Source
from tests.second.stages import fit, measurements


class OutliersParams(StageParams):
    """Parameters of `outliers`."""

    count: int = Field(default=10, ge=1, description="Patients to name, 1 or more.")


def outliers(job: StageRun[OutliersParams]) -> Output:
    """`rows.npy`: rows of the patients with the largest errors, the largest first."""
    fitted = job.inputs["fitted"]
    errors = np.abs(fitted.array("predicted.npy") - fitted.array("target.npy"))
    rows = np.argsort(-errors, kind="stable")[: job.params.count]
    job.output.array("rows.npy", rows)
    return Output(rows=len(rows), stats={"largest": float(errors[rows[0]])})


def estimate(params: OutliersParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """The start of a process is most of it."""
    return Estimate(memory_bytes=60 << 20, cpu_s=0.3, output_bytes=8 * params.count, start_s=0.3, base_bytes=60 << 20)


OUTLIERS = Stage(
    name="outliers",
    version="1",
    params=OutliersParams,
    inputs={"fitted": Input("fit dataset")},
    run=f"{__name__}:outliers",
    estimate=estimate,
    help="Patients whom the regression misses.",
)


def diagram(flow: Diagram, graph: Source) -> None:
    """Read, fit, look for outliers."""
    data = flow.stage(measurements.STAGE, graph=graph)
    flow.stage(OUTLIERS, fitted=flow.stage(fit.STAGE, data=data))


SUPERWORKFLOW = Superworkflow(
    name="missed",
    help="patients whom a regression misses",
    stages=(measurements.STAGE, fit.STAGE, OUTLIERS),
    sources={"graph": "a description of tables of patients and practices"},
    diagram=diagram,
    outputs={"outliers": ("outliers", "rows.npy")},
)
