"""Correction of a link's score by the short paths between its nodes; see stage `correct_links`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .names import mapped

Nodes = NDArray[np.int64]


class PathCorrection:
    """Corrects scores by all links of the graph, those that were held out from training too.

    Args:
        folder: of the bundle; `link_indptr.npy` and `link_indices.npy` are the neighbours of its nodes, those of two
            sets one after the other.
        weights: by the names of `lib.gnn.link_scores.LinkCorrection`; `shift`, the number of the first target, and
            `relations`, the numbers of the edge sets of these links.
    """

    def __init__(self, folder: Path, weights: Mapping[str, Any]):
        self._indptr, self._indices = mapped(folder, "link_indptr"), mapped(folder, "link_indices")
        self._weights = weights

    def corrected(self, score: float, rows: Sequence[int], neighbors: Sequence[Mapping[int, list[int]]]) -> float:
        """The corrected score.

        Args:
            score: of the network.
            rows: of the source among the sources, and of the target among the targets; below 0 of new nodes.
            neighbors: of new nodes the rows of their neighbours, by edge set.
        """
        by, shift = self._weights, self._weights["shift"]
        numbers = [row if row < 0 else row + side * shift for side, row in enumerate(rows)]
        ends = [
            self._of(number) if number >= 0 else self._of_new(near, (1 - side) * shift)
            for side, (number, near) in enumerate(zip(numbers, neighbors, strict=True))
        ]
        two, three = self._worth(ends, numbers)
        return float(
            by["network"] * score + by["constant"] + by["degrees"] * sum(np.log1p(len(each)) for each in ends)
            + by["two"] * np.log1p(two / by["unit_two"]) + by["three"] * np.log1p(three / by["unit_three"])
        )  # fmt: skip

    def _of(self, number: int) -> Nodes:
        """Neighbours of a node, ascending."""
        return self._indices[self._indptr[number] : self._indptr[number + 1]].astype(np.int64)

    def _of_new(self, neighbors: Mapping[int, list[int]], shift: int) -> Nodes:
        rows = [row for number in self._weights["relations"] for row in neighbors.get(number, ())]
        return np.unique(np.array(rows, np.int64)) + shift

    def _worth(self, ends: list[Nodes], numbers: list[int]) -> tuple[float, float]:
        """Worth of the paths of two edges, and of three, whose inner nodes are no ends."""
        (near, end), (far, other) = sorted(
            zip(ends, numbers, strict=True), key=lambda each: int(self._degrees(each[0]).sum())
        )
        two = float((1 / self._degrees(np.intersect1d(near, far, assume_unique=True))).sum())
        far = far[far != end]
        if not len(far):
            return two, 0.0
        near = near[near != other]
        degrees = self._degrees(near)
        starts = np.repeat(self._indptr[near] - (np.cumsum(degrees) - degrees), degrees)
        onward = self._indices[starts + np.arange(degrees.sum())]
        places = np.minimum(np.searchsorted(far, onward), len(far) - 1)
        linked = far[places] == onward
        inner = np.repeat(degrees, degrees)[linked]
        return two, float((1 / (inner * self._degrees(onward[linked]))).sum())

    def _degrees(self, nodes: Nodes) -> Nodes:
        found: Nodes = self._indptr[nodes + 1] - self._indptr[nodes]
        return found
