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
from superworkflow.tasks.lib.gnn.objective.base import Objective, Step
from superworkflow.tasks.lib.gnn.tensor_tasks import Rows
from superworkflow.tasks.train.checkpoint import TrainedWeights, TrainingPosition, TrainingState
from superworkflow.tasks.train.model_selection import ModelSelection
from superworkflow.tasks.train.one_process import OneProcess
from superworkflow.tasks.train.params import ConcreteTrainParams
from superworkflow.tasks.train_full.params import BY_INTERVAL, TrainFullParams
from superworkflow.tasks.train_full.partners import Verdict
from superworkflow.tasks.train_full.vertex_order import Interval, VertexOrder
from superworkflow.tasks.train_full.whole_network import NetworkWeights

STEP: Step = (random_streams.TRAINING, 0, 0)
"""The step by which nodes are taken, of all intervals and epochs."""


def added(parts: Sequence[Rows]) -> Rows:
    """Sum in the order of the parts."""
    total = parts[0].copy()
    for each in parts[1:]:
        total += each
    return total


class IntervalLoss:
    """The `Tail` of an objective whose items are nodes.

    Args:
        network: what the objective is given.
        task: the objective.
        order: positions of the vertices, and all intervals.
    """

    def __init__(self, network: Network, task: Objective, order: VertexOrder):
        self._network, self._task, self._order = network, task, order
        items, (self._set,) = task.items("train"), task.head.node_sets
        numbers = order.numbers_of(items)
        self._examples = [task.example(items[numbers == each.number], STEP) for each in order.intervals]
        self._whole = sum(task.mass(each) for each in self._examples)

    def loss(self, interval: Interval, scores: Rows) -> tuple[float, Rows]:
        example, gradient = self._examples[interval.number], np.zeros_like(scores)
        rows = self._order.positions_of(example.nodes[self._set]) - interval.first
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
        order: positions of the vertices, and all intervals.
        progress: receives the row of each epoch.

    `scores` are those of `WholeNetwork`.
    """

    def __init__(
        self, network: Network, task: Objective, params: ConcreteTrainParams, options: TrainFullParams,
        group: OneProcess, order: VertexOrder, progress: Progress,
    ):  # fmt: skip
        self.network, self.task, self.params, self.options = network, task, params, options
        self.position, self.best = TrainingPosition(), TrainedWeights({}, {})
        self.scores: Mapping[int, Rows] = {}
        self._group, self.progress, self.figure = group, progress, f"validation_{task.figure}"
        self._validate, (nodes,) = task.items("validation"), task.head.node_sets
        self._example = task.example(self._validate, STEP)
        self._set, self._numbers = nodes, order.numbers_of(self._example.nodes[nodes])
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
        for group in [[each] for each in gradients] if self.options.updates == BY_INTERVAL else [gradients]:
            for name, parameter in self.network.named_parameters():
                _, layer, own = name.split(".", 2)
                parameter.grad = torch.from_numpy(added([each[int(layer)][own] for each in group]))
            for optimizer in self._group.optimizers:
                optimizer.step()
        self.position.losses.append([loss])
        return self.weights()

    def take(self, losses: Sequence[float], weights: NetworkWeights) -> NetworkWeights:
        """`update` by weights that another trainer has updated."""
        layers = enumerate(weights)
        named = {(layer, name): values for layer, own in layers for name, values in own.items()}
        arrays = {}
        for name in self.network.arrays():
            _, layer, own = name.split(".", 2)
            arrays[name] = named[int(layer), own]
        self.network.load_arrays(arrays)
        self.position.losses.append([math.fsum(losses)])
        return self.weights()

    def end(self, epoch: int) -> Verdict:
        return self.end_with(epoch, self.judge(epoch, self.scores))

    def end_with(self, epoch: int, figures: Mapping[str, float]) -> Verdict:
        """`end` with what `judge` found."""
        position = self.position
        row = {"epoch": epoch + 1.0, "loss": position.losses[-1][0], **figures}
        if figures:
            self._keep(epoch, row)
        position.epochs.append(row)
        facts = {name: value for name, value in row.items() if name not in ("epoch", "loss")}
        self.progress.report(
            epoch + 1, self.params.epochs, row.get(self.figure, -row["loss"]), epoch_loss=row["loss"], **facts
        )
        self.progress.update(epoch + 1, self.params.epochs, "epochs", loss=row["loss"], **facts)
        position.epoch = epoch + 1
        if self._group.is_due():
            position.saves += 1
            self._group.save(TrainingState(position, self.best))
        switch = self.options.switch_accuracy
        return Verdict(self.is_over, bool(switch and row.get(self.figure, 0.0) >= switch))

    def judge(self, epoch: int, scores: Mapping[int, Rows]) -> dict[str, float]:
        """Loss and figure of validation, none without any.

        Args:
            epoch: number of the epoch, from 0.
            scores: of the nodes that are validated on, by interval; of all of them.
        """
        if not len(self._validate):
            return {}
        rows = np.empty((len(self._numbers), scores[0].shape[1]), np.float32)
        for number, found in scores.items():
            rows[self._numbers == number] = found
        with torch.no_grad():
            judged = self.task.judge(self.network, {self._set: torch.from_numpy(rows)}, self._example)
        loss = judged.loss / len(self._validate)
        if not math.isfinite(loss):
            raise self._diverged(epoch, loss)
        return {"validation_loss": loss, self.figure: judged.figure / len(self._validate)}

    def _keep(self, epoch: int, row: dict[str, float]) -> None:
        """Keep the weights if they are the best."""
        position, verdict = self.position, self._selection.compare(row)
        position.worse = 0 if verdict.is_better else position.worse + 1
        if verdict.is_kept:
            position.best = epoch + 1
            self.best = TrainedWeights({name: np.array(each) for name, each in self.network.arrays().items()}, {})

    def _diverged(self, epoch: int, loss: float) -> UserError:
        return UserError(
            f"training diverged in epoch {epoch + 1}: the loss is {loss}", where="train_full.learning_rate",
            value=self.params.learning_rate, remedy="Lower train_full.learning_rate",
        )  # fmt: skip
