"""Features of a node set as one matrix.

A graph that names its columns, as the stage feature_matrix and an edge list's features do, has the matrix as the
feature `FEATURES`. Of any other graph it is made of numbers and truth values of a fixed shape, by name; a single whole
number or truth value for each node is left out: it may be the label, a split, an id or a code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.gnn.column_scaling import SCALING_PARTS
from superworkflow.tasks.lib.gnn.model.config import check_scaling
from superworkflow.tasks.lib.graph.dtypes import FEATURES, STRING, is_read
from superworkflow.tasks.lib.graph.heterograph import COLUMNS_FILE, SCALING_FILE, Feature, HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged

_PIECE_BYTES = 32 << 20
_SHOWN = 5


def width_of(graph: HeteroGraph, node_set: str) -> int:
    """Number of values of a node, over all such features."""
    return sum(feature.width for feature in _read(graph, node_set))


def columns_of(graph: HeteroGraph, node_set: str) -> tuple[tuple[str, int], ...]:
    """Names and widths of a node's values, in their order: columns of a table, or features of a schema.

    Raises:
        DatasetDamaged: the names are not those of the values.
    """
    named, width = _document(graph, COLUMNS_FILE, node_set), width_of(graph, node_set)
    if named is None or not width:
        return tuple((feature.name, feature.width) for feature in _read(graph, node_set))
    found = tuple((str(name), int(width)) for name, width in named)
    if sum(width for _, width in found) != width:
        raise damaged(graph.dataset, COLUMNS_FILE, "columns of other features")
    return found


def scaling_of(graph: HeteroGraph, node_set: str) -> dict[str, Any] | None:
    """Scaling of a node set's features as `NetworkConfig.scaling` has it; None where it is not recorded.

    Raises:
        DatasetDamaged: it is that of other features.
    """
    found = _document(graph, SCALING_FILE, node_set)
    if found is None or not width_of(graph, node_set):
        return None
    try:
        check_scaling(found, width_of(graph, node_set))
        categories = {str(each["name"]): list(map(str, each["values"])) for each in found["columns"] if each["values"]}
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(graph.dataset, SCALING_FILE, str(error)) from None
    return {name: found.get(name, []) for name in SCALING_PARTS} | {"categories": categories}


def features_of(graph: HeteroGraph, node_set: str) -> NDArray[np.floating[Any]] | None:
    """Features of a node set, [nodes, values]; None without any.

    A single feature stays mapped, as float32 or float16; readers of its rows widen them. Several become float32.

    Raises:
        UserError: a value is not a finite number; names the node.
    """
    parts: list[NDArray[Any]] = []
    for feature in _read(graph, node_set):
        values = graph.node_feature(node_set, feature.name)
        flat = values.reshape(len(values), feature.width)
        if flat.dtype.kind == "f":
            check_finite(graph, node_set, feature.name, flat)
        parts.append(flat)
    if not parts:
        return None
    if len(parts) == 1 and parts[0].dtype in (np.float32, np.float16):
        return parts[0]
    whole = np.empty((graph.node_sets[node_set].count, sum(part.shape[1] for part in parts)), np.float32)
    column = 0
    for part in parts:
        whole[:, column : column + part.shape[1]] = part
        column += part.shape[1]
    return whole


def left_out(graph: HeteroGraph) -> str:
    """Sentence that names single whole numbers and truth values of nodes, which are not read; empty without any."""
    names = [
        f"{name}.{feature.name}"
        for name, nodes in graph.node_sets.items()
        for feature in nodes.features
        if COLUMNS_FILE not in graph.dataset
        and feature.dtype != STRING
        and not feature.is_ragged
        and feature.width == 1
        and not _counts(feature)
    ]
    if not names:
        return ""
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"not read as features: {shown}; a single whole number is read where the schema says DT_FLOAT"


def _read(graph: HeteroGraph, node_set: str) -> list[Feature]:
    """Features of a node set that its matrix is made of."""
    features = graph.node_sets[node_set].features
    if COLUMNS_FILE not in graph.dataset:
        return [feature for feature in features if _counts(feature)]
    named = _document(graph, COLUMNS_FILE, node_set) is not None
    return [feature for feature in features if named and feature.name == FEATURES and _counts(feature)]


def _document(graph: HeteroGraph, file: str, node_set: str) -> Any:
    """A node set's part of a file; None without one."""
    if file not in graph.dataset:
        return None
    found = graph.dataset.json(file)
    if not isinstance(found, dict):
        raise damaged(graph.dataset, file, "no node sets")
    return found.get(node_set)


def _counts(feature: Any) -> bool:
    return not feature.is_ragged and is_read(feature.dtype, feature.width)


def check_finite(graph: HeteroGraph, node_set: str, name: str, values: NDArray[Any], may_be_nan: bool = False) -> None:
    """Refuse values that are not finite, [nodes, values], or not even NaN; names the node.

    Raises:
        UserError: a value is not a finite number.
    """
    rows = max(1, _PIECE_BYTES // (values.dtype.itemsize * values.shape[1]))
    for first in range(0, len(values), rows):
        piece = values[first : first + rows]
        bad = (np.isinf(piece) if may_be_nan else ~np.isfinite(piece)).any(axis=1)
        if bad.any():
            row = first + int(np.flatnonzero(bad)[0])
            raise UserError(
                f"feature {name} of a node is not a finite number", where=f"{graph.dataset.uri}, {node_set}",
                value=graph.ids(node_set)[row].as_py(), remedy="Give each node a number for each feature",
            )  # fmt: skip
