"""Seconds of an epoch before there is a graph: the scheduler on the virtual clock, with tasks of the sizes that a graph
of random arcs would have, which compute nothing.

One epoch is simulated, of asynchronous ones the second, as the first is synchronous. There are no parameter servers:
they take as little as updates of each graph server's copy.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.train_full.layer_tasks import (
    BACK,
    FORWARD,
    SC,
    VALIDATION,
    Task,
    back_tasks,
    following_task,
    forward_tasks,
)
from superworkflow.tasks.train_full.partners import Verdict
from superworkflow.tasks.train_full.pipeline import Pipeline
from superworkflow.tasks.train_full.task_seconds import GCN, NOMINAL, GraphSizes, TaskSeconds, gather_of
from superworkflow.tasks.train_full.virtual_clock import Machine, VirtualClock, VirtualLink, Work
from superworkflow.tasks.train_full.virtual_tensor_workers import VirtualTensorWorkers, shared_among
from superworkflow.tasks.train_full.weight_versions import WeightVersions

_INTERVALS = 16
"""The most intervals that are simulated, unless there are more servers."""
_SERVER_BITS_S, _TENSOR_BITS_S = 10e9, 1e9
"""Links of a graph server, and of a tensor worker."""


class PlannedWork(NamedTuple):
    """Numbers of a training.

    Args:
        model: gcn or gat.
        vertices, arcs: of the graph; arcs of both directions.
        shapes: of each layer's matrix, width of the result and of what it reads.
        heads: of gat's hidden layers.
        intervals: of the vertices.
        validated: vertices that are.
        staleness: None for synchronous epochs.
        fuses, streams: see `TrainFullParams.fusion` and `streaming`.
        value_bytes: of a published value.
    """

    model: str
    vertices: int
    arcs: int
    shapes: tuple[tuple[int, int], ...]
    heads: int
    intervals: int
    validated: int
    staleness: int | None
    fuses: bool
    streams: bool
    value_bytes: int


class EpochSeconds(NamedTuple):
    """Seconds of an epoch.

    Args:
        wall: that it lasts.
        busy: that all threads of graph servers and tensor workers compute.
    """

    wall: float
    busy: float


class _Interval(NamedTuple):
    number: int


class _Vertices(NamedTuple):
    """The part of `WholeGraph` that the scheduler reads."""

    intervals: Sequence[_Interval]
    own: range
    reads: NDArray[np.bool_]
    reads_back: NDArray[np.bool_]


class _Network:
    """The part of `WholeNetwork` that the scheduler calls; arrays have sizes, and no values."""

    def __init__(self, work: PlannedWork, own: range):
        count, gather = work.intervals, gather_of(work.model)
        gathers, reads = (
            [number > 0 or work.model != GCN for number in range(len(work.shapes))],
            np.ones((count, count), np.bool_),
        )
        self.graph = _Vertices([*map(_Interval, range(count))], own, reads, reads)
        self.training = forward_tasks(FORWARD, gathers, gather) + back_tasks(gathers, gather)
        self.validation = forward_tasks(VALIDATION, gathers, gather) if work.validated else []
        self._shapes, self._rows = work.shapes, max(1, work.vertices // count)
        self._short = work.value_bytes == 2

    def execute(self, *_: Any) -> None:
        pass

    take_results = take_both = execute

    def following(self, task: Task) -> Task | None:
        return following_task([self.training, self.validation], task)

    def tensor_call(
        self, task: Task, interval: int, epoch: int, weights: Any, state: Any, following: Task | None
    ) -> tuple[dict[str, Any], Any, list[NDArray[Any]]]:  # fmt: skip
        width, back = self._shapes[task.layer][0], task.way == BACK
        facts: dict[str, Any] = {"layer": task.layer, "back": back, "share": task.way != VALIDATION, "sparse": 0}
        facts["then"] = None if following is None else {"layer": following.layer, "sparse": 0}
        arrays = [self._read(task.layer), *([_empty(self._rows, width)] if back else [])]
        return facts, weights, [*arrays, *([self._read(following.layer)] if following is not None and back else [])]

    def _read(self, layer: int) -> NDArray[Any]:
        """Rows that a layer reads."""
        return _empty(self._rows, self._shapes[layer][1], np.int16 if self._short and not layer else np.float32)

    def compute(
        self, facts: Mapping[str, Any], shared: Sequence[NDArray[Any]], arrays: Sequence[NDArray[Any]]
    ) -> list[NDArray[Any]]:  # fmt: skip
        """Results of `tensor_call`."""
        found = []
        for layer in [facts["layer"], *([facts["then"]["layer"]] if facts["then"] else [])]:
            width, read = self._shapes[layer]
            if facts["back"]:
                found += [_empty(width, read), *([_empty(self._rows, read)] if layer and not facts["then"] else [])]
            else:
                found.append(_empty(self._rows, width))
        return found


def _empty(rows: int, width: int, dtype: type[np.generic] = np.float32) -> NDArray[Any]:
    """An array with its size, without memory."""
    return np.broadcast_to(dtype(0), (rows, width))


class _Epochs:
    """The `pipeline.Epochs` of the only graph server."""

    def update(self, epoch: int, losses: Any, gradients: Any) -> Any:
        return _WEIGHTS

    def end(self, epoch: int) -> Verdict:
        return Verdict(False, False)


_WEIGHTS: list[dict[str, Any]] = [{}] * 8
"""No weights, of the most layers that there may be."""


class _GhostRows(NamedTuple):
    task: Task
    interval: int
    epoch: int
    rows: NDArray[np.uint8]


class _Servers(_Epochs):
    """The `pipeline.Servers` of one of several: messages of the sizes that those of `GraphServer` have."""

    def __init__(self, rank: int, work: PlannedWork, network: _Network, clock: VirtualClock, all_of: list[_Servers]):
        self._rank, self._work, self._network, self._clock, self._all = rank, work, network, clock, all_of
        self._link = VirtualLink(clock, _SERVER_BITS_S)
        self.ghosts: deque[Any] = deque()
        self.parts, self.sums, self.verdicts = set[int](), set[int](), set[int]()
        self.scores: dict[int, int] = {}
        all_of.append(self)

    def begin(self, wake: Any, fail: Any) -> None:
        pass

    def executed(self, task: Task, interval: int, epoch: int) -> None:
        work, others = self._work, [each for each in self._all if each is not self]
        if task.kind == SC:
            width = work.shapes[task.layer][0]
            heads = 0 if work.model == GCN else work.heads if task.layer < len(work.shapes) - 1 else 1
            bytes_of_row = work.value_bytes * width + 4 * heads * (3 if task.way == BACK else 1)
            read = 1 - (1 - 1 / len(self._all)) ** (work.arcs / work.vertices)  # by another server
            rows = np.broadcast_to(np.uint8(0), (int(bytes_of_row * read * work.vertices / work.intervals),))
            for other in others:
                self._send(other, len(rows), other.ghosts.append, _GhostRows(task, interval, epoch, rows))
        elif self._network.validation and task == self._network.validation[-1]:
            self._send(self._all[0], 0, self._all[0].judged, epoch)

    def judged(self, epoch: int) -> None:
        """An interval was validated."""
        self.scores[epoch] = self.scores.get(epoch, 0) + 1

    def put(self, ghosts: _GhostRows) -> None:
        pass

    def may_add(self, epoch: int) -> bool:
        return not self._rank or epoch in self.parts

    def add(self, epoch: int, losses: Any, gradients: Any) -> None:
        size = 4 * sum(a * b for a, b in self._work.shapes)
        if self._rank < len(self._all) - 1:
            self._send(self._all[self._rank + 1], size, self._all[self._rank + 1].parts.add, epoch)
            return
        self.sums.add(epoch)
        for other in self._all[:-1]:
            self._send(other, size, other.sums.add, epoch)

    def has_sum(self, epoch: int) -> bool:
        return epoch in self.sums

    def sum(self, epoch: int) -> tuple[list[float], list[Any]]:
        return [], []

    def may_end(self, epoch: int) -> bool:
        if self._rank:
            return epoch in self.verdicts
        return not self._network.validation or self.scores.get(epoch) == self._work.intervals

    def end(self, epoch: int) -> Verdict:
        for other in self._all[1:] if not self._rank else ():
            self._send(other, 0, other.verdicts.add, epoch)
        return super().end(epoch)

    def _send(self, to: _Servers, size: int, take: Callable[[Any], None], value: Any) -> None:
        if to is self:
            take(value)
            return
        self._clock.send(size, lambda: self._link.carry(size, lambda: take(value)))


@functools.lru_cache(64)
def epoch_seconds(work: PlannedWork, servers: int, threads: int, tensor_workers: int) -> EpochSeconds:
    """Simulate an epoch by nominal rates.

    Args:
        work: what is trained.
        servers: graph servers.
        threads: of each.
        tensor_workers: of all.
    """
    count = min(work.intervals, max(_INTERVALS, servers))
    work, clock, all_of = work._replace(intervals=count), VirtualClock(threads), list[_Servers]()
    machines, busy, pipelines, pools = [], [0.0], [], []
    epochs = 1 if work.staleness is None else 2
    for rank in range(min(servers, count)):
        own = range(count * rank // servers, count * (rank + 1) // servers)
        rows, arcs = work.vertices // count, (work.arcs + work.vertices) // count
        judged = arcs * work.validated // work.vertices
        by_interval = [dict.fromkeys(own, each) for each in (rows, arcs, judged)]
        sizes = GraphSizes(by_interval[0], by_interval[1], by_interval[1], by_interval[2], {})
        network, seconds, pool = _Network(work, own), TaskSeconds(sizes, work.shapes, work.model, NOMINAL), None
        others = _Servers(rank, work, network, clock, all_of) if servers > 1 else None
        if workers := shared_among(tensor_workers, servers, rank):
            timed = seconds.call, network.compute, work.streams
            pool = VirtualTensorWorkers(clock, workers, len(own), _TENSOR_BITS_S, *timed)
            pools.append(pool)
        given: Any = network, WeightVersions(_WEIGHTS), others or _Epochs()
        settings: Any = 0, epochs, work.staleness, 1, pool, work.fuses, others
        pipelines.append(Pipeline(*given, *settings))
        machines.append(_counted(pipelines[-1].machine(seconds), busy))
    clock.run(machines)
    first = max((row.end_s for row in pipelines[0].timeline if row.epoch < epochs), default=0.0)
    return EpochSeconds(clock.now - first, (busy[0] + sum(pool.stats["seconds"] for pool in pools)) / epochs)


def _counted(machine: Machine, busy: list[float]) -> Machine:
    """A machine whose seconds of work are added up."""

    def seconds(work: Work, sent: int) -> float:
        found = machine.seconds(work, sent)
        busy[0] += found
        return found

    return machine._replace(seconds=seconds)
