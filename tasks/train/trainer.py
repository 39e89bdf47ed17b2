"""The training loop: epochs of steps in the order of their hash, validation, the best epoch, checkpoints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.tasks.lib.checkpoint_stores import Arrays
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.model.linear import slow_products
from superworkflow.tasks.lib.gnn.model.network import Network, NetworkInputs
from superworkflow.tasks.lib.gnn.objective.base import Evaluation, Example, Objective, Step
from superworkflow.tasks.lib.gnn.pipeline_timer import PipelineTimer
from superworkflow.tasks.lib.gnn.sampler.block import MiniBatch
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import is_constant, order_of
from superworkflow.tasks.lib.kernels.huge_pages import KeptMemory
from superworkflow.tasks.train.checkpoint import TrainedWeights, TrainingPosition, TrainingState
from superworkflow.tasks.train.loss_warnings import EARLY_STEPS, divergence, loss_warnings, untrained
from superworkflow.tasks.train.model_selection import FIGURE, ModelSelection
from superworkflow.tasks.train.optimizers import Optimizer, clip, rate_of
from superworkflow.tasks.train.params import ALL, ConcreteTrainParams

Prepared = tuple[Example, MiniBatch, NetworkInputs]
Scheduled = tuple[NDArray[np.int64], Step]
VALIDATED_AT_ONCE = 4096


class BatchSource(Protocol):
    """Prepares batches, ahead of the thread that trains.

    `spent` are the seconds by stage of the pipeline.
    """

    spent: PipelineTimer

    def batches(self, steps: Iterable[Scheduled]) -> Iterator[Prepared]:
        """Batches of the steps, in their order."""

    def close(self) -> None:
        """End its threads."""


class TrainingGroup(Protocol):
    """Workers that train a network together, each on its share of every step; its methods are collective.

    `optimizers` are those of the network's weights and of learned rows.
    """

    optimizers: list[Optimizer]

    def read(self, inputs: NetworkInputs) -> NetworkInputs:
        """Inputs with the learned rows that they request."""

    def reduce(self, inputs: NetworkInputs, loss: float, mass: float) -> float:
        """Average the gradients over the targets of all workers.

        Args:
            inputs: the step's, from `read`.
            loss: mean loss of this worker's targets.
            mass: number of this worker's targets, or sum of their weights; see `Objective.mass`.

        Returns:
            The mean loss of all targets.
        """

    def squares(self) -> float:
        """Sum of the squares of all reduced gradients, those of learned rows too."""

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """All workers' rows [n, width], concatenated by rank."""

    def sum(self, loss: float, figure: float) -> tuple[float, float]:
        """Sums over all workers."""

    def rows(self) -> Arrays:
        """Copies of the learned rows of this worker's nodes, by node set; empty if the network holds them."""

    def load_rows(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Load rows; see `rows`."""

    def end_epoch(self, epoch: int) -> None:
        """Called after each epoch, with its number from 1."""

    def is_due(self) -> bool:
        """True if the last checkpoint is old; equal on all workers."""

    def save(self, checkpoint: TrainingState) -> None:
        """Save a checkpoint."""

    def restore(self) -> TrainingState | None:
        """Restore network, optimizers and learned rows; None, and no change, without a usable checkpoint."""


class Trainer:
    """Trains a network.

    Args:
        network: network to train, on its device.
        task: what it learns.
        params: the stage's parameters.
        source: prepares batches.
        group: the workers that train it.
        progress: receives progress and the row of each epoch.
    """

    def __init__(
        self, network: Network, task: Objective, params: ConcreteTrainParams, source: BatchSource, group: TrainingGroup,
        progress: Progress,
    ):  # fmt: skip
        self.network, self.task, self.params, self.source, self.group = network, task, params, source, group
        self.warnings: list[InputWarning] = [*task.doubts, *slow_products(params.products, params.device)]
        self._progress = progress
        network.precision = params.products
        self.position, self.best = TrainingPosition(), TrainedWeights({}, {})
        self._train, self._validate = task.items("train"), task.items("validation")
        self._size = task.most() if params.batch == ALL else min(int(params.batch), task.most())
        self.steps = -(-len(self._train) // self._size)
        self._constant: dict[int, Prepared] = {}
        self._stream: Iterator[Prepared] = iter(())
        self._selection = ModelSelection(params.kept_by, self._figure)

    def resume(self) -> bool:
        """Restore the last checkpoint, if there is a usable one."""
        found = self.group.restore()
        if found is not None:
            self.position, self.best = found
        return found is not None

    def train(self) -> None:
        """Train from `position` to the end; the network has the best weights then.

        Raises:
            UserError: training diverged.
        """
        memory, position = KeptMemory(), self.position
        if self._may_keep_first and position == TrainingPosition():
            self._keep_first()
        self._selection = ModelSelection(self.params.kept_by, self._figure, position.epochs)
        self._stream = self.source.batches(self._schedule(position.epoch, position.step))
        while position.epoch < self.params.epochs and not self._is_over():
            if position.step == 0:
                position.losses.append([])
            batches = self._batches(self._train, self._size, random_streams.TRAINING, position.epoch, position.step)
            for prepared in batches:
                position.losses[-1].append(self.step(*prepared))
                position.step += 1
                memory.give_back()
                self._report()
                if position.step < self.steps:
                    self._save_if_due()
            self._end_epoch()
            self._save_if_due()
        if self.best.network:
            self.warnings += untrained(position, self._figure)
            self.warnings += divergence(self.task, position, len(self._validate), self.params.learning_rate)
            self.network.load_arrays(self.best.network)
            self.group.load_rows(self.best.rows)

    def epoch(self, number: int) -> Iterator[Prepared]:
        """The batches that an epoch, from 0, trains on, for callers that run their own loop."""
        self._stream = self.source.batches(self._to_train(number, 0))
        return self._batches(self._train, self._size, random_streams.TRAINING, number)

    def step(self, example: Example, batch: MiniBatch, inputs: NetworkInputs) -> float:
        """Train on a batch; its loss.

        Raises:
            UserError: training diverged.
        """
        spent, value, count = self.source.spent, 0.0, len(example.wanted[0])
        for optimizer in self.group.optimizers:
            optimizer.zero_grad()
        if self.network.peers is not None:
            self.network.peers.targets = count
        with spent.on("update"):
            inputs = self.group.read(inputs)
        if count:
            with spent.on("compute"):
                loss = self.task.loss(self.network, self.network(batch, inputs, self.params.dropout), example)
                value = float(loss.detach())
                loss.backward()  # type: ignore[no-untyped-call]
        elif self.network.peers is not None:  # the others need this worker to sum statistics, of no rows
            rows = self.network(batch, inputs, self.params.dropout)
            torch.stack([each.sum() for each in rows.values()]).sum().backward()  # type: ignore[no-untyped-call]
        with spent.on("update"):
            value = self.group.reduce(inputs, value, self.task.mass(example))
            if not math.isfinite(value):
                raise self._diverged(value)
            clip(self.group.optimizers, self.params.clip_norm, self.group.squares)
            done = self.position.epoch * self.steps + self.position.step
            for optimizer in self.group.optimizers:
                optimizer.learning_rate = rate_of(self.params, done, self.params.epochs * self.steps)
                optimizer.step()
        return value

    @torch.no_grad()
    def judge(self, items: NDArray[np.int64]) -> tuple[float, float]:
        """Mean loss and figure of any items, ascending, with neighbours drawn as in training."""
        steps = _steps(items, VALIDATED_AT_ONCE, random_streams.VALIDATION, 0, 0)
        return self._judged(self.source.batches(steps), len(items))

    @property
    def _may_keep_first(self) -> bool:
        """True if first weights may be the best ones: of links, which share neighbours, whatever nodes' rows are."""
        return self.task.figure == "auc" and self.params.kept_by == FIGURE and len(self._validate) > 0

    def _keep_first(self) -> None:
        """Keep the first weights until an epoch has a better figure."""
        loss, figure = self.judge(self._validate)
        self.position.first = {"epoch": 0.0, "loss": loss, "validation_loss": loss, self._figure: figure}
        self._progress.log(f"first weights: {self._figure.replace('_', ' ')} {figure:.4f}")
        self._keep()

    def _keep(self) -> None:
        weights = {name: np.array(values) for name, values in self.network.arrays().items()}
        self.best = TrainedWeights(weights, self.group.rows())

    def _is_over(self) -> bool:
        return bool(self.params.patience) and self.position.worse >= self.params.patience

    def _end_epoch(self) -> None:
        position = self.position
        row = {"epoch": position.epoch + 1.0, "loss": float(np.mean(position.losses[-1]))}
        if len(self._validate):
            loss, figure = self._validated(position.epoch)
            if not math.isfinite(loss):
                raise self._diverged(loss)
            row |= {"validation_loss": loss, self._figure: figure}
            verdict = self._selection.compare(row)
            position.worse = 0 if verdict.is_better else position.worse + 1
            if verdict.is_kept and figure > position.first.get(self._figure, -math.inf):
                position.best = position.epoch + 1
                self._keep()
        position.epochs.append(row)
        if len(position.epochs) * self.steps < EARLY_STEPS + self.steps:  # later ones are in the stage's stats
            log_warnings(self._progress, loss_warnings(self.task.head, position.epochs, self.steps))
        value = row.get(self._figure, -row["loss"])
        facts = {name: number for name, number in row.items() if name not in ("epoch", "loss")}
        rate = self.group.optimizers[0].learning_rate
        self._progress.report(
            position.epoch + 1, self.params.epochs, value, epoch_loss=row["loss"], learning_rate=rate, **facts
        )
        position.epoch, position.step = position.epoch + 1, 0
        self.group.end_epoch(position.epoch)

    @torch.no_grad()
    def _validated(self, epoch: int) -> tuple[float, float]:
        """Mean loss and figure of the validation items, with neighbours drawn as in training."""
        batches = self._batches(self._validate, VALIDATED_AT_ONCE, random_streams.VALIDATION, epoch)
        return self._judged(batches, len(self._validate))

    def _judged(self, batches: Iterator[Prepared], count: int) -> tuple[float, float]:
        """Mean loss and figure of batches that have `count` items."""
        loss, figure = 0.0, 0.0
        self.network.eval()
        for example, batch, inputs in batches:
            found = self._judge(example, batch, inputs)
            loss, figure = loss + found.loss, figure + found.figure
        self.network.train()
        loss, figure = self.group.sum(loss, figure)
        return loss / count, figure / count

    def _judge(self, example: Example, batch: MiniBatch, inputs: NetworkInputs) -> Evaluation:
        """Evaluate a batch of validation items, of which this worker may have none."""
        inputs = self.group.read(inputs)
        if any(map(len, example.nodes.values())):
            rows = self.network(batch, inputs)
        else:
            head = self.network.shape.head
            rows = {name: torch.zeros(0, head.width, device=self.network.device) for name in head.node_sets}
        return self.task.judge(self.network, rows, example, self.group.gather)

    @property
    def _figure(self) -> str:
        return f"validation_{self.task.figure}"

    def _schedule(self, epoch: int, first: int) -> Iterator[Scheduled]:
        """Steps of training and validation from this one on, in their order, except batches that are made only once.

        They are one sequence, so that batches are prepared ahead across the ends of epochs.
        """
        for number in range(epoch, self.params.epochs):
            if not self._is_constant(self._train, self._size):
                yield from self._to_train(number, first if number == epoch else 0)
            if not self._is_constant(self._validate, VALIDATED_AT_ONCE):
                yield from _steps(self._validate, VALIDATED_AT_ONCE, random_streams.VALIDATION, number, 0)

    def _to_train(self, epoch: int, first: int) -> Iterator[Scheduled]:
        """Steps of an epoch's training, from step `first` on."""
        items = order_of(self._train, self.params.seed, epoch)
        return _steps(items, self._size, random_streams.TRAINING, epoch, first)

    def _is_constant(self, items: NDArray[np.int64], size: int) -> bool:
        """True if one batch has all items and all neighbours, so that it is made only once."""
        drawn = self.params.sampler == "subgraphs" or not is_constant(self.params.sizes)
        return len(items) <= size and self.task.is_constant and not drawn

    def _batches(
        self, items: NDArray[np.int64], size: int, whose: int, epoch: int, first: int = 0
    ) -> Iterator[Prepared]:
        """The batches of an epoch, from step `first` on."""
        if not self._is_constant(items, size):
            yield from itertools.islice(self._stream, -(-len(items) // size) - first)
            return
        if whose not in self._constant:
            (self._constant[whose],) = self.source.batches([(items, (whose, 0, 0))])
        # Dropout masks still change every epoch.
        example, batch, inputs = self._constant[whose]
        yield example, _masked_anew(batch, self.params.seed, whose, epoch), inputs

    def _report(self) -> None:
        position = self.position
        facts = {"loss": position.losses[-1][-1]}
        if position.epochs and self._figure in position.epochs[-1]:
            facts[self._figure] = position.epochs[-1][self._figure]
        self._progress.update(
            position.epoch * self.steps + position.step, self.params.epochs * self.steps, "steps", **facts
        )

    def _save_if_due(self) -> None:
        if self.group.is_due():
            self.position.saves += 1
            self.group.save(TrainingState(self.position, self.best))

    def _diverged(self, loss: float) -> UserError:
        position = self.position
        return UserError(
            f"training diverged in epoch {position.epoch + 1}, step {position.step + 1}: the loss is {loss}",
            where="train.learning_rate", value=self.params.learning_rate, remedy="Lower train.learning_rate",
        )  # fmt: skip


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
