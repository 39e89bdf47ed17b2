"""The feature of a typed graph's nodes that is their label."""

from __future__ import annotations

from collections.abc import Iterable

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.graph.dtypes import FLOATS
from superworkflow.tasks.lib.graph.heterograph import COLUMNS_FILE, Feature, HeteroGraph


def label_feature(
    graph: HeteroGraph, label: str, where: str, default: str = "", may_be_decimal: bool = False
) -> tuple[str, Feature]:
    """Node set and feature of a label given as SET.FEATURE, where names may hold dots; ragged if nodes have several.

    Decimals may be labels in graphs that name the columns of their features, which the label is none of.

    Raises:
        UserError: there is no such feature, or it cannot be a label; names the parameter `where`.
    """
    features = {
        f"{name}.{feature.name}": (name, feature)
        for name, nodes in graph.node_sets.items()
        for feature in nodes.features
    }
    name = label or default
    if name not in features:
        raise no_such_label(label, where, features)
    node_set, feature = features[name]
    decimal = feature.dtype in FLOATS and not (may_be_decimal and COLUMNS_FILE in graph.dataset)
    if feature.width != 1 or len(feature.shape) > 1 or decimal:
        raise UserError(
            "a label is a whole number or text for each node, or a ragged list of them", where=where,
            value=f"{name}: {feature.dtype}{list(feature.shape)}",
            remedy="Give a feature of whole numbers or text; set train.task=regression to predict decimals",
        )  # fmt: skip
    return node_set, feature


def no_such_label(label: str, where: str, names: Iterable[str]) -> UserError:
    """The error that a label is none of the features of nodes, which are named SET.FEATURE."""
    what = "the graph has no such feature of nodes" if label else "no label is named"
    remedy = f"Give --label SET.FEATURE, of {', '.join(names)[:500] or 'none'}"
    return UserError(what, where=where, value=label, remedy=remedy)
