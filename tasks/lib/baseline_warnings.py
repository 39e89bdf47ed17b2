"""Warnings where a simpler method is better than the network."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

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
    "forest": (
        "a random forest on features alone classifies better than the network",
        "Check that the edges join the right nodes, and compare other models and train.layers; or use the forest",
    ),
    "label_propagation": (
        "labels spread over the edges classify better than the network",
        "Set train.epochs higher, or train.dropout lower; check that the features are right",
    ),
    "end_classes": (
        "the labels of both ends' other edges classify better than the network",
        "Set train.epochs higher or train.learning_rate lower; check that edges have the right direction",
    ),
}
_NUMBER_METHODS = {
    "mean": (
        "the network is no better than the mean",
        "Look at train's losses: set train.learning_rate lower or train.epochs higher",
    ),
    "features": ("features alone predict better than the network", _CLASS_METHODS["features"][1]),
    "forest": ("a random forest on features alone predicts better than the network", _CLASS_METHODS["forest"][1]),
    "end_means": ("the mean labels of both ends predict better than the network", _CLASS_METHODS["end_classes"][1]),
    "neighbor_mean": (
        "the mean of the neighbours' numbers predicts better than the network", _CLASS_METHODS["label_propagation"][1],
    ),
}  # fmt: skip
_LINK_METHODS = ("degree_product", "common_neighbors", "adamic_adar", "paths_of_length_3", "short_walks")
_LINK_FIGURES = {"auc": (0.005, "predicted"), "mrr": (0.01, "ranked")}
"""Largest difference of each figure of links that is none, and what it judges."""


def class_warnings(
    own: Figures, simple: Figures, counts: Mapping[str, int], figure: str, trained_by: str,
    methods: Mapping[str, tuple[str, str]] = _CLASS_METHODS,
) -> list[InputWarning]:  # fmt: skip
    """Warnings by a figure on the test nodes, or on those to validate on if none are tested.

    A difference within one standard error of the figure is none; only the majority class is no match in any case.

    Args:
        own: figures of the network, `<figure>@<split>`.
        simple: figures of simpler methods, `<method>_<figure>@<split>`.
        counts: judged nodes by split.
        figure: `accuracy` or `micro_f1`.
        trained_by: stage whose parameters the warnings name.
        methods: doubt and remedy by method.
    """
    split = "test" if "test" in counts else "validation"
    name = f"{figure}@{split}"
    value = own[name]
    error = math.sqrt(max(0.0, value * (1 - value)) / max(1, counts[split]))
    found = []
    for method, (what, settle) in methods.items():
        other = simple.get(f"{method}_{name}")
        if other is not None and (value <= other if method == "majority" else value + error < other):
            found.append(InputWarning(what, name, f"{value:.4f}, {_text(method, other)}", _by(trained_by, settle)))
    return found


def number_warnings(own: Figures, simple: Figures, trained_by: str) -> list[InputWarning]:
    """Warnings by the RMSE of the test nodes, or of those to validate on; others than of the mean from 2% on.

    Args:
        own, simple, trained_by: see `class_warnings`.
    """
    name = "rmse@test" if "rmse@test" in own else "rmse@validation"
    found = []
    for method, (what, settle) in _NUMBER_METHODS.items():
        other = simple.get(f"{method}_{name}")
        if other is not None and own[name] >= other * (1.0 if method == "mean" else 1.02):
            found.append(InputWarning(what, name, f"{own[name]:.4g}, {_text(method, other)}", _by(trained_by, settle)))
    return found


def link_warnings(own: Figures, simple: Figures) -> list[InputWarning]:
    """Warnings by the AUC and by the MRR of the test links, or of those to validate on if none are tested."""
    split = "test" if "auc@test" in own else "validation"
    found = []
    for figure, (least, verb) in _LINK_FIGURES.items():
        name = f"{figure}@{split}"
        value = own.get(name, 1.0)
        better = [
            _text(method, other)
            for method in _LINK_METHODS
            if (other := simple.get(f"{method}_{name}")) is not None and value + least < other
        ]
        if better:
            what = f"links are {verb} better without a network"
            settle = "Compare train.model=sage and gcn, each with train.warmup_steps=200 too, or use the simpler method"
            found.append(InputWarning(what, name, f"{value:.4f}, {', '.join(better)}", settle))
    return found


def triple_warnings(own: Figures, simple: Figures) -> list[InputWarning]:
    """A warning if the filtered MRR of triples is below that of how often each relation has each end."""
    name = "mrr@test" if "mrr@test" in own else "mrr@validation"
    other = simple.get(f"relation_frequency_{name}")
    if other is None or own.get(name, 1.0) >= other:
        return []
    what = "triples are ranked better by how often their relation has each head and tail"
    value = f"{own[name]:.4f}, {_text('relation_frequency', other)}"
    return [InputWarning(what, name, value, "Set train.epochs or train.negatives higher, or train.learning_rate lower")]


def rating_warnings(own: Figures, methods: Sequence[str]) -> list[InputWarning]:
    """A warning if a simpler method has a lower RMSE of held-out ratings than factors.

    Args:
        own: figures by name, `<method>rmse@test`.
        methods: prefixes of the simpler methods' figures.
    """
    name = "rmse@test"
    better = [
        _text(method.rstrip("_"), own[f"{method}{name}"]) for method in methods if own[f"{method}{name}"] < own[name]
    ]
    if not better:
        return []
    value = f"{own[name]:.4f}, {', '.join(better)}"
    settle = "Compare als and bptf with other parameters, give logarithms of counts, or use the simpler method"
    return [InputWarning("ratings are predicted better without factors", name, value, settle)]


def _by(stage: str, settle: str) -> str:
    return re.sub(r"\btrain(?=\.|'s)", stage, settle)


def _text(method: str, value: float) -> str:
    return f"{method.replace('_', ' ')} {value:.4f}"
