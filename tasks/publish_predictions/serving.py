"""The served model: the predicted class of a node, or of two nodes how probable a link between them is.

This file is kept with a registered model and runs where this project is not installed: it needs NumPy and pandas
only. It maps the bundle of stage `publish_predictions` into memory.

A request is a table with a column `node` (text), one row per question; to a model of links `source` and `target`:

    curl -H 'Content-Type: application/json' http://HOST:PORT/invocations -d '{"dataframe_records": [{"node": "42"}]}'

The answer has one row per question: `node`, `predicted`, `probability`, which are lists where nodes have several
classes; of links `source`, `target`, `score`, `probability`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def _map(folder: Path, name: str) -> NDArray[Any]:
    values: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    return values


class Names:
    """The nodes of a bundle, by bisection.

    Args:
        folder: of the bundle.
        prefix: of the files' names.
    """

    def __init__(self, folder: Path, prefix: str = ""):
        self._text, self._offsets = _map(folder, f"{prefix}nodes"), _map(folder, f"{prefix}node_offsets")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def _bytes(self, row: int) -> bytes:
        return self._text[self._offsets[row] : self._offsets[row + 1]].tobytes()

    def rows(self, table: pd.DataFrame, column: str) -> tuple[list[str], list[int]]:
        """Nodes of a request, and their rows.

        Raises:
            ValueError: there is no such column, or a node is not in the bundle.
        """
        if column not in table:
            raise ValueError(f"a request needs a column `{column}`")
        nodes = [str(node) for node in table[column]]
        return nodes, [self.row(node) for node in nodes]

    def row(self, node: str) -> int:
        """Row of a node.

        Raises:
            ValueError: it is not there.
        """
        wanted = node.encode("utf-8")
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._bytes(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        if low == len(self) or self._bytes(low) != wanted:
            raise ValueError(f"node {node!r} is not among the {len(self)} nodes")
        return low


class PredictionModel:
    """Answers questions about the nodes of one bundle.

    Args:
        folder: holds the files that stage `publish_predictions` wrote.
        facts: what its `bundle.json` says.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        self.facts, self.names = facts, Names(folder)
        self._classes, self._probabilities = _map(folder, "classes"), _map(folder, "probabilities")
        self._offsets = _map(folder, "class_offsets") if (folder / "class_offsets.npy").exists() else None

    def predict(self, table: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
        """Answer a table of questions; see the module's text.

        Raises:
            ValueError: there is no column `node`, or a node is not in the bundle.
        """
        nodes, rows = self.names.rows(table, "node")
        classes = self.facts["classes"]
        if self._offsets is not None:
            spans = [range(self._offsets[row], self._offsets[row + 1]) for row in rows]
            return pd.DataFrame({
                "node": nodes,
                "predicted": [[classes[self._classes[entry]] for entry in span] for span in spans],
                "probability": [[float(self._probabilities[entry]) for entry in span] for span in spans],
            })  # fmt: skip
        return pd.DataFrame({
            "node": nodes,
            "predicted": [classes[self._classes[row]] for row in rows],
            "probability": [float(self._probabilities[row]) for row in rows],
        })  # fmt: skip


class LinkModel:
    """Answers how probable links are between nodes of one bundle; see `PredictionModel`."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        self.facts, self.sources = facts, Names(folder)
        prefix = "target_" if (folder / "target_nodes.npy").exists() else ""
        self.targets = Names(folder, prefix)
        self._vectors, self._target_vectors = _map(folder, "vectors"), _map(folder, f"{prefix}vectors")
        self._factors = _map(folder, "factors")

    def predict(self, table: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
        """Answer a table of questions; see the module's text.

        Raises:
            ValueError: a column is missing, or a node is not in the bundle.
        """
        sources, rows = self.sources.rows(table, "source")
        targets, others = self.targets.rows(table, "target")
        scores = (self._vectors[rows] * self._factors * self._target_vectors[others]).sum(axis=1)
        probabilities = 0.5 * (1 + np.tanh(scores / 2))
        return pd.DataFrame({"source": sources, "target": targets, "score": scores, "probability": probabilities})


def load(folder: Path) -> PredictionModel | LinkModel:
    """The model of a bundle."""
    facts = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
    return LinkModel(folder, facts) if facts.get("task") == "link_prediction" else PredictionModel(folder, facts)
