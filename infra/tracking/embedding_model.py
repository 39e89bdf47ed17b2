"""The served model: vectors of nodes, and nearest neighbours of nodes or vectors.

MLflow runs this file as it is ("models from code"), from inside the logged model, where this project is not installed:
it needs NumPy, pandas and MLflow only, and no pickle. It maps the bundle of stage `publish` into memory.

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
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.model import PythonModel, PythonModelContext
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
            k: at most so many.

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


class EmbeddingModel(PythonModel):
    """Answers questions about the nodes of one bundle."""

    def load_context(self, context: PythonModelContext) -> None:
        """Map the bundle that was logged with the model."""
        self.bundle = Bundle(Path(context.artifacts["bundle"]))

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Answer a table of questions; see the module's text.

        Raises:
            MlflowException: a node that is not in the bundle, a vector of another length, an unknown task.
        """
        given = params or {}
        task, k = given.get("task", TASKS[0]), int(given.get("k", 10))
        if task not in TASKS:
            raise _bad(f"unknown task {task!r}: give one of {', '.join(TASKS)}")
        if k < 1:
            raise _bad(f"k is {k}: ask for 1 neighbour or more")
        nodes, rows, vectors = self._questions(model_input)
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
            raise _bad("a request needs a column `node` or a column `vector`")
        named = list(table["node"]) if "node" in table else [None] * count
        spelt = list(table["vector"]) if "vector" in table else [None] * count
        nodes: list[str | None] = []
        rows = np.full(count, -1, dtype=np.int64)
        vectors = np.empty((count, d), dtype=np.float32)
        for number, (node, vector) in enumerate(zip(named, spelt, strict=True)):
            absent = node is None or (isinstance(node, float) and np.isnan(node))
            bare = vector is None or np.isscalar(vector)
            if absent == bare:
                raise _bad(f"question {number} needs either a `node` or a `vector`")
            if not absent:
                row = self.bundle.row(str(node))
                if row is None:
                    raise _bad(f"node {str(node)!r} is not among the {len(self.bundle)} embedded nodes")
                nodes.append(str(node))
                rows[number], vectors[number] = row, self.bundle.vectors[row]
            else:
                values = np.asarray(vector, dtype=np.float32)
                if values.shape != (d,) or not np.isfinite(values).all():
                    raise _bad(f"the vector of question {number} must be {d} finite numbers, not {values.shape}")
                nodes.append(None)
                vectors[number] = values
        return nodes, rows, vectors


def _bad(message: str) -> MlflowException:
    error: MlflowException = MlflowException.invalid_parameter_value(message)
    return error


mlflow.models.set_model(EmbeddingModel())
