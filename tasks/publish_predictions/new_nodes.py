"""Contents of a bundle by which it predicts new nodes: the network, and what its layers read of the nodes there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.embeddings import batches, dimensions_of, open_embeddings, vectors_of
from superworkflow.tasks.lib.formats.npy import write_header
from superworkflow.tasks.lib.gnn.column_scaling import unscaled_columns
from superworkflow.tasks.lib.gnn.edge_weights import degrees_of, weights_of
from superworkflow.tasks.lib.gnn.features import features_of
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig, read_shape
from superworkflow.tasks.lib.gnn.model.inner_rows import inner_rows, is_embedding
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.model_bundle import write_names
from superworkflow.tasks.publish_predictions import PublishPredictionsParams

WEIGHTS_FILE = "model.safetensors"
_PIECE = 1 << 14
_MIB = 1 << 20


def write_new_nodes(job: StageRun[PublishPredictionsParams], taken: int) -> dict[str, str]:
    """Write the network and the rows; if they cannot be, the fact `no_new_nodes` of the bundle, which says why.

    `network.safetensors` and `network.json`, weights and what they are of; `rows-<layer>-<node set>.npy` float32 or
    float16 [nodes, width], what each layer reads, by number of both; of GCN `degrees.npy` float32 [nodes]. Names of a
    node set that the bundle does not have already: `set-<node set>-nodes.npy`, as `write_names` has them. What the
    first layer reads of nodes without features are their embeddings, among the weights.

    Args:
        job: the stage's argument.
        taken: bytes of what the bundle has already beyond the best classes.

    Raises:
        UserError: graph, network and predictions are of different runs.
    """
    params, trained = job.params, job.inputs.get("network")
    if not params.inductive or trained is None or "graph" not in job.inputs:
        return {}
    graph, shape = HeteroGraph.open(job.inputs["graph"]), read_shape(trained)
    _check_made_of(job)
    if reason := _lacking(job.inputs["predictions"], shape):
        job.progress.log(f"new nodes cannot be predicted: {reason}")
        return {"no_new_nodes": reason}
    bytes_of = _sizes(shape, trained)
    room = params.most_bytes - taken
    kind = np.dtype(np.float32) if bytes_of(4) <= room else np.dtype(np.float16)
    if bytes_of(kind.itemsize) > room:
        reason = (
            f"the rows of {sum(shape.nodes.values())} nodes take "
            f"{bytes_of(2) // _MIB} MiB, and publish_predictions.most_bytes leaves {max(0, room) // _MIB} MiB"
        )
        job.progress.log(f"new nodes cannot be predicted: {reason}")
        return {"no_new_nodes": reason}
    output, numbers = job.output, shape.numbers()
    output.copy("network.safetensors", trained.local(WEIGHTS_FILE))
    first = shape.levels()[0].senders
    written = _named_already(graph, shape)
    for name in first:
        if name not in written:
            write_names(output, _large(graph.ids(name)), f"set-{numbers[name]}-")
    for layer, level in enumerate(shape.levels()):
        for name in level.senders:
            if layer or shape.widths[name]:
                _write_rows(job, graph, shape, layer, name, kind)
    if shape.model == "gcn":
        (relation,) = shape.levels()[0].relations
        weights = weights_of(graph, [relation], shape.weight) if shape.weight else {}
        output.array("degrees.npy", degrees_of(graph.rows(relation.name), weights.get(relation.number)))
    output.json("network.json", _document(graph, shape))
    job.progress.log(f"new nodes can be predicted, by {bytes_of(kind.itemsize) / _MIB:.1f} MiB of rows in {kind}")
    return {}


def _check_made_of(job: StageRun[PublishPredictionsParams]) -> None:
    """Refuse a network or a graph other than that of the predictions."""
    made = job.inputs["predictions"].manifest.inputs
    for name in ("network", "graph"):
        if name in made and made[name].digest != job.inputs[name].digest:
            raise UserError(f"the predictions are of another {name}", where=job.inputs[name].uri,
                            value=job.inputs[name].digest, remedy=f"Give the {name} that they are of")  # fmt: skip


def _lacking(predictions: Dataset, shape: NetworkConfig) -> str:
    if shape.code:
        return f"{shape.model} needs torch and the whole graph; superworkflow predict applies it to new graphs"
    missing = [file for file in inner_rows(shape).values() if file not in predictions]
    return "the predictions have no rows of inner layers; set infer.inner_rows=true" if missing else ""


def _sizes(shape: NetworkConfig, trained: Dataset) -> Any:
    """Function that gives the bytes of the network and all rows, by the bytes of a value."""
    values = sum(
        shape.nodes[name] * shape.width_in(layer, name)
        for layer, level in enumerate(shape.levels()) for name in level.senders if layer or shape.widths[name]
    )  # fmt: skip
    weights = next(each.bytes for each in trained.manifest.files if each.path == WEIGHTS_FILE)
    return lambda size: weights + size * values


def _named_already(graph: HeteroGraph, shape: NetworkConfig) -> tuple[str, ...]:
    """Node sets whose names the bundle has: of nodes theirs, of pairs both ends'."""
    if not shape.head.of_pairs:
        return shape.head.node_sets
    edges = graph.edge_sets[shape.head.edges]
    return edges.source, edges.target


def _write_rows(
    job: StageRun[PublishPredictionsParams], graph: HeteroGraph, shape: NetworkConfig, layer: int, name: str,
    kind: np.dtype[Any],
) -> None:  # fmt: skip
    """Write the inputs of a layer of the nodes of a set, some at a time."""
    predictions, number = job.inputs["predictions"], shape.numbers()[name]
    count, width = shape.nodes[name], shape.width_in(layer, name)
    table: NDArray[Any] | None = None
    if not layer:
        table = features_of(graph, name)
    elif not is_embedding(shape, layer, name):
        table = predictions.array(inner_rows(shape)[layer, name])
    if table is not None and table.dtype == np.float16:
        kind = table.dtype  # features that the graph has so
    with job.output.file(f"rows-{layer}-{number}.npy") as path, path.open("wb") as stream:
        write_header(stream, (count, width), kind)
        if table is None:
            with open_embeddings(predictions) as file:
                for batch in batches(file, _PIECE):
                    stream.write(_stored(vectors_of(batch, dimensions_of(file.schema_arrow, predictions)), kind))
            return
        for first in range(0, count, _PIECE):
            stream.write(_stored(table[first : first + _PIECE], kind))
            job.progress.update(min(first + _PIECE, count), count, f"rows of {name}, layer {layer}")


def _stored(rows: NDArray[Any], kind: np.dtype[Any]) -> memoryview:
    """Bytes of rows; what float16 cannot hold becomes its largest value."""
    if kind == np.float16:
        rows = np.clip(rows, -65504, 65504)
    return np.ascontiguousarray(rows, kind).data


def _document(graph: HeteroGraph, shape: NetworkConfig) -> dict[str, Any]:
    """Content of `network.json`."""
    keys = {name: f"embeddings.{key}.weight" for key, name in enumerate(shape.embedded())}
    edges = graph.edge_sets.get(shape.head.edges)
    return {
        **shape.document(),
        "levels": [
            {
                "receivers": list(level.receivers), "senders": list(level.senders),
                "relations": [list(each) for each in level.relations],
            }
            for level in shape.levels()
        ],
        "sets": {
            name: {
                "number": shape.numbers()[name], "count": shape.nodes[name], "embeddings": keys.get(name, ""),
                "columns": _columns(shape, name),
                "scaling": shape.scaling.get(name, {}),
            }
            for name in shape.levels()[0].senders
        },
        "ends": [edges.source, edges.target] if edges is not None else [],
        "reverse": _reverse(graph, shape),
    }  # fmt: skip


def _columns(shape: NetworkConfig, node_set: str) -> list[list[Any]]:
    """Names and numbers of the columns of a request."""
    found = unscaled_columns(shape.columns.get(node_set, ()), shape.scaling.get(node_set))
    return [list(each) for each in found] or [["features", shape.widths[node_set]]]


def _reverse(graph: HeteroGraph, shape: NetworkConfig) -> dict[str, int]:
    """Number of the edge set that has an edge set's edges the other way round, by its number, which may be the same."""
    number = {each.name: each.number for each in shape.relations}
    stats, used = graph.dataset.stats, {each.number for each in shape.levels()[0].relations}
    if len(number) == 1 and 2 * int(stats.get("reversed_edges") or 0) == int(stats.get("edges") or 0) > 0:
        only = next(iter(number.values()))  # of an edge list: one set has its edges in both directions
        return {str(only): only}
    found = {}
    for edges in graph.edge_sets.values():
        if edges.reversed_of in number and {number[edges.name], number[edges.reversed_of]} <= used:
            found[str(number[edges.name])] = number[edges.reversed_of]
            found[str(number[edges.reversed_of])] = number[edges.name]
    return found


def _large(ids: pa.ChunkedArray) -> pa.LargeStringArray:
    return pa.concat_arrays(ids.chunks) if ids.num_chunks else pa.array([], pa.large_string())
