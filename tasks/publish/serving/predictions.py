"""The served models of predictions of nodes: classes and numbers."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .attention import Floats
from .inductive import NodeQuery, NodeReader
from .names import Names, answer_column, is_missing, mapped
from .network import StoredNetwork

_DESCRIBING = ("features", "neighbors", "weights", "node_set", "edge_features")
"""Columns of a request that describe a new node."""
_MISSPELT = 0.85
"""Similarity from which a column is one of these, such as `neighbours`, without which another answer would be given."""


class NodeModel:
    """Answers questions about the nodes of one bundle, and about new ones.

    Args:
        folder: holds the files that stage `publish_predictions` wrote.
        facts: content of its `bundle.json`.
    """

    columns: tuple[str, ...]
    """Columns of an answer between the node and the error."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        self.facts, self.names = facts, Names(folder)
        network = network_of(folder)
        self._node_set = network.document["head"]["node_sets"][0] if network is not None else ""
        self._document = network.document if network is not None else None
        self._terms = _if_there(folder, "terms")
        self._nodes = NodeReader(folder, {self._node_set: self.names}, network, facts.get("no_new_nodes", ""))

    def predict(self, table: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
        """Answer a table of questions; see the package's text.

        Raises:
            ValueError: there is no column of nodes.
        """
        queries = queries_of(table, "node", "", self._node_set, self._document)
        found = self._nodes.answers(queries)
        answers = [
            (None,) * len(self.columns)
            if error or (row < 0 and (scores is None or not len(scores)))
            else self._answer(int(row), scores, self._nodes.within(query.node_set, near))
            for query, row, scores, error, near in zip(
                queries, found.rows, found.made, found.errors, found.neighbors, strict=True
            )
        ]
        return pd.DataFrame({
            "node": [each.name for each in queries],
            **{
                name: answer_column(answer[place] for answer in answers)
                for place, name in enumerate(self.columns)
            },
            "error": found.errors,
        })  # fmt: skip

    def _answer(self, row: int, scores: Floats | None, near: list[int]) -> tuple[Any, ...]:
        """Values of the columns for a node of the bundle, by row, or a new one, by what the network makes of it and
        the rows of its neighbours."""
        raise NotImplementedError

    def _corrected(self, made: NDArray[np.float64], near: list[int]) -> NDArray[np.float64]:
        """The network's prediction, corrected as those of the nodes of the bundle are; see stage `correct`."""
        if self._terms is None or not near:
            return made
        found: NDArray[np.float64] = self.facts["own_share"] * made + self._terms[near].mean(axis=0, dtype=np.float64)
        return found


class NumberModel(NodeModel):
    """Answers with predicted numbers; see `NodeModel`."""

    columns = ("predicted",)

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        super().__init__(folder, facts)
        self._values = mapped(folder, "values")

    def _answer(self, row: int, scores: Floats | None, near: list[int]) -> tuple[Any, ...]:
        if scores is None:
            return (float(self._values[row]),)
        assert self._document is not None
        head = self._document["head"]
        return (float(self._corrected(scores.astype(np.float64) * head["scale"] + head["mean"], near)[0]),)


class PredictionModel(NodeModel):
    """Answers with predicted classes; see `NodeModel`."""

    columns = ("predicted", "probability", "probabilities")

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        super().__init__(folder, facts)
        self._classes, self._probabilities = mapped(folder, "classes"), mapped(folder, "probabilities")
        self._offsets = _if_there(folder, "class_offsets")
        self._all = _if_there(folder, "class_probabilities")

    def _answer(self, row: int, scores: Floats | None, near: list[int]) -> tuple[Any, Any, Any]:
        """Class, probability, and probabilities of all classes; lists of both where nodes have several classes."""
        classes = self.facts["classes"]
        likely: Any = None
        if scores is not None:
            likely = self._likely(_sigmoid(scores) if self.facts.get("several") else softmax(scores), near)
        elif self._all is not None:
            likely = self._all[row]
        every = dict(zip(classes, map(float, likely), strict=True)) if likely is not None else None
        if self.facts.get("several"):
            if scores is not None:
                marked = likely >= 0.5
                marked[int(likely.argmax())] = True
                span = np.flatnonzero(marked)
                return [classes[i] for i in span], [float(likely[i]) for i in span], every
            assert self._offsets is not None
            span = np.arange(self._offsets[row], self._offsets[row + 1])
            return [classes[self._classes[i]] for i in span], [float(self._probabilities[i]) for i in span], every
        if scores is not None:
            best = int(likely.argmax())
            return classes[best], float(likely[best]), every
        return classes[self._classes[row]], float(self._probabilities[row]), every

    def _likely(self, own: NDArray[np.float64], near: list[int]) -> NDArray[np.float64]:
        """Corrected probabilities, of the network's own."""
        least = self.facts.get("least_share", 0)
        found = np.maximum(self._corrected(own, near), least * own)
        several = self.facts.get("several")
        return np.asarray(np.minimum(found, 1 - least * (1 - own)) if several else found / found.sum())


def queries_of(
    table: pd.DataFrame, column: str, prefix: str, node_set: str, document: Mapping[str, Any] | None
) -> list[NodeQuery]:
    """Nodes of a request, a row each.

    Args:
        table: the request.
        column: name of the column of nodes.
        prefix: of the names of the columns that describe them; see `_DESCRIBING`.
        node_set: their set, where the request names none.
        document: of the network; None for none.

    Raises:
        ValueError: there is no such column, nor one that describes nodes; or the name of one of these is misspelt.
    """
    read = {name for name, _ in document["sets"][node_set]["columns"]} if document is not None else set()
    for wanted in (f"{prefix}features", f"{prefix}neighbors"):
        others = [name for name in map(str, table.columns) if name not in read]
        if wanted not in table and (near := difflib.get_close_matches(wanted, others, 1, _MISSPELT)):
            raise ValueError(f"a request has a column `{near[0]}`: write `{wanted}`")
    given = {name: [*map(_plain, table[f"{prefix}{name}"])] for name in _DESCRIBING if f"{prefix}{name}" in table}
    names = list(table[column]) if column in table else [None] * len(table)
    sets = [node_set if is_missing(each) else str(each) for each in given.get("node_set", names)]
    sets = sets if "node_set" in given else [node_set] * len(table)
    if not prefix and "features" not in given and document is not None:
        given |= _from_columns(table, column, document["sets"][node_set]["columns"])
    if column not in table and not {"features", "neighbors"} & given.keys():
        raise ValueError(f"a request needs a column `{column}`")
    empty = [None] * len(table)
    cells = [given.get(name, empty) for name in ("features", "neighbors", "weights", "edge_features")]
    return [
        NodeQuery(each, node, features, neighbors, weights, column, of_edges)
        for each, node, features, neighbors, weights, of_edges in zip(sets, names, *cells, strict=True)
    ]


def _plain(cell: Any) -> Any:
    """A cell; a mapping that MLflow's server made an array of, as it does of a request's `inputs`."""
    return cell.item() if isinstance(cell, np.ndarray) and not cell.ndim else cell


def _from_columns(table: pd.DataFrame, column: str, columns: list[list[Any]]) -> dict[str, list[Any]]:
    """Features from columns of their own, named as those of the network; a row without any value has none, and values
    that others lack are missing."""
    names = [name for name, _ in columns if name in table and name not in (column, *_DESCRIBING)]
    if not names:
        return {}
    rows = zip(*(table[name] for name in names), strict=True)
    given = [None if all(map(is_missing, row)) else dict(zip(names, row, strict=True)) for row in rows]
    return {"features": given}


def network_of(folder: Path) -> StoredNetwork | None:
    path = folder / "network.json"
    return StoredNetwork(folder, json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _if_there(folder: Path, name: str) -> NDArray[Any] | None:
    return mapped(folder, name) if (folder / f"{name}.npy").exists() else None


def softmax(scores: Floats) -> NDArray[np.float64]:
    powers = np.exp(scores.astype(np.float64) - float(scores.max()))
    shares: NDArray[np.float64] = powers / powers.sum()
    return shares


def _sigmoid(scores: Floats) -> NDArray[np.float64]:
    return 0.5 * (1 + np.tanh(scores.astype(np.float64) / 2))
