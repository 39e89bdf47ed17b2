"""Scaling of node features: by rows for bags of words, by columns for numbers of any other scale.

`auto` decides by all values, once:

- `row`, where no value is negative, at least half of them are zero, no column is other than zero in more than 9 of 10
  nodes, and the rows do not sum to about 1 as it is: each row is divided by the sum of its absolute values.
- `standard`, where a column that is not of 0 and 1 alone has a mean beyond ±3, or a standard deviation above 3 or below
  1/3: of each such column the mean is subtracted, then it is divided by the standard deviation over all nodes. If all
  nodes have one value only the mean is subtracted. Columns of 0 and 1 stay; if `standard` is set, they do not.
- `none` otherwise.

Sums are in float64 in the order of nodes, so that they do not depend on threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.huge_pages import rows_of_pieces

AUTO, NONE, ROW, STANDARD = "auto", "none", "row", "standard"
_MEAN, _LARGEST, _SMALLEST = 3.0, 3.0, 1 / 3
_ZEROS, _COMMON, _NORMED, _CLOSE = 0.5, 0.9, 0.99, 0.01


class Scaling(NamedTuple):
    """A scaling of columns.

    Args:
        kind: `none`, `row` or `standard`.
        mean, scale: for `standard` what is subtracted from each column and divides it, float64 [columns]; else empty.
        fill: mean of each column before scaling, which stands for missing values, float64 [columns]; empty if it is not
            recorded.
    """

    kind: str
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    fill: NDArray[np.float64]

    def apply(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Scale rows, [nodes, columns]."""
        wide = values.astype(np.float64)
        if self.kind == ROW:
            sums = np.abs(wide).sum(axis=1, keepdims=True)
            wide /= np.where(sums > 0, sums, 1)
        elif self.kind == STANDARD:
            wide -= self.mean
            wide /= self.scale
        return wide.astype(np.float32)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Scaling:
        """The scaling of a document; see `document`."""
        arrays = (np.array(document.get(name, ()), np.float64) for name in ("mean", "scale", "fill"))
        return cls(str(document["kind"]), *arrays)

    def document(self, columns: list[dict[str, Any]]) -> dict[str, Any]:
        """Values by which it is applied to new nodes, for `scaling.json`.

        Args:
            columns: of the table, with `name`, `kind`, `width` and `values`, the categories.
        """
        arrays = {"mean": self.mean, "scale": self.scale, "fill": self.fill}
        return {"kind": self.kind, "columns": columns, **{name: each.tolist() for name, each in arrays.items()}}


def fit(values: NDArray[Any], wanted: str) -> Scaling:
    """The scaling that is wanted, or that values ask for.

    Args:
        values: finite numbers, [nodes, columns].
        wanted: `auto`, `none`, `row` or `standard`.
    """
    none, (nodes, width) = np.empty(0), values.shape
    if wanted in (NONE, ROW):
        return Scaling(wanted, none, none, sum(piece.sum(axis=0) for piece in _pieces(values)) / nodes)
    total, filled, negative, normed = np.zeros(width), np.zeros(width, np.int64), False, 0
    binary = np.ones(width, bool)
    for piece in _pieces(values):
        total += piece.sum(axis=0)
        filled += np.count_nonzero(piece, axis=0)
        negative |= bool((piece < 0).any())
        binary &= ((piece == 0) | (piece == 1)).all(axis=0)
        sums = piece.sum(axis=1)
        normed += int(np.count_nonzero((np.abs(sums - 1) <= _CLOSE) | (sums == 0)))
    mean = total / nodes
    if wanted == AUTO and not negative and filled.sum() <= (1 - _ZEROS) * values.size:
        if normed >= _NORMED * nodes:
            return Scaling(NONE, none, none, mean)
        if width > 1 and filled.max() <= _COMMON * nodes:
            return Scaling(ROW, none, none, mean)
    squares = np.zeros(width)
    for piece in _pieces(values):
        squares += np.square(piece - mean).sum(axis=0)
    center, deviation = mean, np.sqrt(squares / nodes)
    if wanted == AUTO:
        varies = deviation > 1e-7 * np.abs(mean)
        asks = (np.abs(mean) > _MEAN) | (deviation > _LARGEST) | (varies & (deviation < _SMALLEST))
        if not (asks & ~binary).any():
            return Scaling(NONE, none, none, mean)
        center, deviation = np.where(binary, 0, mean), np.where(binary, 1, deviation)
    return Scaling(STANDARD, center, np.where(deviation > 1e-7 * np.abs(mean), deviation, 1), mean)


def _pieces(values: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    for rows in rows_of_pieces(values):
        yield values[rows].astype(np.float64)
