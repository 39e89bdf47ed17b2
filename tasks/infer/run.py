"""The work of stage `infer`."""

from __future__ import annotations

from pathlib import Path

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from superworkflow.infra.errors import UserError
from superworkflow.infra.stage import Output, StageRun
from superworkflow.tasks._arrow import column
from superworkflow.tasks._gnn.batches import Draws, Sampler
from superworkflow.tasks._gnn.features import width_of
from superworkflow.tasks._gnn.kernels import ALL
from superworkflow.tasks._gnn.links import HELD_OUT, read_held_out, scores_of
from superworkflow.tasks._gnn.network import Network, read_network
from superworkflow.tasks._gnn.shape import LINKS, Shape, read_shape
from superworkflow.tasks._gnn.splits import SPLITS
from superworkflow.tasks._gnn.targets import label_texts
from superworkflow.tasks._heterograph import HeteroGraph
from superworkflow.tasks._numba import load_kernels_fast
from superworkflow.tasks.infer import InferParams
from superworkflow.tasks.train.data import Data, data_of
from superworkflow.tasks.train.device import check_device
from superworkflow.tasks.train.run import torch_threads

load_kernels_fast()
_GROUP_BYTES = 4 << 20


def run(job: StageRun[InferParams]) -> Output:
    """Write predictions and embeddings; see `tasks.infer`.

    Raises:
        UserError: the device is not there, or the network is another graph's.
    """
    check_device(job.params)
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    graph, trained = HeteroGraph.open(job.inputs["graph"]), job.inputs["network"]
    shape = read_shape(trained)
    _check(graph, shape, trained.uri)
    data = data_of(graph, shape, None, False)
    with torch_threads(job.threads), torch.no_grad():
        network = read_network(trained, shape).to(job.params.device)
        network.eval()
        rows = hidden = _first_rows(network, data)
        for number in range(shape.layers):
            hidden, rows = rows, _layer(job, network, data, number, rows)
    if shape.head.task == LINKS:
        return _write_links(job, graph, network, rows)
    (target,) = shape.head.node_sets
    return _write_classes(job, graph, shape, rows[target], hidden[target] if shape.layers > 1 else rows[target])


def _write_classes(
    job: StageRun[InferParams], graph: HeteroGraph, shape: Shape, scores: NDArray[np.float32],
    vectors: NDArray[np.float32],
) -> Output:  # fmt: skip
    """Write predicted classes of all nodes, and what the last layer reads of them."""
    (target,) = shape.head.node_sets
    probabilities, predicted = torch.softmax(torch.from_numpy(scores), 1).max(1)
    names = graph.ids(target).combine_chunks()
    with job.output.file("embeddings.parquet") as path:
        _write_vectors(path, names, vectors)
    splits = job.inputs["network"].array("splits.npy", mmap=False)
    with job.output.file("predictions.parquet") as path:
        classes = pa.array(shape.head.classes, pa.string())
        table = pa.table({
            "node": names.cast(pa.string()),
            "predicted": classes.take(column(predicted.numpy())),
            "probability": column(probabilities.numpy()),
            "label": pa.array(label_texts(graph, shape.head.label), pa.string()),
            "split": pa.array([None if each < 0 else SPLITS[each] for each in splits.tolist()], pa.string()),
        })  # fmt: skip
        pq.write_table(table, path, compression="zstd", row_group_size=1 << 17)
    count = len(names)
    return Output(rows=count, stats={"rows": count, "nodes": count, "dimensions": vectors.shape[1]})


def _write_links(
    job: StageRun[InferParams], graph: HeteroGraph, network: Network, rows: dict[str, NDArray[np.float32]]
) -> Output:
    """Write the rows of the nodes between which links are predicted, and what the decoder makes of held-out pairs."""
    held_out = read_held_out(graph)
    edges = graph.edge_sets[held_out.edges]
    ids = {name: graph.ids(name).combine_chunks() for name in (edges.source, edges.target)}
    files = {"embeddings.parquet": edges.source}
    if edges.source != edges.target:
        files["target_embeddings.parquet"] = edges.target
    for file, name in files.items():
        with job.output.file(file) as path:
            _write_vectors(path, ids[name], rows[name])
    width = network.shape.head.width
    factors = np.ones(width, np.float32) if network.factors is None else network.factors.detach().cpu().numpy()
    job.output.array("factors.npy", factors)
    parts = []
    for split in HELD_OUT:
        for linked, pairs in ((True, held_out.links[split]), (False, held_out.others[split])):
            scores = torch.from_numpy(scores_of(rows[edges.source], rows[edges.target], factors, pairs))
            parts.append(pa.table({
                "source": ids[edges.source].take(column(pairs[:, 0])).cast(pa.string()),
                "target": ids[edges.target].take(column(pairs[:, 1])).cast(pa.string()),
                "linked": pa.array(np.full(len(pairs), linked)),
                "split": pa.array([split] * len(pairs), pa.string()),
                "score": column(scores.numpy()),
                "probability": column(torch.sigmoid(scores).numpy()),
            }))  # fmt: skip
    with job.output.file("predictions.parquet") as path:
        pq.write_table(pa.concat_tables(parts), path, compression="zstd", row_group_size=1 << 17)
    count = sum(len(rows[name]) for name in files.values())
    pairs_there = sum(map(len, parts))
    return Output(rows=count, stats={"rows": count, "nodes": count, "dimensions": width, "pairs": pairs_there})


def _check(graph: HeteroGraph, shape: Shape, where: str) -> None:
    """Refuse a graph whose sets are not those that the network was trained on."""
    for name, width in shape.widths.items():
        if name not in graph.node_sets or width_of(graph, name) != width:
            raise UserError("the network was trained on another graph", where=where, value=name,
                            remedy="Give the graph that it was trained on")  # fmt: skip
    edge_sets = {each.name: (each.source, each.target) for each in graph.edge_sets.values()}
    same = all(edge_sets.get(each.name) == (each.receivers, each.senders) for each in shape.relations)
    sizes = all(graph.node_sets[name].count == shape.nodes[name] for name in shape.embedded())
    if not same or not sizes:
        raise UserError("the network was trained on another graph", where=where, value=graph.dataset.digest,
                        remedy="Give the graph that it was trained on")  # fmt: skip


def _first_rows(network: Network, data: Data) -> dict[str, NDArray[np.float32]]:
    """What the first layer reads of all nodes."""
    rows: dict[str, NDArray[np.float32]] = {}
    for name in network.shape.levels()[0].senders:
        if name in network.embedded:
            table: torch.Tensor = network.embeddings[network.embedded[name]].weight  # type: ignore[assignment]
            rows[name] = table[: network.shape.nodes[name]].cpu().numpy()
        else:
            rows[name] = data.known.features[name]
    return rows


def _layer(
    job: StageRun[InferParams], network: Network, data: Data, number: int, rows: dict[str, NDArray[np.float32]]
) -> dict[str, NDArray[np.float32]]:
    """Rows of all nodes after a layer, computed for some nodes at a time."""
    shape = network.shape
    level = shape.levels()[number]
    sampler = Sampler(data.rows, shape.nodes, Draws([level], [ALL], False, frozenset(), 0))
    made = {name: np.empty((shape.nodes[name], shape.width_out(number)), np.float32) for name in level.receivers}
    total = sum(shape.nodes[name] for name in level.receivers)
    done = 0
    for name in level.receivers:
        for first in range(0, shape.nodes[name], job.params.batch):
            nodes = np.arange(first, min(shape.nodes[name], first + job.params.batch))
            block = sampler.batch({name: nodes}).blocks[0]
            read = {each: torch.from_numpy(rows[each][block.senders[each]]) for each in level.senders}
            given = {each: values.to(network.device) for each, values in read.items()}
            found = network.layer(number, block, given, data.known)[name]
            made[name][first : first + len(nodes)] = found.cpu().numpy()
            done += len(nodes)
            job.progress.update(number * total + done, shape.layers * total, "nodes")
    return made


def _write_vectors(path: Path, names: pa.Array, vectors: NDArray[np.float32]) -> None:
    """Nodes and vectors, a row group at a time."""
    width = vectors.shape[1]
    schema = pa.schema([("node", pa.string()), ("vector", pa.list_(pa.float32(), width))])
    size = max(1, _GROUP_BYTES // (4 * width))
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False, write_statistics=False) as writer:
        for first in range(0, len(vectors), size):
            part = vectors[first : first + size]
            values = pa.FixedSizeListArray.from_arrays(column(part.reshape(-1)), width)
            batch = [names[first : first + size].cast(pa.string()), values]
            writer.write_table(pa.Table.from_arrays(batch, schema=schema), row_group_size=size)
