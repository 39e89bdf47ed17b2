"""Simpler predictions of edges: from the labels of the training edges of both ends alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.baselines import MOST_JUDGED
from superworkflow.tasks.baselines.labelled_nodes import spread_out
from superworkflow.tasks.lib.gnn.objective.edge_labels import EdgeLabels, read_edge_labels
from superworkflow.tasks.lib.gnn.objective.split_params import SplitParams
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.metrics.figures import class_scores, number_errors

JUDGED = ("validation", "test")
_DAMPING = 5.0
"""Edges of a mean label that each end counts as if it had them too."""


def judge_edges(job: StageRun[SplitParams], graph: HeteroGraph) -> Output:
    """Judge simpler methods on labelled edges; see `tasks.baselines`."""
    labels = read_edge_labels(graph)
    edges = graph.edge_sets[labels.edges]
    sizes = graph.node_sets[edges.source].count, graph.node_sets[edges.target].count
    either_way = not labels.directed
    metrics: dict[str, float] = {}
    judged = {split: spread_out(labels.items(split), job.params.seed, MOST_JUDGED) for split in JUDGED}
    methods: Mapping[str, Callable[[NDArray[np.int64]], NDArray[np.floating]]]
    if labels.classes:
        scores = class_model(labels, sizes, either_way)
        counts = np.bincount(labels.values[labels.items("train")], minlength=len(labels.classes))
        methods = {
            "majority": lambda items: np.full(len(items), counts.argmax()),
            "end_classes": lambda items: scores(labels.pairs[items]).argmax(axis=1),
        }
        shown = "accuracy"
    else:
        number, mean = mean_model(labels, sizes, either_way), labels.spread()[0]
        methods = {
            "mean": lambda items: np.full(len(items), mean),
            "end_means": lambda items: number(labels.pairs[items]),
        }
        shown = "rmse"
    for method, predict in methods.items():
        for split, items in judged.items():
            if not len(items):
                continue
            truth, found = labels.values[items], predict(items)
            if labels.classes:
                scored = class_scores(truth, found.astype(np.int64))
                figures = dict(zip(("accuracy", "macro_f1"), scored, strict=True))
                figures["micro_f1"] = figures["accuracy"]
            else:
                figures = number_errors(truth, found)
            metrics |= {f"{method}_{figure}@{split}": value for figure, value in figures.items()}
            job.progress.log(f"{method.replace('_', ' ')}: {shown} {figures[shown]:.4f} ({split})")
    job.output.json("metrics.json", metrics)
    return Output(rows=sum(map(len, judged.values())), metrics=metrics)


def mean_model(
    labels: EdgeLabels, sizes: tuple[int, int], either_way: bool
) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
    """Mean plus the deviation of each end, damped means of what is left of its edges (Funk, 2006).

    Args:
        labels: numbers of edges, of which those of the split train are used.
        sizes: numbers of sources and targets.
        either_way: a node has one deviation as source and as target.

    Returns:
        Function of pairs [n, 2] to numbers [n].
    """
    items = labels.items("train")
    pairs, rest = labels.pairs[items], labels.values[items] - labels.spread()[0]
    mean = labels.spread()[0]
    if either_way:
        ends, both = np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([rest, rest])
        own = _damped(ends, both, sizes[0]) / 2
        return lambda given: mean + own[given[:, 0]] + own[given[:, 1]]
    of_targets = _damped(pairs[:, 1], rest, sizes[1])
    of_sources = _damped(pairs[:, 0], rest - of_targets[pairs[:, 1]], sizes[0])
    return lambda given: mean + of_sources[given[:, 0]] + of_targets[given[:, 1]]


def class_model(
    labels: EdgeLabels, sizes: tuple[int, int], either_way: bool
) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
    """Log-probabilities of the classes by the damped shares of both ends' classes, naive Bayes.

    Args:
        labels: classes of edges, of which those of the split train are used.
        sizes: numbers of sources and targets.
        either_way: a node has one share of a class as source and as target.

    Returns:
        Function of pairs [n, 2] to scores [n, classes].
    """
    items, kinds = labels.items("train"), len(labels.classes)
    pairs, classes = labels.pairs[items], labels.values[items]
    prior = np.bincount(classes, minlength=kinds) / len(classes)
    if either_way:
        ends = [np.concatenate([pairs[:, 0], pairs[:, 1]])]
        classes = np.concatenate([classes, classes])
    else:
        ends = [pairs[:, 0], pairs[:, 1]]
    logs = []
    for numbers, size in zip(ends, sizes, strict=False):
        counts = np.bincount(numbers * kinds + classes, minlength=size * kinds).reshape(size, kinds)
        shares = (counts + _DAMPING * prior) / (counts.sum(axis=1, keepdims=True) + _DAMPING)
        logs.append(np.log(shares))
    return lambda given: logs[0][given[:, 0]] + logs[-1][given[:, 1]] - np.log(prior)


def _damped(ends: NDArray[np.int64], values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    counts, sums = np.bincount(ends, minlength=size), np.bincount(ends, values, minlength=size)
    return np.asarray(sums / (counts + _DAMPING))
