"""Stage `aggregate` on a worker group: each worker sums for the nodes of its parts.

Rows keep the order of the graph's own, in which sums are made: the bytes are those of one process.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import torch.distributed as dist

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.shared_dataset import SharedDataset
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.engines.workers.session import worker_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.tasks.aggregate import AggregateParams
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.kv_store import KVStore
from superworkflow.tasks.lib.distributed.shards import Shards
from superworkflow.tasks.lib.gnn.distributed.worker_partition import WorkerPartition, shards_of
from superworkflow.tasks.lib.gnn.precomputed_means import GCN, sums_file
from superworkflow.tasks.lib.gnn.sampler.kernels import sum_edges
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()


def run(job: StageRun[AggregateParams]) -> Output:
    """Coordinate; the workers sum, and the first of them writes.

    Raises:
        UserError: there is no graph in parts, it is another graph's, there are more workers than parts, or the form is
            made in process alone.
    """
    if job.params.form == GCN:
        raise UserError("workers make means alone", where="aggregate.form", value=GCN,
                        remedy="Set the engine of aggregate to in-process")  # fmt: skip
    dataset = shards_of(job)
    shards = Shards(dataset)
    made = [(j, each) for j, each in enumerate(shards.edge_sets) if shards.node_sets[each.target].width]
    job.output.claim([sums_file(number) for number, _ in made])
    with worker_group(job) as group:
        files = group.run(aggregate, dataset.uri, job.output.location.uri)[0]
    job.output.adopt(files)
    total = sum(shards.node_sets[each.source].count for _, each in made)
    return Output(rows=total, stats={"nodes": total, "bytes": job.output.bytes_written, "edge_sets": len(made)})


def aggregate(worker: Worker, shards_uri: str, output: str) -> list[dict[str, Any]]:
    """One rank: the means of its nodes' neighbours.

    Args:
        worker: it.
        shards_uri: dataset of stage shard.
        output: URI of the dataset that is made.
    """
    nb.set_num_threads(min(worker.threads, nb.get_num_threads()))
    shards = Shards(SharedDataset.at(shards_uri, None))
    partition, writer = WorkerPartition(worker, shards), TaskWriter(output)
    store = KVStore(partition.book, Exchange(dist.group.WORLD))
    with_halo = {name: partition.with_halo(store, name, values) for name, values in partition.piece.features.items()}
    for number, edges in enumerate(shards.edge_sets):
        if edges.target not in with_halo:
            continue
        indptr, values = read_only(partition.piece.rows[number].indptr), with_halo[edges.target]
        means = np.empty((len(indptr) - 1, values.shape[1]), np.float32)
        sum_edges(read_only(values), indptr, partition.places(number), means)
        means /= np.maximum(np.diff(indptr), 1).astype(np.float32)[:, None]
        count = shards.node_sets[edges.source].count
        with tempfile.TemporaryDirectory() as folder:
            whole = store.gather(edges.source, count, means, Path(folder))
            if worker.rank == 0:
                writer.array(sums_file(number), whole)
                worker.update(number + 1, len(shards.edge_sets), "edge sets")
    return [entry.model_dump() for entry in writer.entries]
