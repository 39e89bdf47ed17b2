"""Objectives of nodes: cross entropy of classes, binary cross entropy of each of several labels, squared error of
numbers.

Numbers are standardised by those of the training nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.gnn.model.config import CLASSIFICATION, REGRESSION, Head
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.objective.base import Evaluation, Example, Gather, RowsByNodeSet, Step, alone
from superworkflow.tasks.lib.gnn.objective.label_lists import ManyTargets
from superworkflow.tasks.lib.gnn.objective.labels import NodeTargets, Targets
from superworkflow.tasks.lib.gnn.objective.number_targets import NumberTargets
from superworkflow.tasks.lib.gnn.objective.real_labels import class_doubts
from superworkflow.tasks.lib.gnn.objective.splits import SPLITS
from superworkflow.tasks.lib.graph.heterograph import take


class NodeTask:
    """Base of objectives whose items are labelled nodes.

    Args:
        targets: their labels and splits.
        head: the network's.

    `times` are the nodes' times where seeds have any, int64 [nodes]: edges after a seed's own pass no messages to it.
    """

    is_constant = True
    doubts: Sequence[InputWarning] = ()

    def __init__(self, targets: NodeTargets, head: Head):
        self._targets, self.head = targets, head
        self.times: NDArray[np.int64] | None = None

    def items(self, split: str) -> NDArray[np.int64]:
        return self._targets.nodes(split)

    def most(self) -> int:
        return len(self.items("train"))

    def home(self, items: NDArray[np.int64], step: Step) -> tuple[str, NDArray[np.int64]]:
        return self._targets.node_set, items

    def lost(self, items: NDArray[np.int64], step: Step) -> Mapping[int, NDArray[np.int64]]:
        return {}

    def seed_times(self, items: NDArray[np.int64], step: Step) -> NDArray[np.int64] | None:
        return None if self.times is None else self.times[items]

    def example_of(self, nodes: NDArray[np.int64], wanted: NDArray[Any]) -> Example:
        """Example of nodes, ascending, and of what is learned of each."""
        limits = None if self.times is None else {self._targets.node_set: self.times[nodes]}
        return Example({self._targets.node_set: nodes}, {}, (wanted,), limits)

    def mass(self, example: Example) -> float:
        return float(len(example.wanted[0]))

    def save(self, output: FileWriter) -> None:
        output.array("splits.npy", self._targets.splits)

    def facts(self) -> dict[str, Stat]:
        counts = {f"{split}_nodes": len(self.items(split)) for split in SPLITS}
        classes = {"classes": len(self._targets.names)} if self._targets.names else {}
        return {"nodes": len(self._targets.splits), **classes, **counts}


class Classification(NodeTask):
    """An `Objective` whose items are labelled nodes.

    Args:
        targets: their classes and splits.
        certain: labels are classes even if they look like numbers to predict.
        balanced: weight the training loss by the inverse of how many training nodes a class has.
        smoothing: share of a training target that is spread over all classes.

    The last two are as in `torch.nn.CrossEntropyLoss`, and do not affect validation.
    """

    figure = "accuracy"

    def __init__(self, targets: Targets, certain: bool = True, balanced: bool = False, smoothing: float = 0.0):
        super().__init__(targets, class_head(targets, several=False))
        self.targets, self._smoothing = targets, smoothing
        self._weights = balanced_weights(targets) if balanced else None
        if not certain:
            self.doubts = class_doubts(targets.names, int((targets.classes >= 0).sum()), targets.label)
        trained = np.bincount(targets.classes[targets.nodes("train")], minlength=len(targets.names))
        if lacking := ", ".join(targets.names[code] for code in np.flatnonzero(trained == 0)):
            what = "classes without a node to train on are hardly ever predicted, and their nodes count as errors"
            settle = "Put a node of each class into the split train"
            self.doubts = [*self.doubts, InputWarning(what, targets.label, lacking[:200], settle)]

    def example(self, items: NDArray[np.int64], step: Step) -> Example:
        nodes = np.sort(items)
        return self.example_of(nodes, self.targets.classes[nodes])

    def loss(self, network: Network, rows: RowsByNodeSet, example: Example) -> torch.Tensor:
        scores = rows[self.targets.node_set]
        weights = None if self._weights is None else torch.from_numpy(self._weights).to(scores.device)
        return functional.cross_entropy(scores, wanted_of(example, scores), weights, label_smoothing=self._smoothing)

    def mass(self, example: Example) -> float:
        return super().mass(example) if self._weights is None else float(self._weights[example.wanted[0]].sum())

    def judge(self, network: Network, rows: RowsByNodeSet, example: Example, gather: Gather = alone) -> Evaluation:
        scores = rows[self.targets.node_set]
        classes = wanted_of(example, scores)
        loss = float(functional.cross_entropy(scores, classes, reduction="sum"))
        return Evaluation(loss, float((scores.argmax(1) == classes).sum()))


def class_head(targets: NodeTargets, several: bool) -> Head:
    """Head of a network that makes a score for each class."""
    return Head(
        CLASSIFICATION, (targets.node_set,), len(targets.names), classes=targets.names, label=targets.label,
        several=several,
    )  # fmt: skip


def balanced_weights(targets: Targets) -> NDArray[np.float32]:
    """Weight of each class: training nodes / (classes that have any × training nodes of the class); 1 without any."""
    counts = np.bincount(targets.classes[targets.nodes("train")], minlength=len(targets.names))
    there = counts > 0
    weights = np.ones(len(counts))
    weights[there] = counts.sum() / (there.sum() * counts[there])
    return weights.astype(np.float32)


def wanted_of(example: Example, scores: torch.Tensor) -> torch.Tensor:
    """Targets of a batch's nodes, in the order of their scores."""
    return torch.from_numpy(example.wanted[0]).to(scores.device)


class Regression(NodeTask):
    """An `Objective` whose items are nodes with a number.

    Args:
        targets: their numbers and splits.
    """

    figure = "r2"
    """1 less the mean squared error over the variance of the validation nodes' numbers."""

    def __init__(self, targets: NumberTargets):
        head = Head(
            REGRESSION, (targets.node_set,), 1, label=targets.label, mean=targets.mean, scale=targets.scale
        )  # fmt: skip
        super().__init__(targets, head)
        self.targets = targets
        validated = targets.standardised(self.items("validation")).astype(np.float64)
        self._variance = (float(validated.var()) if len(validated) else 0.0) or 1.0

    def example(self, items: NDArray[np.int64], step: Step) -> Example:
        nodes = np.sort(items)
        return self.example_of(nodes, self.targets.standardised(nodes))

    def loss(self, network: Network, rows: RowsByNodeSet, example: Example) -> torch.Tensor:
        found = rows[self.targets.node_set].squeeze(1)
        return functional.mse_loss(found, wanted_of(example, found))

    def judge(self, network: Network, rows: RowsByNodeSet, example: Example, gather: Gather = alone) -> Evaluation:
        found = rows[self.targets.node_set].squeeze(1)
        loss = float(functional.mse_loss(found, wanted_of(example, found), reduction="sum"))
        return Evaluation(loss, len(found) - loss / self._variance)

    def facts(self) -> dict[str, Stat]:
        return super().facts() | {"label_mean": self.targets.mean, "label_deviation": self.targets.scale}


class MultiLabel(NodeTask):
    """An `Objective` whose items are nodes with several labels.

    Args:
        targets: their labels and splits.
    """

    figure = "r_precision"
    """Share of a node's k labels among the k labels of highest score."""

    def __init__(self, targets: ManyTargets):
        super().__init__(targets, class_head(targets, several=True))
        self.targets = targets

    def example(self, items: NDArray[np.int64], step: Step) -> Example:
        nodes = np.sort(items)
        own = take(self.targets.labels, nodes)
        wanted = np.zeros((len(nodes), len(self.targets.names)), np.float32)
        wanted[np.repeat(np.arange(len(nodes)), np.diff(own.starts)), own.values] = 1
        return self.example_of(nodes, wanted)

    def loss(self, network: Network, rows: RowsByNodeSet, example: Example) -> torch.Tensor:
        scores = rows[self.targets.node_set]
        return functional.binary_cross_entropy_with_logits(scores, wanted_of(example, scores))

    def judge(self, network: Network, rows: RowsByNodeSet, example: Example, gather: Gather = alone) -> Evaluation:
        scores = rows[self.targets.node_set]
        wanted = wanted_of(example, scores)
        losses = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none").mean(1)
        counts = wanted.sum(1)
        best = wanted.gather(1, scores.argsort(dim=1, descending=True, stable=True))
        among = torch.arange(best.shape[1], device=best.device) < counts[:, None]
        return Evaluation(float(losses.sum()), float(((best * among).sum(1) / counts).sum()))

    def facts(self) -> dict[str, Stat]:
        return super().facts() | {"labels": len(self.targets.labels.values)}
