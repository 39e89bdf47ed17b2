"""Stage `gated`: waits in the middle of its work for as long as a file is not there. Two steps, two files, two rows."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Estimate, Input, Output, Resources, Stage, StageParams, StageRun, Stats

STEPS = 2
WHERE: dict[str, Any] = {"affects_result": False}


class GatedParams(StageParams):
    """Parameters of `gated`."""

    seed: int = Field(default=0, description="What the files hold.")
    gate: str = Field(default="", description="File to wait for.", json_schema_extra=WHERE)
    memory_mib: int = Field(default=0, ge=0, description="MiB to fill.", json_schema_extra=WHERE)
    end: Literal["well", "bug", "bad-input"] = Field(default="well", description="How to end.", json_schema_extra=WHERE)


def run(job: StageRun[GatedParams]) -> Output:
    """Write a file, wait, write another. What it prints is no event."""
    params = job.params
    print(f"prints {params.seed}", flush=True)  # noqa: T201
    print(f"warns {params.seed}", file=sys.stderr, flush=True)  # noqa: T201
    filled = np.ones(params.memory_mib << 20, np.uint8)
    job.output.array("first.npy", np.array([params.seed]))
    job.progress.update(1, STEPS, "steps")
    while params.gate and not Path(params.gate).exists():
        time.sleep(0.02)
    if params.end == "bug":
        raise RuntimeError("half-way and no further")
    if params.end == "bad-input":
        raise UserError("the seed does not sprout", where="gated.seed", value=params.seed, remedy="Choose another")
    job.output.array("second.npy", np.array([params.seed + len(filled) * 0]))
    job.progress.update(STEPS, STEPS, "steps")
    return Output(rows=STEPS)


def estimate(params: GatedParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Nobody asks."""
    return Estimate(memory_bytes=1 << 30, cpu_s=1, output_bytes=8)


STAGE = Stage(
    name="gated", version="1", params=GatedParams, inputs={"text": Input("a text", file=True, optional=True)},
    run="superworkflow.tasks.gated:run", estimate=estimate,
)  # fmt: skip
