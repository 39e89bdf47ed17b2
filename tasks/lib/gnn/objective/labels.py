"""Labels: classes of the nodes of one set, and their split into training, validation and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.objective.real_labels import check_classes
from superworkflow.tasks.lib.gnn.objective.splits import SPLITS
from superworkflow.tasks.lib.graph.heterograph import STRING, Feature, HeteroGraph
from superworkflow.tasks.lib.graph.label_feature import label_feature as named_feature
from superworkflow.tasks.lib.graph.missing_labels import is_missing, missing

WHERE = "train.label"
SPLIT_FEATURE = "split"
NONE = -1


@dataclass(frozen=True)
class NodeTargets:
    """Labelled nodes of a set, split into training, validation and test.

    Args:
        node_set: set of the nodes.
        label: `SET.FEATURE`.
        names: names of the classes or labels: numbers by value, then others by text.
        splits: number of each node's split in `SPLITS`, int8 [nodes], -1 for none.
    """

    node_set: str
    label: str
    names: tuple[str, ...]
    splits: NDArray[np.int8]

    def nodes(self, split: str) -> NDArray[np.int64]:
        """Nodes of a split, ascending."""
        return np.flatnonzero(self.splits == SPLITS.index(split))


@dataclass(frozen=True)
class Targets(NodeTargets):
    """Classes of nodes.

    Args:
        classes: number of each node's class, int64 [nodes], -1 for none.
    """

    classes: NDArray[np.int64]


def targets_of(
    graph: HeteroGraph, label: str, shares: tuple[float, float], seed: int, certain: bool = True
) -> Targets:  # fmt: skip
    """Targets of a graph; classes of nodes outside of all splits alone are none.

    Args:
        graph: the graph.
        label: a feature as SET.FEATURE; empty for the label of a graph from an edge list.
        shares: shares of each class's nodes to train and to validate on, if the set has no feature `split`.
        seed: seed of the split.
        certain: labels are classes even if they look like numbers to predict.

    Raises:
        UserError: there is no such feature, it cannot be a label, or fewer than two classes have a node to train on.
    """
    node_set, feature = _single(graph, label)
    found, codes = _coded(graph, feature, node_set)
    where = f"{graph.dataset.uri}, {node_set}.{feature.name}"
    names = sorted(found, key=by_number)
    if not certain:
        check_classes(names, int((codes >= 0).sum()), where)
    number, has = {name: code for code, name in enumerate(names)}, codes >= 0
    classes = np.array([*(number[name] for name in found), NONE], np.int64)[codes]
    splits = given_splits(graph, node_set)
    if splits is None:
        splits = divided(classes, len(names), shares, seed)
    splits[~has] = NONE
    used = np.unique(classes[splits != NONE])
    if len(used) < len(names):
        place = np.full(len(names) + 1, NONE)
        place[used] = np.arange(len(used))
        names, classes = [names[code] for code in used], place[classes]
    check_kinds(names, where)
    trained = np.bincount(classes[splits == 0], minlength=len(names))
    if (trained > 0).sum() < 2:
        raise without_training(names, trained, where)
    return Targets(node_set, f"{node_set}.{feature.name}", tuple(names), splits, classes)


def label_texts(graph: HeteroGraph, label: str) -> list[str | None]:
    """Label of each node as text, None for none."""
    node_set, feature = _single(graph, label)
    names, codes = _coded(graph, feature, node_set)
    return [names[code] if code >= 0 else None for code in codes.tolist()]


def has_label(graph: HeteroGraph, label: str) -> bool:
    """True if the graph has the label SET.FEATURE, as a graph that is only predicted may not."""
    return any(f"{name}.{each.name}" == label for name, nodes in graph.node_sets.items() for each in nodes.features)


def without_training(names: Sequence[str], trained: NDArray[Any], where: str) -> UserError:
    """Error that names the classes without a node to train on."""
    lacking = [name for name, count in zip(names, trained, strict=True) if not count]
    return UserError(
        "a class has no node to train on", where=where, value=", ".join(lacking)[:200],
        remedy="Put a node of each class into the split train, or leave the labels of such classes out",
    )  # fmt: skip


def _single(graph: HeteroGraph, text: str) -> tuple[str, Feature]:
    """Node set and feature of the label; one for each node, as the network that is trained or read has learned it."""
    node_set, feature = label_feature(graph, text)
    if feature.is_ragged:
        raise other_labels("one label", "several", graph, f"{node_set}.{feature.name}")
    return node_set, feature


def other_labels(learned: str, found: str, graph: HeteroGraph, feature: str) -> UserError:
    """Error for a graph whose nodes have several labels each and the network's one, or the reverse."""
    return UserError(
        f"the network has learned {learned} a node, and nodes of this graph have {found}", where=graph.dataset.uri,
        value=feature, remedy="Give labels of the network's kind, or train another network on this graph",
    )  # fmt: skip


def label_feature(graph: HeteroGraph, label: str, may_be_decimal: bool = False) -> tuple[str, Feature]:
    """Node set and feature of SET.FEATURE, by default of an edge list's labels; ragged if nodes have several."""
    return named_feature(graph, label, WHERE, "node.label", may_be_decimal)


def _coded(graph: HeteroGraph, feature: Feature, node_set: str) -> tuple[list[str], NDArray[np.int64]]:
    """Labels that occur, as texts, and the index of each node's label: -1 by the rule of `missing_labels`."""
    values = graph.node_feature(node_set, feature.name)
    if feature.dtype != STRING:
        numbers = np.asarray(values).reshape(-1).astype(np.int64)
        has, codes = ~missing(numbers), np.full(len(numbers), NONE, np.int64)
        kinds, codes[has] = np.unique(numbers[has], return_inverse=True)
        return list(map(str, kinds.tolist())), codes
    return _coded_texts(values, feature, f"{graph.dataset.uri}, {node_set}.{feature.name}")


def _coded_texts(values: Any, feature: Feature, where: str) -> tuple[list[str], NDArray[np.int64]]:
    """`_coded` of texts, in Arrow, without a Python object for each node."""
    texts, codes = text_codes(values, feature, where)
    present = [text for text in texts if not is_missing(text)]
    places = {text: place for place, text in enumerate(present)}
    return present, np.array([*(places.get(text, NONE) for text in texts), NONE], np.int64)[codes]


def check_kinds(names: Sequence[str], where: str) -> None:
    """Refuse labels of fewer than two kinds."""
    if len(names) < 2:
        raise UserError("a classifier needs labels of two kinds", where=where, value=", ".join(names) or "none",
                        remedy="Give labels of at least two kinds")  # fmt: skip


def text_codes(values: Any, feature: Feature, where: str) -> tuple[list[str], NDArray[np.int64]]:
    """Texts of a feature that occur, and the index of each node's text, -1 for null.

    Raises:
        UserError: a text is not UTF-8.
    """
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if feature.shape:
        column = pc.list_element(column, 0)
    try:
        coded = pc.dictionary_encode(column.cast(pa.large_string()))
    except pa.ArrowInvalid:
        raise UserError("a text is not UTF-8", where=where, remedy="Give text in UTF-8") from None
    return coded.dictionary.to_pylist(), pc.fill_null(coded.indices, NONE).to_numpy().astype(np.int64)


def given_splits(graph: HeteroGraph, node_set: str) -> NDArray[np.int8] | None:
    """Splits that `HeteroGraph.splits` has of the nodes, or from their feature `split`; None without either."""
    if node_set in graph.splits:
        return graph.splits[node_set].copy()
    feature = next((each for each in graph.node_sets[node_set].features if each.name == SPLIT_FEATURE), None)
    if feature is None or feature.dtype != STRING or feature.is_ragged or feature.width != 1:
        return None
    where = f"{graph.dataset.uri}, {node_set}.{SPLIT_FEATURE}"
    names, codes = _coded_texts(graph.node_feature(node_set, SPLIT_FEATURE), feature, where)
    strangers = [name for name in names if name not in SPLITS]
    if strangers:
        raise UserError("no such split", where=where, value=strangers[0],
                        remedy=f"Valid: {', '.join(SPLITS)}, or nothing")  # fmt: skip
    return np.array([*map(SPLITS.index, names), NONE], np.int8)[codes]


def divided(classes: NDArray[np.int64], kinds: int, shares: tuple[float, float], seed: int) -> NDArray[np.int8]:
    """Splits of each class by a hash of the nodes' numbers, with at least one node to train on."""
    splits = np.full(len(classes), NONE, np.int8)
    keys = random_streams.words(np.arange(len(classes)), seed, random_streams.SPLIT)
    order = np.lexsort((keys, classes))
    bounds = np.searchsorted(classes[order], np.arange(kinds + 1))
    for first, last in pairwise(bounds.tolist()):
        count = last - first
        train = max(1, round(shares[0] * count))
        valid = min(count, train + round(shares[1] * count))
        splits[order[first : train + first]] = 0
        splits[order[first + train : first + valid]] = 1
        splits[order[first + max(valid, train) : last]] = 2
    return splits


def by_number(name: str) -> tuple[int, int, str]:
    return (0, int(name), name) if name.isascii() and name.isdecimal() else (1, 0, name)
