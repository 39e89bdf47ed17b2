"""Ends of epochs: updates of the weights, validation, the best epoch, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.objective.base import Example, Objective, Step
from superworkflow.tasks.lib.gnn.tensor_tasks import Rows
from superworkflow.tasks.train.checkpoint import TrainedWeights, TrainingPosition, TrainingState
from superworkflow.tasks.train.model_selection import ModelSelection
from superworkflow.tasks.train.one_process import OneProcess
from superworkflow.tasks.train.params import ConcreteTrainParams
from superworkflow.tasks.train_full.params import TrainFullParams
from superworkflow.tasks.train_full.pipeline import Verdict
from superworkflow.tasks.train_full.whole_graph import Interval
from superworkflow.tasks.train_full.whole_network import NetworkWeights

_STEP: Step = (random_streams.TRAINING, 0, 0)


class IntervalLoss:
    """The `Tail` of an objective whose items are nodes.

    Args:
        network: what the objective is given.
        task: the objective.
        intervals: all intervals.
    """

    def __init__(self, network: Network, task: Objective, intervals: Sequence[Interval]):
        self._network, self._task = network, task
        items, (self._set,) = task.items("train"), task.head.node_sets
        self._examples: list[Example] = []
        for each in intervals:
            own = items[(items >= each.first) & (items < each.last)]
            self._examples.append(task.example(own, _STEP))
        self._whole = sum(task.mass(each) for each in self._examples)

    def loss(self, interval: Interval, scores: Rows) -> tuple[float, Rows]:
        example, gradient = self._examples[interval.number], np.zeros_like(scores)
        rows = example.nodes[self._set] - interval.first
        if not len(rows):
            return 0.0, gradient
        read = torch.from_numpy(scores[rows]).requires_grad_()
        share = self._task.mass(example) / self._whole
        loss = self._task.loss(self._network, {self._set: read}, example) * share
        loss.backward()  # type: ignore[no-untyped-call]
        assert read.grad is not None
        gradient[rows] = read.grad.numpy()
        return float(loss.detach()), gradient


class WholeTrainer:
    """The `pipeline.Epochs` of a network.

    Args:
        network: the network, which has the weights of the last update.
        task: what it learns.
        params: course of training.
        options: parameters of the stage.
        group: optimizers and checkpoints.
        progress: receives the row of each epoch.

    `scores` are those of the last validation, by interval.
    """

    def __init__(
        self, network: Network, task: Objective, params: ConcreteTrainParams, options: TrainFullParams,
        group: OneProcess, progress: Progress,
    ):  # fmt: skip
        self.network, self.task, self.params, self.options = network, task, params, options
        self.position, self.best = TrainingPosition(), TrainedWeights({}, {})
        self.scores: Mapping[int, Rows] = {}
        self._group, self._progress, self.figure = group, progress, f"validation_{task.figure}"
        self._validate, (self._set,) = task.items("validation"), task.head.node_sets
        if found := group.restore():
            self.position, self.best = found
        self._selection = ModelSelection(params.kept_by, self.figure, self.position.epochs)

    @property
    def is_over(self) -> bool:
        """True if no further epoch is better, or the target is reached."""
        target, rows = self.options.target_accuracy, self.position.epochs
        is_reached = bool(target and rows and rows[-1].get(self.figure, 0.0) >= target)
        return is_reached or bool(self.params.patience and self.position.worse >= self.params.patience)

    def weights(self) -> NetworkWeights:
        """A copy of the weights, by layer."""
        layers: list[dict[str, NDArray[Any]]] = [{} for _ in range(self.network.shape.layers)]
        for name, values in self.network.arrays().items():
            _, layer, own = name.split(".", 2)
            layers[int(layer)][own] = values.copy()
        return layers

    def update(self, epoch: int, losses: Sequence[float], gradients: Sequence[NetworkWeights]) -> NetworkWeights:
        loss = math.fsum(losses)
        if not math.isfinite(loss):
            raise self._diverged(epoch, loss)
        for name, parameter in self.network.named_parameters():
            _, layer, own = name.split(".", 2)
            total = gradients[0][int(layer)][own].copy()
            for each in gradients[1:]:
                total += each[int(layer)][own]
            parameter.grad = torch.from_numpy(total)
        for optimizer in self._group.optimizers:
            optimizer.step()
        self.position.losses.append([loss])
        return self.weights()

    def end(self, epoch: int) -> Verdict:
        position = self.position
        row = {"epoch": epoch + 1.0, "loss": position.losses[-1][0]}
        if len(self._validate):
            self._judge(epoch, row)
        position.epochs.append(row)
        facts = {name: value for name, value in row.items() if name not in ("epoch", "loss")}
        self._progress.report(
            epoch + 1, self.params.epochs, row.get(self.figure, -row["loss"]), epoch_loss=row["loss"], **facts
        )
        self._progress.update(epoch + 1, self.params.epochs, "epochs", loss=row["loss"], **facts)
        position.epoch = epoch + 1
        if self._group.is_due():
            position.saves += 1
            self._group.save(TrainingState(position, self.best))
        switch = self.options.switch_accuracy
        return Verdict(self.is_over, bool(switch and row.get(self.figure, 0.0) >= switch))

    def _judge(self, epoch: int, row: dict[str, float]) -> None:
        """Add the figures of validation, and keep the weights if they are the best."""
        position, example = self.position, self.task.example(self._validate, _STEP)
        scores = np.concatenate([self.scores[number] for number in sorted(self.scores)])
        with torch.no_grad():
            rows = {self._set: torch.from_numpy(scores[example.nodes[self._set]])}
            found = self.task.judge(self.network, rows, example)
        loss = found.loss / len(self._validate)
        if not math.isfinite(loss):
            raise self._diverged(epoch, loss)
        row |= {"validation_loss": loss, self.figure: found.figure / len(self._validate)}
        verdict = self._selection.compare(row)
        position.worse = 0 if verdict.is_better else position.worse + 1
        if verdict.is_kept:
            position.best = epoch + 1
            self.best = TrainedWeights({name: np.array(each) for name, each in self.network.arrays().items()}, {})

    def _diverged(self, epoch: int, loss: float) -> UserError:
        return UserError(
            f"training diverged in epoch {epoch + 1}: the loss is {loss}", where="train_full.learning_rate",
            value=self.params.learning_rate, remedy="Lower train_full.learning_rate",
        )  # fmt: skip
