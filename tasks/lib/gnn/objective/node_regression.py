"""Node regression: squared error of numbers, standardised by those of the training nodes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.gnn.model.config import REGRESSION, Head
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.objective.base import Evaluation, Example, Gather, RowsByNodeSet, Step, alone
from superworkflow.tasks.lib.gnn.objective.node_classification import NodeTask, wanted_of
from superworkflow.tasks.lib.gnn.objective.number_targets import NumberTargets


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
