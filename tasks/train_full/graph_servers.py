"""Graph servers: ranks that each have some intervals of the graph, and train one network together.

They talk in Scatter, where they send the rows that others read, and at the ends of epochs: each adds the gradients of
its intervals to the sum of the servers before it, so that the order of additions is that of one process; the last
one sends the sum to all, which update their copies of the weights alike. Where there are parameter servers, gradients
of each interval go to one of these instead, and weights come back. The first one judges validation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.process.shutdown import Shutdown
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.checkpoint_stores import CheckpointStore
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.tensor_tasks import MATRIX, Rows
from superworkflow.tasks.train.checkpoint import TrainingState
from superworkflow.tasks.train.one_process import OneProcess
from superworkflow.tasks.train.params import ConcreteTrainParams
from superworkflow.tasks.train_full.layer_tasks import BACK, SC, Task
from superworkflow.tasks.train_full.params import BY_INTERVAL
from superworkflow.tasks.train_full.partners import Verdict
from superworkflow.tasks.train_full.timeline import ALL_INTERVALS, TimelineRow
from superworkflow.tasks.train_full.trainer import WholeTrainer, added
from superworkflow.tasks.train_full.whole_network import NetworkWeights, WholeNetwork

if TYPE_CHECKING:
    from superworkflow.tasks.lib.distributed.mailbox import Header  # needs pyzmq

SCATTER, GRADIENTS, VALIDATED, WEIGHTS = "scatter", "gradients", "validation", "weights"
"""Kinds of what is sent; see `Mailbox.sent`."""
_GHOSTS, _PART, SUM, _SCORES, VERDICT, OF_INTERVAL = range(6)
WORDS = 4
"""Of a header: one of these, the epoch, and of rows their interval, and the number of the `SC`. Weights that a
parameter server has updated come as a sum; for gradients of an interval see `ParameterServer`."""


class Post(Protocol):
    """A mailbox, see `Mailbox`."""

    sent: dict[str, int]
    messages: int

    def send(self, rank: int, header: Header, arrays: Sequence[NDArray[Any]], kind: str) -> None: ...


PostT = TypeVar("PostT", bound=Post)
Opens = Callable[[int, Callable[[tuple[int, ...], NDArray[np.uint8]], None], Callable[[BaseException], None]], PostT]


class GhostRows(NamedTuple):
    """Rows of an interval of another server.

    Args:
        task: the `SC` that published them.
        interval, epoch: of which.
        rows: bytes of what it published.
    """

    task: Task
    interval: int
    epoch: int
    rows: NDArray[np.uint8]


class FlatWeights:
    """Weights, or their gradients, as one array.

    Args:
        weights: such weights.

    `shapes` are those of each layer by name, and `size` is the number of all weights.
    """

    def __init__(self, weights: NetworkWeights):
        self.shapes = [{name: each.shape for name, each in sorted(own.items())} for own in weights]
        self.size = sum(each.size for own in weights for each in own.values())

    def of(self, weights: NetworkWeights) -> Rows:
        """The array of weights, float32 [size]."""
        parts = [own[name].reshape(-1) for own, shapes in zip(weights, self.shapes, strict=True) for name in shapes]
        return np.concatenate(parts)

    def layers(self, flat: Rows) -> NetworkWeights:
        """The weights of an array."""
        begin, layers = 0, list[dict[str, Rows]]()
        for own in self.shapes:
            layers.append({})
            for name, shape in own.items():
                size = int(np.prod(shape))
                layers[-1][name] = flat[begin : begin + size].reshape(shape)
                begin += size
        return layers


class GraphServer(Generic[PostT]):
    """One of several graph servers: the `pipeline.Servers` and `pipeline.Epochs` of its pipeline. Collective.

    Args:
        rank, size: which, of how many.
        network: executes the tasks of its intervals.
        trainer: its copy of the training.
        group: its checkpoints.
        opened: opens its mailbox, as the constructor of `Mailbox` does.
        parameters: number of parameter servers, whose ranks follow those of graph servers.
    """

    def __init__(
        self, rank: int, size: int, network: WholeNetwork, trainer: WholeTrainer, group: ServerGroup,
        opened: Opens[PostT], parameters: int = 0,
    ):  # fmt: skip
        self._rank, self._size, self._network, self._trainer, self._group = rank, size, network, trainer, group
        self._scatters = [task for task in (*network.training, *network.validation) if task.kind == SC]
        self._flat, self._parameters = FlatWeights(trainer.weights()), range(size, size + parameters)
        self._apart = trainer.options.updates == BY_INTERVAL
        self.ghosts: deque[GhostRows] = deque()
        self._parts: dict[int, tuple[list[float], Rows]] = {}
        self._sums: dict[int, tuple[list[float], Rows]] = {}
        self._scores: dict[int, dict[int, Rows]] = {}
        self._verdicts: dict[int, NDArray[np.float64]] = {}
        self._wake: Callable[[], None] = lambda: None
        self._fail: Callable[[BaseException], None] = lambda error: None
        self.mailbox = opened(WORDS, self._take, lambda error: self._fail(error))

    def begin(self, wake: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        self._wake, self._fail = wake, fail

    def executed(self, task: Task, interval: int, epoch: int) -> None:
        if task.kind == SC:
            graph, code = self._network.graph, self._scatters.index(task)
            lists = graph.back_ghosts if task.way == BACK else graph.ghosts
            for rank, places in lists.leaving.get(interval, {}).items():
                rows = self._network.published(task, places)
                self.mailbox.send(rank, (_GHOSTS, epoch, interval, code), rows, SCATTER)
        elif self._network.validation and task == self._network.validation[-1]:
            scores = self._network.scores[interval]
            if self._rank:
                self.mailbox.send(0, (_SCORES, epoch, interval, 0), [scores], VALIDATED)
            else:
                self._scores.setdefault(epoch, {})[interval] = scores

    def put(self, ghosts: GhostRows) -> None:
        self._network.put_ghosts(*ghosts)

    def may_add(self, epoch: int) -> bool:
        return not self._rank or bool(self._parameters) or epoch in self._parts

    def add(self, epoch: int, losses: Sequence[float], gradients: Sequence[NetworkWeights]) -> None:
        flat = [self._flat.of(each) for each in gradients]
        if self._parameters:
            self._call(epoch, losses, flat)
            return
        before, so_far = self._parts.pop(epoch, ([], np.empty((0, 0), np.float32)))
        both = [*so_far, *flat]
        total = [*before, *losses], np.stack(both) if self._apart else added(both)[None]
        message = np.array(total[0]), total[1]
        if self._rank < self._size - 1:
            self.mailbox.send(self._rank + 1, (_PART, epoch, len(total[0]), 0), message, GRADIENTS)
            return
        self._sums[epoch] = total
        for rank in range(self._size - 1):
            self.mailbox.send(rank, (SUM, epoch, len(total[0]), 0), message, GRADIENTS)

    def _call(self, epoch: int, losses: Sequence[float], gradients: Sequence[Rows]) -> None:
        """Send each interval's gradients to the parameter server with the fewest calls; the last one answers.

        All have answered the calls of the epoch before, so that calls of this one alone are open.
        """
        calls, last = dict.fromkeys(self._parameters, 0), len(losses) - 1
        for number, (loss, flat) in enumerate(zip(losses, gradients, strict=True)):
            rank = min(calls, key=lambda each: (calls[each], (each - self._rank) % len(calls)))
            calls[rank] += 1
            header = OF_INTERVAL, epoch, self._network.graph.own[number], 1 + (number == last) * (1 + self._rank)
            self.mailbox.send(rank, header, [np.array([loss]), flat], GRADIENTS)

    def has_sum(self, epoch: int) -> bool:
        return epoch in self._sums

    def sum(self, epoch: int) -> tuple[list[float], list[NetworkWeights]]:
        losses, rows = self._sums.pop(epoch)
        return losses, [self._flat.layers(each) for each in rows]

    def may_end(self, epoch: int) -> bool:
        if self._rank:
            return epoch in self._verdicts
        count = len(self._network.graph.intervals) if self._network.validation else 0
        return len(self._scores.get(epoch, ())) == count

    def update(self, epoch: int, losses: Sequence[float], gradients: Sequence[NetworkWeights]) -> NetworkWeights:
        if not self._parameters:
            return self._trainer.update(epoch, losses, gradients)
        (weights,) = gradients  # updated by a parameter server
        return self._trainer.take(losses, weights)

    def end(self, epoch: int) -> Verdict:
        if self._rank:
            save, stop, *values = self._verdicts.pop(epoch).tolist()
            figures = dict(zip(("validation_loss", self._trainer.figure), values, strict=False))
        else:
            figures = self._trainer.judge(epoch, self._scores.pop(epoch, {}))
            save, stop = self._group.wishes()
            found = np.array([save, stop, *figures.values()], np.float64)
            for rank in (*range(1, self._size), *self._parameters):
                self.mailbox.send(rank, (VERDICT, epoch, 0, 0), [found], VALIDATED)
        self._group.saves, self._group.stops = bool(save), bool(stop)
        return self._trainer.end_with(epoch, figures)

    def _take(self, header: Header, message: NDArray[np.uint8]) -> None:
        """Take a message, on the thread that got it."""
        kind, epoch, number, code = header
        if kind == _GHOSTS:
            self.ghosts.append(GhostRows(self._scatters[code], number, epoch, message))
        elif kind in (_PART, SUM):
            losses, flat = message[: 8 * number].view(np.float64), message[8 * number :].view(np.float32)
            rows = flat.reshape(-1, self._flat.size)
            (self._parts if kind == _PART else self._sums)[epoch] = losses.tolist(), rows
        elif kind == _SCORES:
            found = message.view(np.float32).reshape(-1, self._flat.shapes[-1][MATRIX][0])
            self._scores.setdefault(epoch, {})[number] = found
        else:
            self._verdicts[epoch] = message.view(np.float64)
        self._wake()


def server_rows(timeline: Sequence[TimelineRow], rank: int, size: int, threads: int) -> list[TimelineRow]:
    """Rows of a server among those of all; updates, which all do alike, are those of the first one.

    Args:
        timeline: rows of the server.
        rank, size: which, of how many.
        threads: of each server; tensor workers, whose numbers are negative, are numbered in turn.
    """
    rows = timeline if not rank else [row for row in timeline if row.interval != ALL_INTERVALS]
    numbers = [row.thread + threads * rank if row.thread >= 0 else (row.thread + 1) * size - 1 - rank for row in rows]
    return [row._replace(thread=number) for row, number in zip(rows, numbers, strict=True)]


def server_stats(sent: Sequence[Mapping[str, int]], messages: int, ghosts: int, parameters: int = 0) -> dict[str, Stat]:
    """Stats of all servers.

    Args:
        sent: bytes that each has sent, by kind.
        messages, ghosts: of all of them.
        parameters: parameter servers, the last ones of these.
    """
    kinds = (SCATTER, GRADIENTS, VALIDATED, WEIGHTS)
    counted: dict[str, Stat] = {f"graph.{kind}_bytes": sum(each.get(kind, 0) for each in sent) for kind in kinds}
    return {"graph.servers": len(sent) - parameters, "graph.ghosts": ghosts, "graph.messages": messages} | counted


class ServerGroup(OneProcess):
    """Optimizer and checkpoints of a server, of which one writes, for all alike.

    Args:
        network: its copy of the network.
        params: course of training.
        kept, saved, log, shutdown: see `OneProcess`.
        is_first: whether it is the one that writes: the first one of those that update the weights.
    """

    def __init__(
        self, network: Network, params: ConcreteTrainParams, kept: CheckpointStore, saved: Callable[[], None],
        log: Callable[[str], None], shutdown: Shutdown, is_first: bool,
    ):  # fmt: skip
        super().__init__(network, params, kept, saved, log, shutdown)
        self.is_first, self.saves, self.stops = is_first, False, False

    def wishes(self) -> tuple[bool, bool]:
        """True if the first server wants to save, and if it wants to stop."""
        return super().is_due(), False

    def is_due(self) -> bool:
        return self.saves or self.stops

    def save(self, checkpoint: TrainingState) -> None:
        if self.is_first:
            super().save(checkpoint)
        else:
            self._clock.reset()
