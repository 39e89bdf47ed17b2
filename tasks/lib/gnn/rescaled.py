"""Features of nodes, scaled as those that a network was trained on.

A graph has its features scaled by its own means and deviations. A network that was trained on another graph, such as
the model in use that is scored on tonight's data, gets them as it does where it answers requests: by its own scaling.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.gnn.edge_features import scaled
from superworkflow.tasks.lib.gnn.features import scaling_of
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph

_PIECE_VALUES = 1 << 21


def check_scalings(graph: HeteroGraph, shape: NetworkConfig, where: str) -> None:
    """Refuse a graph whose features cannot be scaled as the network's were.

    Args:
        graph: the graph.
        shape: configuration of the network.
        where: the network, for people.

    Raises:
        UserError: a column has other categories, or the graph's rows were divided by their sums and the network's not.
    """
    for name in shape.scaling.keys() & graph.node_sets.keys():
        own, learned = scaling_of(graph, name), shape.scaling[name]
        if own is None:
            continue
        for column, texts in learned.get("categories", {}).items():
            if (found := own["categories"].get(column)) != texts:
                raise UserError(
                    f"the network was trained on another graph, with other categories of {column} of {name}",
                    where=where, value=_shown(found or ["none"]), remedy=f"Give these: {_shown(texts)}",
                )  # fmt: skip
        if own["kind"] == "row" != learned["kind"]:
            raise UserError(
                f"the network was trained on features of {name} whose rows are not divided by their sums", where=where,
                value="row", remedy=f"Set heterograph.scaling={learned['kind']}",
            )  # fmt: skip


def rescaled(
    graph: HeteroGraph, node_set: str, shape: NetworkConfig, values: NDArray[np.floating[Any]]
) -> NDArray[np.floating[Any]]:
    """Features of nodes of a graph, [nodes, values], scaled as the network's; themselves where they are so already.

    What is scaled anew is float32 in a temporary file, so that it needs no memory.
    """
    own, learned = scaling_of(graph, node_set), shape.scaling.get(node_set)
    parts = ("kind", "mean", "scale")
    if own is None or learned is None or all(own[part] == learned[part] for part in parts):
        return values
    with tempfile.TemporaryFile() as file:
        found = np.memmap(file, np.float32, "w+", shape=values.shape) if values.size else values
    rows = max(1, _PIECE_VALUES // max(1, values.shape[1]))
    for first in range(0, len(values), rows):
        piece = slice(first, first + rows)
        wide = values[piece].astype(np.float64)
        if own["kind"] == "standard":
            wide = wide * np.array(own["scale"]) + np.array(own["mean"])
        found[piece] = scaled(wide, learned)
    return found


def _shown(texts: list[str]) -> str:
    return ", ".join(texts)[:200]
