"""State shared by workers in training: gradients summed over all, learned rows in parts, and a common checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.engines.scaling import CALLS
from superworkflow.infra.engines.workers.worker import StateSaved, Worker
from superworkflow.tasks.lib.checkpoint_stores import STATE, Arrays
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.group_kept import GroupKept
from superworkflow.tasks.lib.distributed.kv_store import KVStore
from superworkflow.tasks.lib.gnn.distributed.dist_embedding import DistEmbedding
from superworkflow.tasks.lib.gnn.distributed.dist_sampler import BatchInputs, DistNeighborSampler
from superworkflow.tasks.lib.gnn.distributed.worker_partition import WorkerPartition
from superworkflow.tasks.lib.gnn.model.network import Network, NetworkInputs
from superworkflow.tasks.lib.gnn.model.weights import table_name
from superworkflow.tasks.train.checkpoint import (
    ANOTHERS,
    CheckpointClock,
    TrainedWeights,
    TrainingPosition,
    TrainingState,
    noted_position,
    read_checkpoint,
    save_checkpoint,
    saved_at,
)
from superworkflow.tasks.train.group_checkpoint import read_tables, save_tables
from superworkflow.tasks.train.optimizers import optimizers_of
from superworkflow.tasks.train.params import ConcreteTrainParams
from superworkflow.tasks.train.stragglers import StragglerStats


class GroupProgress(Progress):
    """Progress of a group, which one rank alone sends to the coordinator."""

    def __init__(self, worker: Worker, first: int = 0):
        super().__init__("train")
        self._worker, self._reports = worker, worker.rank == first

    def emit(self, event: str, **fields: Any) -> None:
        if not self._reports:
            return
        if event == "progress":
            self._worker.update(fields["done"], fields["total"], fields["unit"], **fields["facts"])
        elif event == "report":
            self._worker.report(fields["step"], fields["steps"], fields["value"], **fields["facts"])
        elif event == "log":
            self._worker.log(fields["message"])
        elif event == CALLS:
            self._worker.charge(**fields)


class DistributedGroup:
    """The `trainer.TrainingGroup` of a worker group.

    Args:
        network: network without embeddings; equal on all workers.
        params: the stage's parameters.
        partition: this worker's parts.
        sampler: this worker's sampler, whose exchange and seconds count in `sent` and for stragglers.
        exchange: exchange of the thread that trains.
        worker: this worker.
        folder: folder of temporary files.
    """

    def __init__(
        self, network: Network, params: ConcreteTrainParams, partition: WorkerPartition, sampler: DistNeighborSampler,
        exchange: Exchange, worker: Worker, folder: Path,
    ):  # fmt: skip
        self._network, self._partition, self._sampler = network, partition, sampler
        self._exchange, self._worker, self._folder = exchange, worker, folder
        self._store = KVStore(partition.book, exchange)
        self.tables = DistEmbedding(network.shape, partition.piece.numbers, self._store, params.seed, network.device)
        self._dense = list(network.parameters())
        self.optimizers = optimizers_of(self._dense, self.tables.rows.values(), params)
        self.paces = StragglerStats(exchange, worker)
        self._kept, self._clock, self._all_save = GroupKept(worker, folder), CheckpointClock(), False
        self.targets = 0
        if network.shape.norm == "batch":
            network.peers = self
        self._all_stop = False

    @property
    def sent(self) -> dict[str, int]:
        """Bytes that this worker has sent to others, by kind."""
        counts = dict(self._sampler.store.exchange.sent)
        for kind, size in self._exchange.sent.items():
            counts[kind] = counts.get(kind, 0) + size
        return counts

    def shares(self, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `norms.BatchPeers`."""
        with self.paces.waiting():
            numbers, counts = np.unique(self._exchange.everyone(nodes, "nodes of batch norm"), return_counts=True)
        return np.asarray(1 / counts[np.searchsorted(numbers, nodes)])

    def total(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `norms.BatchPeers`; bit-equal on all workers."""
        with self.paces.waiting():
            whole = self._exchange.everyone(values, "sums of batch norm", alike=True)
        return np.asarray(whole.reshape(self._exchange.size, -1).sum(axis=0))

    def read(self, inputs: NetworkInputs) -> NetworkInputs:
        assert isinstance(inputs, BatchInputs)
        with self.paces.waiting():
            return replace(inputs, learned=self.tables.read(inputs.learned_rows))

    def reduce(self, inputs: NetworkInputs, loss: float, mass: float) -> float:
        """See `TrainingGroup`; the first rank's wishes to save and to stop travel along, for all at once."""
        assert isinstance(inputs, BatchInputs)
        dense = self._dense
        has = [0.0 if each.grad is None else 1.0 for each in dense]
        parts = [torch.zeros(each.numel()) if each.grad is None else each.grad.flatten().cpu() for each in dense]
        is_first = self._worker.rank == 0
        wishes = [float(is_first and self._clock.is_due()), float(is_first and self._worker.stopping)]
        totals = torch.tensor([*has, *wishes, loss * mass, mass])
        flat = torch.from_numpy(self._exchange.leaving(sum(map(len, parts)) + len(totals), np.float32))
        torch.cat([*(part.mul_(mass) for part in parts), totals], out=flat)
        with self.paces.waiting():
            flat = self._exchange.add_up(flat)
        save, stop, loss, total = flat[-4:].tolist()
        self._all_stop = self._all_stop or stop > 0
        self._all_save = self._all_save or self._all_stop or save > 0
        begin = 0
        for each, has_gradient in zip(dense, flat[-4 - len(dense) : -4].tolist(), strict=True):
            gradient = flat[begin : begin + each.numel()].view_as(each) / total
            each.grad = gradient.to(each.device) if has_gradient else None
            begin += each.numel()
        with self.paces.waiting():
            self.tables.learn(inputs.learned_rows, inputs.learned, mass / total)
        return float(loss / total)

    def squares(self) -> float:
        dense, *learned = self.optimizers
        own, _ = self.sum(sum(each.squares() for each in learned), 0.0) if learned else (0.0, 0.0)
        return dense.squares() + own

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        with self.paces.waiting():
            whole = self._exchange.everyone(rows.cpu().numpy(), "rows to judge by")
        return torch.from_numpy(whole).to(rows.device)

    def sum(self, loss: float, figure: float) -> tuple[float, float]:
        both = torch.tensor([loss, figure], dtype=torch.float64)
        with self.paces.waiting():
            dist.all_reduce(both)
        return float(both[0]), float(both[1])

    def rows(self) -> Arrays:
        return self.tables.arrays()

    def load_rows(self, rows: Mapping[str, NDArray[Any]]) -> None:
        self.tables.load(rows)

    def weights(self) -> Mapping[str, NDArray[Any]]:
        """All weights by name, complete on the first rank; embeddings are mapped from files. Collective."""
        whole = self._network.arrays()
        for name, key in self._network.embedded.items():
            count, table = self._network.shape.nodes[name], self.tables.rows[name].detach().numpy()
            whole[table_name(key)] = self._store.gather(name, count, table, self._folder)
        return whole

    def end_epoch(self, epoch: int) -> None:
        seconds = self._sampler.spent.seconds
        ahead = sum(seconds[name] for name in ("schedule", "sample", "gather", "compact"))
        self.paces.compare(epoch, seconds["compute"] + ahead - self._sampler.store.exchange.waited)

    def is_due(self) -> bool:
        return self._all_save

    def save(self, checkpoint: TrainingState) -> None:
        """All workers write their rows and the first one the rest; the note follows when all have written."""
        position, best = checkpoint

        def save_rows() -> None:
            slot = self._slot(position)
            save_tables(self._kept, slot, self._partition.parts, self.tables, best.rows, self.optimizers[-1])
            dist.barrier()

        if self._worker.rank == 0:
            save_checkpoint(self._kept, self._network, self.optimizers[:1], best.network, position, save_rows)
        else:
            save_rows()
        self._clock.reset()
        self._all_save = False
        if self._all_stop:
            dist.barrier()  # the note is written
            if self._worker.rank == 0:
                self._worker.log(saved_at(position))
            raise StateSaved

    def restore(self) -> TrainingState | None:
        """See `TrainingGroup`; each worker reads the rows of its parts, and all restore or none."""
        log = self._worker.log if self._worker.rank == 0 else _no_log
        position, saved, tables = noted_position(self._kept, log), None, None
        if position is not None:
            saved = read_checkpoint(self._kept, position, self._network, self.optimizers[:1], log)
            tables = read_tables(self._kept, self._slot(position), self._partition.parts, self.tables,
                                 self.optimizers[-1],
                                 position.has_best, self._worker.log)  # fmt: skip
        elif self._worker.load(STATE) is not None:
            log(ANOTHERS)
        lacking = torch.tensor([float(saved is None or tables is None)])
        dist.all_reduce(lacking)
        if position is None or saved is None or tables is None or lacking:
            return None
        saved.take(self._network, self.optimizers[:1])
        tables.take(self.tables, self.optimizers[-1])
        return TrainingState(position, TrainedWeights(saved.best, tables.best))

    def _slot(self, position: TrainingPosition) -> str:
        """Slot of the rows, which fit this partitioning only."""
        return f"{self._partition.digest}-{position.slot}"


def _no_log(message: str) -> None:
    """Log function of ranks other than 0."""
