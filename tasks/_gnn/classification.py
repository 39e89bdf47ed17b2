"""The task node classification: cross entropy of the classes of nodes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks._gnn.network import Network
from superworkflow.tasks._gnn.shape import CLASSIFICATION, Head
from superworkflow.tasks._gnn.splits import SPLITS
from superworkflow.tasks._gnn.targets import Targets
from superworkflow.tasks._gnn.task import Example, Judgement, Rows, Step


class Classification:
    """A `Task`; its items are labelled nodes.

    Args:
        targets: their classes and splits.
    """

    figure = "accuracy"
    is_constant = True

    def __init__(self, targets: Targets):
        self.targets = targets
        self.head = Head(
            CLASSIFICATION, (targets.node_set,), len(targets.names), classes=targets.names, label=targets.label
        )

    def items(self, split: str) -> NDArray[np.int64]:
        return self.targets.nodes(split)

    def most(self) -> int:
        return len(self.items("train"))

    def example(self, items: NDArray[np.int64], step: Step) -> Example:
        nodes = np.sort(items)
        return Example({self.targets.node_set: nodes}, {}, (self.targets.classes[nodes],))

    def loss(self, network: Network, rows: Rows, example: Example) -> torch.Tensor:
        scores = rows[self.targets.node_set]
        return functional.cross_entropy(scores, _classes(example, scores))

    def judge(self, network: Network, rows: Rows, example: Example) -> Judgement:
        scores = rows[self.targets.node_set]
        classes = _classes(example, scores)
        loss = float(functional.cross_entropy(scores, classes, reduction="sum"))
        return Judgement(loss, float((scores.argmax(1) == classes).sum()))

    def save(self, output: FileWriter) -> None:
        output.array("splits.npy", self.targets.splits)

    def facts(self) -> dict[str, Stat]:
        counts = {f"{split}_nodes": len(self.items(split)) for split in SPLITS}
        return {"nodes": len(self.targets.classes), "classes": len(self.targets.names), **counts}


def _classes(example: Example, scores: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(example.wanted[0]).to(scores.device)
