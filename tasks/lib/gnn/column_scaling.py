"""Values of features by a scaling, and back. Graphs and networks record it as a document; see `NetworkConfig`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

NONE, ROW, STANDARD, QUANTILE, PIECEWISE = KINDS = ("none", "row", "standard", "quantile", "piecewise")
SCALING_PARTS = ("kind", "mean", "scale", "knots", "scores", "center", "fill")
"""Names in a scaling's document, which may lack those that its kind does not need."""
_ROUNDING = 1e-6
Columns = Sequence[tuple[str, int]]


def scaled(values: NDArray[np.floating[Any]], scaling: Mapping[str, Any]) -> NDArray[np.floating[Any]]:
    """Values of edges or nodes [items, columns] as a scaling makes them, float32; themselves for `none`.

    With `piecewise` a column that has k + 1 knots becomes k values: 0 before an interval of these, 1 behind it, and its
    share in between (Gorishniy et al., NeurIPS 2022), of which `center` is subtracted.
    """
    kind = scaling["kind"]
    if kind == ROW:
        sums = np.abs(values).sum(axis=1, keepdims=True)
        return np.asarray(values / np.where(sums > 0, sums, 1), np.float32)
    if kind not in (STANDARD, QUANTILE, PIECEWISE):
        return values
    wide = (values - np.array(scaling["mean"])) / np.array(scaling["scale"])
    if kind == PIECEWISE:
        parts = [wide[:, [column]] if not knots else shares_of(values[:, column], knots)
                 for column, knots in enumerate(scaling["knots"])]  # fmt: skip
        return np.asarray(np.concatenate(parts, axis=1) - np.array(scaling["center"]), np.float32)
    for column, (knots, scores) in _curves(scaling).items():
        wide[:, column] = np.interp(values[:, column], knots, scores)
    return np.asarray(wide, np.float32)


def unscaled(values: NDArray[np.floating[Any]], scaling: Mapping[str, Any]) -> NDArray[np.float64]:
    """Values [items, columns] before a scaling of columns; those of `row` and `none` as they are."""
    wide = values.astype(np.float64)
    if scaling["kind"] == PIECEWISE:
        wide += np.array(scaling["center"])
        rounded = np.round(wide)
        wide = np.where(np.abs(wide - rounded) < _ROUNDING, rounded, wide)  # exact in intervals much wider than others
        parts = np.split(wide, np.cumsum(_sizes(scaling["knots"]))[:-1], axis=1)
        columns = zip(parts, *(scaling[name] for name in ("knots", "mean", "scale")), strict=True)
        return np.stack([part @ np.diff(knots) + knots[0] if knots else part[:, 0] * scale + mean
                         for part, knots, mean, scale in columns], axis=1)  # fmt: skip
    if scaling["kind"] in (STANDARD, QUANTILE):
        wide = wide * np.array(scaling["scale"]) + np.array(scaling["mean"])
        for column, (knots, scores) in _curves(scaling).items():
            wide[:, column] = np.interp(values[:, column], scores, knots)
    return wide


def width_of(scaling: Mapping[str, Any], columns: int) -> int:
    """Number of scaled values of an item, from its number of columns."""
    return sum(_sizes(scaling["knots"])) if scaling["kind"] == PIECEWISE else columns


def scaled_widths(widths: Iterable[int], scaling: Mapping[str, Any]) -> list[int]:
    """Numbers of scaled values of the columns of a table, each of which has some numbers."""
    if scaling["kind"] != PIECEWISE:
        return list(widths)
    sizes, ends = _sizes(scaling["knots"]), np.cumsum([0, *widths])
    return [sum(sizes[begin:end]) for begin, end in pairwise(ends)]


def unscaled_columns(columns: Columns, scaling: Mapping[str, Any] | None) -> tuple[tuple[str, int], ...]:
    """Names and numbers of the columns of a table, of those of scaled values."""
    if scaling is None or scaling["kind"] != PIECEWISE:
        return tuple((name, width) for name, width in columns)
    found, number = list[tuple[str, int]](), 0
    for name, width in columns:
        found.append((name, 1 if scaling["knots"][number] else width))
        number += found[-1][1]
    return tuple(found)


def shares_of(column: NDArray[np.floating[Any]], knots: Sequence[float]) -> NDArray[np.floating[Any]]:
    """Places of a column's values in each interval between knots, 0 to 1, [items, intervals]."""
    edges = np.array(knots)
    found: NDArray[np.floating[Any]] = np.clip((column[:, None] - edges[:-1]) / np.diff(edges), 0, 1)
    return found


def _sizes(knots: Iterable[Sequence[float]]) -> list[int]:
    return [max(1, len(each) - 1) for each in knots]


def _curves(scaling: Mapping[str, Any]) -> dict[int, tuple[list[float], list[float]]]:
    """Knots and scores of each column that has some; see `heterograph.scaling`."""
    both = zip(scaling.get("knots", ()), scaling.get("scores", ()), strict=True)
    return {column: (knots, scores) for column, (knots, scores) in enumerate(both) if knots}
