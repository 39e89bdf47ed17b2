"""The work of stage `publish_coefficients`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.feature_graph.tables import SamplesTable
from superworkflow.tasks.lib.linear_model import linear_model


def run(job: StageRun[StageParams]) -> Output:
    """Write the table; see `tasks.publish_coefficients`.

    Raises:
        UserError: the coefficients are of another graph.
    """
    graph = job.inputs["graph"]
    model, table = linear_model(graph, job.inputs["values"]), SamplesTable.of(graph)
    features, problems = model.coefficient.shape
    names = pa.array(np.tile(model.feature, problems))
    if table is not None:
        names = pa.array(table.features).take(names)
    rows = pa.table({"feature": names, "coefficient": pa.array(model.coefficient.T.reshape(-1))})
    facts = dict(job.inputs["values"].json("model.json"))
    facts["intercept"] = model.intercept.tolist() if model.classes else float(model.intercept[0])
    if model.classes:
        named = model.classes if problems > 1 else model.classes[1:]
        rows = rows.add_column(1, "class", pa.array(named).take(np.repeat(np.arange(problems), features)))
        facts["classes"] = model.classes
    job.output.table("coefficients.parquet", rows)
    job.output.json("model.json", facts)
    return Output(rows=len(rows), stats={"features": features, "problems": problems})
