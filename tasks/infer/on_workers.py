"""Stage `infer` on a worker group: layer by layer, each worker for its own parts.

After each layer, workers pull the rows of neighbours in other parts. The first worker gathers the rows of all nodes,
some at a time, and writes them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.shared_dataset import SharedDataset, uri_of
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.engines.workers.session import worker_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.infer import InferParams
from superworkflow.tasks.infer.at_times import AtTimes
from superworkflow.tasks.infer.run import (
    RowsByNodeSet,
    all_rows,
    files_of,
    layer,
    log_unread,
    read_joined,
    shape_on,
    splits_of,
    write_inner,
    write_results,
)
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.kv_store import KVStore
from superworkflow.tasks.lib.distributed.shards import Shards
from superworkflow.tasks.lib.gnn.distributed.worker_partition import WorkerPartition, shards_of
from superworkflow.tasks.lib.gnn.edge_weights import degrees_of
from superworkflow.tasks.lib.gnn.learned_features import learned_features
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.model.graph_inputs import Data, data_of
from superworkflow.tasks.lib.gnn.model.inner_rows import inner_rows
from superworkflow.tasks.lib.gnn.model.network import NetworkInputs
from superworkflow.tasks.lib.gnn.model.weights import read_embeddings, read_network
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.lib.kernels.huge_pages import keep_memory
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()


def run(job: StageRun[InferParams]) -> Output:
    """Coordinate; the workers compute, and the first of them writes.

    Raises:
        UserError: the graph in parts is missing, it or the network belongs to another graph, or there are more workers
            than parts.
    """
    if "subgraphs" in job.inputs:
        raise UserError("seeds of subgraphs are predicted in process alone", where="subgraphs",
                        value=job.inputs["subgraphs"].uri, remedy="Set the engine of infer to in-process")  # fmt: skip
    graph, trained, shards = job.inputs["graph"], job.inputs["network"], shards_of(job)
    opened = HeteroGraph.open(graph)
    shape = shape_on(opened, trained)
    log_unread(job, opened, shape)
    judged_by = splits_of(job)
    job.output.claim(files_of(shape, job.params))
    with worker_group(job) as group:
        result = group.run(infer, job.params.model_dump(mode="json"), graph.uri, trained.uri, shards.uri,
                         uri_of(judged_by), job.output.location.uri,
                         uri_of(job.inputs.get("labels")))[0]  # fmt: skip
    job.output.adopt(result["files"])
    return Output(rows=result["rows"], stats=result["stats"])


def infer(
    worker: Worker, given: dict[str, Any], graph_uri: str, trained_uri: str, shards_uri: str, judged_by_uri: str,
    output: str, labels_uri: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Compute the rows of one rank's nodes.

    Args:
        worker: this rank.
        given: the stage's parameters.
        graph_uri, trained_uri, shards_uri: datasets of stages heterograph or holdout_links, train and shard.
        judged_by_uri: dataset of stage train that has the nodes' splits; empty for none.
        output: URI of the dataset to write.
        labels_uri: dataset of stage node_labels; empty for none.
    """
    params = InferParams.model_validate(given)
    nb.set_num_threads(min(worker.threads, nb.get_num_threads()))
    trained, shards = SharedDataset.at(trained_uri, None), Shards(SharedDataset.at(shards_uri, None))
    graph = HeteroGraph.open(SharedDataset.at(graph_uri, None), SharedDataset.at_any(labels_uri))
    shape = shape_on(graph, trained)
    if shape.code:
        return _alone(worker, params, graph, trained, shape, judged_by_uri, output)
    partition = WorkerPartition(worker, shards)
    store = KVStore(partition.book, Exchange(dist.group.WORLD))
    network = read_network(trained, shape, tables=False).to(params.device)
    network.eval()
    data = _data_of(partition, store, graph, shape)
    own = {name: len(numbers) for name, numbers in partition.piece.numbers.items()}

    def report(done: int, total: int, unit: str) -> None:
        if worker.rank == 0:
            worker.update(done, total, unit)

    rows: RowsByNodeSet = _first_rows(partition, graph, trained, shape)
    hidden = rows
    outputs: list[RowsByNodeSet] = []
    keep_memory()
    files = inner_rows(shape) if params.inner_rows else {}
    writer = TaskWriter(output)
    with torch.no_grad(), tempfile.TemporaryDirectory() as scratch:
        for number, level in enumerate(shape.levels()):
            for name in [each for each in level.senders if (number, each) in files]:
                whole = store.gather(name, shape.nodes[name], rows[name], Path(scratch))
                if worker.rank == 0:
                    write_inner(writer, files, number, {name: whole})
            with_halo = {name: partition.with_halo(store, name, rows[name]) for name in level.senders}
            hidden, rows = rows, layer(network, data, number, with_halo, own, params.batch, report)
            outputs.append(rows if shape.joins else {})
        if shape.joins:
            rows, hidden = read_joined(network, outputs, params.batch)
    with tempfile.TemporaryDirectory() as folder:

        def whole_of(table: RowsByNodeSet) -> RowsByNodeSet:
            return {
                name: store.gather(name, shape.nodes[name], table[name], Path(folder)) for name in shape.head.node_sets
            }

        made = whole_of(rows)
        read = whole_of(hidden) if not shape.head.of_pairs and shape.layers > 1 else made
        if worker.rank > 0:
            return {}
        judged_by = SharedDataset.at_any(judged_by_uri)
        at_times = None
        if shape.times:
            worker.log("seeds with times are computed by the first worker alone")
            full = read_network(trained, shape).to(params.device).eval()
            at_times = AtTimes(full, graph, data_of(graph, shape, None, False), params.batch)
        facts = write_results(writer, graph, judged_by, network, made, read, at_times)
    written = [entry.model_dump() for entry in writer.entries]
    return {"files": written, "rows": facts.rows, "stats": dict(facts.stats)}


def _alone(
    worker: Worker, params: InferParams, graph: HeteroGraph, trained: Dataset, shape: NetworkConfig, judged_by_uri: str,
    output: str,
) -> dict[str, Any]:  # fmt: skip
    """Compute the rows of a module of one's own, which has no layers that workers could exchange rows between."""
    if worker.rank > 0:
        return {}
    worker.log(f"{shape.model} is computed by the first worker alone")
    network = read_network(trained, shape).to(params.device)
    writer = TaskWriter(output)
    with torch.no_grad():
        data = data_of(graph, shape, None, False)
        rows, hidden = all_rows(network, data, params.batch, worker.update)
    judged_by = SharedDataset.at_any(judged_by_uri)
    at_times = AtTimes(network, graph, data, params.batch) if shape.times else None
    facts = write_results(writer, graph, judged_by, network, rows, hidden, at_times)
    return {"files": [each.model_dump() for each in writer.entries], "rows": facts.rows, "stats": dict(facts.stats)}


def _first_rows(
    partition: WorkerPartition, graph: HeteroGraph, trained: Dataset, shape: NetworkConfig
) -> dict[str, NDArray[np.float32]]:
    """Inputs of the first layer for this worker's nodes."""
    embeddings = read_embeddings(trained, shape)
    return {
        name: embeddings[name][partition.piece.numbers[name]]
        if name in embeddings
        else learned_features(graph, name, shape, partition.piece.features[name])
        for name in shape.levels()[0].senders
    }


def _data_of(partition: WorkerPartition, store: KVStore, graph: HeteroGraph, shape: NetworkConfig) -> Data:
    """Edges of this worker's nodes, with senders numbered as in `WorkerPartition.with_halo`, weights and degrees."""
    used = shape.levels()[0].relations
    numbers = [each.number for each in used]
    rows = {number: CsrRows(partition.piece.rows[number].indptr, partition.places(number)) for number in numbers}
    weights, degrees = partition.weights(graph, used, shape.weight) if shape.weight else {}, None
    if shape.model == "gcn":
        (only,) = used
        counts = degrees_of(rows[only.number], weights.get(only.number))[:, None]
        degrees = partition.with_halo(store, only.receivers, counts)[:, 0]
    of_edges = partition.edge_features(graph, shape)
    return Data(rows, NetworkInputs({}, degrees, weights=weights, edge_features=of_edges))
