"""The training loop of one worker of several: its share of each step, and gradients that are added up over all."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.kv_store import KVStore
from superworkflow.tasks.lib.distributed.shared_memory import shared_buffers
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.distributed.dist_embedding import DistEmbedding
from superworkflow.tasks.lib.gnn.distributed.dist_sampler import BatchInputs, BatchRequest, DistNeighborSampler
from superworkflow.tasks.lib.gnn.distributed.worker_partition import WorkerPartition
from superworkflow.tasks.lib.gnn.model.network import Network, NetworkInputs, table_name
from superworkflow.tasks.lib.gnn.objective.base import Evaluation, Example, Objective, Step
from superworkflow.tasks.lib.gnn.sampler.block import Lost, MiniBatch, lost_of
from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.train import TrainParams
from superworkflow.tasks.train.checkpoint import (
    ANOTHERS,
    STATE,
    Arrays,
    TrainingPosition,
    noted_position,
    read_checkpoint,
    save_checkpoint,
)
from superworkflow.tasks.train.group_checkpoint import GroupKept, read_tables, save_tables
from superworkflow.tasks.train.stragglers import StragglerStats
from superworkflow.tasks.train.trainer import Prepared, Scheduled, Trainer, optimizers_of

_ROWS = "rows."
"""Names of embeddings among copied weights begin with it."""


class _Told(Progress):
    """Progress as the coordinator hears it, from the first rank alone."""

    def __init__(self, worker: Worker):
        super().__init__("train")
        self._worker = worker

    def emit(self, event: str, **fields: Any) -> None:
        if self._worker.rank == 0 and event == "progress":
            self._worker.update(fields["done"], fields["total"], fields["unit"], **fields["facts"])
        elif self._worker.rank == 0 and event == "report":
            self._worker.report(**fields)


class DistributedTrainer(Trainer):
    """Trains a network together with the other workers; all go through the same steps.

    Args:
        network: to train, without embeddings; the same on all workers.
        task: what it learns.
        params: the stage's parameters.
        store: how this worker reads the graph in the thread that looks ahead.
        mine: its parts.
        rows: of the edge sets whose edges may be lost in a step, by number.
        weights: of all edges of these sets by number, where it is asked what lost ones weigh.
        worker: this one.
        folder: for temporary files.
    """

    def __init__(
        self, network: Network, task: Objective, params: TrainParams, store: DistNeighborSampler,
        mine: WorkerPartition, rows: Mapping[int, CsrRows],
        weights: Mapping[int, NDArray[Any]], worker: Worker, folder: Path,
    ):  # fmt: skip
        super().__init__(
            network, NetworkInputs({}), task, params, None, GroupKept(worker, folder), lambda: None, _Told(worker)
        )
        self._store, self._mine, self._rows, self._weights = store, mine, rows, weights
        self._worker, self._folder = worker, folder
        exchange = Exchange(dist.group.WORLD, shared=shared_buffers(dist.group.WORLD))
        self._owners = owners = KVStore(mine.book, exchange)
        self.tables = DistEmbedding(network.shape, mine.piece.numbers, owners, params.seed, network.device)
        self._dense = list(network.parameters())
        self.optimizers = optimizers_of(self._dense, self.tables.rows.values(), params)
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="look-ahead")
        self._whole: Arrays = {}
        self._all_save = False
        self.paces, self.spent = StragglerStats(owners.exchange, worker), store.spent

    def close(self) -> None:
        """End the thread that looks ahead."""
        self._ahead.shutdown(cancel_futures=True)

    @property
    def sent(self) -> dict[str, int]:
        """Bytes that this worker has sent to others, by what they were."""
        counts = dict(self._store.store.exchange.sent)
        for kind, size in self._owners.exchange.sent.items():
            counts[kind] = counts.get(kind, 0) + size
        return counts

    def train(self) -> None:
        """See `Trainer`; the first worker has all weights then."""
        super().train()
        self._whole = self.network.arrays()
        for name, key in self.network.embedded.items():
            count, table = self.network.shape.nodes[name], self.tables.rows[name].detach().numpy()
            whole = np.empty((0, table.shape[1]), np.float32)
            if self._worker.rank == 0:  # in a file, since no worker needs room for all rows
                size = (max(1, count), table.shape[1])
                whole = np.memmap(self._folder / f"embeddings-{key}", np.float32, "w+", shape=size)
            self._owners.gather(name, count, table, whole)
            self._whole[table_name(key)] = whole

    def weights(self) -> Mapping[str, NDArray[Any]]:
        return self._whole

    def _copied(self) -> Arrays:
        return super()._copied() | {_ROWS + name: rows for name, rows in self.tables.arrays().items()}

    def _take(self, weights: Arrays) -> None:
        self.network.load_arrays({name: values for name, values in weights.items() if not name.startswith(_ROWS)})
        self.tables.load({name: weights[_ROWS + name] for name in self.tables.rows})

    def _prepared(self, steps: Iterable[Scheduled]) -> Iterator[Prepared]:
        """Windows of batches are drawn and gathered together, the next one while this one is trained on."""
        waiting = iter(steps)
        window = list(itertools.islice(waiting, max(1, self.params.lookahead)))
        running: Future[list[Prepared]] | None = None
        while window:
            ready = running or self._ahead.submit(self._window, window)
            with self.paces.waiting():
                found = ready.result()
            window = list(itertools.islice(waiting, len(window)))
            running = self._ahead.submit(self._window, window) if window and self.params.lookahead else None
            yield from found

    def _window(self, steps: Sequence[Scheduled]) -> list[Prepared]:
        with self.spent.on("schedule"):
            examples = [self.task.example(self._share(*each), each[1]) for each in steps]
            wanted = [
                BatchRequest(example.nodes, step, self._lost(items, step), len(items), self._dropout(step))
                for example, (items, step) in zip(examples, steps, strict=True)
            ]
        found = self._store.batches(wanted)
        return [(example, batch, inputs) for example, (batch, inputs) in zip(examples, found, strict=True)]

    def _dropout(self, step: Step) -> float:
        return self.params.dropout if step[0] == random_streams.TRAINING else 0.0

    def _share(self, items: NDArray[np.int64], step: Step) -> NDArray[np.int64]:
        """This worker's items of a step."""
        owners = self._store.store.book.owners(*self.task.home(items, step))
        mine: NDArray[np.int64] = items[shares(owners, self._worker.size) == self._worker.rank]
        return mine

    def _lost(self, items: NDArray[np.int64], step: Step) -> dict[int, Lost]:
        """The edges that a step loses, whose items they may be."""
        lost = self.task.lost(items, step)
        return {
            number: lost_of(self._rows[number], each, self._weights.get(number))
            for number, each in lost.items() if len(each)
        }  # fmt: skip

    def _learn(self, example: Example, batch: MiniBatch, inputs: NetworkInputs) -> float:
        """Gradients of the mean loss over all workers' targets."""
        assert isinstance(inputs, BatchInputs)
        count, value = len(example.wanted[0]), 0.0
        with self.paces.waiting(), self.spent.on("update"):
            learned = self.tables.read(inputs.learned_rows)
        if count:
            with self.spent.on("compute"):
                read = replace(inputs, learned=learned)
                loss = self.task.loss(self.network, self.network(batch, read, self.params.dropout), example)
                value = float(loss.detach())
                loss.backward()  # type: ignore[no-untyped-call]
        with self.spent.on("update"):
            return self._added(value, count, inputs, learned)

    def _added(self, value: float, count: int, inputs: BatchInputs, learned: Mapping[str, torch.Tensor]) -> float:
        """Add up the gradients of all workers; the mean loss.

        Args:
            value: of this worker's mean loss.
            count: of its targets.
            known: what it has read for the step.
            learned: rows that it has read, with their gradients.
        """
        dense = self._dense
        has = [0.0 if each.grad is None else 1.0 for each in dense]
        parts = [torch.zeros(each.numel()) if each.grad is None else each.grad.flatten().cpu() for each in dense]
        wish = float(super()._is_due() and self._worker.rank == 0)
        totals, exchange = torch.tensor([*has, wish, value * count, float(count)]), self._owners.exchange
        flat = torch.from_numpy(exchange.leaving(sum(map(len, parts)) + len(totals), np.float32))
        torch.cat([*(part.mul_(count) for part in parts), totals], out=flat)
        with self.paces.waiting():
            flat = exchange.add_up(flat)
        wished, value, total = flat[-3:].tolist()
        self._all_save = self._all_save or wished > 0
        if not math.isfinite(value):
            raise self._diverged(value)
        begin = 0
        for each, there in zip(dense, flat[-3 - len(dense) : -3].tolist(), strict=True):
            gradient = flat[begin : begin + each.numel()].view_as(each) / total
            each.grad = gradient.to(each.device) if there else None
            begin += each.numel()
        with self.paces.waiting():
            self.tables.learn(inputs.learned_rows, learned, count / total)
        return float(value / total)

    def _update(self) -> None:
        with self.spent.on("update"):
            super()._update()

    def _judge(self, example: Example, batch: MiniBatch, inputs: NetworkInputs) -> Evaluation:
        assert isinstance(inputs, BatchInputs)
        with self.paces.waiting():
            learned = self.tables.read(inputs.learned_rows)
        if any(map(len, example.nodes.values())):
            rows = self.network(batch, replace(inputs, learned=learned))
        else:
            head = self.network.shape.head
            rows = {name: torch.zeros(0, head.width, device=self.network.device) for name in head.node_sets}
        return self.task.judge(self.network, rows, example, self._gathered)

    def _gathered(self, rows: torch.Tensor) -> torch.Tensor:
        with self.paces.waiting():
            whole = self._owners.exchange.everyone(rows.cpu().numpy(), "rows to judge by")
        return torch.from_numpy(whole).to(rows.device)

    def _over_all(self, loss: float, figure: float) -> tuple[float, float]:
        both = torch.tensor([loss, figure], dtype=torch.float64)
        with self.paces.waiting():
            dist.all_reduce(both)
        return float(both[0]), float(both[1])

    def _end_epoch(self) -> None:
        super()._end_epoch()
        ahead = sum(self.spent.seconds[name] for name in ("schedule", "sample", "gather", "compact"))
        worked = self.spent.seconds["compute"] + ahead - self._store.store.exchange.waited
        self.paces.compare(self.position.epoch, worked)

    def resume(self) -> bool:
        """Go back to the group's checkpoint, if there is one that is whole; each worker reads the rows of its parts."""
        tell = self._worker.log if self._worker.rank == 0 else _nothing
        position, saved, tables = noted_position(self._kept, tell), None, None
        if position is not None:
            saved = read_checkpoint(self._kept, position, self.network, self.optimizers[:1], tell)
            tables = read_tables(self._kept, self._slot(position), self._mine.parts, self.tables, self.optimizers[-1],
                                 position.best > 0, self._worker.log)  # fmt: skip
        elif self._worker.load(STATE) is not None:
            tell(ANOTHERS)
        lacking = torch.tensor([float(saved is None or tables is None)])
        dist.all_reduce(lacking)  # all go back, or none
        if position is None or saved is None or tables is None or lacking:
            return False
        saved.take(self.network, self.optimizers[:1])
        tables.take(self.tables, self.optimizers[-1])
        self.position = position
        self.best = saved.best | {_ROWS + name: rows for name, rows in tables.best.items()}
        return True

    def _is_due(self) -> bool:
        """As the first worker has wished in the last step, so that all save at once."""
        return self._all_save

    def _save(self) -> None:
        """All write their rows, and the first one the rest; what they have written counts when all have done so."""
        self.position.saves += 1
        dense = {name: values for name, values in self.best.items() if not name.startswith(_ROWS)}
        rows = {name: self.best[_ROWS + name] for name in self.tables.rows if _ROWS + name in self.best}

        def beside() -> None:
            slot = self._slot(self.position)
            save_tables(self._kept, slot, self._mine.parts, self.tables, rows, self.optimizers[-1])
            dist.barrier()

        if self._worker.rank == 0:
            save_checkpoint(self._kept, self.network, self.optimizers[:1], dense, self.position, beside)
        else:
            beside()
        self._saved_at, self._all_save = time.monotonic(), False

    def _slot(self, position: TrainingPosition) -> str:
        """Slot of the rows; those of another partitioning would not fit."""
        return f"{self._mine.digest}-{position.slot}"


def _nothing(message: str) -> None:
    """Log function of ranks other than 0."""


def shares(owners: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Assignment of a step's targets to workers: to their owners, as long as counts differ by at most one.

    Args:
        owners: rank of each target's owner.
        size: workers.
    """
    counts = np.bincount(owners, minlength=size)
    rank, rest = len(owners) // size, len(owners) % size
    most = np.full(size, rank)
    most[np.argsort(-counts, kind="stable")[:rest]] += 1
    order = np.argsort(owners, kind="stable")
    place = np.empty(len(owners), np.int64)  # of each target among its owner's
    place[order] = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    found, moved = owners.copy(), np.flatnonzero(place >= most[owners])
    found[moved] = np.repeat(np.arange(size), np.maximum(0, most - counts))
    return found
