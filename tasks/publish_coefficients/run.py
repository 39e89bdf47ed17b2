"""The work of stage `publish_coefficients`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.lib.linear_model import linear_model


def run(job: StageRun[StageParams]) -> Output:
    """Write the table; see `tasks.publish_coefficients`.

    Raises:
        UserError: the coefficients are of another graph.
    """
    model = linear_model(job.inputs["graph"], job.inputs["values"])
    features, problems = model.coefficient.shape
    columns = {"feature": np.tile(model.feature, problems), "coefficient": model.coefficient.T.reshape(-1)}
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    facts = dict(job.inputs["values"].json("model.json"))
    if model.classes:
        named = model.classes if problems > 1 else model.classes[1:]
        table = table.add_column(1, "class", pa.array(named).take(np.repeat(np.arange(problems), features)))
        facts["classes"] = model.classes
    job.output.table("coefficients.parquet", table)
    job.output.json("model.json", facts)
    return Output(rows=len(table), stats={"features": features, "problems": problems})
