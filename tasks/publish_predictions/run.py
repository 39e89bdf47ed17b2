"""The work of stage `publish_predictions`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.correct import CORRECTION, LEAST_SHARE, TERMS
from superworkflow.tasks.lib.formats.npy import write_header
from superworkflow.tasks.lib.formats.safetensors import read_tensors
from superworkflow.tasks.lib.gnn.link_scores import LinkPaths, read_correction
from superworkflow.tasks.lib.gnn.model.config import REGRESSION, Head, read_shape
from superworkflow.tasks.lib.gnn.sampler.links import read_held_out, sets_of_links
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.sparse_rows import row_starts
from superworkflow.tasks.lib.model_bundle import sorted_order, write_names
from superworkflow.tasks.publish_predictions import PublishPredictionsParams
from superworkflow.tasks.publish_predictions.new_nodes import WEIGHTS_FILE, write_new_nodes

BUNDLE_FORMAT = 2
PROBABILITIES = "probabilities.npy"
_PIECE = 1 << 16
LINKS, LINK_FACTORS, RELATIONS = "link_prediction", "factors.npy", "relations.json"
"""Task of a bundle, and the files by which predictions of links, and of triples of all relations, are known."""


def run(job: StageRun[PublishPredictionsParams]) -> Output:
    """Write the bundle, of classes or numbers of nodes or edges, or of links.

    Raises:
        UserError: there are no predictions, or a node has two.
    """
    predictions = job.inputs["predictions"]
    if LINK_FACTORS in predictions:
        return _publish_links(job)
    if "network" in job.inputs and (head := read_shape(job.inputs["network"]).head).of_pairs:
        return _publish_edges(job, head)
    with _final(job).parquet("predictions.parquet") as file:
        is_number = pa.types.is_floating(file.schema_arrow.field("predicted").type)
    return _publish_numbers(job) if is_number else _publish_classes(job)


def _final(job: StageRun[PublishPredictionsParams]) -> Dataset:
    """Predictions of nodes: the corrected ones, where they are given."""
    return job.inputs.get("corrected", job.inputs["predictions"])


def _publish_numbers(job: StageRun[PublishPredictionsParams]) -> Output:
    """Write predicted numbers: `nodes.npy` and `node_offsets.npy` as of classes, and `values.npy` float64 `[n]`."""
    predictions, out = _final(job), job.output
    table, order = _in_order(predictions, "predictions.parquet", ["predicted"])
    nodes, values = table.columns
    write_names(out, nodes.combine_chunks())
    out.array("values.npy", values.to_numpy().astype(np.float64))
    taken, corrected = _write_terms(job, order)
    _write_facts(job, predictions, {"task": REGRESSION, "nodes": len(nodes), **corrected}, taken)
    return Output(rows=len(nodes), stats={"nodes": len(nodes)})


def _publish_classes(job: StageRun[PublishPredictionsParams]) -> Output:
    """Write predicted classes.

    `nodes.npy` uint8, the nodes' UTF-8 one after the other, ascending by bytes, cut at `node_offsets.npy` int64
    `[n + 1]`; `classes.npy` int32 `[n]` and `probabilities.npy` float32 `[n]`; `bundle.json`. Where nodes have several
    classes, those of one lie behind each other, cut at `class_offsets.npy` int64 `[n + 1]`.
    """
    predictions, out = _final(job), job.output
    table, order = _in_order(predictions, "predictions.parquet", ["predicted", "probability"])
    nodes, predicted, likely = (column.combine_chunks() for column in table.columns)
    write_names(out, nodes)
    several = pa.types.is_list(predicted.type)
    if several:
        out.array("class_offsets.npy", row_starts(pc.list_value_length(predicted).to_numpy()))
        predicted, likely = predicted.flatten(), likely.flatten()
    if "network" in job.inputs:
        classes = pa.array(read_shape(job.inputs["network"]).head.classes, predicted.type)
        codes = pc.index_in(predicted, classes)
    else:
        coded = predicted.dictionary_encode()
        classes, codes = coded.dictionary, coded.indices
    out.array("classes.npy", codes.to_numpy().astype(np.int32))
    out.array("probabilities.npy", likely.to_numpy().astype(np.float32))
    taken = _write_probabilities(job, order, len(classes)) if "network" in job.inputs else 0
    more, corrected = _write_terms(job, order)
    facts = {"nodes": len(nodes), "classes": classes.to_pylist(), "several": several, **corrected}
    _write_facts(job, predictions, facts, taken + more)
    return Output(rows=len(nodes), stats={"nodes": len(nodes), "classes": len(classes)})


def _write_terms(job: StageRun[PublishPredictionsParams], order: pa.Int64Array) -> tuple[int, dict[str, float]]:
    """Write `terms.npy` float32 [n, classes or 1], by which new nodes are corrected (see stage `correct`).

    Returns:
        Its bytes, and the shares of a network's prediction that count and that stay at least; 0 and none without terms.
    """
    corrected = job.inputs.get("corrected")
    if corrected is None or TERMS not in corrected or not job.params.inductive:
        return 0, {}
    terms = np.asarray(corrected.array(TERMS)[order.to_numpy()], np.float32)
    job.output.array(TERMS, terms)
    own = 1 - float(corrected.json(CORRECTION)["beta"] or 0)
    return terms.nbytes, {"own_share": own, "least_share": LEAST_SHARE}


def _write_probabilities(
    job: StageRun[PublishPredictionsParams], order: pa.Int64Array, classes: int
) -> int:  # fmt: skip
    """Write `class_probabilities.npy` float32 [n, classes] if there is room for it: its bytes."""
    predictions, size = _final(job), 4 * len(order) * classes
    if PROBABILITIES not in predictions:
        return 0
    if size > job.params.most_bytes:
        job.progress.log(f"probabilities of the best classes alone: those of all take {size >> 20} MiB, and "
                         f"publish_predictions.most_bytes is {job.params.most_bytes >> 20} MiB")  # fmt: skip
        return 0
    found, rows = predictions.array(PROBABILITIES), order.to_numpy()
    with job.output.file("class_probabilities.npy") as path, path.open("wb") as stream:
        write_header(stream, (len(rows), classes), np.dtype(np.float32))
        for first in range(0, len(rows), _PIECE):
            stream.write(np.ascontiguousarray(found[rows[first : first + _PIECE]], np.float32).data)
    return size


def _publish_links(job: StageRun[PublishPredictionsParams]) -> Output:
    """Write what scores links.

    `nodes.npy` and `node_offsets.npy` as of classes, of the nodes where links start; `vectors.npy` float32
    `[n, width]`. If they end in another node set, `target_nodes.npy`, `target_node_offsets.npy` and
    `target_vectors.npy` of that. `factors.npy` float32 `[width]`: a pair's score is the sum over the columns of
    both vectors and the factors, multiplied. Of all relations they are `[relations, width]`, and `bundle.json` names
    the relations and the decoder. Of corrected scores it has `link_correction`, what stage `correct_links` wrote; and
    `link_indptr.npy` int64 and `link_indices.npy` int32 are the neighbours by all links, held out or not.
    """
    factors = job.inputs["predictions"].array(LINK_FACTORS, mmap=False)
    counts, orders = _write_ends(job)
    job.output.array("factors.npy", factors.astype(np.float32))
    if RELATIONS in job.inputs["predictions"]:
        return _finish_pairs(job, counts, {"task": LINKS, **job.inputs["predictions"].json(RELATIONS)})
    if "network" in job.inputs and read_shape(job.inputs["network"]).head.decoder == "complex":
        weights = read_tensors(job.inputs["network"].local(WEIGHTS_FILE), mapped=True)
        job.output.array("complex_factors.npy", np.array(weights["factors"]))  # turns the rows of new targets
    return _finish_pairs(job, counts, {"task": LINKS, **_write_paths(job, orders)})


def _write_paths(job: StageRun[PublishPredictionsParams], orders: list[NDArray[np.int64]]) -> dict[str, Any]:
    """Write the neighbours by which scores of links are corrected; the bundle's facts of the correction.

    Args:
        job: the stage's argument.
        orders: numbers of the sources, and of the targets of another file, by place in the bundle.
    """
    if (correction := read_correction(job.inputs.get("corrected"))) is None:
        return {}
    graph = HeteroGraph.open(job.inputs["graph"])
    held_out = read_held_out(graph)
    there = LinkPaths.of(graph, held_out, whole=True)
    shift = there.shift
    order = np.concatenate([orders[0], shift + orders[-1]]) if shift else orders[0]
    indptr, indices = there.paths.reordered(order)
    job.output.array("link_indptr.npy", indptr)
    job.output.array("link_indices.npy", indices)
    relations = list(sets_of_links(graph, graph.edge_sets[held_out.edges]))
    return {"link_correction": {**correction._asdict(), "shift": shift, "relations": relations}}


def _publish_edges(job: StageRun[PublishPredictionsParams], head: Head) -> Output:
    """Write what predicts classes or numbers of pairs.

    Nodes and vectors as of links; `decoder_hidden_weight.npy`, `decoder_hidden_bias.npy`, `decoder_out_weight.npy` and
    `decoder_out_bias.npy` float32, of `lib.gnn.model.pair_decoder`.
    """
    trained, (counts, _) = job.inputs["network"], _write_ends(job)
    weights = read_tensors(trained.local(WEIGHTS_FILE), mapped=True)
    for layer in ("hidden", "out"):
        for part in ("weight", "bias"):
            job.output.array(f"decoder_{layer}_{part}.npy", np.array(weights[f"decoder.{layer}.{part}"]))
    facts = {"task": head.task, "classes": list(head.classes), "mean": head.mean, "scale": head.scale}
    return _finish_pairs(job, counts, facts)


def _write_ends(job: StageRun[PublishPredictionsParams]) -> tuple[list[int], list[NDArray[np.int64]]]:
    """Write the nodes in which pairs begin and end, and their vectors; how many they are, and their order."""
    predictions, out = job.inputs["predictions"], job.output
    counts, orders = [], []
    for file, prefix in (("embeddings.parquet", ""), ("target_embeddings.parquet", "target_")):
        if file not in predictions:
            continue
        table, order = _in_order(predictions, file, ["vector"])
        nodes, vectors = (column.combine_chunks() for column in table.columns)
        write_names(out, nodes, prefix)
        out.array(f"{prefix}vectors.npy", vectors.flatten().to_numpy().reshape(len(nodes), -1).astype(np.float32))
        counts.append(len(nodes))
        orders.append(order.to_numpy())
    return counts, orders


def _finish_pairs(job: StageRun[PublishPredictionsParams], counts: list[int], facts: dict[str, Any]) -> Output:
    facts = {**facts, "nodes": counts[0], "target_nodes": counts[-1]}
    _write_facts(job, job.inputs["predictions"], facts, 0)
    return Output(rows=sum(counts), stats={"nodes": sum(counts)})


def _write_facts(
    job: StageRun[PublishPredictionsParams], predictions: Dataset, facts: dict[str, Any], taken: int
) -> None:
    """Write what new nodes need, where `taken` bytes are in the bundle already, and `bundle.json` with these facts."""
    lacking, scores = write_new_nodes(job, taken), job.inputs.get("scores")
    metrics = scores.json("metrics.json") if scores else {}
    made = {"format": BUNDLE_FORMAT, "predictions": predictions.digest, "metrics": metrics}
    job.output.json("bundle.json", {**made, **facts, **lacking})


def _in_order(predictions: Dataset, file: str, columns: list[str]) -> tuple[pa.Table, pa.Int64Array]:
    """Rows of a file, by the bytes of their nodes, large_string, and that order."""
    table = predictions.table(file, ["node", *columns])
    if not len(table):
        raise UserError("no predictions to publish", where=predictions.uri, remedy="Give a graph with nodes")
    table = table.set_column(0, "node", table["node"].cast(pa.large_string()))
    order = sorted_order(table["node"].combine_chunks(), "predictions", predictions.uri)
    return table.take(order).combine_chunks(), order
