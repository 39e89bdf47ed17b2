"""Several labels of each node, and their split into training, validation and test."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.objective.labels import (
    NONE,
    NodeTargets,
    by_number,
    check_kinds,
    given_splits,
    label_feature,
    other_labels,
    without_training,
)
from superworkflow.tasks.lib.graph.heterograph import STRING, HeteroGraph, Ragged
from superworkflow.tasks.lib.graph.missing_labels import is_missing


@dataclass(frozen=True)
class ManyTargets(NodeTargets):
    """Labels of nodes with several labels each.

    Args:
        labels: numbers of each node's labels.
    """

    labels: Ragged


def has_several(graph: HeteroGraph, label: str) -> bool:
    """True if the learned feature is a list of labels for each node.

    Raises:
        UserError: there is no such feature, or it cannot be a label.
    """
    return label_feature(graph, label)[1].is_ragged


def label_lists(graph: HeteroGraph, label: str) -> list[list[str]]:
    """Labels of each node as texts, without those that mean none.

    Raises:
        UserError: nodes have one label each, or a text is not UTF-8.
    """
    node_set, feature = label_feature(graph, label)
    if not feature.is_ragged:
        raise other_labels("several labels", "one", graph, f"{node_set}.{feature.name}")
    values = graph.node_feature(node_set, feature.name)
    if feature.dtype != STRING:
        texts = values.values.astype(str).tolist()
        lists = [texts[first:end] for first, end in pairwise(values.starts.tolist())]
    else:
        try:
            lists = values.cast(pa.large_list(pa.large_string())).to_pylist()
        except pa.ArrowInvalid:
            raise UserError("a text is not UTF-8", where=f"{graph.dataset.uri}, {node_set}.{feature.name}",
                            remedy="Give text in UTF-8") from None  # fmt: skip
    dropped = {name for name in {name for each in lists for name in each} if is_missing(name)}
    return [list(dict.fromkeys(name for name in each if name not in dropped)) for each in lists]


def many_targets_of(graph: HeteroGraph, label: str, shares: tuple[float, float], seed: int) -> ManyTargets:
    """Targets of a graph with several labels a node; see `labels.targets_of`.

    Raises:
        UserError: there is no such feature, there is only one label, or a label has no node to train on.
    """
    node_set, feature = label_feature(graph, label)
    where = f"{graph.dataset.uri}, {node_set}.{feature.name}"
    lists = label_lists(graph, label)
    names = sorted({name for each in lists for name in each}, key=by_number)
    check_kinds(names, where)
    number = {name: code for code, name in enumerate(names)}
    starts = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(each) for each in lists], out=starts[1:])
    labels = Ragged(np.array([number[name] for each in lists for name in each], np.int32), starts)
    splits = given_splits(graph, node_set)
    if splits is None:
        splits = _divided(labels, shares, seed)
    splits[np.diff(starts) == 0] = NONE
    owners = np.repeat(np.arange(len(lists)), np.diff(starts))
    trained = np.bincount(labels.values[splits[owners] == 0], minlength=len(names))
    if not trained.all():
        raise without_training(names, trained, where)
    return ManyTargets(node_set, f"{node_set}.{feature.name}", tuple(names), splits, labels)


def _divided(labels: Ragged, shares: tuple[float, float], seed: int) -> NDArray[np.int8]:
    """Splits by a hash of the nodes' numbers; each label's first node by that hash is trained on."""
    counts = np.diff(labels.starts)
    splits = np.full(len(counts), NONE, np.int8)
    keys = random_streams.words(np.arange(len(counts)), seed, random_streams.SPLIT)
    order = np.argsort(keys, kind="stable")
    order = order[counts[order] > 0]
    train = round(shares[0] * len(order))
    valid = train + round(shares[1] * len(order))
    splits[order[:train]], splits[order[train:valid]], splits[order[valid:]] = 0, 1, 2
    place = np.empty(len(counts), np.int64)
    place[order] = np.arange(len(order))
    owners = np.repeat(np.arange(len(counts)), counts)
    by_place = np.argsort(place[owners], kind="stable")
    _, first = np.unique(labels.values[by_place], return_index=True)
    splits[owners[by_place[first]]] = 0
    return splits
