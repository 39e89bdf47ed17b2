"""Stage `spread`: Spark tasks of a given time and memory, for tests of the platform."""

import time
from collections.abc import Iterator, Mapping

import numpy as np
from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Output, Resources, Stage, StageParams, StageRun, Stats
from superworkflow.infra.engines.spark.session import spark_session
from superworkflow.infra.engines.spark.tasks import spark_errors


class SpreadParams(StageParams):
    """Parameters of `spread`."""

    tasks: int = Field(default=4, ge=1, description="How many tasks.")
    seconds: float = Field(default=0.0, ge=0, description="Seconds that each takes.")
    memory_mib: int = Field(default=0, ge=0, description="MiB that each fills.")
    end: str = Field(default="well", description="well, or bug.")


def spread(job: StageRun[SpreadParams]) -> Output:
    """Write the squares of the tasks' numbers; the executors compute them."""
    params = job.params
    size, seconds, end = params.memory_mib << 20, params.seconds, params.end  # executors do not find this module

    def work(numbers: Iterator[int]) -> Iterator[int]:
        for number in numbers:
            filled = np.ones(size, np.uint8)
            time.sleep(seconds)
            if end == "bug":
                raise RuntimeError("no further than here")
            yield number * number + 0 * len(filled)

    with spark_session(job) as session, spark_errors():
        squares = session.sparkContext.parallelize(range(params.tasks), params.tasks).mapPartitions(work).collect()
    job.output.array("squares.npy", np.array(squares, dtype=np.int64))
    return Output(rows=params.tasks)


def nothing(job: StageRun[SpreadParams]) -> Output:
    """It has no work to do in process."""
    return Output(rows=0)


def estimate(params: SpreadParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Nobody asks."""
    return Estimate(memory_bytes=1 << 30, cpu_s=1, output_bytes=8)


STAGE = Stage(
    name="spread", version="1", params=SpreadParams, inputs={}, estimate=estimate,
    run="superworkflow.tasks.spread:nothing", engines={"spark": "superworkflow.tasks.spread:spread"},
)  # fmt: skip
