"""The work of stage `publish_predictions`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.sparse_rows import row_starts
from superworkflow.tasks.lib.model_bundle import sorted_order, write_names

BUNDLE_FORMAT = 1
LINKS, LINK_FACTORS = "link_prediction", "factors.npy"
"""Task of a bundle, and the file by which predictions of links are known."""


def run(job: StageRun[StageParams]) -> Output:
    """Write the bundle, of classes or of links.

    Raises:
        UserError: there are no predictions, or a node has two.
    """
    return _publish_links(job) if LINK_FACTORS in job.inputs["predictions"] else _publish_classes(job)


def _publish_classes(job: StageRun[StageParams]) -> Output:
    """Write predicted classes.

    `nodes.npy` uint8, the nodes' UTF-8 one after the other, ascending by bytes, cut at `node_offsets.npy` int64
    `[n + 1]`; `classes.npy` int32 `[n]` and `probabilities.npy` float32 `[n]`; `bundle.json`. Where nodes have several
    classes, those of one lie behind each other, cut at `class_offsets.npy` int64 `[n + 1]`.
    """
    predictions, out = job.inputs["predictions"], job.output
    table = _in_order(predictions, "predictions.parquet", ["predicted", "probability"])
    nodes, predicted, likely = (column.combine_chunks() for column in table.columns)
    write_names(out, nodes)
    if pa.types.is_list(predicted.type):
        out.array("class_offsets.npy", row_starts(pc.list_value_length(predicted).to_numpy()))
        predicted, likely = predicted.flatten(), likely.flatten()
    coded = predicted.dictionary_encode()
    out.array("classes.npy", coded.indices.to_numpy().astype(np.int32))
    out.array("probabilities.npy", likely.to_numpy().astype(np.float32))
    scores = job.inputs.get("scores")
    out.json("bundle.json", {
        "format": BUNDLE_FORMAT, "nodes": len(nodes), "classes": coded.dictionary.to_pylist(),
        "predictions": predictions.digest, "metrics": scores.json("metrics.json") if scores else {},
    })  # fmt: skip
    return Output(rows=len(nodes), stats={"nodes": len(nodes), "classes": len(coded.dictionary)})


def _publish_links(job: StageRun[StageParams]) -> Output:
    """Write what scores links.

    `nodes.npy` and `node_offsets.npy` as of classes, of the nodes where links start; `vectors.npy` float32
    `[n, width]`. If they end in another node set, `target_nodes.npy`, `target_node_offsets.npy` and
    `target_vectors.npy` of that. `factors.npy` float32 `[width]`: a pair's score is the sum over the columns of
    both vectors and the factors, multiplied.
    """
    predictions, out = job.inputs["predictions"], job.output
    factors = predictions.array(LINK_FACTORS, mmap=False)
    counts = []
    for file, prefix in (("embeddings.parquet", ""), ("target_embeddings.parquet", "target_")):
        if file not in predictions:
            continue
        nodes, vectors = (column.combine_chunks() for column in _in_order(predictions, file, ["vector"]).columns)
        write_names(out, nodes, prefix)
        out.array(f"{prefix}vectors.npy", vectors.flatten().to_numpy().reshape(len(nodes), -1).astype(np.float32))
        counts.append(len(nodes))
    out.array("factors.npy", factors.astype(np.float32))
    scores = job.inputs.get("scores")
    out.json("bundle.json", {
        "format": BUNDLE_FORMAT, "task": LINKS, "nodes": counts[0], "target_nodes": counts[-1],
        "predictions": predictions.digest, "metrics": scores.json("metrics.json") if scores else {},
    })  # fmt: skip
    return Output(rows=sum(counts), stats={"nodes": sum(counts)})


def _in_order(predictions: Dataset, file: str, columns: list[str]) -> pa.Table:
    """Rows of a file, by the bytes of their nodes, large_string."""
    with predictions.parquet(file) as parquet:
        table = parquet.read(["node", *columns])
    if not len(table):
        raise UserError("no predictions to publish", where=predictions.uri, remedy="Give a graph with nodes")
    table = table.set_column(0, "node", table["node"].cast(pa.large_string()))
    return table.take(sorted_order(table["node"].combine_chunks(), "predictions", predictions.uri)).combine_chunks()
