"""The work of stage `publish_predictions`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from superworkflow.infra.errors import UserError
from superworkflow.infra.stage import Output, StageRun
from superworkflow.tasks._bundle import write_names
from superworkflow.tasks.publish_predictions import PublishPredictionsParams

BUNDLE_FORMAT = 1


def run(job: StageRun[PublishPredictionsParams]) -> Output:
    """Write the bundle.

    `nodes.npy` uint8, the nodes' UTF-8 one after the other, ascending by bytes, cut at `node_offsets.npy` int64
    `[n + 1]`; `classes.npy` int32 `[n]` and `probabilities.npy` float32 `[n]`; `bundle.json`.

    Raises:
        UserError: there are no predictions, or a node has two.
    """
    predictions, out = job.inputs["predictions"], job.output
    with predictions.parquet("predictions.parquet") as file:
        table = file.read(["node", "predicted", "probability"])
    if not len(table):
        raise UserError("no predictions to publish", where=predictions.uri, remedy="Give a graph with nodes")
    nodes = table["node"].cast(pa.large_string()).combine_chunks()
    order = pc.sort_indices(nodes)
    nodes = nodes.take(order)
    twice = pc.equal(nodes[1:], nodes[:-1])
    if len(nodes) > 1 and pc.any(twice).as_py():
        node = nodes[pc.index(twice, True).as_py()].as_py()
        raise UserError("a node has two predictions", where=predictions.uri, value=node, remedy="Give each node a row")
    coded = table["predicted"].combine_chunks().dictionary_encode()
    write_names(out, nodes)
    out.array("classes.npy", coded.indices.take(order).to_numpy().astype(np.int32))
    out.array("probabilities.npy", table["probability"].take(order).to_numpy().astype(np.float32))
    scores = job.inputs.get("scores")
    out.json("bundle.json", {
        "format": BUNDLE_FORMAT, "nodes": len(nodes), "classes": coded.dictionary.to_pylist(),
        "predictions": predictions.digest, "metrics": scores.json("metrics.json") if scores else {},
    })  # fmt: skip
    return Output(rows=len(nodes), stats={"nodes": len(nodes), "classes": len(coded.dictionary)})
