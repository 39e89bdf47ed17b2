"""The served model: vectors of nodes, and nearest neighbours of nodes or vectors.

This file is kept with a registered model and runs where this project is not installed: it needs NumPy and pandas
only. It maps the bundle of stage `publish` into memory.

A request is a table with a column `node` (text) or `vector` (list of numbers), one row per question, and parameters:

| parameter | meaning |
| --- | --- |
| `task` | `vector`: the node's vector (default); `neighbors`: the most similar nodes |
| `k` | how many neighbours, 1 or more, 10 by default |

    curl -H 'Content-Type: application/json' http://HOST:PORT/invocations -d '
        {"dataframe_records": [{"node": "42"}], "params": {"task": "neighbors", "k": 5}}'

The answer has one row per question: `node` and `vector`, or `node`, `neighbors` and `scores`, best first. A node is not
its own neighbour. Scores are exact, by cosine or dot product as the bundle says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

TASKS = ("vector", "neighbors")
BLOCK_ROWS = 1 << 16
"""Rows scored at once; bounds the memory of a request to `BLOCK_ROWS` × questions."""

QUESTIONS_AT_ONCE = 256


class Bundle:
    """A published bundle, mapped into memory.

    Args:
        folder: holds the files that stage `publish` wrote.
    """

    def __init__(self, folder: Path):
        self.facts: dict[str, Any] = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
        self.vectors = self._map(folder, "vectors")
        self.norms = self._map(folder, "norms")
        self._text = self._map(folder, "nodes")
        self._offsets = self._map(folder, "node_offsets")
        self._order = self._map(folder, "node_order")

    @staticmethod
    def _map(folder: Path, name: str) -> NDArray[Any]:
        values: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return values

    def __len__(self) -> int:
        return len(self.norms)

    def _bytes(self, row: int) -> bytes:
        return self._text[self._offsets[row] : self._offsets[row + 1]].tobytes()

    def node(self, row: int) -> str:
        """Name of the node in a row."""
        return self._bytes(row).decode("utf-8")

    def row(self, node: str) -> int | None:
        """Row of a node, by bisection; None when it is not there."""
        wanted = node.encode("utf-8")
        low, high = 0, len(self._order)
        while low < high:
            middle = (low + high) // 2
            if self._bytes(self._order[middle]) < wanted:
                low = middle + 1
            else:
                high = middle
        if low < len(self._order) and self._bytes(self._order[low]) == wanted:
            return int(self._order[low])
        return None

    def neighbors(
        self, queries: NDArray[np.float32], own: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The k most similar rows to each query, best first; equal scores in row order.

        Args:
            queries: float32 `[m, d]`.
            own: `[m]`, the row to leave out for each query, -1 for none.
            k: most rows for each query.

        Returns:
            rows and scores, `[m, min(k, n)]`; places that cannot be filled hold row -1.
        """
        cosine = self.facts["metric"] == "cosine"
        if cosine:
            queries = queries / np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), _TINY)
        m, k = len(queries), min(k, len(self))
        best_rows = np.empty((m, 0), dtype=np.int64)
        best_scores = np.empty((m, 0), dtype=np.float32)
        for first in range(0, len(self), BLOCK_ROWS):
            block = np.asarray(self.vectors[first : first + BLOCK_ROWS])
            scores = queries @ block.T
            if cosine:
                scores /= np.maximum(self.norms[first : first + BLOCK_ROWS], _TINY)
            inside = np.flatnonzero((own >= first) & (own < first + len(block)))
            scores[inside, own[inside] - first] = -np.inf
            rows = _largest(scores, k)
            best_scores = np.hstack([best_scores, np.take_along_axis(scores, rows, axis=1)])
            best_rows = np.hstack([best_rows, rows + first])
            kept = _largest(best_scores, k)
            best_scores = np.take_along_axis(best_scores, kept, axis=1)
            best_rows = np.take_along_axis(best_rows, kept, axis=1)
        best_rows[np.isneginf(best_scores)] = -1
        return best_rows, best_scores


_TINY = np.finfo(np.float32).tiny


def _largest(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Columns of the k largest of each row, largest first, equal ones by column."""
    if k < scores.shape[1]:
        # Everything at or above the k-th largest, so that ties at the edge are settled by column.
        edge = -np.partition(-scores, k - 1, axis=1)[:, k - 1 : k]
        rows = [np.flatnonzero(row >= limit) for row, limit in zip(scores, edge, strict=True)]
        ordered = [found[np.argsort(-row[found], kind="stable")[:k]] for row, found in zip(scores, rows, strict=True)]
        return np.array(ordered, dtype=np.int64).reshape(len(scores), k)
    return np.argsort(-scores, axis=1, kind="stable")


class EmbeddingModel:
    """Answers questions about the nodes of one bundle."""

    def __init__(self, bundle: Bundle):
        self.bundle = bundle

    def predict(self, table: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
        """Answer a table of questions; see the module's text.

        Raises:
            ValueError: a node that is not in the bundle, a vector of another length, an unknown task.
        """
        task, k = options.get("task", TASKS[0]), int(options.get("k", 10))
        if task not in TASKS:
            raise ValueError(f"unknown task {task!r}: give one of {', '.join(TASKS)}")
        if k < 1:
            raise ValueError(f"k is {k}: ask for 1 neighbour or more")
        nodes, rows, vectors = self._questions(table)
        if task == "vector":
            return pd.DataFrame({"node": nodes, "vector": [row.tolist() for row in vectors]})
        neighbors: list[list[str]] = []
        scores: list[list[float]] = []
        for first in range(0, len(rows), QUESTIONS_AT_ONCE):
            part = slice(first, first + QUESTIONS_AT_ONCE)
            for found, similar in zip(*self.bundle.neighbors(vectors[part], rows[part], k), strict=True):
                neighbors.append([self.bundle.node(row) for row in found if row >= 0])
                scores.append([float(score) for score in similar[found >= 0]])
        return pd.DataFrame({"node": nodes, "neighbors": neighbors, "scores": scores})

    def _questions(self, table: pd.DataFrame) -> tuple[list[str | None], NDArray[np.int64], NDArray[np.float32]]:
        """Node, row (-1 for a bare vector) and vector of each question."""
        count, d = len(table), int(self.bundle.facts["dimensions"])
        if not {"node", "vector"} & set(table.columns):
            raise ValueError("a request needs a column `node` or a column `vector`")
        named = list(table["node"]) if "node" in table else [None] * count
        spelt = list(table["vector"]) if "vector" in table else [None] * count
        nodes: list[str | None] = []
        rows = np.full(count, -1, dtype=np.int64)
        vectors = np.empty((count, d), dtype=np.float32)
        for number, (node, vector) in enumerate(zip(named, spelt, strict=True)):
            absent = node is None or (isinstance(node, float) and np.isnan(node))
            bare = vector is None or np.isscalar(vector)
            if absent == bare:
                raise ValueError(f"question {number} needs either a `node` or a `vector`")
            if not absent:
                row = self.bundle.row(str(node))
                if row is None:
                    raise ValueError(f"node {str(node)!r} is not among the {len(self.bundle)} embedded nodes")
                nodes.append(str(node))
                rows[number], vectors[number] = row, self.bundle.vectors[row]
            else:
                values = np.asarray(vector, dtype=np.float32)
                if values.shape != (d,) or not np.isfinite(values).all():
                    raise ValueError(f"the vector of question {number} must be {d} finite numbers, not {values.shape}")
                nodes.append(None)
                vectors[number] = values
        return nodes, rows, vectors


def load(folder: Path) -> EmbeddingModel:
    """The model of a bundle."""
    return EmbeddingModel(Bundle(folder))
