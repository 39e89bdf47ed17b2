"""Labels of edges to learn: the pairs that have one, their classes or numbers, and their split.

A dataset of stage holdout_edges has them as `edge_labels.json`, which says of what they are; `edge-pairs.npy` int64
[edges, 2], source and target; `edge-labels.npy`, int64 classes or float64 numbers [edges]; `edge-splits.npy` int8
[edges], 0 to 2 for train, validation and test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset, FileWriter
from superworkflow.tasks.lib.gnn.objective.splits import SPLITS
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged

EDGE_LABELS_FILE = "edge_labels.json"
FORMAT = 1
_PAIRS, _VALUES, _SPLITS = "edge-pairs.npy", "edge-labels.npy", "edge-splits.npy"


@dataclass(frozen=True)
class EdgeLabels:
    """Labels of edges of one edge set.

    Args:
        edges: name of the set.
        label: what is learned, for people: a column or SET.FEATURE.
        directed: whether a pair is an edge from its first node to its second alone.
        classes: names of the classes; empty where numbers are learned.
        pairs: source and target of each labelled edge, int64 [edges, 2].
        values: class of each, int64 [edges], or its number, float64 [edges].
        splits: split of each by its number in `SPLITS`, int8 [edges].
    """

    edges: str
    label: str
    directed: bool
    classes: tuple[str, ...]
    pairs: NDArray[np.int64]
    values: NDArray[Any]
    splits: NDArray[np.int8]

    def items(self, split: str) -> NDArray[np.int64]:
        """Numbers of the labelled edges of a split, ascending."""
        return np.flatnonzero(self.splits == SPLITS.index(split))

    def spread(self) -> tuple[float, float]:
        """Mean and standard deviation of the numbers to train on."""
        trained = self.values[self.items("train")]
        return float(trained.mean()), float(trained.std())

    def write(self, output: FileWriter) -> None:
        """Write its files; see the module."""
        document = {"format": FORMAT, "edges": self.edges, "label": self.label, "directed": self.directed,
                    "classes": list(self.classes)}  # fmt: skip
        output.json(EDGE_LABELS_FILE, document)
        for name, values in ((_PAIRS, self.pairs), (_VALUES, self.values), (_SPLITS, self.splits)):
            output.array(name, values)


def has_edge_labels(dataset: Dataset) -> bool:
    """True if labels of edges are to be learned of the graph."""
    return EDGE_LABELS_FILE in dataset


def read_edge_labels(graph: HeteroGraph) -> EdgeLabels:
    """Read the labels of a graph's edges.

    Raises:
        DatasetDamaged: files contradict each other.
        UserError: the graph has none.
    """
    dataset = graph.dataset
    if not has_edge_labels(dataset):
        raise UserError("the graph's edges have no labels to learn", where=dataset.uri,
                        remedy="Give the output of stage holdout_edges")  # fmt: skip
    document = dataset.json(EDGE_LABELS_FILE)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise damaged(dataset, EDGE_LABELS_FILE, f"format {FORMAT}")
    name, classes = document.get("edges"), document.get("classes")
    if name not in graph.edge_sets or not isinstance(classes, list) or not all(isinstance(x, str) for x in classes):
        raise damaged(dataset, EDGE_LABELS_FILE, "an edge set of the graph, and names of classes")
    edges = graph.edge_sets[name]
    sizes = [graph.node_sets[each].count for each in (edges.source, edges.target)]
    pairs, values, splits = (dataset.array(file, mmap=False) for file in (_PAIRS, _VALUES, _SPLITS))
    count = len(pairs)
    if pairs.dtype != np.int64 or pairs.shape != (count, 2) or (pairs < 0).any() or (pairs >= sizes).any():
        raise damaged(dataset, _PAIRS, "pairs of nodes")
    if splits.dtype != np.int8 or splits.shape != (count,) or not np.isin(splits, range(len(SPLITS))).all():
        raise damaged(dataset, _SPLITS, "a split of each edge")
    kind = np.int64 if classes else np.float64
    if values.dtype != kind or values.shape != (count,) or not np.isfinite(values).all():
        raise damaged(dataset, _VALUES, "a label of each edge")
    if classes and count and not 0 <= values.min() <= values.max() < len(classes):
        raise damaged(dataset, _VALUES, f"one of {len(classes)} classes")
    return EdgeLabels(name, str(document.get("label")), bool(document.get("directed")), tuple(classes), pairs, values,
                      splits)  # fmt: skip
