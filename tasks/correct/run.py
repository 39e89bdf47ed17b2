"""The work of stage `correct`."""

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.correct import CORRECTION, LEAST_SHARE, MOST_CELLS, TERMS
from superworkflow.tasks.correct.neighbor_means import Floats, NeighborMeans
from superworkflow.tasks.correct.steps import Correction, PredictedRows, corrected
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.gnn.label_columns import PIECE, label_columns
from superworkflow.tasks.lib.gnn.model.config import Head, NetworkConfig, read_shape
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics import LABEL_FIGURES
from superworkflow.tasks.lib.metrics.figures import number_errors
from superworkflow.tasks.score.class_table import all_names, coded, label_scores
from superworkflow.tasks.score.numbers import JUDGED

load_kernels_fast()
PREDICTIONS, PROBABILITIES, CLASSES = "predictions.parquet", "probabilities.npy", "classes.json"


def run(job: StageRun[StageParams]) -> Output:
    """Write corrected predictions; see `tasks.correct`.

    Raises:
        DatasetDamaged: the predictions are not those of the graph's nodes.
    """
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    predictions, shape = job.inputs["predictions"], read_shape(job.inputs["network"])
    table, head, out = predictions.table(PREDICTIONS), shape.head, job.output
    found, own = _correction(job, table, shape), dict[str, float]()
    if isinstance(found, str):
        job.progress.log(f"predictions stay as they are: {found}")
        for name in {PREDICTIONS, PROBABILITIES, CLASSES} & set(predictions.files()):
            out.copy(name, predictions.local(name))
    else:
        own = _figures(table, head)
        for name, values in _columns(table, found.rows, head).items():
            table = table.set_column(table.column_names.index(name), name, values)
        out.table(PREDICTIONS, table)
        unit = 1.0 if head.classes else head.scale**2
        chosen = {"alpha": found.alpha, "scale": found.scale, "beta": found.beta}
        errors = {"before": found.before * unit, "after": found.after * unit}
        out.json(CORRECTION, {**chosen, **errors})
        out.array(TERMS, _in_labels_unit(found, head))
        if head.classes:
            out.array(PROBABILITIES, found.rows)
            out.json(CLASSES, list(head.classes))
        kind = "Brier score" if head.classes else "mean squared error"
        steps = ", ".join(f"{name} {value:.3g}" for name, value in chosen.items() if value)
        job.progress.log(f"{kind} of the nodes to validate on: {errors['before']:.4g}, "
                         f"corrected {errors['after']:.4g} ({steps})")  # fmt: skip
    stats = {"rows": len(table), "nodes": len(table)}
    if head.classes:
        stats["classes"] = len(head.classes)
    return Output(rows=len(table), stats=stats, metrics=own)


def _correction(job: StageRun[StageParams], table: pa.Table, shape: NetworkConfig) -> Correction | str:
    """The correction; or why there is none."""
    head, graph = shape.head, HeteroGraph.open(job.inputs["graph"])
    if shape.times is not None:
        return "neighbours may have later labels than a node's time"
    if len(table) * head.width > MOST_CELLS:
        return f"{len(table):,} nodes of {head.width} classes take too much memory"
    (node_set,) = head.node_sets
    if not table["node"].cast(pa.large_string()).equals(graph.ids(node_set)):
        raise damaged(job.inputs["predictions"], PREDICTIONS, f"the nodes of {graph.dataset.uri}")
    rows = _rows(job.inputs["predictions"], table, head)
    if not rows.trained.any() or not rows.validated.any():
        return "no node to train and to validate on has a label"
    means = NeighborMeans(graph, node_set, np.flatnonzero(~rows.trained))
    if not means.degrees.any():
        return f"no edges between nodes of {node_set}, nor paths through another set"
    found = corrected(means, rows, job.progress.update)
    if found is None:
        return "errors and labels nearby do not lower the error of the nodes to validate on"
    least = np.float32(LEAST_SHARE)
    if head.classes:
        np.maximum(found.rows, least * rows.given, out=found.rows)
    if head.several:
        np.minimum(found.rows, 1 - least * (1 - rows.given), out=found.rows)
    elif head.classes:
        found.rows[:] /= found.rows.sum(axis=1, keepdims=True)
    found.rows[rows.trained] = rows.given[rows.trained]
    return found


def _rows(predictions: Dataset, table: pa.Table, head: Head) -> PredictedRows:
    """Predicted rows and labels: probabilities of classes, or the number as the network makes it."""
    has_label = _labelled(table)
    if head.classes:
        given = predictions.array(PROBABILITIES)
        if given.shape != (len(table), head.width):
            raise damaged(predictions, PROBABILITIES, f"{len(table)} rows of {head.width} probabilities")
        owners, codes = coded(table.filter(pa.array(has_label))["label"], all_names(head.classes, table["label"]))
        owners, is_class = np.flatnonzero(has_label)[owners], codes < head.width
        truth = np.zeros(given.shape, np.float32)
        truth[owners[is_class], codes[is_class]] = 1
        has_label &= truth.any(axis=1)
    else:
        given, truth = (
            ((table[name].to_numpy()[:, None] - head.mean) / head.scale).astype(np.float32)
            for name in ("predicted", "label")
        )
    return PredictedRows(given, truth, *(has_label & _in_split(table, name) for name in ("train", "validation")))


def _figures(table: pa.Table, head: Head) -> dict[str, float]:
    """Figures of the network alone, as stage score has them."""
    found: dict[str, float] = {}
    has_label, names = _labelled(table), all_names(head.classes, table["label"]) if head.classes else []
    for split in JUDGED:
        part = table.filter(pa.array(has_label & _in_split(table, split)))
        if not len(part):
            continue
        if head.classes:
            figures = dict(zip(LABEL_FIGURES, label_scores(part, names), strict=True))
        else:
            figures = number_errors(part["label"].to_numpy(), part["predicted"].to_numpy())
        found |= {f"network_{name}@{split}": value for name, value in figures.items()}
    return found


def _labelled(table: pa.Table) -> NDArray[np.bool_]:
    """True for nodes with a label."""
    labels = table["label"]
    if pa.types.is_list(labels.type):
        return np.asarray(pc.list_value_length(labels).fill_null(0).to_numpy() > 0)
    return np.asarray(labels.is_valid().to_numpy())


def _in_split(table: pa.Table, name: str) -> NDArray[np.bool_]:
    return np.asarray(pc.equal(table["split"], name).fill_null(False).to_numpy())


def _in_labels_unit(found: Correction, head: Head) -> Floats:
    """Terms of the neighbours of nodes that are not in the graph."""
    terms: Floats = found.terms if head.classes else found.terms * head.scale + (found.beta or 0) * head.mean
    return terms.astype(np.float32)


def _columns(table: pa.Table, rows: Floats, head: Head) -> dict[str, pa.Array]:
    """Columns of predictions that differ."""
    if not head.classes:
        return {"predicted": column(rows[:, 0].astype(np.float64) * head.scale + head.mean)}
    if head.several:
        counts = pc.list_value_length(table["label"]).fill_null(0).to_numpy().astype(np.int64)
        pieces = (rows[first : first + PIECE] for first in range(0, len(rows), PIECE))
        return label_columns(head.classes, ((each, each) for each in pieces), counts)
    best = rows.argmax(axis=1)
    classes = pa.array(head.classes, table.schema.field("predicted").type)
    return {"predicted": classes.take(column(best)), "probability": column(rows[np.arange(len(rows)), best])}
