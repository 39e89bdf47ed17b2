"""Labels of nodes: the table in memory, and the files of a label dataset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks.lib.graph.integrity import check_labels


@dataclass(frozen=True)
class Labels:
    """Labels of nodes.

    Args:
        vertices: int64 `[n]`, vertex ids of the labelled nodes, ascending.
        offsets: int64 `[n + 1]`, where the labels of each begin and end in `kinds`; each has at least one.
        kinds: int32 `[offsets[n]]`, numbers of labels, ascending for each node.
        names: names of the labels by their number.
    """

    vertices: NDArray[np.int64]
    offsets: NDArray[np.int64]
    kinds: NDArray[np.int32]
    names: list[str]

    @cached_property
    def matrix(self) -> NDArray[np.bool_]:
        """bool `[n, len(names)]`."""
        matrix = np.zeros((len(self.vertices), len(self.names)), dtype=bool)
        matrix[np.repeat(np.arange(len(self.vertices)), np.diff(self.offsets)), self.kinds] = True
        return matrix


def write_labels(output: DatasetWriter, labels: Labels) -> None:
    """Write the files of a label dataset."""
    output.array("vertices.npy", labels.vertices)
    output.array("offsets.npy", labels.offsets)
    output.array("kinds.npy", labels.kinds)
    output.json("names.json", labels.names)


def open_labels(dataset: Dataset, graph: Dataset, vertices: int) -> Labels:
    """The labels of a label dataset, checked against the index dataset that they are used with, of `vertices` nodes.

    Raises:
        UserError: they are labels of another graph.
        DatasetDamaged: the files do not fit each other.
    """
    matched = dataset.manifest.inputs.get("graph")
    if matched is not None and matched.digest != graph.digest:
        raise UserError(
            "these labels were matched with the nodes of another graph", where=dataset.uri, value=matched.digest,
            remedy=f"Give the graph that they were matched with, or run the label stage for {graph.uri}",
        )  # fmt: skip
    labelled, offsets, kinds = (dataset.array(f"{name}.npy", mmap=False) for name in ("vertices", "offsets", "kinds"))
    found = Labels(labelled, offsets, kinds, dataset.json("names.json"))
    check_labels(dataset.uri, found.vertices, found.offsets, found.kinds, found.names, vertices)
    return found
