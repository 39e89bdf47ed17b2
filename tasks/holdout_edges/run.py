"""The work of stage `holdout_edges`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.manifest import WARNING_PREFIX
from superworkflow.tasks.holdout_edges import HoldoutEdgesParams
from superworkflow.tasks.holdout_edges.labelled_rows import RANDOM, edges_of_set, rows_of_list
from superworkflow.tasks.holdout_edges.splits import NONE, drawn_splits, named_splits
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats
from superworkflow.tasks.lib.gnn.link_doubts import link_doubts
from superworkflow.tasks.lib.gnn.objective.edge_labels import EdgeLabels
from superworkflow.tasks.lib.gnn.objective.labels import by_number, check_kinds
from superworkflow.tasks.lib.gnn.objective.real_labels import number_of
from superworkflow.tasks.lib.gnn.objective.splits import SPLITS
from superworkflow.tasks.lib.gnn.sampler.links import Places, is_directed, packed_pairs
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.hidden_edges import write_without
from superworkflow.tasks.lib.graph.missing_labels import is_blank
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()
MOST_CLASSES = 1000
_FEW_KINDS = 10
"""Whole numbers of more kinds than this are doubted as classes."""


def run(job: StageRun[HoldoutEdgesParams]) -> Output:
    """Hide edges; see `tasks.holdout_edges`.

    Raises:
        UserError: labels or splits cannot be used.
    """
    params, graph = job.params, HeteroGraph.open(job.inputs["graph"])
    given = rows_of_list(job, graph) if "edges" in job.sources else edges_of_set(graph, params)
    where = f"{job.sources['edges'].uri if 'edges' in job.sources else graph.dataset.uri}, {given.label}"
    values, names, warnings = labels_of(given.labels, params.task == "edge_regression", where)
    edges = graph.edge_sets[given.edges]
    directed = is_directed(graph, edges)
    has = ~np.isnan(values)
    splits = np.full(len(values), NONE, np.int8)
    classes = values[has].astype(np.int64) if names else np.zeros(int(has.sum()), np.int64)
    if given.order is None:
        splits[has] = drawn_splits(given.pairs[has], classes, directed, params.shares, params.seed)
    else:
        splits[has] = named_splits(given.order.filter(pa.array(has)), params.shares, f"{where}, train.split_by")
    kept = splits != NONE
    labels = EdgeLabels(
        given.edges, given.label, directed, names, given.pairs[kept],
        values[kept].astype(np.int64) if names else values[kept], splits[kept],
    )  # fmt: skip
    _check(labels, where)
    if twice := _in_two_splits(labels):
        warnings.append(InputWarning(
            "edges between the same two nodes are in several splits", where, f"{twice} pairs of nodes",
            f"Set train.split_by={RANDOM} if these labels are the same", ))  # fmt: skip
    counts = {split: len(labels.items(split)) for split in SPLITS}
    job.progress.log(f"{len(labels.splits)} edges of {labels.edges} have a label, {labels.label}: " + ", ".join(
        f"{count} {split}" for split, count in counts.items()))  # fmt: skip
    judged = labels.pairs[labels.splits != SPLITS.index("train")]
    warnings += link_doubts(graph, edges, judged)
    log_warnings(job.progress, warnings)
    feature = given.label.removeprefix(f"{given.edges}.") if given.label.startswith(f"{given.edges}.") else ""
    stats = write_without(job.output, graph, Places(graph, edges, directed).of(judged), feature)
    labels.write(job.output)
    return Output(rows=len(judged), stats={
        **{name: value for name, value in graph.dataset.stats.items() if not name.startswith(WARNING_PREFIX)}, **stats,
        "labelled_edges": len(labels.splits), "bytes": job.output.bytes_written,
        **warning_stats(warnings),
    })  # fmt: skip


def labels_of(
    texts: pa.LargeStringArray, numbers: bool, where: str
) -> tuple[NDArray[np.float64], tuple[str, ...], list[InputWarning]]:
    """Class or number of each edge, NaN for none; names of the classes; warnings.

    Raises:
        UserError: a label is no finite number, there are too many classes, or labels of one kind only.
    """
    coded = texts.dictionary_encode()
    kinds, codes = [text.strip() for text in coded.dictionary.to_pylist()], coded.indices.to_numpy()
    found = {kind: number_of(kind) for kind in kinds if not is_blank(kind)}
    if numbers:
        faulty = next((kind for kind, value in found.items() if value is None or not np.isfinite(value)), None)
        if faulty is not None:
            rows = np.flatnonzero(codes == kinds.index(faulty))
            raise UserError(
                f"a label is no finite number, and train.task=edge_regression predicts numbers: that of edge "
                f"{rows[0] + 1}" + (f" and of {len(rows) - 1} others" if len(rows) > 1 else ""), where=where,
                value=faulty, remedy="Correct it (decimals have a point), leave it empty if it is unknown, or set "
                "train.task=edge_classification",
            )  # fmt: skip
        values = [np.nan if is_blank(kind) else float(found[kind] or 0.0) for kind in kinds]
        return np.array([*values, np.nan], np.float64)[codes], (), []
    names = _ordered(found)
    check_kinds(names, where)
    if len(names) > MOST_CLASSES:
        raise UserError(
            f"there are more than {MOST_CLASSES} different labels", where=where,
            value=f"{len(names)}, such as {names[0]} and {names[-1]}",
            remedy="Set train.task=edge_regression to predict numbers, or name a column of fewer kinds",
        )  # fmt: skip
    place = {name: float(number) for number, name in enumerate(names)}
    return np.array([*(place.get(kind, np.nan) for kind in kinds), np.nan])[codes], names, _doubts(names, found, where)


def _ordered(found: dict[str, float | None]) -> tuple[str, ...]:
    """Names of classes, as numbers where all are."""
    if any(value is None for value in found.values()):
        return tuple(sorted(found, key=by_number))
    return tuple(sorted(found, key=lambda name: (found[name] or 0.0, name)))


def _doubts(names: tuple[str, ...], found: dict[str, float | None], where: str) -> list[InputWarning]:
    """A warning of classes that may be numbers to predict."""
    values = [value for value in found.values() if value is not None]
    if len(values) < len(names) or not (len(names) > _FEW_KINDS or any(value % 1 for value in values)):
        return []
    return [InputWarning("labels are numbers, and taken for names of classes", where,
                         f"{len(names)} different ones, from {names[0]} to {names[-1]}",
                         "Set train.task=edge_regression to predict numbers")]  # fmt: skip


def _check(labels: EdgeLabels, where: str) -> None:
    """Refuse labels that cannot be learned or judged."""
    trained: NDArray[Any] = labels.values[labels.items("train")]
    if not len(labels.items("test")) or not len(trained):
        lacking = "test" if len(trained) else "train on"
        raise UserError(f"there are no edges to {lacking}", where=where, value=f"{len(labels.splits)} labelled edges",
                        remedy="Give more of them, other shares, or rows of both splits")  # fmt: skip
    if not labels.classes and trained.min() == trained.max():
        raise UserError("a regression needs different numbers to train on", where=where,
                        value=f"{len(trained)} training edges, all {trained[0]:g}",
                        remedy="Put edges with different numbers into the split train")  # fmt: skip
    if labels.classes:
        counts = np.bincount(trained, minlength=len(labels.classes))
        lacks = [name for name, count in zip(labels.classes, counts, strict=True) if not count]
        if lacks:
            raise UserError("a class has no edge to train on", where=where, value=", ".join(lacks)[:200],
                            remedy="Put an edge of each class into the split train, or leave it empty")  # fmt: skip


def _in_two_splits(labels: EdgeLabels) -> int:
    """Number of pairs of nodes with edges in several splits."""
    _, group = np.unique(packed_pairs(labels.pairs, not labels.directed), return_inverse=True)
    least, most = (np.full(int(group.max()) + 1, start, np.int8) for start in (len(SPLITS), 0))
    np.minimum.at(least, group.reshape(-1), labels.splits)
    np.maximum.at(most, group.reshape(-1), labels.splits)
    return int((least < most).sum())
