"""Warnings where a simpler method is better than the network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning

Figures = Mapping[str, float]
_CLASS_METHODS = {
    "majority": (
        "the network is no better than the most frequent class",
        "Look at train's losses: set train.learning_rate lower or train.epochs higher",
    ),
    "features": (
        "features alone classify better than the network",
        "The edges do not help as they are used here: check that they join the right nodes, or set train.layers=1",
    ),
    "label_propagation": (
        "labels spread over the edges classify better than the network",
        "Set train.epochs higher, or train.dropout lower; check that the features are right",
    ),
}
_LINK_METHODS = {
    "degree_product": (
        "degrees alone predict links better than the network",
        "Set train.negatives_by=degree, train.learning_rate lower or train.epochs higher",
    ),
    "common_neighbors": (
        "common neighbours predict links better than the network",
        "Set train.learning_rate lower, train.dropout=0 or train.epochs higher",
    ),
    "adamic_adar": (
        "common neighbours, weighted by degree, predict links better than the network",
        "Set train.learning_rate lower, train.dropout=0 or train.epochs higher",
    ),
}


def class_warnings(own: Figures, simple: Figures, counts: Mapping[str, int], figure: str) -> list[InputWarning]:
    """Warnings by a figure on the test nodes, or on those to validate on if none are tested.

    A difference within one standard error of the figure is none; only the majority class is no match in any case.

    Args:
        own: figures of the network, `<figure>@<split>`.
        simple: figures of simpler methods, `<method>_<figure>@<split>`.
        counts: judged nodes by split.
        figure: `accuracy` or `micro_f1`.
    """
    split = "test" if "test" in counts else "validation"
    value = own[f"{figure}@{split}"]
    error = math.sqrt(max(0.0, value * (1 - value)) / max(1, counts[split]))
    return list(_warnings(_CLASS_METHODS, value, simple, f"{figure}@{split}", {"majority": 0.0}, error))


def link_warnings(own: Figures, simple: Figures) -> list[InputWarning]:
    """Warnings by the AUC of the test links; differences up to 0.005 are none."""
    split = "test" if "auc@test" in own else "validation"
    if f"auc@{split}" not in own:
        return []
    return list(_warnings(_LINK_METHODS, own[f"auc@{split}"], simple, f"auc@{split}", {}, 0.005))


def _warnings(
    methods: Mapping[str, tuple[str, str]], value: float, simple: Figures, name: str, margins: Figures, margin: float
) -> Iterator[InputWarning]:
    for method, (what, settle) in methods.items():
        other = simple.get(f"{method}_{name}")
        if other is not None and (value <= other if method in margins else value + margin < other):
            yield InputWarning(what, name, f"{value:.4f}, {method.replace('_', ' ')} {other:.4f}", settle)
