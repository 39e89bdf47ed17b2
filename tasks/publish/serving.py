"""The served model: answers from a bundle of stage `publish` or `publish_predictions`, mapped into memory.

This file is kept with a registered model and runs where this project is not installed: it needs NumPy and pandas only.
A request is a table with one row per question, and parameters:

    curl -H 'Content-Type: application/json' http://HOST:PORT/invocations -d '
        {"dataframe_records": [{"node": "42"}], "params": {"task": "neighbors", "k": 5}}'

| model | columns of a request | columns of the answer |
| --- | --- | --- |
| embeddings | `node` or `vector` (list of numbers) | `node` and `vector`, or `node`, `neighbors` and `scores` |
| classes | `node` | `node`, `predicted`, `probability`; lists where nodes have several classes |
| links | `source`, `target` | `source`, `target`, `score`, `probability` |

Nodes are text or whole numbers. The last column of an answer, `error`, is empty or says why its row has no answer, such
as for a node that is not in the model.

Of embeddings the parameter `task` is `vector` (default), or `neighbors` for the `k` most similar nodes (10 by default),
best first. A node is not its own neighbour. Scores are exact, by cosine or dot product as the bundle says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

TASKS = ("vector", "neighbors")
BLOCK_ROWS = 1 << 16
"""Rows scored at once; bounds the memory of a request to `BLOCK_ROWS` × questions."""
QUESTIONS_AT_ONCE = 256
_TINY = np.finfo(np.float32).tiny


def _map(folder: Path, name: str) -> NDArray[Any]:
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
        self._text, self._offsets = _map(folder, f"{prefix}nodes"), _map(folder, f"{prefix}node_offsets")
        self._order = _map(folder, "node_order") if (folder / "node_order.npy").exists() else None
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

    def rows(self, table: pd.DataFrame, column: str) -> tuple[list[str | None], NDArray[np.int64], list[str]]:
        """Nodes of a request, their rows (-1 for none), and why a node has none (empty where it has one).

        Raises:
            ValueError: there is no such column.
        """
        if column not in table:
            raise ValueError(f"a request needs a column `{column}`")
        nodes = [name_of(value) for value in table[column]]
        rows, errors = np.full(len(nodes), -1, np.int64), [""] * len(nodes)
        for i, node in enumerate(nodes):
            try:
                rows[i] = self.row(_given(node, column))
            except ValueError as error:
                errors[i] = str(error)
        return nodes, rows, errors


def name_of(value: Any) -> str | None:
    """Name of a node as the graph's files have it; None for a missing value.

    pandas turns whole numbers into fractions where a column has missing values: 42.0 is the node 42.
    """
    if value is None or (isinstance(value, (float, np.floating)) and np.isnan(value)) or value is pd.NA:
        return None
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _values(values: Iterable[Any]) -> pd.Series:
    """A column in which None stays None: pandas would make it NaN among numbers, which JSON does not have."""
    listed = list(values)
    return pd.Series(listed, dtype=object if None in listed else None)


def _given(node: str | None, column: str) -> str:
    if node is None:
        raise ValueError(f"no `{column}` is given")
    return node


class EmbeddingModel:
    """Answers questions about the embeddings of one bundle.

    Args:
        folder: holds the files that stage `publish` wrote.
        facts: content of its `bundle.json`.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        self.facts, self.names = facts, Names(folder, kind="embedded nodes")
        self.vectors, self.norms = _map(folder, "vectors"), _map(folder, "norms")

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
            rows = _largest(scores, k)
            best_scores = np.hstack([best_scores, np.take_along_axis(scores, rows, axis=1)])
            best_rows = np.hstack([best_rows, rows + first])
            kept = _largest(best_scores, k)
            best_scores = np.take_along_axis(best_scores, kept, axis=1)
            best_rows = np.take_along_axis(best_rows, kept, axis=1)
        best_rows[np.isneginf(best_scores)] = -1
        return best_rows, best_scores


def _largest(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Columns of the k largest of each row, largest first, equal ones by column."""
    if k < scores.shape[1]:
        # Everything at or above the k-th largest, so that ties at the edge are settled by column.
        edge = -np.partition(-scores, k - 1, axis=1)[:, k - 1 : k]
        rows = [np.flatnonzero(row >= limit) for row, limit in zip(scores, edge, strict=True)]
        ordered = [found[np.argsort(-row[found], kind="stable")[:k]] for row, found in zip(scores, rows, strict=True)]
        return np.array(ordered, dtype=np.int64).reshape(len(scores), k)
    return np.argsort(-scores, axis=1, kind="stable")


class PredictionModel:
    """Answers questions about the nodes of one bundle.

    Args:
        folder: holds the files that stage `publish_predictions` wrote.
        facts: content of its `bundle.json`.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        self.facts, self.names = facts, Names(folder)
        self._classes, self._probabilities = _map(folder, "classes"), _map(folder, "probabilities")
        self._offsets = _map(folder, "class_offsets") if (folder / "class_offsets.npy").exists() else None

    def predict(self, table: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
        """Answer a table of questions; see the module's text.

        Raises:
            ValueError: there is no column `node`.
        """
        nodes, rows, errors = self.names.rows(table, "node")
        answers = [self._answer(row) if row >= 0 else (None, None) for row in rows]
        return pd.DataFrame({
            "node": nodes, "predicted": _values(predicted for predicted, _ in answers),
            "probability": _values(probability for _, probability in answers), "error": errors,
        })  # fmt: skip

    def _answer(self, row: int) -> tuple[Any, Any]:
        """Class and probability of a row, or lists of both where nodes have several classes."""
        classes = self.facts["classes"]
        if self._offsets is None:
            return classes[self._classes[row]], float(self._probabilities[row])
        span = range(self._offsets[row], self._offsets[row + 1])
        return [classes[self._classes[i]] for i in span], [float(self._probabilities[i]) for i in span]


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
            ValueError: a column is missing.
        """
        sources, rows, errors = self.sources.rows(table, "source")
        targets, others, more = self.targets.rows(table, "target")
        scores = (self._vectors[rows] * self._factors * self._target_vectors[others]).sum(axis=1)
        errors = ["; ".join(filter(None, both)) for both in zip(errors, more, strict=True)]
        answers = [
            (None, None) if error else (float(score), 0.5 * (1 + float(np.tanh(score / 2))))
            for score, error in zip(scores, errors, strict=True)
        ]
        return pd.DataFrame({
            "source": sources, "target": targets, "score": _values(score for score, _ in answers),
            "probability": _values(probability for _, probability in answers), "error": errors,
        })  # fmt: skip


def load(folder: Path) -> EmbeddingModel | PredictionModel | LinkModel:
    """The model of a bundle."""
    facts = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
    kind = LinkModel if facts.get("task") == "link_prediction" else PredictionModel
    return EmbeddingModel(folder, facts) if "dimensions" in facts else kind(folder, facts)
