"""Stage `train` on a worker group: each worker has some parts of the graph, and trains on its share of each step.

A step's blocks equal those of one process, divided among the workers: targets go to their owners, balanced to differ by
at most one. Gradients are summed over all workers before each optimizer step, so that all workers have equal weights.
Losses equal those of one process up to the order of sums.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import format_bytes
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.shared_dataset import SharedDataset, uri_of
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.engines.workers.session import worker_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.kv_store import KVStore
from superworkflow.tasks.lib.distributed.shards import Shards
from superworkflow.tasks.lib.distributed.shared_memory import shared_buffers
from superworkflow.tasks.lib.gnn.distributed.dist_sampler import DistNeighborSampler
from superworkflow.tasks.lib.gnn.distributed.worker_partition import WorkerPartition, shards_of
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.objective.splits import SPLITS
from superworkflow.tasks.lib.gnn.precomputed_means import sums_of
from superworkflow.tasks.lib.gnn.sampler.kernels import ALL_NEIGHBORS, sum_edges
from superworkflow.tasks.lib.gnn.sampler.links import has_links
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws
from superworkflow.tasks.lib.gnn.sampler.weighted_kernels import sum_weighted
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.buffer_pool import Memory
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.train.data import shape_of, unused_edge_features
from superworkflow.tasks.train.distributed_batches import DistributedBatches
from superworkflow.tasks.train.distributed_group import DistributedGroup, GroupProgress
from superworkflow.tasks.train.params import TrainParams
from superworkflow.tasks.train.run import FILES, concrete_params, describe, task_of, write_results
from superworkflow.tasks.train.trainer import Trainer

load_kernels_fast()
SPLITS_FILE = "splits.npy"


def run(job: StageRun[TrainParams]) -> Output:
    """Coordinate; the workers train, and the first of them writes.

    Raises:
        UserError: the graph in parts is missing, belongs to another graph, or has fewer parts than there are workers.
    """
    if job.params.sampler == "subgraphs":
        raise UserError(
            "subgraphs are trained on in process alone", where="train.sampler", value=job.params.sampler,
            remedy="Set train.sampler to neighbor, labor or latest, or the engine to in-process",
        )  # fmt: skip
    if job.params.seed_time and job.params.norm == "batch":
        raise UserError(
            "with batch norm, nodes that are there once for each of several times are trained in process alone",
            where="train.norm", value=job.params.norm, remedy="Set train.norm=layer, or the engine to in-process",
        )  # fmt: skip
    graph, shards = job.inputs["graph"], shards_of(job)
    sums = job.inputs["sums"].uri if "sums" in job.inputs and job.params.sums_features else ""
    links = has_links(graph)
    job.output.claim(FILES if links else [*FILES, SPLITS_FILE])
    with worker_group(job) as group:
        results = group.run_saving(train, job.params.model_dump(mode="json"), graph.uri, shards.uri, sums,
                         job.output.location.uri, uri_of(job.inputs.get("labels")))  # fmt: skip
    job.output.adopt(results[0]["files"])
    for rank, each in enumerate(results):
        sent = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in sorted(each["sent"].items()))
        busy = ", ".join(f"{name} {seconds / each['wall_s']:.0%}" for name, seconds in each["spent"].items())
        job.progress.log(f"rank {rank}: {each['cpu_s']:.1f} CPU seconds; sent: {sent}; busy: {busy}")
    return Output(rows=results[0]["rows"], stats=results[0]["facts"])


def train(
    worker: Worker,
    given: dict[str, Any],
    graph_uri: str,
    shards_uri: str,
    sums_uri: str,
    output: str,
    labels_uri: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Train one rank on its share of each step.

    Args:
        worker: this rank.
        given: the stage's parameters.
        graph_uri, shards_uri: datasets of stages heterograph or holdout_links, and shard.
        sums_uri: dataset of stage aggregate; empty if the network does not read means.
        output: URI of the dataset to write.
        labels_uri: dataset of stage node_labels; empty for none.
    """
    began, params = time.process_time(), TrainParams.model_validate(given)
    with tempfile.TemporaryDirectory() as folder:
        trainer, group = trainer_of(worker, params, graph_uri, shards_uri, sums_uri, Path(folder), labels_uri)
        if trainer.resume() and worker.rank == 0:
            worker.log(f"resuming at epoch {trainer.position.epoch + 1}, step {trainer.position.step + 1}")
        start_s = time.monotonic()
        try:
            trainer.train()
            weights = group.weights()
        finally:
            trainer.source.close()
        result: dict[str, Any] = {
            "sent": group.sent, "cpu_s": time.process_time() - began, "wall_s": time.monotonic() - start_s,
            "spent": trainer.source.spent.seconds, "files": [], "facts": {},
        }  # fmt: skip
        if worker.rank == 0:
            writer = TaskWriter(output)
            result["facts"] = trainer.task.facts() | write_results(writer, trainer, weights)
            result["files"] = [entry.model_dump() for entry in writer.entries]
    return result | {"rows": sum(len(trainer.task.items(split)) for split in SPLITS)}


def trainer_of(
    worker: Worker,
    given: TrainParams,
    graph_uri: str,
    shards_uri: str,
    sums_uri: str,
    folder: Path,
    labels_uri: str = "",
) -> tuple[Trainer, DistributedGroup]:  # fmt: skip
    """Trainer of this rank, before its first step, and its group. Collective.

    Args:
        worker, graph_uri, shards_uri, sums_uri, labels_uri: see `train`.
        given: the stage's parameters.
        folder: folder of temporary files.
    """
    nb.set_num_threads(min(worker.threads, nb.get_num_threads()))
    graph = HeteroGraph.open(SharedDataset.at(graph_uri, None), SharedDataset.at_any(labels_uri))
    shards = Shards(SharedDataset.at(shards_uri, None))
    task = task_of(graph, given)
    shape = shape_of(graph, task.head, given)
    params = concrete_params(given, task, shape)
    if worker.rank == 0:
        worker.log(describe(given, params))
    sums = SharedDataset.at_any(sums_uri)
    partition = WorkerPartition(worker, shards)
    sampler = sampler_of(partition, graph, shape, params, sums, task.is_constant)
    rows = {} if task.is_constant else {each.number: graph.rows(each.name) for each in shape.relations}
    network = Network(shape, params.seed, tables=False).to(params.device)
    if network.own is not None and any(True for _ in network.own.buffers()):
        raise UserError(
            "the module has buffers, such as the running means of BatchNorm, of which each worker would have its own",
            where="train.model", value=params.model, remedy="Train in one process, or use LayerNorm",
        )  # fmt: skip
    weights = _weights_to_lose(graph, shape) if rows else {}
    exchange = Exchange(dist.group.WORLD, shared=shared_buffers(dist.group.WORLD))
    group = DistributedGroup(network, params, partition, sampler, exchange, worker, folder)
    source = DistributedBatches(task, params, sampler, rows, weights, group.paces)
    trainer = Trainer(network, task, params, source, group, GroupProgress(worker))
    trainer.warnings += unused_edge_features(graph, params)
    return trainer, group


def _weights_to_lose(graph: HeteroGraph, shape: NetworkConfig) -> dict[int, NDArray[Any]]:
    """Edge weights that correct GCN's degrees for edges lost in a step; other models do not need them."""
    if shape.model != "gcn" or not shape.weight:
        return {}
    return {each.number: graph.edge_feature(each.name, shape.weight) for each in shape.relations}


def sampler_of(
    partition: WorkerPartition,
    graph: HeteroGraph,
    shape: NetworkConfig,
    params: TrainParams,
    means: Dataset | None,
    is_constant: bool,
) -> DistNeighborSampler:
    """Sampler of a worker. Collective.

    Args:
        partition: the worker's parts.
        graph: the whole graph.
        shape: configuration of the network.
        params: the stage's parameters.
        means: dataset of stage aggregate, if the first layer reads it.
        is_constant: no step loses edges.
    """
    first, piece = shape.levels()[0], partition.piece
    gathered = frozenset(name for name in first.senders if shape.widths[name])
    sums: dict[int, NDArray[np.float32]] = {}
    for each in first.relations:
        if means is not None and each.senders in gathered:
            size = (shape.nodes[each.receivers], shape.widths[each.senders])
            sums[each.number] = sums_of(means, graph, each.number, size)[piece.numbers[each.receivers]]
    outermost = shape.model == "gcn" and params.sizes[-1] < 0 and bool(gathered) and is_constant
    numbers = frozenset([first.relations[0].number] if outermost else sums)
    weights = partition.weights(graph, first.relations, params.weight) if params.weight else {}
    # Batches of all neighbours may be made once for all epochs, in which dropout differs.
    direct = frozenset[int]()
    if shape.reads_means and params.sizes[-1] != ALL_NEIGHBORS:
        apart = {*numbers, *(weights if shape.weight else ())}
        direct = frozenset(each.number for each in first.relations if each.senders in gathered) - apart
    latest = params.sampler == "latest"
    draws = Draws(shape.levels(), params.sizes, params.sampler == "labor", numbers, params.seed, direct, latest)
    group = dist.new_group(backend="gloo")
    store = KVStore(partition.book, Exchange(group, Memory(), shared_buffers(group)))
    scaled, learned = shape.model == "gcn", tuple(shape.embedded())
    used: dict[str, Any] = {"weights" if shape.weight else "drawn_by": weights}
    used["edge_features"] = partition.edge_features(graph, shape)
    if latest or params.seed_time:
        used["times"] = partition.times(graph, first.relations, params.time)
    sampler = DistNeighborSampler(piece, store, draws, sums, scaled, gathered, learned, shape.numbers(), **used)
    if outermost:
        sampler.sums = {first.relations[0].number: _scaled_sums(sampler, partition)}
    return sampler


def _scaled_sums(sampler: DistNeighborSampler, partition: WorkerPartition) -> NDArray[np.float32]:
    """Inputs of GCN's first layer for the owned nodes; see `data_of`."""
    ((number, rows),) = sampler.piece.rows.items()
    ((name, features),) = sampler.piece.features.items()
    scaled = (features / np.sqrt(sampler.degrees + 1)).astype(np.float32, copy=False)
    sums = np.empty_like(scaled)
    store = KVStore(partition.book, Exchange(sampler.store.exchange.group))
    with_halo = read_only(partition.with_halo(store, name, scaled))
    edges = read_only(rows.indptr), partition.places(number)
    if number in sampler.weights:
        sum_weighted(with_halo, *edges, read_only(sampler.weights[number]), sums)
    else:
        sum_edges(with_halo, *edges, sums)
    return sums
