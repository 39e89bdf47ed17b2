"""Batches of one worker of several: its share of each step, drawn together with the others in windows of steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.distributed.dist_sampler import BatchRequest, DistNeighborSampler
from superworkflow.tasks.lib.gnn.objective.base import Objective, Step
from superworkflow.tasks.lib.gnn.sampler.block import Lost, lost_of
from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.train.params import ConcreteTrainParams
from superworkflow.tasks.train.stragglers import StragglerStats
from superworkflow.tasks.train.trainer import Prepared, Scheduled


class DistributedBatches:
    """A `trainer.BatchSource` of a worker's share of each step.

    Args:
        task: makes the examples.
        params: the stage's parameters.
        sampler: sampler of this worker, used in the thread that looks ahead.
        rows: rows of the edge sets whose edges may be lost in a step, by number.
        weights: weights of all edges of these sets, by number, if the lost edges' weights are needed.
        paces: counts the seconds in which training waits for batches.
    """

    def __init__(
        self, task: Objective, params: ConcreteTrainParams, sampler: DistNeighborSampler, rows: Mapping[int, CsrRows],
        weights: Mapping[int, NDArray[Any]], paces: StragglerStats,
    ):  # fmt: skip
        self._task, self._params, self.sampler = task, params, sampler
        self._rows, self._weights, self._paces = rows, weights, paces
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="look-ahead")
        self.spent = sampler.spent

    def close(self) -> None:
        self._ahead.shutdown(cancel_futures=True)

    def batches(self, steps: Iterable[Scheduled]) -> Iterator[Prepared]:
        """Windows of batches are drawn and gathered together, the next one while this one is trained on."""
        waiting = iter(steps)
        window = list(itertools.islice(waiting, max(1, self._params.lookahead)))
        running: Future[list[Prepared]] | None = None
        while window:
            ready = running or self._ahead.submit(self._window, window)
            with self._paces.waiting():
                found = ready.result()
            window = list(itertools.islice(waiting, len(window)))
            running = self._ahead.submit(self._window, window) if window and self._params.lookahead else None
            yield from found

    def _window(self, steps: Sequence[Scheduled]) -> list[Prepared]:
        with self.spent.on("schedule"):
            examples = [self._task.example(self._share(*each), each[1]) for each in steps]
            requests = [
                BatchRequest(
                    example.nodes,
                    step,
                    self._lost(items, step),
                    len(items),
                    self._dropout(step),
                    example.limits,
                    self._task.seed_times(items, step),
                )
                for example, (items, step) in zip(examples, steps, strict=True)
            ]
        found = self.sampler.batches(requests)
        return [(example, batch, inputs) for example, (batch, inputs) in zip(examples, found, strict=True)]

    def _dropout(self, step: Step) -> float:
        return self._params.dropout if step[0] == random_streams.TRAINING else 0.0

    def _share(self, items: NDArray[np.int64], step: Step) -> NDArray[np.int64]:
        """This worker's items of a step."""
        store = self.sampler.store
        owners = store.book.owners(*self._task.home(items, step))
        mine: NDArray[np.int64] = items[shares(owners, store.exchange.size) == store.exchange.rank]
        return mine

    def _lost(self, items: NDArray[np.int64], step: Step) -> dict[int, Lost]:
        """Edges that all workers' items of a step lose."""
        lost = self._task.lost(items, step)
        return {
            number: lost_of(self._rows[number], each, self._weights.get(number))
            for number, each in lost.items() if len(each)
        }  # fmt: skip


def shares(owners: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Assign a step's targets to workers: to their owners, moved as far as needed for counts to differ by at most one.

    Args:
        owners: rank of each target's owner.
        size: number of workers.
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
