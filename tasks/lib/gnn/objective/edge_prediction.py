"""Classes and numbers of edges: cross entropy or squared error of what a decoder makes of the rows of both ends.

The edges of a step, and all edges that reverse them, pass no messages in that step, as those to validate on and to test
pass none at all: what is learned also holds for pairs that are no edges of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.model.config import EDGE_CLASSIFICATION, EDGE_REGRESSION, MLP, Head
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.objective.base import Evaluation, Example, Gather, RowsByNodeSet, Step, alone
from superworkflow.tasks.lib.gnn.objective.edge_labels import EdgeLabels
from superworkflow.tasks.lib.gnn.objective.link_prediction import nodes_of_pairs
from superworkflow.tasks.lib.gnn.objective.splits import SPLITS
from superworkflow.tasks.lib.gnn.sampler.links import Places
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph

SHARE = 8
"""A step has at most one of this many labelled edges; the others pass messages."""


class EdgeTask:
    """Base of objectives whose items are labelled edges.

    Args:
        graph: a dataset of stage holdout_edges.
        labels: its labels.
        head: the network's.
    """

    is_constant = False
    doubts = ()

    def __init__(self, graph: HeteroGraph, labels: EdgeLabels, head: Head):
        self.labels, self.head = labels, head
        self._edges = graph.edge_sets[labels.edges]
        self._places = Places(graph, self._edges, labels.directed)

    def items(self, split: str) -> NDArray[np.int64]:
        return self.labels.items(split)

    def most(self) -> int:
        return max(1, len(self.items("train")) // SHARE)

    def home(self, items: NDArray[np.int64], step: Step) -> tuple[str, NDArray[np.int64]]:
        return self._edges.source, self.labels.pairs[items, 0]

    def lost(self, items: NDArray[np.int64], step: Step) -> Mapping[int, NDArray[np.int64]]:
        return self._places.of(self.labels.pairs[items]) if step[0] == random_streams.TRAINING else {}

    def seed_times(self, items: NDArray[np.int64], step: Step) -> None:
        """None: edges are predicted from all others."""

    def example(self, items: NDArray[np.int64], step: Step) -> Example:
        pairs, ends = self.labels.pairs[items], (self._edges.source, self._edges.target)
        nodes, places = nodes_of_pairs(ends, pairs)
        return Example(nodes, self.lost(items, step), (self._wanted(items), *places))

    def mass(self, example: Example) -> float:
        return float(len(example.wanted[0]))

    def save(self, output: FileWriter) -> None:
        """No files: the graph's dataset has labels and splits."""

    def facts(self) -> dict[str, Stat]:
        counts: dict[str, Stat] = {f"{split}_edges": len(self.items(split)) for split in SPLITS}
        return counts | ({"classes": len(self.labels.classes)} if self.labels.classes else {})

    def _wanted(self, items: NDArray[np.int64]) -> NDArray[np.generic]:
        raise NotImplementedError

    def _decoded(self, network: Network, rows: RowsByNodeSet, example: Example) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs of the decoder for each edge, and the targets."""
        device = network.device
        ends = [
            rows[name].index_select(0, torch.from_numpy(places).to(device))
            for name, places in zip((self._edges.source, self._edges.target), example.wanted[1:], strict=True)
        ]
        assert network.decoder is not None
        return network.decoder(*ends), torch.from_numpy(example.wanted[0]).to(device)


class EdgeClassification(EdgeTask):
    """An `Objective` whose items are edges of a class.

    Args:
        graph, labels: see `EdgeTask`.
        width: width of the rows that the decoder reads.
        balanced: weight the training loss by the inverse of how many training edges a class has.
        smoothing: share of a training target that is spread over all classes.
    """

    figure = "accuracy"

    def __init__(
        self, graph: HeteroGraph, labels: EdgeLabels, width: int, balanced: bool = False, smoothing: float = 0.0
    ):
        super().__init__(graph, labels, _head(graph, labels, EDGE_CLASSIFICATION, width))
        self._smoothing, self._weights = smoothing, None
        if balanced:
            counts = np.bincount(labels.values[labels.items("train")], minlength=len(labels.classes))
            self._weights = (counts.sum() / (len(counts) * counts)).astype(np.float32)

    def loss(self, network: Network, rows: RowsByNodeSet, example: Example) -> torch.Tensor:
        scores, classes = self._decoded(network, rows, example)
        weights = None if self._weights is None else torch.from_numpy(self._weights).to(scores.device)
        return functional.cross_entropy(scores, classes, weights, label_smoothing=self._smoothing)

    def mass(self, example: Example) -> float:
        return super().mass(example) if self._weights is None else float(self._weights[example.wanted[0]].sum())

    def judge(self, network: Network, rows: RowsByNodeSet, example: Example, gather: Gather = alone) -> Evaluation:
        scores, classes = self._decoded(network, rows, example)
        loss = float(functional.cross_entropy(scores, classes, reduction="sum"))
        return Evaluation(loss, float((scores.argmax(1) == classes).sum()))

    def _wanted(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        wanted: NDArray[np.int64] = self.labels.values[items]
        return wanted


class EdgeRegression(EdgeTask):
    """An `Objective` whose items are edges with a number; see `EdgeTask`."""

    figure = "r2"
    """1 less the mean squared error over the variance of the validation edges' numbers."""

    def __init__(self, graph: HeteroGraph, labels: EdgeLabels, width: int):
        super().__init__(graph, labels, _head(graph, labels, EDGE_REGRESSION, width))
        validated = self._wanted(self.items("validation")).astype(np.float64)
        self._variance = (float(validated.var()) if len(validated) else 0.0) or 1.0

    def loss(self, network: Network, rows: RowsByNodeSet, example: Example) -> torch.Tensor:
        found, wanted = self._decoded(network, rows, example)
        return functional.mse_loss(found.squeeze(1), wanted)

    def judge(self, network: Network, rows: RowsByNodeSet, example: Example, gather: Gather = alone) -> Evaluation:
        found, wanted = self._decoded(network, rows, example)
        loss = float(functional.mse_loss(found.squeeze(1), wanted, reduction="sum"))
        return Evaluation(loss, len(found) - loss / self._variance)

    def facts(self) -> dict[str, Stat]:
        return super().facts() | {"label_mean": self.head.mean, "label_deviation": self.head.scale}

    def _wanted(self, items: NDArray[np.int64]) -> NDArray[np.float32]:
        return ((self.labels.values[items] - self.head.mean) / self.head.scale).astype(np.float32)


def _head(graph: HeteroGraph, labels: EdgeLabels, task: str, width: int) -> Head:
    edges = graph.edge_sets[labels.edges]
    mean, scale = (0.0, 1.0) if labels.classes else labels.spread()
    ends = tuple(sorted({edges.source, edges.target}))
    return Head(task, ends, width, labels.classes, labels.label, labels.edges, MLP, mean=mean, scale=scale)
