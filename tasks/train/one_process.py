"""Batches and state of training in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from numpy.typing import NDArray

from superworkflow.infra.process.shutdown import Shutdown
from superworkflow.tasks.lib.checkpoint_stores import Arrays, CheckpointStore
from superworkflow.tasks.lib.gnn.model.network import Network, NetworkInputs
from superworkflow.tasks.lib.gnn.objective.base import Objective, prepare
from superworkflow.tasks.lib.gnn.pipeline_timer import PipelineTimer
from superworkflow.tasks.lib.gnn.sampler.look_ahead import LookAhead
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import NeighborSampler
from superworkflow.tasks.train.checkpoint import (
    CheckpointClock,
    TrainedWeights,
    TrainingState,
    noted_position,
    read_checkpoint,
    save_checkpoint,
    saved_at,
)
from superworkflow.tasks.train.optimizers import optimizers_of
from superworkflow.tasks.train.params import ConcreteTrainParams
from superworkflow.tasks.train.trainer import Prepared, Scheduled


class LocalBatches:
    """A `trainer.BatchSource` that samples the whole graph.

    Args:
        task: makes the examples.
        inputs: inputs of the network, which all batches share.
        ahead: threads that draw.
    """

    def __init__(self, task: Objective, inputs: NetworkInputs, ahead: LookAhead):
        self._task, self._inputs, self._ahead = task, inputs, ahead
        self.spent = PipelineTimer()

    def batches(self, steps: Iterable[Scheduled]) -> Iterator[Prepared]:
        return self._ahead.each(self._prepare, steps)

    def close(self) -> None:
        self._ahead.close()

    def _prepare(self, sampler: NeighborSampler, scheduled: Scheduled) -> Prepared:
        return *prepare(self._task, sampler, *scheduled), self._inputs


class OneProcess:
    """The `trainer.TrainingGroup` of one process.

    Args:
        network: network with its embeddings.
        params: the stage's parameters.
        kept: store of checkpoints.
        saved: called after each save.
        log: called with the reason if a checkpoint cannot be used.
        shutdown: end of this process, before which a checkpoint is saved.
    """

    def __init__(
        self, network: Network, params: ConcreteTrainParams, kept: CheckpointStore, saved: Callable[[], None],
        log: Callable[[str], None], shutdown: Shutdown,
    ):  # fmt: skip
        self._network, self._kept, self._saved, self._log, self._shutdown = network, kept, saved, log, shutdown
        self.optimizers = optimizers_of(network.parameters(), network.embeddings.parameters(), params)
        self._clock = CheckpointClock()

    def read(self, inputs: NetworkInputs) -> NetworkInputs:
        return inputs

    def reduce(self, inputs: NetworkInputs, loss: float, mass: float) -> float:
        return loss

    def squares(self) -> float:
        return sum(each.squares() for each in self.optimizers)

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        return rows

    def sum(self, loss: float, figure: float) -> tuple[float, float]:
        return loss, figure

    def rows(self) -> Arrays:
        return {}

    def load_rows(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """No rows apart from the network's."""

    def end_epoch(self, epoch: int) -> None:
        """No other workers to compare with."""

    def is_due(self) -> bool:
        return self._clock.is_due() or self._shutdown.requested

    def save(self, checkpoint: TrainingState) -> None:
        save_checkpoint(self._kept, self._network, self.optimizers, checkpoint.best.network, checkpoint.position)
        self._saved()
        self._clock.reset()
        if self._shutdown.requested:
            self._log(saved_at(checkpoint.position))
            self._shutdown.end()

    def restore(self) -> TrainingState | None:
        position = noted_position(self._kept, self._log)
        if position is None:
            return None
        saved = read_checkpoint(self._kept, position, self._network, self.optimizers, self._log)
        if saved is None:
            return None
        saved.take(self._network, self.optimizers)
        return TrainingState(position, TrainedWeights(saved.best, {}))
