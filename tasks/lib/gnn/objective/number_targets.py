"""Numbers to predict of the nodes of one set, and their split into training, validation and test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.gnn.objective.labels import (
    NONE,
    WHERE,
    NodeTargets,
    divided,
    given_splits,
    label_feature,
    text_codes,
)
from superworkflow.tasks.lib.gnn.objective.real_labels import number_of
from superworkflow.tasks.lib.graph.heterograph import STRING, Feature, HeteroGraph
from superworkflow.tasks.lib.graph.missing_labels import is_blank


@dataclass(frozen=True)
class NumberTargets(NodeTargets):
    """Numbers of nodes.

    Args:
        values: of each node, float64 [nodes], NaN for none.
        mean, scale: mean and standard deviation of the training nodes' numbers.
    """

    values: NDArray[np.float64]
    mean: float
    scale: float

    def standardised(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Numbers of nodes, less the mean, in standard deviations."""
        return ((self.values[nodes] - self.mean) / self.scale).astype(np.float32)


def number_targets_of(graph: HeteroGraph, label: str, shares: tuple[float, float], seed: int) -> NumberTargets:
    """Targets of a graph whose labels are numbers; see `labels.targets_of`.

    Raises:
        UserError: there is no such feature, a label is no finite number, or those to train on are all the same.
    """
    node_set, feature = _feature(graph, label)
    where, values = f"{graph.dataset.uri}, {node_set}.{feature.name}", label_numbers(graph, label)
    has = ~np.isnan(values)
    splits = given_splits(graph, node_set)
    if splits is None:
        splits = divided(np.where(has, 0, NONE), 1, shares, seed)
    splits[~has] = NONE
    trained = values[splits == 0]
    if len(trained) < 2 or trained.min() == trained.max():
        raise UserError(
            "a regression needs different numbers to train on", where=where,
            value=f"{len(trained)} training nodes" + (f", all {trained[0]:g}" if len(trained) else ""),
            remedy="Put nodes with different numbers into the split train",
        )  # fmt: skip
    return NumberTargets(node_set, f"{node_set}.{feature.name}", (), splits, values, *map(float, _spread(trained)))


def label_numbers(graph: HeteroGraph, label: str) -> NDArray[np.float64]:
    """Number of each node, float64 [nodes], NaN for none.

    Raises:
        UserError: a label is no finite number; names the node.
    """
    node_set, feature = _feature(graph, label)
    given, where = graph.node_feature(node_set, feature.name), f"{graph.dataset.uri}, {node_set}.{feature.name}"
    if feature.dtype != STRING:
        values = np.asarray(given).reshape(-1).astype(np.float64)
        _refuse(np.isinf(values), values, graph, node_set, where)
        return values
    texts, codes = text_codes(given, feature, where)
    numbers = [np.nan if is_blank(text) else number_of(text) for text in texts]
    faulty = np.array([*(number is None or bool(np.isinf(number)) for number in numbers), False])
    _refuse(faulty[codes], np.array([*texts, ""], object)[codes], graph, node_set, where)
    found: NDArray[np.float64] = np.array([*numbers, np.nan], np.float64)[codes]
    return found


def _feature(graph: HeteroGraph, label: str) -> tuple[str, Feature]:
    node_set, feature = label_feature(graph, label, may_be_decimal=True)
    if feature.is_ragged:
        raise UserError("a regression needs one number for each node, and nodes have several", where=WHERE,
                        value=f"{node_set}.{feature.name}", remedy="Give each node one number")  # fmt: skip
    return node_set, feature


def _refuse(
    faulty: NDArray[np.bool_], values: NDArray[Any], graph: HeteroGraph, node_set: str, where: str
) -> None:  # fmt: skip
    if not faulty.any():
        return
    first = int(faulty.argmax())
    name = graph.ids(node_set)[first].as_py()
    name = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    raise UserError(
        f"a label is no finite number, and train.task=regression predicts numbers: that of node {name!r}"
        + (f" and of {faulty.sum() - 1} others" if faulty.sum() > 1 else ""),
        where=where, value=values[first],
        remedy="Correct it (decimals have a point), leave it empty if it is unknown, or set train.task=classification",
    )  # fmt: skip


def _spread(values: NDArray[np.float64]) -> tuple[np.floating[Any], np.floating[Any]]:
    return values.mean(), values.std()
