"""The training loop of one worker of several: its share of each step, and gradients that are added up over all."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.progress import Progress
from superworkflow.tasks._gnn.asking import Exchange, Store, Wanted
from superworkflow.tasks._gnn.batches import Batch
from superworkflow.tasks._gnn.classification import Classification
from superworkflow.tasks._gnn.network import Known, Network
from superworkflow.tasks._gnn.task import Example, Step
from superworkflow.tasks.train import TrainParams
from superworkflow.tasks.train.checkpoint import STATE, load_checkpoint, save_checkpoint
from superworkflow.tasks.train.loop import Prepared, Trainer

KEPT = "workers.json"
"""Names what the checkpoint of a group consists of; one process's has another name."""
_PIECE_BYTES = 32 << 20


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


class TogetherTrainer(Trainer):
    """Trains a network together with the other workers; all go through the same steps.

    Args:
        network: to train; the same on all workers.
        task: what it learns.
        params: the stage's parameters.
        store: what this worker has of the graph.
        worker: this one.
    """

    task: Classification

    def __init__(self, network: Network, task: Classification, params: TrainParams, store: Store, worker: Worker):
        self._temporary = tempfile.TemporaryDirectory()
        folder = Path(self._temporary.name)
        super().__init__(network, Known({}), task, params, None, folder, lambda: None, _Told(worker))
        self._store, self._worker, self._saves = store, worker, 0
        self._all = Exchange(dist.group.WORLD)
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="look-ahead")

    def close(self) -> None:
        """End the thread that looks ahead."""
        self._ahead.shutdown(cancel_futures=True)
        self._temporary.cleanup()

    @property
    def sent(self) -> dict[str, int]:
        """Bytes that this worker has sent to others, by what they were."""
        return self._store.exchange.sent | self._all.sent

    def _prepared(self, steps: Sequence[tuple[NDArray[np.int64], Step]]) -> Iterator[Prepared]:
        """Windows of batches are drawn and gathered together, the next one while this one is trained on."""
        size = max(1, self.params.lookahead)
        windows = [steps[at : at + size] for at in range(0, len(steps), size)]
        running: Future[list[Prepared]] | None = None
        for at, window in enumerate(windows):
            ready = running or self._ahead.submit(self._window, window)
            found = ready.result()
            more = at + 1 < len(windows) and self.params.lookahead > 0
            running = self._ahead.submit(self._window, windows[at + 1]) if more else None
            yield from found

    def _window(self, steps: Sequence[tuple[NDArray[np.int64], Step]]) -> list[Prepared]:
        examples = [self.task.example(self._share(items), step) for items, step in steps]
        wanted = [Wanted(example.nodes, step) for example, (_, step) in zip(examples, steps, strict=True)]
        found = self._store.batches(wanted)
        return [(example, batch, known) for example, (batch, known) in zip(examples, found, strict=True)]

    def _share(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """This worker's targets of a step."""
        owners = self._store.book.owners(self.task.targets.node_set, items)
        mine: NDArray[np.int64] = items[shares(owners, self._worker.size) == self._worker.rank]
        return mine

    def _learn(self, example: Example, batch: Batch, known: Known) -> float:
        """Gradients of the mean loss over all workers' targets."""
        count, value = len(example.wanted[0]), 0.0
        if count:
            loss = self.task.loss(self.network, self.network(batch, known, self.params.dropout), example)
            value = float(loss.detach())
            loss.backward()  # type: ignore[no-untyped-call]
        embedded = {id(each) for each in self.network.embeddings.parameters()}
        dense = [each for each in self.network.parameters() if id(each) not in embedded]
        has = [0.0 if each.grad is None else 1.0 for each in dense]
        parts = [torch.zeros(each.numel()) if each.grad is None else each.grad.flatten().cpu() for each in dense]
        flat = torch.cat([*(part * count for part in parts), torch.tensor([*has, value * count, float(count)])])
        dist.all_reduce(flat)
        self._all.sent["gradients"] = self._all.sent.get("gradients", 0) + flat.nbytes * (self._worker.size > 1)
        value, total = float(flat[-2]), float(flat[-1])
        if not math.isfinite(value):
            raise self._diverged(value)
        at = 0
        for each, there in zip(dense, flat[-2 - len(dense) : -2].tolist(), strict=True):
            gradient = flat[at : at + each.numel()].view_as(each) / total
            each.grad = gradient.to(each.device) if there else None
            at += each.numel()
        for table in self.network.embeddings.parameters():
            table.grad = self._added(table, count / total)
        return value / total

    def _added(self, table: torch.Tensor, share: float) -> torch.Tensor:
        """The gradient of a table of embeddings over all workers, in the order of their ranks."""
        rows, values = np.empty(0, np.int64), np.empty((0, table.shape[1]), np.float32)
        if table.grad is not None:
            own = table.grad.coalesce()
            rows, values = own.indices()[0].cpu().numpy(), (own.values() * share).cpu().numpy()
        everyone = range(self._worker.size)
        numbers = np.concatenate(self._all.swap([rows for _ in everyone], "rows of gradients"))
        sums = np.concatenate(self._all.swap([values for _ in everyone], "gradients of embeddings"))
        given = torch.from_numpy(numbers)[None].to(table.device), torch.from_numpy(sums).to(table.device)
        return torch.sparse_coo_tensor(*given, table.shape).coalesce()

    def _over_all(self, loss: float, figure: float) -> tuple[float, float]:
        both = torch.tensor([loss, figure], dtype=torch.float64)
        dist.all_reduce(both)
        return float(both[0]), float(both[1])

    def resume(self) -> bool:
        """Go back to the group's checkpoint, if there is one that is whole; all workers read the same."""
        told = self._worker.load(KEPT)
        if told is None:
            return False
        state = json.loads(told)
        pieces = [self._worker.load(f"{state['slot']}.{number}") for number in range(state["pieces"])]
        if any(piece is None for piece in pieces):
            return False
        (self._folder / STATE).write_text(json.dumps(state["state"]))
        (self._folder / state["state"]["file"]).write_bytes(b"".join(piece or b"" for piece in pieces))
        found = load_checkpoint(self._folder, self.network, self.optimizers)
        if found is not None:
            self.position, self.best = found
            self._saves = state["saves"]
        return found is not None

    def _save(self) -> None:
        """The first rank saves, in one of two slots and then its name, so that a crash leaves the old or the new."""
        if self._worker.rank == 0:
            save_checkpoint(self._folder, self.network, self.optimizers, self.best, self.position)
            state = json.loads((self._folder / STATE).read_text())
            data, self._saves = (self._folder / state["file"]).read_bytes(), self._saves + 1
            slot = f"workers-{self._saves % 2}"
            cuts = range(0, len(data), _PIECE_BYTES)
            for number, cut in enumerate(cuts):
                self._worker.save(f"{slot}.{number}", data[cut : cut + _PIECE_BYTES])
            told = {"slot": slot, "pieces": len(cuts), "saves": self._saves, "state": state}
            self._worker.save(KEPT, json.dumps(told).encode())
        super()._saved_now()


def shares(owners: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Who trains on each target of a step: its owner, as long as nobody has more than one more than another.

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
