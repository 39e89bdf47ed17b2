"""Labels of nodes, one or several of each, in one form for all methods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.objective.label_lists import ManyTargets
from superworkflow.tasks.lib.gnn.objective.labels import NodeTargets, Targets
from superworkflow.tasks.lib.graph.heterograph import Ragged, take


@dataclass(frozen=True)
class LabelledNodes:
    """Labels and splits of the nodes of a set.

    Args:
        targets: the node set, the names of the labels and the splits.
        classes: number of each node's class, int64 [nodes]; None where nodes have several.
        labels: numbers of each node's labels; None where nodes have one.
    """

    targets: NodeTargets
    classes: NDArray[np.int64] | None
    labels: Ragged | None

    @property
    def node_set(self) -> str:
        return self.targets.node_set

    @property
    def width(self) -> int:
        """Number of labels."""
        return len(self.targets.names)

    @property
    def figure(self) -> str:
        """Name of the figure that a log shows."""
        return "accuracy" if self.labels is None else "micro_f1"

    def nodes(self, split: str) -> NDArray[np.int64]:
        """Nodes of a split, ascending."""
        return self.targets.nodes(split)

    def marks(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for each label of these nodes, bool [nodes, labels]."""
        marks = np.zeros((len(nodes), self.width), np.bool_)
        if self.labels is None:
            assert self.classes is not None
            marks[np.arange(len(nodes)), self.classes[nodes]] = True
            return marks
        own = take(self.labels, nodes)
        marks[np.repeat(np.arange(len(nodes)), np.diff(own.starts)), own.values] = True
        return marks

    def counts(self) -> NDArray[np.float64]:
        """Number of the nodes to train and to validate on that have each label, [labels].

        Training nodes alone are often as many of each class.
        """
        trained = np.concatenate([self.nodes("train"), self.nodes("validation")])
        if self.classes is not None:
            numbers = self.classes[trained]
        else:
            assert self.labels is not None
            numbers = take(self.labels, trained).values
        return np.bincount(numbers, minlength=self.width).astype(np.float64)


def labelled_nodes(targets: Targets | ManyTargets) -> LabelledNodes:
    """Labels and splits of training in that form."""
    if isinstance(targets, ManyTargets):
        return LabelledNodes(targets, None, targets.labels)
    return LabelledNodes(targets, targets.classes, None)


def spread_out(nodes: NDArray[np.int64], seed: int, most: int) -> NDArray[np.int64]:
    """The nodes of the lowest hash, `most` of them or all, ascending."""
    if len(nodes) <= most:
        return nodes
    keys = random_streams.words(nodes, seed, random_streams.ORDER)
    return np.sort(nodes[np.argsort(keys, kind="stable")[:most]])
