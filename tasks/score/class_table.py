"""Figures of each class, and which classes are taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.metrics.figures import area_under_curve, average_precision, class_scores

BINS = 15


class LabelCodes(NamedTuple):
    """Labels of nodes, one or several of each, by number.

    Args:
        owners: number of the node that has the label, ascending.
        values: number of the label.
    """

    owners: NDArray[np.int64]
    values: NDArray[np.int64]

    def pairs(self, labels: int) -> NDArray[np.int64]:
        """One number for each node and label."""
        return self.owners * labels + self.values


def all_names(classes: Sequence[str], given: pa.ChunkedArray) -> list[str]:
    """Names of the classes of a network, followed by other labels that nodes have, such as on a later graph."""
    flat = pc.list_flatten(given) if pa.types.is_list(given.type) else given
    others = {name for name in pc.unique(flat).to_pylist() if name is not None} - set(classes)
    return [*classes, *sorted(others)]


def coded(given: pa.ChunkedArray, names: Sequence[str]) -> LabelCodes:
    """Labels of nodes by their numbers in `names`."""
    whole = given.combine_chunks()
    owners = np.arange(len(whole))
    if pa.types.is_list(whole.type):
        owners, whole = np.repeat(owners, pc.list_value_length(whole).to_numpy()), whole.flatten()
    return LabelCodes(owners, pc.index_in(whole, value_set=pa.array(names, pa.string())).to_numpy().astype(np.int64))


def label_scores(part: pa.Table, names: Sequence[str]) -> tuple[float, float, float]:
    """Accuracy, Micro- and Macro-F1 of the rows of a split, with one or several labels; see `tasks.score`."""
    several = pa.types.is_list(part.schema.field("label").type)
    wanted, given = (coded(part[name], names) for name in ("label", "ranked" if several else "predicted"))
    if several:
        return several_scores(wanted, given, len(part), len(names))
    accuracy, macro = class_scores(wanted.values, given.values)
    return accuracy, accuracy, macro


def several_scores(wanted: LabelCodes, found: LabelCodes, nodes: int, labels: int) -> tuple[float, float, float]:
    """Share of nodes of which all labels are found, Micro- and Macro-F1.

    Args:
        wanted, found: labels of each node, and as many of highest score.
        nodes: their number.
        labels: of the problem; one that is neither there nor found counts 0 in Macro-F1.
    """
    right = np.isin(found.pairs(labels), wanted.pairs(labels))
    missed = np.bincount(found.owners[~right], minlength=nodes) > 0
    hits = np.bincount(found.values[right], minlength=labels)
    marked = np.bincount(wanted.values, minlength=labels) + np.bincount(found.values, minlength=labels)
    per_label = 2 * hits / np.maximum(marked, 1)
    return float(1 - missed.mean()), float(2 * hits.sum() / max(1, marked.sum())), float(per_label.mean())


def class_table(
    names: Sequence[str], wanted: LabelCodes, found: LabelCodes, likely: NDArray[np.float32], rows: NDArray[np.int64]
) -> tuple[pa.Table, dict[str, float]]:
    """Figures of each class, and the means of ROC-AUC and average precision over the classes that have them.

    Args:
        names: of all classes.
        wanted, found: labels of the nodes, and predicted ones.
        likely: probabilities of some nodes, of the first classes.
        rows: numbers of these nodes.
    """
    kinds = len(names)
    right = np.isin(found.pairs(kinds), wanted.pairs(kinds))
    hits = np.bincount(found.values[right], minlength=kinds)
    support, predicted = (np.bincount(each.values, minlength=kinds) for each in (wanted, found))
    nodes = int(max(wanted.owners.max(), rows.max())) + 1
    order = np.argsort(wanted.values, kind="stable")
    ends = np.searchsorted(wanted.values[order], np.arange(kinds + 1))
    curves: dict[str, list[float | None]] = {"roc_auc": [None] * kinds, "average_precision": [None] * kinds}
    for number in range(likely.shape[1]):
        has = np.zeros(nodes, np.bool_)
        has[wanted.owners[order[ends[number] : ends[number + 1]]]] = True
        has = has[rows]
        if has.any() and not has.all():
            both = likely[has, number], likely[~has, number]
            curves["roc_auc"][number] = area_under_curve(*both)
            curves["average_precision"][number] = average_precision(*both)
    means = {name: [each for each in values if each is not None] for name, values in curves.items()}
    columns: dict[str, Any] = {
        "precision": _ratios(hits, predicted), "recall": _ratios(hits, support),
        "f1": _ratios(2 * hits, support + predicted), "support": column(support), "predicted": column(predicted),
        **{name: pa.array(values, pa.float64()) for name, values in curves.items()},
    }  # fmt: skip
    table = pa.table({"class": pa.array(names, pa.string()), **columns})
    return table, {name: float(np.mean(values)) for name, values in means.items() if values}


def confusion_table(names: Sequence[str], wanted: NDArray[np.int64], found: NDArray[np.int64]) -> pa.Table:
    """Number of nodes of each pair of a class and a predicted class that occurs."""
    pairs, counts = np.unique(wanted * len(names) + found, return_counts=True)
    texts = pa.array(names, pa.string())
    return pa.table({
        "label": texts.take(column(pairs // len(names))), "predicted": texts.take(column(pairs % len(names))),
        "nodes": column(counts),
    })  # fmt: skip


def _ratios(hits: NDArray[np.int64], of_all: NDArray[np.int64]) -> pa.Array:
    """Shares, null where there is nothing to be a share of."""
    return pa.array([part / whole if whole else None for part, whole in zip(hits, of_all, strict=True)], pa.float64())


def calibration_bins(likely: NDArray[np.floating[Any]], right: NDArray[np.bool_]) -> pa.Table:
    """Bins (low, high] of equal width that have predictions.

    Args:
        likely: probability of each predicted class, [n].
        right: whether it is the true one, bool [n].

    Returns:
        Columns `low`, `high`, `nodes`, `probability` (mean) and `accuracy`.
    """
    number = np.clip(np.ceil(likely.astype(np.float64) * BINS).astype(np.int64) - 1, 0, BINS - 1)
    counts = np.bincount(number, minlength=BINS)
    there = np.flatnonzero(counts)
    means = [np.bincount(number, values, BINS)[there] / counts[there] for values in (likely, right)]
    return pa.table({
        "low": there / BINS, "high": (there + 1) / BINS, "nodes": counts[there], "probability": means[0],
        "accuracy": means[1],
    })  # fmt: skip


def calibration_error(bins: pa.Table) -> float:
    """Expected calibration error (Guo et al., ICML 2017): mean gap of the bins, by their nodes."""
    nodes, likely, right = (bins[name].to_numpy() for name in ("nodes", "probability", "accuracy"))
    return float((nodes * np.abs(likely - right)).sum() / nodes.sum())
