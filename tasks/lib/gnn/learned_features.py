"""Features of nodes as a network that was trained on another graph has learned them.

A graph has the columns of its own table, with their categories, scaled by its own means and deviations. A network such
as the model in use that is scored on tonight's data gets them as it does where it answers requests: the columns that it
reads, found by name, with its categories and by its scaling. Columns that it does not read are left out. A category
that it does not have counts as missing: the values are the means of its columns in training.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.gnn.column_scaling import SCALING_PARTS, scaled, unscaled, unscaled_columns
from superworkflow.tasks.lib.gnn.features import columns_of, scaling_of, width_of
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.huge_pages import rows_of_pieces

_SHOWN, _ROUNDING = 5, 1e-3


class _Categories(NamedTuple):
    """A column of categories: its values among the graph's, and among the network's."""

    own: slice
    learned: slice


class _Places(NamedTuple):
    """Places of a network's values among a graph's [values], -1 for a category that the graph does not have, and the
    columns of which the graph has categories that the network does not."""

    values: NDArray[np.int64]
    categories: tuple[_Categories, ...]


def check_features(graph: HeteroGraph, shape: NetworkConfig, where: str) -> None:
    """Refuse a graph whose features cannot be read as the network has learned them.

    Args:
        graph: the graph.
        shape: configuration of the network.
        where: the network, for people.

    Raises:
        UserError: a node set or a column that the network reads is missing, or of another width or kind; or the graph's
            rows were divided by their sums and the network's not.
    """
    for name, width in shape.widths.items():
        if name in graph.node_sets and width:
            _check_columns(graph, shape, name, where)
        if name not in graph.node_sets or (not width and width_of(graph, name)):
            raise UserError("the network was trained on another graph", where=where, value=name,
                            remedy="Give the graph that it was trained on")  # fmt: skip
        own, learned = scaling_of(graph, name), shape.scaling.get(name)
        if own is not None and learned is not None and own["kind"] == "row" != learned["kind"]:
            raise UserError(
                f"the network was trained on features of {name} whose rows are not divided by their sums", where=where,
                value="row", remedy=f"Set heterograph.scaling={learned['kind']}",
            )  # fmt: skip


def unread(graph: HeteroGraph, shape: NetworkConfig) -> list[str]:
    """Sentences that name the columns and categories that the network does not have."""
    found: list[str] = []
    for name in shape.columns.keys() & graph.node_sets.keys():
        learned, texts = dict(shape.columns[name]), _texts(shape.scaling.get(name))
        if more := [column for column, _ in columns_of(graph, name) if column not in learned]:
            found.append(f"features of {name} that the network does not read are left out: {shown_names(more)}")
        for column, own in _texts(scaling_of(graph, name)).items():
            if column in texts and (more := [each for each in own if each not in texts[column]]):
                found.append(f"the network has no such categories of {column} of {name}, which count as missing: "
                             f"{shown_names(more)}")  # fmt: skip
    return found


def learned_features(
    graph: HeteroGraph, node_set: str, shape: NetworkConfig, values: NDArray[np.floating[Any]]
) -> NDArray[np.floating[Any]]:
    """Features of nodes of a graph, [nodes, values], as the network has learned them; themselves where they are so.

    What differs is float32 in a temporary file, so that it needs no memory.

    Args:
        graph: a graph that `check_features` accepts.
        node_set: name of the set.
        shape: configuration of the network.
        values: the features as the graph has them, of all or some nodes.
    """
    own, learned = scaling_of(graph, node_set), shape.scaling.get(node_set)
    places, parts = _places(graph, shape, node_set), [each for each in SCALING_PARTS if each != "fill"]
    same_scaling = own is None or learned is None or all(own[part] == learned.get(part, []) for part in parts)
    if places is None and same_scaling:
        return values
    width = shape.widths[node_set]
    with tempfile.TemporaryFile() as file:
        found = np.memmap(file, np.float32, "w+", shape=(len(values), width)) if values.size else np.empty((0, width))
    for piece in rows_of_pieces(values):
        wide = values[piece].astype(np.float64) if own is None else unscaled(values[piece], own)
        if places is not None:
            wide = _placed(wide, places, learned)
        found[piece] = wide if learned is None else scaled(wide, learned)
    return found


def _own_columns(graph: HeteroGraph, node_set: str) -> tuple[tuple[str, int], ...]:
    """Names and numbers of the columns of a graph's table."""
    return unscaled_columns(columns_of(graph, node_set), scaling_of(graph, node_set))


def _learned_columns(shape: NetworkConfig, node_set: str) -> tuple[tuple[str, int], ...]:
    """The same of a network's."""
    return unscaled_columns(shape.columns.get(node_set, ()), shape.scaling.get(node_set))


def _check_columns(graph: HeteroGraph, shape: NetworkConfig, node_set: str, where: str) -> None:
    """Refuse a graph without the columns of a node set that the network reads.

    Raises:
        UserError: names those that are missing, and those of another width or kind.
    """
    wanted, found = dict(_learned_columns(shape, node_set)), dict(_own_columns(graph, node_set))
    width, own, scaling = shape.widths[node_set], width_of(graph, node_set), scaling_of(graph, node_set)
    texts, of_network = _texts(scaling), _texts(shape.scaling.get(node_set))
    lacking = [name for name in wanted if name not in found]
    others = [
        name for name in wanted if name in found
        and (((name in texts) != (name in of_network) and scaling is not None)
             or (name not in texts and found[name] != wanted[name]))
    ]  # fmt: skip
    if not lacking and not others if wanted else own == width:
        return
    words = [f"{text} {shown_names(names)}" for text, names in (
        ("this one lacks", lacking),
        ("this one also has", [name for name in found if name not in wanted] if lacking or not wanted else []),
        ("of another kind or width:", others),
    ) if names]  # fmt: skip
    order = ", ".join(f"{name} ({size} values)" if size > 1 else name for name, size in wanted.items())
    raise UserError(
        f"the network was trained on another graph, with other features of {node_set}: {'; '.join(words)}",
        where=where, value=f"{sum(found.values()) if wanted else own} values, not {sum(wanted.values()) or width}",
        remedy=f"Give these features: {order[:500]}" if wanted else f"Give {width} values for each node",
    )  # fmt: skip


def _places(graph: HeteroGraph, shape: NetworkConfig, node_set: str) -> _Places | None:
    """Places of the network's values among the graph's; None where they are the same."""
    wanted, found = _learned_columns(shape, node_set), _own_columns(graph, node_set)
    texts, of_network = _texts(scaling_of(graph, node_set)), _texts(shape.scaling.get(node_set))
    same = all(texts[name] == of_network[name] for name in texts.keys() & of_network.keys())
    if not wanted or (wanted == found and same):
        return None
    starts = dict(zip((name for name, _ in found), np.cumsum([0, *(width for _, width in found)]), strict=False))
    values: list[int] = []
    categories: list[_Categories] = []
    for name, width in wanted:
        first = int(starts[name])
        if name not in of_network or name not in texts:
            values += range(first, first + width)
            continue
        numbers = {text: first + number for number, text in enumerate(texts[name])}
        if not numbers.keys() <= set(of_network[name]):
            own = slice(first, first + len(numbers))
            categories.append(_Categories(own, slice(len(values), len(values) + width)))
        values += [numbers.get(text, -1) for text in of_network[name]]
    return _Places(np.array(values), tuple(categories))


def _placed(wide: NDArray[np.float64], places: _Places, learned: Mapping[str, Any] | None) -> NDArray[np.float64]:
    """Values of a network from those of a graph, [nodes, values], neither scaled."""
    read = np.where(places.values >= 0, wide[:, places.values], 0)
    means = np.array((learned or {}).get("fill") or np.zeros(len(places.values)))
    for each in places.categories:
        one = wide[:, each.own].sum(axis=1)  # 1, or less in rows that were divided by their sums
        lost = read[:, each.learned].sum(axis=1) < one * (1 - _ROUNDING)  # the category, or a share of a mean
        read[lost, each.learned] = means[each.learned] * one[lost, None]
    return read


def _texts(scaling: Mapping[str, Any] | None) -> Mapping[str, list[str]]:
    """Texts of columns of categories, by name."""
    return {} if scaling is None else scaling.get("categories", {})


def shown_names(names: Sequence[str]) -> str:
    """The first names, for people."""
    return ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
