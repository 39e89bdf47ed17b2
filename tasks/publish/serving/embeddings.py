"""The served model of embeddings: vectors of nodes, and the nodes of most similar vectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .names import Names, mapped, name_of

TASKS = ("vector", "neighbors")
BLOCK_ROWS = 1 << 16
"""Rows scored at once; bounds the memory of a request to `BLOCK_ROWS` × questions."""
QUESTIONS_AT_ONCE = 256
_TINY = np.finfo(np.float32).tiny


class EmbeddingModel:
    """Answers questions about the embeddings of one bundle.

    Args:
        folder: holds the files that stage `publish` wrote.
        facts: content of its `bundle.json`.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        self.facts, self.names = facts, Names(folder, kind="embedded nodes")
        self.vectors, self.norms = mapped(folder, "vectors"), mapped(folder, "norms")

    def predict(self, table: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
        """Answer a table of questions; see the module's text.

        Raises:
            ValueError: a row with both or neither of the columns, a vector of another length, an unknown task.
        """
        task, k = options.get("task", TASKS[0]), int(options.get("k", 10))
        if task not in TASKS:
            raise ValueError(f"unknown task {task!r}: give one of {', '.join(TASKS)}")
        if k < 1:
            raise ValueError(f"k is {k}: ask for 1 neighbour or more")
        nodes, rows, vectors, errors = self._questions(table)
        if task == "vector":
            answers = [None if error else row.tolist() for row, error in zip(vectors, errors, strict=True)]
            return pd.DataFrame({"node": nodes, "vector": answers, "error": errors})
        neighbors: list[list[str] | None] = [None] * len(rows)
        scores: list[list[float] | None] = [None] * len(rows)
        answered = np.flatnonzero([not error for error in errors])
        for first in range(0, len(answered), QUESTIONS_AT_ONCE):
            part = answered[first : first + QUESTIONS_AT_ONCE]
            for i, found, similar in zip(part, *self.neighbors(vectors[part], rows[part], k), strict=True):
                neighbors[i] = [self.names[row] for row in found if row >= 0]
                scores[i] = [float(score) for score in similar[found >= 0]]
        return pd.DataFrame({"node": nodes, "neighbors": neighbors, "scores": scores, "error": errors})

    def _questions(
        self, table: pd.DataFrame
    ) -> tuple[list[str | None], NDArray[np.int64], NDArray[np.float32], list[str]]:
        """Node, row (-1 for a bare vector), vector and error of each question."""
        count, d = len(table), int(self.facts["dimensions"])
        if not {"node", "vector"} & set(table.columns):
            raise ValueError("a request needs a column `node` or a column `vector`")
        named = list(table["node"]) if "node" in table else [None] * count
        spelt = list(table["vector"]) if "vector" in table else [None] * count
        nodes: list[str | None] = []
        errors = [""] * count
        rows = np.full(count, -1, dtype=np.int64)
        vectors = np.zeros((count, d), dtype=np.float32)
        for number, (node, vector) in enumerate(zip(named, spelt, strict=True)):
            name = name_of(node)
            bare = vector is None or np.isscalar(vector)
            if (name is None) == bare:
                raise ValueError(f"question {number} needs either a `node` or a `vector`")
            if name is not None:
                nodes.append(name)
                try:
                    rows[number] = self.names.row(name)
                    vectors[number] = self.vectors[rows[number]]
                except ValueError as error:
                    errors[number] = str(error)
            else:
                values = np.asarray(vector, dtype=np.float32)
                if values.shape != (d,) or not np.isfinite(values).all():
                    raise ValueError(f"the vector of question {number} must be {d} finite numbers, not {values.shape}")
                nodes.append(None)
                vectors[number] = values
        return nodes, rows, vectors, errors

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
        m, k = len(queries), min(k, len(self.names))
        best_rows = np.empty((m, 0), dtype=np.int64)
        best_scores = np.empty((m, 0), dtype=np.float32)
        for first in range(0, len(self.names), BLOCK_ROWS):
            block = np.asarray(self.vectors[first : first + BLOCK_ROWS])
            scores = queries @ block.T
            if cosine:
                scores /= np.maximum(self.norms[first : first + BLOCK_ROWS], _TINY)
            inside = np.flatnonzero((own >= first) & (own < first + len(block)))
            scores[inside, own[inside] - first] = -np.inf
            rows = largest(scores, k)
            best_scores = np.hstack([best_scores, np.take_along_axis(scores, rows, axis=1)])
            best_rows = np.hstack([best_rows, rows + first])
            kept = largest(best_scores, k)
            best_scores = np.take_along_axis(best_scores, kept, axis=1)
            best_rows = np.take_along_axis(best_rows, kept, axis=1)
        best_rows[np.isneginf(best_scores)] = -1
        return best_rows, best_scores


def largest(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Columns of the k largest of each row, largest first, equal ones by column."""
    if k < scores.shape[1]:
        # Everything at or above the k-th largest, so that ties at the edge are settled by column.
        edge = -np.partition(-scores, k - 1, axis=1)[:, k - 1 : k]
        rows = [np.flatnonzero(row >= limit) for row, limit in zip(scores, edge, strict=True)]
        ordered = [found[np.argsort(-row[found], kind="stable")[:k]] for row, found in zip(scores, rows, strict=True)]
        return np.array(ordered, dtype=np.int64).reshape(len(scores), k)
    return np.argsort(-scores, axis=1, kind="stable")
