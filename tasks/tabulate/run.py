"""The work of stage `tabulate`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageParams, StageRun

TABLE, CLASSES = "predictions.parquet", "classes.json"
COLUMNS = ["node", "source", "target", "predicted", "probability"]
_ROWS = 1 << 17


def run(job: StageRun[StageParams]) -> Output:
    """Write the table; see `tasks.tabulate`.

    Raises:
        UserError: the predictions are of links.
    """
    predictions = job.inputs["predictions"]
    with predictions.parquet(TABLE) as file:
        columns = [name for name in COLUMNS if name in file.schema_arrow.names]
        count = file.metadata.num_rows
    if "predicted" not in columns:
        raise UserError("no predictions of nodes or edges", where=predictions.uri,
                        remedy="Give the output of stage infer for a network that does not predict links")  # fmt: skip
    classes: list[str] = predictions.json(CLASSES) if CLASSES in predictions else []
    likely = predictions.array("probabilities.npy") if classes else np.empty((count, 0), np.float32)
    names = [f"probability_{name}" for name in classes]
    done = 0
    with predictions.parquet(TABLE) as file, job.output.file(TABLE) as path:
        fields = [file.schema_arrow.field(name) for name in columns]
        schema = pa.schema([*fields, *(pa.field(name, pa.float32()) for name in names)])
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for batch in file.iter_batches(_ROWS, columns=columns):
                chances = np.asarray(likely[done : done + len(batch)], np.float32).T
                own = [pa.array(np.ascontiguousarray(each)) for each in chances]
                writer.write_table(pa.Table.from_arrays([*(batch[name] for name in columns), *own], schema=schema))
                done += len(batch)
                job.progress.update(done, len(likely), "nodes")
    return Output(rows=done, stats={"nodes": done, "classes": len(classes)})
