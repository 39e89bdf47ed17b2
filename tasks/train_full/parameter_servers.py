"""Parameter servers: ranks that keep the weights and Adam's state, and update them by the gradients of all intervals.

Each has a copy of all of it, after Dorylus (Thorpe et al., OSDI 2021). A graph server sends the gradients of an
interval to one of them, which passes them on to the others; each adds them up in the order of the intervals, so that
all copies are the bits of one process. Versions of the weights that intervals still use are stashed at graph servers.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.tensor_tasks import Rows
from superworkflow.tasks.train_full.graph_servers import (
    GRADIENTS,
    OF_INTERVAL,
    SUM,
    VERDICT,
    WEIGHTS,
    WORDS,
    FlatWeights,
    Opens,
    PostT,
    ServerGroup,
)
from superworkflow.tasks.train_full.trainer import WholeTrainer

if TYPE_CHECKING:
    from superworkflow.tasks.lib.distributed.mailbox import Header  # needs pyzmq

_PASSED_ON, _CALL, _ANSWERED = range(3)
"""Last number in the header of an interval's gradients: from another parameter server; a call of a graph server; with
its rank added, a call of one that wants the new weights from this parameter server."""


class ParameterServer(Generic[PostT]):
    """One of the parameter servers. Collective.

    Args:
        rank: its rank.
        all_ranks: ranks of all parameter servers.
        trainer: its copy of the training.
        group: its checkpoints.
        intervals: number of all intervals.
        opened: opens its mailbox, as the constructor of `Mailbox` does.
    """

    def __init__(
        self, rank: int, all_ranks: range, trainer: WholeTrainer, group: ServerGroup, intervals: int,
        opened: Opens[PostT],
    ):  # fmt: skip
        self._others = [each for each in all_ranks if each != rank]
        self._trainer, self._group, self._intervals = trainer, group, intervals
        self._flat = FlatWeights(trainer.weights())
        self._came: queue.SimpleQueue[tuple[Header, NDArray[np.uint8]] | BaseException] = queue.SimpleQueue()
        self._gradients: dict[int, dict[int, tuple[float, Rows]]] = {}
        self._asking: dict[int, list[int]] = {}
        self._verdicts: dict[int, list[float]] = {}
        self.mailbox = opened(WORDS, lambda header, message: self._came.put((header, message)), self._came.put)

    def run(self) -> None:
        """Update the weights until training ends.

        Raises:
            UserError: training diverged.
        """
        trainer = self._trainer
        while trainer.position.epoch < trainer.params.epochs and not trainer.is_over:
            epoch = trainer.position.epoch
            while len(self._gradients.get(epoch, ())) < self._intervals:
                self._take_next()
            self._update(epoch)
            while epoch not in self._verdicts:
                self._take_next()
            save, stop, *values = self._verdicts.pop(epoch)
            self._group.saves, self._group.stops = bool(save), bool(stop)
            trainer.end_with(epoch, dict(zip(("validation_loss", trainer.figure), values, strict=False)))

    def _update(self, epoch: int) -> None:
        made = [each for _, each in sorted(self._gradients.pop(epoch).items())]
        losses = [loss for loss, _ in made]
        weights = self._trainer.update(epoch, losses, [self._flat.layers(flat) for _, flat in made])
        message = [np.array(losses), self._flat.of(weights)]
        for rank in self._asking.pop(epoch, ()):
            self.mailbox.send(rank, (SUM, epoch, len(losses), 0), message, WEIGHTS)

    def _take_next(self) -> None:
        came = self._came.get()
        if isinstance(came, BaseException):
            raise came
        (kind, epoch, interval, code), message = came
        if kind == VERDICT:
            self._verdicts[epoch] = message.view(np.float64).tolist()
            return
        assert kind == OF_INTERVAL
        loss, flat = message[:8].view(np.float64), message[8:].view(np.float32)
        self._gradients.setdefault(epoch, {})[interval] = float(loss[0]), flat
        if code >= _CALL:
            passed_on: list[NDArray[Any]] = [loss, flat]
            for rank in self._others:
                self.mailbox.send(rank, (OF_INTERVAL, epoch, interval, _PASSED_ON), passed_on, GRADIENTS)
        if code >= _ANSWERED:
            self._asking.setdefault(epoch, []).append(code - _ANSWERED)
