"""Values of features by a scaling, and back. Graphs and networks record it as a document; see `NetworkConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

NONE, ROW, STANDARD, QUANTILE = KINDS = ("none", "row", "standard", "quantile")
SCALING_PARTS = ("kind", "mean", "scale", "knots", "scores", "fill")
"""Names in a scaling's document, which may lack those that its kind does not need."""


def scaled(values: NDArray[np.floating[Any]], scaling: Mapping[str, Any]) -> NDArray[np.floating[Any]]:
    """Values of edges or nodes [items, columns] as a scaling makes them, float32; themselves for `none`."""
    kind = scaling["kind"]
    if kind == ROW:
        sums = np.abs(values).sum(axis=1, keepdims=True)
        return np.asarray(values / np.where(sums > 0, sums, 1), np.float32)
    if kind not in (STANDARD, QUANTILE):
        return values
    wide = (values - np.array(scaling["mean"])) / np.array(scaling["scale"])
    for column, (knots, scores) in _curves(scaling).items():
        wide[:, column] = np.interp(values[:, column], knots, scores)
    return np.asarray(wide, np.float32)


def unscaled(values: NDArray[np.floating[Any]], scaling: Mapping[str, Any]) -> NDArray[np.float64]:
    """Values [items, columns] before a scaling of columns; those of `row` and `none` as they are."""
    wide = values.astype(np.float64)
    if scaling["kind"] in (STANDARD, QUANTILE):
        wide = wide * np.array(scaling["scale"]) + np.array(scaling["mean"])
        for column, (knots, scores) in _curves(scaling).items():
            wide[:, column] = np.interp(values[:, column], scores, knots)
    return wide


def _curves(scaling: Mapping[str, Any]) -> dict[int, tuple[list[float], list[float]]]:
    """Knots and scores of each column that has some; see `heterograph.scaling`."""
    both = zip(scaling.get("knots", ()), scaling.get("scores", ()), strict=True)
    return {column: (knots, scores) for column, (knots, scores) in enumerate(both) if knots}
