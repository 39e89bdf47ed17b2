"""Scaling of node features: by rows for bags of words, by columns for numbers of any other scale.

`auto` decides by all values, once:

- `row`, where no value is negative, at least half of them are zero, no column is other than zero in more than 9 of 10
  nodes, and the rows do not sum to about 1 as it is: each row is divided by the sum of its absolute values.
- by columns, where one that is not of 0 and 1 alone has a mean beyond ±3, or a standard deviation above 3 or below 1/3:
  `piecewise` from `NODES_A_BIN * LEAST_BINS` nodes on, `quantile` from `_MANY` on, else `standard`.
- `none` otherwise.

`standard` subtracts the mean of each column, and divides it by the standard deviation over all nodes; if all nodes have
one value only the mean is subtracted. With `auto` columns of 0 and 1 stay. The others do this to columns of lists, and
more to single numbers, so that a few large values do not press all others together, and values that many nodes have lie
apart. `quantile` makes normal scores of ranks (van der Waerden; the mean of the ranks where values are equal, over
`_KNOTS` quantiles, linear in between), with mean 0 and deviation 1. `piecewise` makes several values of each number, by
which a network learns a curve of it: its place in each interval between quantiles (Gorishniy et al., NeurIPS 2022; see
`column_scaling.scaled`), one interval for `NODES_A_BIN` nodes, 16 to 32, or between all different values if these are
fewer. Tables of more single numbers, or of more bytes of intervals, than `bins` has have `quantile` instead.

Sums are in float64 in the order of nodes, so that they do not depend on threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from superworkflow.tasks.heterograph.bins import bins_of, may_widen
from superworkflow.tasks.lib.gnn.column_scaling import NONE, PIECEWISE, QUANTILE, ROW, STANDARD, scaled, shares_of
from superworkflow.tasks.lib.kernels.huge_pages import rows_of_pieces

AUTO = "auto"
_MEAN, _LARGEST, _SMALLEST = 3.0, 3.0, 1 / 3
_ZEROS, _COMMON, _NORMED, _CLOSE = 0.5, 0.9, 0.99, 0.01
_MANY, _KNOTS = 1000, 256
_SAMPLE, _MOST_CURVES = 1 << 17, 256
"""Nodes of which quantiles are taken, evenly over all of them; and columns that have curves, which networks record."""


class Scaling(NamedTuple):
    """A scaling of columns.

    Args:
        kind: one of `column_scaling.KINDS`.
        mean, scale: for all but `none` and `row` what is subtracted from each column and divides it, float64 [columns];
            else empty.
        fill: what stands for missing values of each column before scaling, its mean where `fit` makes it, float64
            [columns]; empty if it is not recorded.
        knots: for `quantile` and `piecewise` values of each column, rising; empty for columns that have `mean` and
            `scale`.
        scores: for `quantile` what becomes of these, linear in between and constant beyond.
        center: for `piecewise` mean of each value that is made, which is subtracted; see `column_scaling.scaled`.
    """

    kind: str
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    fill: NDArray[np.float64]
    knots: Sequence[Sequence[float]] = ()
    scores: Sequence[Sequence[float]] = ()
    center: Sequence[float] = ()

    def apply(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Scale rows, [nodes, columns]."""
        return scaled(values.astype(np.float64), self._asdict()).astype(np.float32, copy=False)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Scaling:
        """The scaling of a document; see `document`."""
        mean, scale, fill = (np.array(document.get(name, ()), np.float64) for name in ("mean", "scale", "fill"))
        curves = (document.get(name, ()) for name in ("knots", "scores", "center"))
        return cls(str(document["kind"]), mean, scale, fill, *curves)

    def fits(self, width: int) -> bool:
        """True if it can be that of a table of this width."""
        return {len(self.mean), len(self.fill)} <= {0, width}

    def document(self) -> dict[str, Any]:
        """Values by which it is applied to new nodes, or to edges, JSON."""
        return {
            name: np.array(each).tolist() if name in ("mean", "scale", "fill") else each
            for name, each in self._asdict().items()
        }


def fit(values: NDArray[Any], wanted: str, widths: Sequence[int], widens: bool = True) -> Scaling:
    """The scaling that is wanted, or that values ask for.

    Args:
        values: finite numbers, [nodes, columns].
        wanted: `auto`, or one of `column_scaling.KINDS`.
        widths: numbers of which each column of the table has become, in order: 1 for a single number.
        widens: `auto` may be `piecewise`.
    """
    none, (nodes, width) = np.empty(0), values.shape
    if wanted in (NONE, ROW):
        return Scaling(wanted, none, none, sum(piece.sum(axis=0) for piece in _pieces(values)) / nodes)
    total, filled, normed = np.zeros(width), np.zeros(width, np.int64), 0
    binary, low, high = np.ones(width, bool), np.full(width, np.inf), np.full(width, -np.inf)
    for piece in _pieces(values):
        total += piece.sum(axis=0)
        filled += np.count_nonzero(piece, axis=0)
        low, high = np.minimum(low, piece.min(axis=0)), np.maximum(high, piece.max(axis=0))
        binary &= ((piece == 0) | (piece == 1)).all(axis=0)
        sums = piece.sum(axis=1)
        normed += int(np.count_nonzero((np.abs(sums - 1) <= _CLOSE) | (sums == 0)))
    mean = total / nodes
    if wanted == AUTO and low.min() >= 0 and filled.sum() <= (1 - _ZEROS) * values.size:
        if normed >= _NORMED * nodes:
            return Scaling(NONE, none, none, mean)
        if width > 1 and filled.max() <= _COMMON * nodes:
            return Scaling(ROW, none, none, mean)
    squares = np.zeros(width)
    for piece in _pieces(values):
        squares += np.square(piece - mean).sum(axis=0)
    center, deviation = mean, np.sqrt(squares / nodes)
    varies = deviation > 1e-7 * np.abs(mean)
    if wanted == AUTO:
        asks = (np.abs(mean) > _MEAN) | (deviation > _LARGEST) | (varies & (deviation < _SMALLEST))
        if not (asks & ~binary).any():
            return Scaling(NONE, none, none, mean)
        center, deviation = np.where(binary, 0, mean), np.where(binary, 1, deviation)
    found = Scaling(STANDARD, center, np.where(varies, deviation, 1), mean)
    if wanted == STANDARD or (wanted == AUTO and nodes < _MANY):
        return found
    single = np.repeat(np.array(widths) == 1, widths) & varies & ~binary
    if not 0 < np.count_nonzero(single) <= _MOST_CURVES:
        return found
    step = -(-nodes // _SAMPLE)
    ends = np.stack([low, high])[: 2 * (step > 1)]  # they may not be in the sample
    rows = np.concatenate([values[::step][:, single], ends[:, single]])
    columns = iter(rows.T.astype(np.float64))
    sample = [next(columns) if each else np.empty(0) for each in single]
    widens = widens and may_widen(nodes, wanted, widths.count(1))
    if widens and (bins := bins_of(nodes, wanted, int(single.sum()))):
        knots = [_edges(each, bins) for each in sample]
        both = zip(sample, knots, strict=True)
        center = [shares_of(column, each).mean(axis=0) if each else np.zeros(1) for column, each in both]
        return found._replace(kind=PIECEWISE, knots=knots, center=np.concatenate(center).tolist())
    curves = [_curve(each) for each in sample]
    return found._replace(kind=QUANTILE, knots=[each for each, _ in curves], scores=[each for _, each in curves])


def _curve(column: NDArray[Any]) -> tuple[list[float], list[float]]:
    """Knots and scores of a column, from values of nodes."""
    different, counts = np.unique(column, return_counts=True)
    if len(different) < 2:
        return [], []
    shares = (np.cumsum(counts) - counts / 2) / len(column)
    scores = ndtri(shares)
    if len(different) > _KNOTS:
        kept = np.unique(np.searchsorted(shares, np.linspace(shares[0], shares[-1], _KNOTS)))
        scores = np.interp(different, different[kept], scores[kept])
    else:
        kept = np.arange(len(different))
    center = np.average(scores, weights=counts)
    deviation = np.sqrt(np.average(np.square(scores - center), weights=counts))
    return different[kept].tolist(), ((scores - center) / deviation)[kept].tolist()


def _edges(column: NDArray[Any], bins: int) -> list[float]:
    """Knots between which a column's nodes are even, or all of its different values; none if these are less than 3."""
    found = np.unique(column)
    if len(found) > bins + 1:
        found = np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)))
    return found.tolist() if len(found) > 2 else []


def _pieces(values: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    for rows in rows_of_pieces(values):
        yield values[rows].astype(np.float64)
