"""The served models: answers from a bundle of a stage of publication, mapped into memory.

This package is kept with a registered model and runs where this project is not installed: it needs NumPy and pandas
only. A request is a table with one row per question, and parameters:

    curl -H 'Content-Type: application/json' http://HOST:PORT/invocations -d '
        {"dataframe_records": [{"node": "42"}], "params": {"task": "neighbors", "k": 5}}'

| model | columns of a request | columns of the answer |
| --- | --- | --- |
| embeddings | `node` or `vector` (list of numbers) | `node` and `vector`, or `node`, `neighbors` and `scores` |
| classes | `node`; of new nodes `features` and `neighbors` | `node`, `predicted`, `probability`, `probabilities` |
| numbers | `node`; of new nodes `features` and `neighbors` | `node`, `predicted` |
| links | `source`, `target`; `source_features`, … | `source`, `target`, `score`, `probability` |
| links of all relations | as of links, and `relation` | `source`, `target`, `relation`, `score`, `probability` |
| classes of edges | as of links | `source`, `target`, `predicted`, `probability`, `probabilities` |
| numbers of edges | as of links | `source`, `target`, `predicted` |
| ratings | `user`, `item` | `user`, `item` and `rating`, or `user`, `items` and `ratings` |

Nodes are text or whole numbers. The last column of an answer, `error`, is empty or says why its row has no answer, such
as for a node that is not in the model. `probabilities` has all classes; where nodes have several classes, `predicted`
and `probability` are lists.

Of embeddings the parameter `task` is `vector` (default), or `neighbors` for the `k` most similar nodes (10 by default),
best first. A node is not its own neighbour. Scores are exact, by cosine or dot product as the bundle says.

Of ratings `task` is `rating` (default), or `recommendations` of the `k` items (10) that a user would rate highest, best
first, without those that it has rated unless `rated` is true.

A node with `features` or `neighbors` is computed by the network. Features are a list of numbers, a mapping of names to
numbers, or columns of their own; `neighbors` a list of nodes of the model or of the same request, or such lists by edge
set. A network with edge weights takes `weights` in the same form (1 by default), one with several node sets `node_set`.
One that reads features of edges needs `edge_features` in the same form, of each edge a list or a mapping of names.
An edge between two new nodes may be given at either. A node of the model that comes with neighbours is computed from
these, with its own features unless others are given. Pairs take the same columns with `source_` or `target_` before
their names, and need not be edges of the graph.
"""

from __future__ import annotations

import json
from pathlib import Path

from .embeddings import EmbeddingModel
from .pairs import EdgeModel, LinkModel, TripleModel
from .predictions import NumberModel, PredictionModel
from .ratings import RatingModel


def load(
    folder: Path,
) -> EmbeddingModel | PredictionModel | NumberModel | LinkModel | TripleModel | EdgeModel | RatingModel:
    """The model of a bundle."""
    facts = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
    if "dimensions" in facts:
        return EmbeddingModel(folder, facts)
    task = facts.get("task")
    if task == "ratings":
        return RatingModel(folder, facts)
    if task == "link_prediction":
        return TripleModel(folder, facts) if "relations" in facts else LinkModel(folder, facts)
    if task in ("edge_classification", "edge_regression"):
        return EdgeModel(folder, facts)
    return NumberModel(folder, facts) if task == "node_regression" else PredictionModel(folder, facts)
