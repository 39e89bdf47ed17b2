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
        self._updated = trainer.position.epoch
        self.mailbox = opened(WORDS, lambda header, message: self._came.put((header, message)), self._came.put)

    @property
    def is_over(self) -> bool:
        """True if training has ended."""
        return self._trainer.position.epoch >= self._trainer.params.epochs or self._trainer.is_over

    @property
    def may_update(self) -> bool:
        """True if the gradients of all intervals of the next epoch are there."""
        return len(self._gradients.get(self._updated, ())) == self._intervals

    @property
    def may_end(self) -> bool:
        """True if the epoch of the last update is judged."""
        return self._updated > self._trainer.position.epoch in self._verdicts

    def run(self) -> None:
        """Update the weights until training ends.

        Raises:
            UserError: training diverged.
        """
        while not self.is_over:
            if self.may_update:
                self.update()
            elif self.may_end:
                self.end()
            else:
                self.take(self.next())

    def has_next(self) -> bool:
        """True if a message waits to be taken."""
        return not self._came.empty()

    def next(self) -> tuple[Header, NDArray[np.uint8]]:
        """Wait for a message."""
        came = self._came.get()
        if isinstance(came, BaseException):
            raise came
        return came

    def update(self) -> None:
        """Update the weights by the gradients of an epoch, and send them to those who ask."""
        epoch, self._updated = self._updated, self._updated + 1
        made = [each for _, each in sorted(self._gradients.pop(epoch).items())]
        losses = [loss for loss, _ in made]
        weights = self._trainer.update(epoch, losses, [self._flat.layers(flat) for _, flat in made])
        message = [np.array(losses), self._flat.of(weights)]
        for rank in self._asking.pop(epoch, ()):
            self.mailbox.send(rank, (SUM, epoch, len(losses), 0), message, WEIGHTS)

    def end(self) -> None:
        """End an epoch as it was judged."""
        epoch = self._trainer.position.epoch
        save, stop, *values = self._verdicts.pop(epoch)
        self._group.saves, self._group.stops = bool(save), bool(stop)
        self._trainer.end_with(epoch, dict(zip(("validation_loss", self._trainer.figure), values, strict=False)))

    def take(self, came: tuple[Header, NDArray[np.uint8]]) -> None:
        """Take a message in, and pass gradients on that a graph server has sent."""
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
