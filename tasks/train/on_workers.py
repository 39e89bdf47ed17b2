"""Stage `train` on a worker group: each worker has some parts of the graph, and trains on its share of each step.

The blocks of a step are those that one process draws, divided among the workers: targets go to their owners, evened out
to one more or less. Gradients are added up over all workers before each step of the optimizer, so that all have the
same weights. Losses are those of one process up to the order of sums.
"""

from __future__ import annotations

import time
from typing import Any

import numba as nb
import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.infra.engines.files import TaskWriter
from superworkflow.infra.engines.shared import SharedDataset
from superworkflow.infra.engines.workers.session import worker_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.errors import UserError
from superworkflow.infra.resources import format_bytes
from superworkflow.infra.stage import Output, StageRun
from superworkflow.infra.storage.filesystem import Location
from superworkflow.infra.storage.manifest import FileEntry
from superworkflow.tasks._gnn.asking import Book, Exchange, Store
from superworkflow.tasks._gnn.batches import Draws
from superworkflow.tasks._gnn.classification import Classification
from superworkflow.tasks._gnn.kernels import read_only, sum_edges
from superworkflow.tasks._gnn.links import has_links
from superworkflow.tasks._gnn.network import Network
from superworkflow.tasks._gnn.shape import Shape
from superworkflow.tasks._gnn.shards import Shards
from superworkflow.tasks._gnn.splits import SPLITS
from superworkflow.tasks._gnn.targets import targets_of
from superworkflow.tasks._heterograph import HeteroGraph
from superworkflow.tasks._numba import load_kernels_fast
from superworkflow.tasks.train import TrainParams
from superworkflow.tasks.train.data import shape_of
from superworkflow.tasks.train.run import FILES, write_results
from superworkflow.tasks.train.together import TogetherTrainer

load_kernels_fast()
SPLITS_FILE = "splits.npy"


def run(job: StageRun[TrainParams]) -> Output:
    """Coordinate; the workers train, and the first of them writes.

    Raises:
        UserError: there is no graph in parts, it is another graph's, or links are to be learned.
    """
    graph, shards = job.inputs["graph"], job.inputs.get("shards")
    if shards is None:
        raise UserError("training on a worker group reads the graph in parts, and there is none", where="shards",
                        remedy="Set gnn.partitioned=true, or give --input shards=URI")  # fmt: skip
    made_of = shards.manifest.inputs.get("graph")
    if made_of is not None and made_of.digest != graph.digest:
        raise UserError("these are parts of another graph", where=shards.uri, value=made_of.digest,
                        remedy="Give the graph that was divided")  # fmt: skip
    summed = "sums" in job.inputs and job.params.sums_features
    of_sums = shards.manifest.inputs.get("sums")
    if summed and (of_sums is None or of_sums.digest != job.inputs["sums"].digest):
        raise UserError("the graph in parts is not with these means", where=shards.uri, value=job.inputs["sums"].uri,
                        remedy="Give stage shard the same sums")  # fmt: skip
    if has_links(graph):
        raise UserError("a worker group trains networks that classify nodes, and these predict links", where="train",
                        value="engine: workers", remedy="Train links in process")  # fmt: skip
    job.output.claim([*FILES, SPLITS_FILE])
    with worker_group(job) as group:
        told = group.run(train, job.params.model_dump(mode="json"), graph.uri, shards.uri, summed,
                         job.output.location.uri)  # fmt: skip
    job.output.adopt(FileEntry.model_validate(entry) for entry in told[0]["files"])
    for rank, each in enumerate(told):
        sent = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in sorted(each["sent"].items()))
        job.progress.log(f"rank {rank}: {each['cpu_s']:.1f} CPU seconds; sent: {sent}")
    return Output(rows=told[0]["rows"], stats=told[0]["facts"])


def train(
    worker: Worker, given: dict[str, Any], graph_uri: str, shards_uri: str, summed: bool, output: str
) -> dict[str, Any]:
    """One rank: train on its share of each step.

    Args:
        worker: it.
        given: the stage's parameters.
        graph_uri, shards_uri: datasets of stages heterograph and shard.
        summed: the first layer reads means, which are in the shards.
        output: URI of the dataset that is made.
    """
    began, params = time.process_time(), TrainParams.model_validate(given)
    nb.set_num_threads(min(worker.threads, nb.get_num_threads()))
    graph, shards = HeteroGraph.open(SharedDataset.at(graph_uri, None)), Shards(SharedDataset.at(shards_uri, None))
    task = Classification(targets_of(graph, params.label, (params.train_share, params.validation_share), params.seed))
    shape = shape_of(graph, task.head, params)
    store = store_of(worker, shards, shape, params, summed)
    network = Network(shape, params.seed).to(params.device)
    trainer = TogetherTrainer(network, task, params, store, worker)
    if trainer.resume() and worker.rank == 0:
        worker.log(f"resuming at epoch {trainer.position.epoch + 1}, step {trainer.position.step + 1}")
    try:
        trainer.train()
    finally:
        trainer.close()
    told: dict[str, Any] = {"sent": trainer.sent, "cpu_s": time.process_time() - began, "files": [], "facts": {}}
    if worker.rank == 0:
        writer = TaskWriter(Location.of(output))
        told["facts"] = task.facts() | write_results(writer, trainer)
        told["files"] = [entry.model_dump() for entry in writer.entries]
    return told | {"rows": sum(len(task.items(split)) for split in SPLITS)}


def store_of(worker: Worker, shards: Shards, shape: Shape, params: TrainParams, summed: bool) -> Store:
    """A worker's parts, and its way to those of the others; all workers call it together."""
    bounds = shards.bounds(worker.size)
    piece = shards.piece(int(bounds[worker.rank]), int(bounds[worker.rank + 1]))
    book = Book(shards.orders(), {name: shards.book[i, bounds] for i, name in enumerate(shards.node_sets)})
    first = shape.levels()[0]
    sums: dict[int, NDArray[np.float32]] = {}
    if summed:
        sums = {each.number: piece.means[each.number] for each in first.relations if each.number in piece.means}
    outermost = shape.model == "gcn" and params.sizes[-1] < 0 and bool(shape.widths[first.senders[0]])
    numbers = frozenset([first.relations[0].number] if outermost else sums)
    draws = Draws(shape.levels(), params.sizes, params.sampler == "labor", numbers, params.seed)
    gathered = frozenset(name for name in first.senders if shape.widths[name])
    exchange = Exchange(dist.new_group(backend="gloo"))
    store = Store(piece, book, exchange, draws, sums, shape.model == "gcn", gathered)
    if outermost:
        store.sums = {first.relations[0].number: _scaled_sums(store, first.senders[0])}
    return store


def _scaled_sums(store: Store, name: str) -> NDArray[np.float32]:
    """What GCN's first layer reads of the owned nodes: see `data.data_of`."""
    (rows,) = store.piece.rows.values()
    low, high, halo = store.piece.low[name], store.piece.high[name], store.piece.halo[name]
    scaled = (store.piece.features[name] / np.sqrt(store.degrees + 1)).astype(np.float32, copy=False)
    (others,) = store.rows_of([(name, store.piece.halo_numbers[name].astype(np.int64), scaled)])
    table = np.concatenate([scaled, others])
    inside = (rows.indices >= low) & (rows.indices < high)
    places = np.where(inside, rows.indices - low, high - low + np.searchsorted(halo, rows.indices))
    sums = np.empty_like(scaled)
    sum_edges(read_only(table), read_only(rows.indptr), read_only(places.astype(np.int32)), sums)
    return sums
