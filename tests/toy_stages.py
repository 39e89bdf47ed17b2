"""Two small real stages and a superworkflow of them, for tests of the platform alone.

`count` counts the lines of a file; `scale` multiplies that number and can fail, wait or keep a
checkpoint on its way.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.diagram import Diagram
from superworkflow.infra.contract.stage import Estimate, Input, Output, Resources, Stage, StageParams, StageRun, Stats
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.engines.spark.session import spark_session
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source

GIB = 1 << 30


class CountParams(StageParams):
    """Parameters of `count`."""

    skip: int = Field(default=0, ge=0, description="Lines to skip, 0 or more.")


class ScaleParams(StageParams):
    """Parameters of `scale`."""

    factor: float = Field(default=2.0, gt=0, description="Factor, greater than 0.")
    seconds: float = Field(
        default=0.0, ge=0, description="Seconds to wait.", json_schema_extra={"affects_result": False}
    )
    end: Literal["well", "bug", "bad-input", "no-space"] = Field(
        default="well", description="How to end.", json_schema_extra={"affects_result": False}
    )


def count(job: StageRun[CountParams]) -> Output:
    """Lines of the file, as an array and as a fact."""
    lines = len(job.sources["text"].local(job.scratch).read_text().splitlines()) - job.params.skip
    job.output.array("lines.npy", np.array([lines], dtype=np.int64))
    job.progress.update(lines, lines, "lines", per_line=1)
    return Output(rows=lines, stats={"lines": lines})


def count_on_spark(job: StageRun[CountParams]) -> Output:
    """The same, by Spark."""
    lines = job.sources["text"].local(job.scratch).read_text().splitlines()
    with spark_session(job) as session:
        found = session.sparkContext.parallelize(lines, 2).count() - job.params.skip
    job.output.array("lines.npy", np.array([found], dtype=np.int64))
    return Output(rows=found, stats={"lines": found})


def scale(job: StageRun[ScaleParams]) -> Output:
    """The number times the factor. A run that failed half-way resumes from its checkpoint."""
    kept = job.checkpoint / "half.txt"
    resumed = kept.exists()
    number = int(job.inputs["number"].array("lines.npy")[0])
    job.output.json("before.json", {"number": number})
    (job.checkpoint / "older.txt").unlink(missing_ok=True)
    kept.write_text(str(number))
    job.save_checkpoint()
    time.sleep(job.params.seconds)
    if job.params.end == "bug":
        raise RuntimeError("half-way and no further")
    if job.params.end == "bad-input":
        raise UserError("the number cannot be scaled", where="number", value=number, remedy="Give another")
    if job.params.end == "no-space":
        job.output.array("too-large.npy", np.zeros(GIB // 64, dtype=np.uint8))
    value = number * job.params.factor
    job.output.json("scaled/value.json", {"value": value})
    return Output(rows=1, stats={"value": value, "resumed": resumed}, metrics={"value@1": value})


def estimate_count(params: CountParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Ten bytes a line."""
    lines = int(inputs["text"]["bytes"] or 0) // 10 - params.skip
    return Estimate(memory_bytes=GIB, cpu_s=10.0, output_bytes=8, stats={"lines": lines}, parallel=0.5)


def estimate_scale(params: ScaleParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """A hundred bytes of memory and a second for each line."""
    lines = int(inputs["number"]["lines"] or 0)
    return Estimate(memory_bytes=100 * lines, cpu_s=float(lines), output_bytes=8 * lines, stats={}, parallel=1.0)


COUNT = Stage(
    name="count",
    version="1",
    params=CountParams,
    inputs={"text": Input("a text", file=True)},
    run="tests.toy_stages:count",
    engines={"spark": "tests.toy_stages:count_on_spark"},
    estimate=estimate_count,
)
SCALE = Stage(
    name="scale",
    version="3",
    params=ScaleParams,
    inputs={"number": Input("count dataset"), "other": Input("count dataset", optional=True)},
    run="tests.toy_stages:scale",
    estimate=estimate_scale,
)


class ToyOptions(StageParams):
    """Options of the superworkflow itself."""

    twice: bool = Field(default=False, description="Scale twice.")


def _diagram(flow: Diagram, text: Source, other: Source | None) -> None:
    number = flow.stage(COUNT, text=text)
    flow.stage(SCALE, number=number)
    if flow.option("twice"):
        flow.stage(SCALE, name="scale-again", number=number, other=number)


TOY = Superworkflow(
    name="toy",
    stages=(COUNT, SCALE),
    sources={"text": "a text file", "other": "another text file"},
    optional=frozenset({"other"}),
    diagram=_diagram,
    options=ToyOptions,
)


def write_text(dataset: Dataset, path: Path) -> None:
    """An export of `count`."""
    path.write_text(f"{dataset.array('lines.npy')[0]} lines")


def write_folder(dataset: Dataset, path: Path) -> None:
    """An export of `count` that is a folder."""
    (path / "parts").mkdir(parents=True)
    write_text(dataset, path / "parts" / "part-0")
    (path / "_SUCCESS").touch()


def write_half(dataset: Dataset, path: Path) -> None:
    """An export that fails."""
    write_text(dataset, path)
    raise RuntimeError("half of it")
