"""The training loop: epochs of steps in the order of their hash, validation, the best epoch, checkpoints."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.model.network import Network, NetworkInputs
from superworkflow.tasks.lib.gnn.objective.base import Evaluation, Example, Objective, Step, prepare
from superworkflow.tasks.lib.gnn.sampler.block import MiniBatch
from superworkflow.tasks.lib.gnn.sampler.look_ahead import LookAhead
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import NeighborSampler, is_constant, order_of
from superworkflow.tasks.lib.kernels.huge_pages import keep_memory
from superworkflow.tasks.train import ALL, TrainParams
from superworkflow.tasks.train.checkpoint import (
    Arrays,
    CheckpointStore,
    TrainingPosition,
    load_checkpoint,
    save_checkpoint,
)
from superworkflow.tasks.train.model_selection import ModelSelection
from superworkflow.tasks.train.optimizers import Adam, Optimizer, RowAdagrad, RowAdam

Prepared = tuple[Example, MiniBatch, NetworkInputs]
Scheduled = tuple[NDArray[np.int64], Step]
CHECKPOINT_SECONDS = 60.0
"""All is saved after a step when the last save is older than this."""
VALIDATED_AT_ONCE = 4096


class Trainer:
    """Trains a network.

    Args:
        network: to train, on its device.
        known: what it reads of the graph.
        task: what it learns.
        params: the stage's parameters.
        ahead: prepares batches; None where they come from elsewhere (`_prepared`).
        kept, saved: where checkpoints are, and what to call when there is one.
        progress: where to report.
    """

    def __init__(
        self, network: Network, inputs: NetworkInputs, task: Objective, params: TrainParams, ahead: LookAhead | None,
        kept: CheckpointStore, saved: Callable[[], None], progress: Progress,
    ):  # fmt: skip
        self.network, self.inputs, self.task, self.params, self.ahead = network, inputs, task, params, ahead
        self._kept, self._saved, self._progress = kept, saved, progress
        network.precision = params.products
        self.optimizers = optimizers_of(network.parameters(), network.embeddings.parameters(), params)
        self.position, self.best = TrainingPosition(), Arrays()
        self._train, self._validate = task.items("train"), task.items("validation")
        self._size = task.most() if params.batch == ALL else min(int(params.batch), task.most())
        self.steps = -(-len(self._train) // self._size)
        self._constant: dict[int, Prepared] = {}
        self._stream: Iterator[Prepared] = iter(())
        self._saved_at = time.monotonic()
        self._keeping = ModelSelection(params.kept_by, self._figure)

    def resume(self) -> bool:
        """Go back to a checkpoint, if there is one."""
        found = load_checkpoint(self._kept, self.network, self.optimizers, self._progress.log)
        if found is not None:
            self.position, self.best = found
        return found is not None

    def train(self) -> None:
        """Train from `position` to the end; the network has the best weights then.

        Raises:
            UserError: training diverged.
        """
        keep_memory()
        position = self.position
        self._keeping = ModelSelection(self.params.kept_by, self._figure, position.epochs)
        self._stream = self._prepared(self._schedule(position.epoch, position.step))
        while position.epoch < self.params.epochs and not self._is_over():
            if position.step == 0:
                position.losses.append([])
            for prepared in self._batches(
                self._train, self._size, random_streams.TRAINING, position.epoch, position.step
            ):
                position.losses[-1].append(self.step(*prepared))
                position.step += 1
                self._tell()
                if position.step < self.steps and self._is_due():
                    self._save()
            self._end_epoch()
            if self._is_due():
                self._save()
        if self.best:
            self._take(self.best)

    def epoch(self, number: int) -> Iterator[Prepared]:
        """The batches that an epoch, from 0, trains on: for who goes through them by himself instead of `train`."""
        self._stream = self._prepared(self._to_train(number, 0))
        return self._batches(self._train, self._size, random_streams.TRAINING, number)

    def step(self, example: Example, batch: MiniBatch, inputs: NetworkInputs) -> float:
        """Train on a batch; its loss.

        Raises:
            UserError: training diverged.
        """
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        value = self._learn(example, batch, inputs)
        self._update()
        return value

    @torch.no_grad()
    def judge(self, items: NDArray[np.int64]) -> tuple[float, float]:
        """Mean loss and figure of any items, ascending, with neighbours drawn as in training."""
        return self._judged(
            self._prepared(_steps(items, VALIDATED_AT_ONCE, random_streams.VALIDATION, 0, 0)), len(items)
        )

    def weights(self) -> Mapping[str, NDArray[Any]]:
        """The weights that are to be kept, by name."""
        return self.network.arrays()

    def _take(self, weights: Arrays) -> None:
        """Go back to weights that were copied."""
        self.network.load_arrays(weights)

    def _copied(self) -> Arrays:
        """A copy of the weights."""
        return {name: np.array(values) for name, values in self.network.arrays().items()}

    def _is_due(self) -> bool:
        """True if the last checkpoint is old."""
        return time.monotonic() - self._saved_at > CHECKPOINT_SECONDS

    def _is_over(self) -> bool:
        return bool(self.params.patience) and self.position.worse >= self.params.patience

    def _update(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def _learn(self, example: Example, batch: MiniBatch, inputs: NetworkInputs) -> float:
        """Gradients of a step's loss; its value."""
        loss = self.task.loss(self.network, self.network(batch, inputs, self.params.dropout), example)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise self._diverged(value)
        loss.backward()  # type: ignore[no-untyped-call]
        return value

    def _end_epoch(self) -> None:
        position = self.position
        row = {"epoch": position.epoch + 1.0, "loss": float(np.mean(position.losses[-1]))}
        if len(self._validate):
            loss, figure = self._validated(position.epoch)
            if not math.isfinite(loss):
                raise self._diverged(loss)
            row |= {"validation_loss": loss, self._figure: figure}
            verdict = self._keeping.compare(row)
            position.worse = 0 if verdict.is_better else position.worse + 1
            if verdict.is_kept:
                position.best, self.best = position.epoch + 1, self._copied()
        position.epochs.append(row)
        value = row.get(self._figure, -row["loss"])
        self._progress.report(position.epoch + 1, self.params.epochs, value)
        position.epoch, position.step = position.epoch + 1, 0

    @torch.no_grad()
    def _validated(self, epoch: int) -> tuple[float, float]:
        """Mean loss and figure of the items to validate on, with neighbours drawn as in training."""
        batches = self._batches(self._validate, VALIDATED_AT_ONCE, random_streams.VALIDATION, epoch)
        return self._judged(batches, len(self._validate))

    def _judged(self, batches: Iterator[Prepared], count: int) -> tuple[float, float]:
        """Mean loss and figure of batches that have `count` items."""
        loss, figure = 0.0, 0.0
        for example, batch, inputs in batches:
            found = self._judge(example, batch, inputs)
            loss, figure = loss + found.loss, figure + found.figure
        loss, figure = self._over_all(loss, figure)
        return loss / count, figure / count

    def _judge(self, example: Example, batch: MiniBatch, inputs: NetworkInputs) -> Evaluation:
        """Evaluate a batch of validation items."""
        return self.task.judge(self.network, self.network(batch, inputs), example)

    def _over_all(self, loss: float, figure: float) -> tuple[float, float]:
        """Sums over all who validate."""
        return loss, figure

    @property
    def _figure(self) -> str:
        return f"validation_{self.task.figure}"

    def _schedule(self, epoch: int, first: int) -> Iterator[Scheduled]:
        """Items of all steps from this one on, in their order, and what makes each step another than all others.

        Epochs and validation follow each other, so that what prepares batches ahead need not begin anew in each. The
        batches that are made once are not among them.
        """
        for number in range(epoch, self.params.epochs):
            if not self._is_constant(self._train, self._size):
                yield from self._to_train(number, first if number == epoch else 0)
            if not self._is_constant(self._validate, VALIDATED_AT_ONCE):
                yield from _steps(self._validate, VALIDATED_AT_ONCE, random_streams.VALIDATION, number, 0)

    def _to_train(self, epoch: int, first: int) -> Iterator[Scheduled]:
        """The steps of an epoch from this one on."""
        items = order_of(self._train, self.params.seed, epoch)
        return _steps(items, self._size, random_streams.TRAINING, epoch, first)

    def _is_constant(self, items: NDArray[np.int64], size: int) -> bool:
        """True if one batch has all items and all neighbours, so that it is made once."""
        return len(items) <= size and self.task.is_constant and is_constant(self.params.sizes)

    def _batches(
        self, items: NDArray[np.int64], size: int, whose: int, epoch: int, first: int = 0
    ) -> Iterator[Prepared]:
        """The batches of an epoch, from step `first` on."""
        if not self._is_constant(items, size):
            yield from itertools.islice(self._stream, -(-len(items) // size) - first)
            return
        if whose not in self._constant:
            (self._constant[whose],) = self._prepared([(items, (whose, 0, 0))])
        # Masks differ from step to step nevertheless.
        example, batch, inputs = self._constant[whose]
        yield example, _masked_anew(batch, self.params.seed, whose, epoch), inputs

    def _prepared(self, steps: Iterable[Scheduled]) -> Iterator[Prepared]:
        """The batches of some steps."""
        assert self.ahead is not None
        return self.ahead.each(self._prepare, steps)

    def _prepare(self, sampler: NeighborSampler, step: Scheduled) -> Prepared:
        return *prepare(self.task, sampler, *step), self.inputs

    def _tell(self) -> None:
        position = self.position
        facts = {"loss": position.losses[-1][-1]}
        if position.epochs and self._figure in position.epochs[-1]:
            facts["validation"] = position.epochs[-1][self._figure]
        self._progress.update(
            position.epoch * self.steps + position.step, self.params.epochs * self.steps, "steps", **facts
        )

    def _save(self) -> None:
        self.position.saves += 1
        save_checkpoint(self._kept, self.network, self.optimizers, self.best, self.position)
        self._saved()
        self._saved_at = time.monotonic()

    def _diverged(self, loss: float) -> UserError:
        position = self.position
        return UserError(
            f"training diverged in epoch {position.epoch + 1}, step {position.step + 1}: the loss is {loss}",
            where="train.learning_rate", value=self.params.learning_rate, remedy="Lower train.learning_rate",
        )  # fmt: skip


def optimizers_of(
    weights: Iterable[torch.nn.Parameter], embeddings: Iterable[torch.nn.Parameter], params: TrainParams
) -> list[Optimizer]:
    """Adam of the dense weights, and for embeddings, of which a step reads few, its form for rows or Adagrad."""
    sparse = list(embeddings)
    embedded = {id(each) for each in sparse}
    dense = [each for each in weights if id(each) not in embedded]
    made: list[Optimizer] = [Adam(dense, params.learning_rate, params.weight_decay)]
    if sparse:
        by_rows = RowAdagrad if params.embeddings_by == "adagrad" else RowAdam
        made.append(by_rows(sparse, params.learning_rate))
    return made


def _steps(items: NDArray[np.int64], size: int, whose: int, epoch: int, first: int) -> Iterator[Scheduled]:
    """Steps of an epoch, with `size` items each."""
    for step, cut in enumerate(range(0, len(items), size)):
        if step >= first:
            yield items[cut : cut + size], (whose, epoch, step)


def _masked_anew(batch: MiniBatch, seed: int, whose: int, epoch: int) -> MiniBatch:
    blocks = tuple(
        block._replace(state=random_streams.state(seed, random_streams.MASK, whose, epoch, 0, layer))
        for layer, block in enumerate(batch.blocks)
    )
    return batch._replace(blocks=blocks)
