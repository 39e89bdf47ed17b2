"""Features of edges that layers read: a matrix for each edge set, of the features that a network names.

Both directions of an edge share them: a set that reverses another one has that set's features, and their scaling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.gnn.column_scaling import scaled
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.graph.dtypes import is_read
from superworkflow.tasks.lib.graph.heterograph import Feature, HeteroGraph
from superworkflow.tasks.lib.graph.stat_names import is_matrix

AUTO, NONE = "auto", "none"
WHERE = "train.edge_features"
Columns = tuple[tuple[str, int], ...]
"""Names and widths of the features of an edge set, in the order of the matrix."""


def chosen_edge_columns(
    graph: HeteroGraph, relations: Iterable[Relation], chosen: str, other: Iterable[str]
) -> dict[str, Columns]:
    """The features that layers read by edge set; sets without any are left out.

    Args:
        graph: the graph.
        relations: edge sets that are read.
        chosen: `auto`, `none`, or names with commas between them.
        other: names that `auto` leaves to other uses, such as weights and times.

    Raises:
        UserError: no edge set has a feature of this name, or it is text or ragged.
    """
    if chosen == NONE:
        return {}
    names, left, found = [each.strip() for each in chosen.split(",")], set(other), dict[str, Columns]()
    features = {each.name: graph.edge_sets[each.name].features for each in relations}
    if chosen != AUTO:
        _check_there(features, names)
    for name, there in features.items():
        read = [each for each in there if is_matrix(each)]
        if chosen == AUTO:
            read = [each for each in read if is_read(each.dtype, each.width) and each.name not in left]
        else:
            read = [each for wanted in names for each in read if each.name == wanted]
        if read:
            found[name] = tuple((each.name, each.width) for each in read)
    return found


def edge_features_of(
    graph: HeteroGraph, edge_set: str, columns: Columns, scaling: Mapping[str, Any] | None
) -> NDArray[np.float32]:
    """Features of the edges of a set, float32 [edges, values], in the order of the set.

    Args:
        graph: the graph.
        edge_set: name of the set.
        columns: names and widths of the features.
        scaling: what they are scaled by, as `NetworkConfig.edge_scaling` has it; None for nothing.

    Raises:
        UserError: a value is not a finite number; names the edge set and the feature.
    """
    with np.errstate(over="ignore"):  # infinite values are refused below
        read = [
            np.asarray(graph.edge_feature(edge_set, name), np.float32).reshape(-1, width) for name, width in columns
        ]
    return joined_features(graph, edge_set, columns, read, scaling)


def joined_features(
    graph: HeteroGraph, edge_set: str, columns: Columns, read: Sequence[NDArray[np.float32]],
    scaling: Mapping[str, Any] | None, position: Callable[[int], int] = int,
) -> NDArray[np.float32]:  # fmt: skip
    """Features of all or some edges of a set in one matrix, float32 [edges, values].

    Args:
        graph, edge_set, columns, scaling: see `edge_features_of`.
        read: the features, each float32 [edges, width].
        position: maps a row of these to a position in the set.

    Raises:
        UserError: see `edge_features_of`.
    """
    for (name, _), values in zip(columns, read, strict=True):
        bad = ~np.isfinite(values).all(axis=1)
        if bad.any():
            row = int(graph.table_rows(edge_set)[position(int(np.flatnonzero(bad)[0]))])
            raise UserError("a feature of an edge is not a finite number",
                            where=f"{graph.dataset.uri}, {edge_set}.{name}, row {row + 1} of its table",
                            value=f"{int(bad.sum())} edges", remedy="Correct it, or leave the feature out with "
                            f"{WHERE}")  # fmt: skip
    whole = np.concatenate(read, axis=1)
    return whole if scaling is None else scaled(whole, scaling)


def check_edge_columns(graph: HeteroGraph, columns: Mapping[str, Columns], where: str) -> None:
    """Refuse a graph whose edges lack features that a network reads.

    Raises:
        UserError: names the features.
    """
    for edge_set, wanted in columns.items():
        there = {each.name: each.width for each in graph.edge_sets[edge_set].features if is_matrix(each)}
        lacking = [f"{name} ({width} values)" for name, width in wanted if there.get(name) != width]
        if lacking:
            raise UserError(
                f"the network was trained on another graph, with other features of {edge_set}", where=where,
                value=", ".join(lacking)[:500], remedy="Give each edge these features",
            )  # fmt: skip


def shown(columns: Mapping[str, Columns]) -> str:
    """Names of the features, for people."""
    return "; ".join(f"{name}: {', '.join(each for each, _ in found)}" for name, found in columns.items())[:500]


def _check_there(features: Mapping[str, tuple[Feature, ...]], names: Iterable[str]) -> None:
    there = {each.name for found in features.values() for each in found if is_matrix(each)}
    for name in names:
        if name not in there:
            raise UserError("edges have no such feature of numbers", where=WHERE, value=name,
                            remedy=f"They have: {', '.join(sorted(there))[:500] or 'none'}")  # fmt: skip
