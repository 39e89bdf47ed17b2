"""Multi-label classification: binary cross entropy of each label of each node."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.objective.base import Evaluation, Example, Gather, RowsByNodeSet, Step, alone
from superworkflow.tasks.lib.gnn.objective.label_lists import ManyTargets
from superworkflow.tasks.lib.gnn.objective.node_classification import NodeTask, class_head, wanted_of
from superworkflow.tasks.lib.graph.heterograph import take


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
