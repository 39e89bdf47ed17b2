"""The served models of pairs of nodes: links, and classes and numbers of edges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .attention import Floats
from .inductive import NodeReader
from .names import Names, answer_column, mapped
from .predictions import network_of, queries_of, softmax
from .short_paths import PathCorrection

DECODER = ("hidden_weight", "hidden_bias", "out_weight", "out_bias")
"""Arrays of the decoder of edges, `decoder_….npy`."""


class PairModel:
    """Answers questions about pairs of nodes of one bundle, or new ones.

    Args:
        folder: holds the files that stage `publish_predictions` wrote.
        facts: content of its `bundle.json`.
    """

    columns: tuple[str, ...]
    """Columns of an answer between the nodes and the error."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        self.facts = facts
        network = network_of(folder)
        self._document = network.document if network is not None else None
        prefix = "target_" if (folder / "target_nodes.npy").exists() else ""
        self._ends = network.document["ends"] if network is not None else ["source", "target" if prefix else "source"]
        source, target = self._ends
        self._vectors = [mapped(folder, "vectors"), mapped(folder, f"{prefix}vectors")]
        names = {source: Names(folder), target: Names(folder, prefix)}
        self._nodes = NodeReader(folder, names, network, facts.get("no_new_nodes", ""))

    def predict(self, table: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
        """Answer a table of questions; see the package's text.

        Raises:
            ValueError: a column is missing.
        """
        ends = [
            queries_of(table, column, f"{column}_", node_set, self._document)
            for column, node_set in zip(("source", "target"), self._ends, strict=True)
        ]
        found = self._nodes.answers([*ends[0], *ends[1]])
        relations, faults = self._relations(table)
        count = len(table)
        answers: list[tuple[Any, ...]] = []
        errors: list[str] = []
        for i in range(count):
            both = dict.fromkeys(filter(None, (found.errors[i], found.errors[count + i], faults[i])))
            errors.append("; ".join(both))
            if both:
                answers.append((None,) * len(self.columns))
                continue
            vectors, places = [], (i, count + i)
            for side, place in enumerate(places):
                made = found.made[place]
                vectors.append(self._vectors[side][found.rows[place]] if made is None else self._of_new(made, side))
            rows = [int(found.rows[place]) for place in places]
            answer = self._answer(relations[i], *vectors)
            answers.append(self._corrected(answer, rows, [found.neighbors[place] for place in places]))
        return pd.DataFrame({
            **{
                column: [each.name for each in queries]
                for column, queries in zip(("source", "target"), ends, strict=True)
            },
            **{name: answer_column(each[place] for each in answers) for place, name in enumerate(self.columns)},
            "error": errors,
        })  # fmt: skip

    def _relations(self, table: pd.DataFrame) -> tuple[list[Any], list[str]]:
        """Relation of each row, if the model has any, and an error, or empty."""
        return [None] * len(table), [""] * len(table)

    def _of_new(self, made: Floats, side: int) -> Floats:
        """Vector of a new source (side 0) or target (1), by the row that the network makes of it."""
        return made

    def _answer(self, relation: Any, source: Floats, target: Floats) -> tuple[Any, ...]:
        """Values of the columns for a pair, by the vectors of its nodes."""
        raise NotImplementedError

    def _corrected(
        self, answer: tuple[Any, ...], rows: list[int], neighbors: list[dict[int, list[int]]]
    ) -> tuple[Any, ...]:
        """The answer about a pair, by the rows of its nodes, below 0 of new ones, and by the neighbours of these."""
        return answer


class LinkModel(PairModel):
    """Answers how probable links are; see `PairModel`."""

    columns = ("score", "probability")

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        super().__init__(folder, facts)
        self._factors = mapped(folder, "factors")
        self._turn = mapped(folder, "complex_factors") if (folder / "complex_factors.npy").exists() else None
        weights = facts.get("link_correction")
        self._paths = PathCorrection(folder, weights) if weights else None

    def _of_new(self, made: Floats, side: int) -> Floats:
        if not side or self._turn is None:
            return made
        return _turned(made, self._turn)

    def _answer(self, relation: Any, source: Floats, target: Floats) -> tuple[float, float]:
        return _with_probability(float((source * self._factors * target).sum()))

    def _corrected(
        self, answer: tuple[Any, ...], rows: list[int], neighbors: list[dict[int, list[int]]]
    ) -> tuple[Any, ...]:
        return answer if self._paths is None else _with_probability(self._paths.corrected(answer[0], rows, neighbors))


class TripleModel(PairModel):
    """Answers how probable triples are: pairs with a `relation`; see `PairModel`."""

    columns = ("relation", "score", "probability")

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        super().__init__(folder, facts)
        self._factors = mapped(folder, "factors")
        self._numbers = {name: number for number, name in enumerate(facts["relations"])}

    def _relations(self, table: pd.DataFrame) -> tuple[list[Any], list[str]]:
        if "relation" not in table.columns:
            raise ValueError(f"the column 'relation' is missing, such as {next(iter(self._numbers))!r}")
        names = [str(each) for each in table["relation"]]
        return names, ["" if name in self._numbers else f"{name!r} is no relation of the model" for name in names]

    def _answer(self, relation: Any, source: Floats, target: Floats) -> tuple[str, float, float]:
        factors = self._factors[self._numbers[relation]]
        if self.facts["decoder"] == "complex":
            score = float(source @ _turned(target, factors))
        else:
            score = float((source * factors * target).sum())
        return relation, *_with_probability(score)


class EdgeModel(PairModel):
    """Answers with classes or numbers of edges, whether the graph has them or not; see `PairModel`."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        super().__init__(folder, facts)
        self.columns = ("predicted", "probability", "probabilities") if facts["classes"] else ("predicted",)
        self._decoder = [mapped(folder, f"decoder_{name}") for name in DECODER]

    def _answer(self, relation: Any, source: Floats, target: Floats) -> tuple[Any, ...]:
        hidden_weight, hidden_bias, out_weight, out_bias = self._decoder
        joined = np.concatenate([source, target, source * target])
        made = out_weight @ np.maximum(hidden_weight @ joined + hidden_bias, 0) + out_bias
        classes = self.facts["classes"]
        if not classes:
            return (float(made[0]) * self.facts["scale"] + self.facts["mean"],)
        likely = softmax(made)
        best = int(likely.argmax())
        return classes[best], float(likely[best]), dict(zip(classes, map(float, likely), strict=True))


def _with_probability(score: float) -> tuple[float, float]:
    return score, 0.5 * (1 + float(np.tanh(score / 2)))


def _turned(target: Floats, factors: Floats) -> Floats:
    """Row whose product with a source's is ComplEx's score: Re(sum(source * factors * conj(target))), real parts first.

    Trouillon et al., "Complex Embeddings for Simple Link Prediction" (ICML 2016).
    """
    (real, imaginary), (first, second) = np.split(target, 2), np.split(factors, 2)
    return np.concatenate([first * real + second * imaginary, first * imaginary - second * real])
