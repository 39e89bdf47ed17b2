"""The work of stage `feature_matrix`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.manifest import WARNING_PREFIX
from superworkflow.tasks.feature_matrix import FeatureMatrixParams
from superworkflow.tasks.feature_matrix.columns import features_among_columns, learned_columns, values_of_columns
from superworkflow.tasks.heterograph.bins import may_widen
from superworkflow.tasks.heterograph.feature_columns import NodeColumn
from superworkflow.tasks.heterograph.label_leaks import label_leaks
from superworkflow.tasks.heterograph.scaled_matrix import fill_and_fit, write_scaled
from superworkflow.tasks.heterograph.scaling import Scaling
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats
from superworkflow.tasks.lib.gnn.column_scaling import NONE, PIECEWISE, ROW, scaled_widths
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig, read_shape
from superworkflow.tasks.lib.graph.dtypes import FEATURES
from superworkflow.tasks.lib.graph.heterograph import (
    COLUMNS_FILE,
    GRAPH_FILE,
    SCALING_FILE,
    Feature,
    HeteroGraph,
    NodeSet,
    feature_stem,
)
from superworkflow.tasks.lib.graph.heterograph_writer import by_name, stat_name, stats_of, write_graph_file
from superworkflow.tasks.lib.graph.label_feature import label_feature
from superworkflow.tasks.lib.graph.missing_labels import missing
from superworkflow.tasks.lib.kernels.huge_pages import rows_of_pieces

_USUAL_LABEL = "node.label"
_OPEN_FILES = 128
"""Files of features that are mapped at a time."""
_SHOWN = 5


def run(job: StageRun[FeatureMatrixParams]) -> Output:
    """Write the matrices; see `tasks.feature_matrix`.

    Raises:
        UserError: there is no such label or column, or a value is not a finite number.
    """
    graph, params = HeteroGraph.open(job.inputs["graph"]), job.params
    network = read_shape(job.inputs["network"]) if "network" in job.inputs else None
    label = _label_of(graph, params.label) if network is None else None
    if network is not None:
        chosen = learned_columns(graph, network)
    else:
        name = f"{label[0]}.{label[1].name}" if label else ""
        chosen = features_among_columns(graph, name, params.take, params.leave_out)
    _copy_graph(job, graph)
    columns: dict[str, list[list[Any]]] = {}
    scalings: dict[str, dict[str, Any]] = {}
    node_sets, warnings = [], list(chosen.warnings)
    for number, (name, nodes) in enumerate(graph.node_sets.items()):
        read = chosen.columns[name]
        names = {each.name for each in read} | {FEATURES}
        kept = [each for each in nodes.features if each.name not in names]
        if label is not None and label[0] == name and label[1] not in kept:
            raise UserError("the label's name is that of the matrix of features", where="train.label",
                            value=f"{name}.{FEATURES}", remedy="Give the column another name")  # fmt: skip
        matrix = _matrix_of(nodes, read) if read and nodes.count else None
        features = by_name([*kept, matrix] if matrix else kept)
        for place, feature in enumerate(features):
            if feature is not matrix:
                _copy_feature(job, graph, number, nodes.features.index(feature), place)
        if matrix is not None:
            file = f"{feature_stem('nodes', number, features.index(matrix))}.npy"
            scaling, values, lacking = _write_matrix(job, graph, name, read, matrix, file, network)
            warnings += lacking
            sizes = scaled_widths((each.width for each in read), scaling._asdict())
            read = tuple(each._replace(width=size) for each, size in zip(read, sizes, strict=True))
            features[features.index(matrix)] = matrix = matrix._replace(shape=values.shape[1:])
            columns[name] = [[each.name, each.width] for each in read]
            scalings[name] = {"columns": [each._asdict() for each in read], **scaling.document()}
            job.progress.log(f"{name}: {matrix.width} values of {_shown(read)}; scaling: {scaling.kind}")
            if label is not None and label[0] == name:
                warnings += _leaks(graph, label, values, scaling, read)
        node_sets.append(nodes._replace(features=tuple(features)))
        job.progress.update(number + 1, len(graph.node_sets), "node sets")
    log_warnings(job.progress, warnings)
    job.output.json(COLUMNS_FILE, columns)
    job.output.json(SCALING_FILE, scalings)
    edge_sets = list(graph.edge_sets.values())
    write_graph_file(job.output, node_sets, edge_sets, graph.context)
    before = {name: value for name, value in graph.dataset.stats.items() if not name.startswith(WARNING_PREFIX)}
    widths = {
        f"values.nodes.{stat_name(each.name, number)}": sum(width for _, width in columns.get(each.name, ()))
        for number, each in enumerate(node_sets)
    }
    facts = before | stats_of(node_sets, edge_sets) | widths
    return Output(
        rows=sum(nodes.count for nodes in node_sets),
        stats={**facts, "bytes": job.output.bytes_written, **warning_stats(warnings)},
    )


def _label_of(graph: HeteroGraph, label: str) -> tuple[str, Feature] | None:
    """Node set and feature of the label; None if nothing is learned by name."""
    features = {
        f"{name}.{each.name}": (name, each) for name, nodes in graph.node_sets.items() for each in nodes.features
    }
    name = label or _USUAL_LABEL
    if any(label == f"{edges.name}.{each.name}" for edges in graph.edge_sets.values() for each in edges.features):
        return None
    return features[name] if name in features else label_feature(graph, label, "train.label") if label else None


def _matrix_of(nodes: NodeSet, read: Sequence[NodeColumn]) -> Feature:
    types = {each.name: each.dtype for each in nodes.features}
    half = all(types[each.name] == "half" for each in read)
    return Feature(FEATURES, "half" if half else "float", (sum(each.width for each in read),))


def _write_matrix(
    job: StageRun[FeatureMatrixParams], graph: HeteroGraph, name: str, read: Sequence[NodeColumn], matrix: Feature,
    file: str, network: NetworkConfig | None,
) -> tuple[Scaling, NDArray[Any], list[InputWarning]]:  # fmt: skip
    where, shape = f"{graph.dataset.uri}, {name}", (graph.node_sets[name].count, matrix.width)
    warnings: list[InputWarning] = []
    wanted, widths = job.params.scaling, [each.width for each in read]

    def fill(filled: NDArray[np.float32]) -> Scaling:
        column, absent = 0, np.zeros(matrix.width, np.int64)
        for some in (read[first : first + _OPEN_FILES] for first in range(0, len(read), _OPEN_FILES)):
            parts = values_of_columns(graph, name, some)
            place = slice(column, column + sum(each.width for each in some))
            for rows in rows_of_pieces(filled):
                filled[rows, place] = np.concatenate([part[rows] for part in parts], axis=1)
                absent[place] += np.isnan(filled[rows, place]).sum(axis=0)
            column = place.stop
        learned = _learned_scaling(network, name, matrix.width)
        scaling, doubts = fill_and_fit(filled, absent, read, f"schema, {name}", learned, wanted)
        warnings.extend(doubts)
        return scaling

    learned_kind = "" if network is None else network.scaling.get(name, {}).get("kind")
    may = may_widen(shape[0], wanted, widths.count(1)) or learned_kind == PIECEWISE
    written = write_scaled(job.output, file, shape, matrix.dtype == "half", fill, job.scratch, where, may)
    return *written, warnings


def _learned_scaling(network: NetworkConfig | None, name: str, width: int) -> Scaling | None:
    """The scaling of a network's features; None without one, `NONE` where it was trained on features as they are."""
    if network is None:
        return None
    found = network.scaling.get(name)
    learned = Scaling.read(found) if found is not None else None
    if learned is None or not learned.fits(width):
        return Scaling(NONE, np.empty(0), np.empty(0), np.empty(0))  # the stage infer names the features that differ
    return learned


def _leaks(
    graph: HeteroGraph,
    label: tuple[str, Feature],
    values: NDArray[Any],
    scaling: Scaling,
    columns: Sequence[NodeColumn],
) -> list[InputWarning]:
    """Warnings of features that give away the label, one for each node."""
    node_set, feature = label
    if feature.is_ragged or feature.shape:
        return []
    given = graph.node_feature(node_set, feature.name)
    none = missing(np.asarray(given) if isinstance(given, np.ndarray) else given.combine_chunks())
    texts = given if isinstance(given, np.ndarray) else given.combine_chunks().dictionary_encode().indices.to_numpy()
    classes = np.unique(texts, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return label_leaks(values, scaling.kind == ROW, columns, np.where(none, -1, classes), f"schema, {node_set}")


def _copy_graph(job: StageRun[FeatureMatrixParams], graph: HeteroGraph) -> None:
    """Copy all but the description and the features of nodes."""
    for file in graph.dataset.manifest.files:
        if file.path != GRAPH_FILE and not (file.path.startswith("nodes-") and "-feature-" in file.path):
            job.output.copy(file.path, graph.dataset.local(file.path))


def _copy_feature(job: StageRun[FeatureMatrixParams], graph: HeteroGraph, number: int, old: int, new: int) -> None:
    stems = feature_stem("nodes", number, old), feature_stem("nodes", number, new)
    for file in _files(graph, stems[0]):
        job.output.copy(stems[1] + file.removeprefix(stems[0]), graph.dataset.local(file))


def _files(graph: HeteroGraph, stem: str) -> Iterator[str]:
    """Files of a feature: its stem, and `.` or `-` after it."""
    return (each.path for each in graph.dataset.manifest.files if each.path.startswith((f"{stem}.", f"{stem}-")))


def _shown(read: Sequence[NodeColumn]) -> str:
    names = ", ".join(each.name for each in read[:_SHOWN])
    return f"{names}, …" if len(read) > _SHOWN else names
