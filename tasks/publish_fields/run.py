"""The work of stage `publish_fields`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.lib.vertex.program import CLASSES
from superworkflow.tasks.lib.vertex.stage import SHARD

TABLE = "vertices.parquet"


def run(job: StageRun[StageParams]) -> Output:
    """Write the table; see `tasks.publish_fields`.

    Raises:
        UserError: the values are of another graph.
    """
    graph, values = job.inputs["graph"], job.inputs["values"]
    names, vertices = str(values.stats["fields"]).split(","), int(values.stats["vertices"] or 0)
    if graph.stats["vertices"] != vertices:
        raise UserError("the values are of another graph", where=values.uri, value=f"{vertices} vertices",
                        remedy=f"Give those of {graph.uri}")  # fmt: skip
    classes = values.json(CLASSES) if CLASSES in values else {}
    if classes:
        job.output.json(CLASSES, classes)
    with graph.parquet(TABLE) as nodes, job.output.file(TABLE) as path:
        writer = None
        for number, batch in enumerate(nodes.iter_batches(SHARD, columns=["node"])):
            columns = [_column(values.array(f"{name}-{number:05d}.npy"), classes.get(name)) for name in names]
            if any(len(column) != len(batch) for column in columns):
                raise UserError("a field has another length than the graph", where=values.uri,
                                remedy="Delete the dataset and run again")  # fmt: skip
            table = pa.table([batch["node"], *columns], names=["node", *names])
            writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
            job.progress.update(min((number + 1) * SHARD, vertices), vertices, "nodes")
        if writer is not None:
            writer.close()
    return Output(rows=vertices, stats={"vertices": vertices, "fields": len(names)})


def _column(values: Any, classes: list[str] | None) -> pa.Array:
    if classes is not None:
        return pa.array(classes, pa.string()).take(pa.array(values, mask=values < 0))
    array = pa.array(values.reshape(-1))
    return array if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(array, values.shape[1])
