"""Nodes of a bundle by their names, and values of requests and answers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def mapped(folder: Path, name: str) -> NDArray[Any]:
    """An array of a bundle, by its name without the ending."""
    values: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    return values


class Names:
    """The nodes of a bundle, by bisection.

    Args:
        folder: of the bundle.
        prefix: of the files' names.
        kind: kind of nodes that error messages name.
    """

    def __init__(self, folder: Path, prefix: str = "", kind: str = "nodes"):
        self._text, self._offsets = mapped(folder, f"{prefix}nodes"), mapped(folder, f"{prefix}node_offsets")
        self._order = mapped(folder, "node_order") if (folder / "node_order.npy").exists() else None
        self._kind = kind

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> str:
        return self._bytes(row).decode("utf-8")

    def _bytes(self, row: int) -> bytes:
        return self._text[self._offsets[row] : self._offsets[row + 1]].tobytes()

    def _row_of(self, place: int) -> int:
        """Row of the node at a place in the order of bytes."""
        return place if self._order is None else int(self._order[place])

    def row(self, node: str) -> int:
        """Row of a node.

        Raises:
            ValueError: it is not there.
        """
        wanted = node.encode("utf-8")
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._bytes(self._row_of(middle)) < wanted:
                low = middle + 1
            else:
                high = middle
        if low == len(self) or self._bytes(self._row_of(low)) != wanted:
            raise ValueError(f"node {node!r} is not among the {len(self)} {self._kind}")
        return self._row_of(low)


def name_of(value: Any) -> str | None:
    """Name of a node as the graph's files have it; None for a missing value.

    pandas turns whole numbers into fractions where a column has missing values: 42.0 is the node 42.
    """
    if is_missing(value):
        return None
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def is_missing(value: Any) -> bool:
    """True if a row of a request has no value in a column."""
    return value is None or value is pd.NA or (isinstance(value, (float, np.floating)) and bool(np.isnan(value)))


def answer_column(values: Iterable[Any]) -> pd.Series:
    """A column in which None stays None: pandas would make it NaN among numbers, which JSON does not have."""
    listed = list(values)
    return pd.Series(listed, dtype=object if None in listed else None)
