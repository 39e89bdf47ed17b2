"""The served model: the predicted class of a node, and how probable it is.

This file is kept with a registered model and runs where this project is not installed: it needs NumPy and pandas
only. It maps the bundle of stage `publish_predictions` into memory.

A request is a table with a column `node` (text), one row per question:

    curl -H 'Content-Type: application/json' http://HOST:PORT/invocations -d '{"dataframe_records": [{"node": "42"}]}'

The answer has one row per question: `node`, `predicted`, `probability`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


class PredictionModel:
    """Answers questions about the nodes of one bundle.

    Args:
        folder: holds the files that stage `publish_predictions` wrote.
    """

    def __init__(self, folder: Path):
        self.facts: dict[str, Any] = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
        self._text = self._map(folder, "nodes")
        self._offsets = self._map(folder, "node_offsets")
        self._classes = self._map(folder, "classes")
        self._probabilities = self._map(folder, "probabilities")

    @staticmethod
    def _map(folder: Path, name: str) -> NDArray[Any]:
        values: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return values

    def __len__(self) -> int:
        return len(self._classes)

    def _bytes(self, row: int) -> bytes:
        return self._text[self._offsets[row] : self._offsets[row + 1]].tobytes()

    def row(self, node: str) -> int | None:
        """Row of a node, by bisection; None when it is not there."""
        wanted = node.encode("utf-8")
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._bytes(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self._bytes(low) == wanted else None

    def predict(self, table: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
        """Answer a table of questions; see the module's text.

        Raises:
            ValueError: there is no column `node`, or a node is not in the bundle.
        """
        if "node" not in table:
            raise ValueError("a request needs a column `node`")
        nodes = [str(node) for node in table["node"]]
        rows = []
        for node in nodes:
            row = self.row(node)
            if row is None:
                raise ValueError(f"node {node!r} is not among the {len(self)} nodes")
            rows.append(row)
        names = self.facts["classes"]
        return pd.DataFrame({
            "node": nodes,
            "predicted": [names[self._classes[row]] for row in rows],
            "probability": [float(self._probabilities[row]) for row in rows],
        })  # fmt: skip


def load(folder: Path) -> PredictionModel:
    """The model of a bundle."""
    return PredictionModel(folder)
