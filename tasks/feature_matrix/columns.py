"""Choice of the features of nodes that a network reads, and their values as numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.tasks.heterograph.column_doubts import SAMPLE, ColumnDoubt, chosen_columns, doubt_of
from superworkflow.tasks.heterograph.feature_columns import (
    NONE,
    NUMBERS,
    TRUTH,
    NodeColumn,
    Survey,
    column_numbers,
    left_out,
    with_categories,
)
from superworkflow.tasks.heterograph.tables import BATCH_ROWS, TableBatch
from superworkflow.tasks.heterograph.values import known
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.gnn.features import check_finite
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.graph.dtypes import FLOATS, STRING
from superworkflow.tasks.lib.graph.heterograph import Feature, HeteroGraph

NO_FEATURES = frozenset({"split", "train_mask", "val_mask", "test_mask"})


@dataclass(frozen=True)
class ChosenColumns:
    """Columns of each node set that are its features, by name, and warnings about others."""

    columns: Mapping[str, tuple[NodeColumn, ...]]
    warnings: tuple[InputWarning, ...]


def learned_columns(graph: HeteroGraph, network: NetworkConfig) -> ChosenColumns:
    """The columns of a network, as far as the graph has them, with the network's categories."""
    found: dict[str, tuple[NodeColumn, ...]] = {}
    warnings: list[InputWarning] = []
    for name in graph.node_sets:
        learned = {column for column, _ in network.columns.get(name, ())}
        categories = network.scaling.get(name, {}).get("categories", {})
        features = [each for each in _candidates(graph, name) if each.name in learned]
        dates = {each.name for each in features if (doubt := _doubt(graph, name, each)) and doubt.dates}
        surveyed, _ = _surveyed(graph, name, features, dates)
        columns, strange = with_categories(surveyed, categories, f"schema, {name}")
        found[name] = tuple(columns)
        warnings += strange
    return ChosenColumns(found, tuple(warnings))


def features_among_columns(
    graph: HeteroGraph, label: str, take: str, leave_out: str, stage: str = "heterograph",
    node_sets: Collection[str] | None = None,
) -> ChosenColumns:  # fmt: skip
    """The columns that are features.

    Args:
        graph: the graph of a schema.
        label: SET.FEATURE of the label; empty for none.
        take: names of columns that are taken whatever they look like, as SET.FEATURE, with commas between them.
        leave_out: names of columns that are no features, in the same way.
        stage: whose parameters `take` and `leave_out` are.
        node_sets: whose columns are wanted; None for all.

    Raises:
        UserError: there is no column that a parameter names.
    """
    candidates = {name: list(_candidates(graph, name)) for name in graph.node_sets}
    names = [f"{name}.{each.name}" for name, features in candidates.items() for each in features]
    taken = chosen_columns(take, names, f"{stage}.take")
    left = chosen_columns(leave_out, names, f"{stage}.leave_out") | {label}
    found: dict[str, tuple[NodeColumn, ...]] = {}
    warnings: list[InputWarning] = []
    for node_set in graph.node_sets if node_sets is None else sorted(node_sets):
        kept: list[Feature] = []
        dates: set[str] = set()
        for feature in candidates[node_set]:
            name = f"{node_set}.{feature.name}"
            if name in left or (feature.name in NO_FEATURES and name not in taken):
                continue
            doubt = _doubt(graph, node_set, feature)
            if doubt is not None and name not in taken:
                warnings.append(doubt.warning(name, "schema", stage))
            if doubt is None or doubt.is_read or name in taken:
                kept.append(feature)
            if doubt is not None and doubt.dates:
                dates.add(feature.name)
        columns, others = _surveyed(graph, node_set, kept, dates)
        found[node_set] = columns
        warnings += others
    return ChosenColumns(found, tuple(warnings))


def values_of_columns(
    graph: HeteroGraph, node_set: str, columns: Sequence[NodeColumn]
) -> list[NDArray[Any] | TextValues]:
    """Values of columns, each of which is indexed by slices of nodes: numbers [nodes, width], NaN where missing.

    Raises:
        UserError: a value is infinite; names the node.
    """
    found: list[NDArray[Any] | TextValues] = []
    for column in columns:
        values = graph.node_feature(node_set, column.name)
        if not isinstance(values, np.ndarray):
            found.append(TextValues(column, _texts(values), f"schema, {node_set}"))
            continue
        flat = values.reshape(len(values), column.width)
        if flat.dtype.kind == "f":
            check_finite(graph, node_set, column.name, flat, may_be_nan=column.width == 1)
        found.append(flat)
    return found


@dataclass(frozen=True)
class TextValues:
    """Numbers of a column of texts, computed where they are read."""

    column: NodeColumn
    texts: pa.Array
    where: str

    def __getitem__(self, nodes: slice) -> NDArray[np.float32]:
        part = self.texts[nodes]
        return column_numbers(self.column, part, TableBatch(self.where, (nodes.start or 0) + 1, [part], True))


class _TextColumns(NamedTuple):
    """Columns of texts of a node set, read in batches."""

    where: str
    columns: Mapping[str, pa.Array]

    def batches(self, names: Sequence[str], width: int = 1) -> Iterator[TableBatch]:
        rows = max(map(len, self.columns.values()), default=0)
        for first in range(0, rows, BATCH_ROWS):
            parts = [self.columns[name].slice(first, BATCH_ROWS) for name in names]
            yield TableBatch(self.where, first + 1, parts, True)


def _surveyed(
    graph: HeteroGraph, node_set: str, features: Sequence[Feature], dates: set[str]
) -> tuple[tuple[NodeColumn, ...], list[InputWarning]]:
    """Columns of features, and warnings of those of texts that are left out."""
    where = f"schema, {node_set}"
    texts = {each.name: _texts(graph.node_feature(node_set, each.name)) for each in features if each.dtype == STRING}
    columns = _TextColumns(where, texts)
    survey = Survey(list(texts), list(texts.values()), where, dates)
    for batch in columns.batches(survey.texts):
        survey.add(batch.columns)
    of_texts = {each.name: _checked(each, texts[each.name]) for each in survey.columns(columns, ())}
    found = [of_texts.get(each.name) or _of_numbers(graph, node_set, each) for each in features]
    return tuple(each for each in found if each.kind != NONE), left_out(found, where, is_schema=True)


def _of_numbers(graph: HeteroGraph, node_set: str, feature: Feature) -> NodeColumn:
    """The column of a feature that is no text; one without values is no feature."""
    values = graph.node_feature(node_set, feature.name)
    if feature.dtype in FLOATS and np.isnan(values[:1]).all() and np.isnan(values).all():
        return NodeColumn(feature.name, NONE, 0)
    return NodeColumn(feature.name, TRUTH if feature.dtype == "bool" else NUMBERS, feature.width)


def _checked(column: NodeColumn, texts: pa.Array) -> NodeColumn:
    """The column; one of numbers with other texts among them is no feature."""
    if column.kind == NUMBERS:
        try:
            known(texts).cast(pa.float32())
        except pa.ArrowInvalid:
            shown = pc.unique(known(texts).drop_null())[:2].to_pylist()
            return NodeColumn(column.name, NONE, 0, (*(each[:20] for each in shown), "…"))
    return column


def _candidates(graph: HeteroGraph, node_set: str) -> Iterator[Feature]:
    """Numbers and truth values of a fixed shape, and single texts."""
    for each in graph.node_sets[node_set].features:
        if each.dtype == STRING:
            if not each.shape and _texts(graph.node_feature(node_set, each.name)) is not None:
                yield each
        elif not each.is_ragged and each.width:
            yield each


def _texts(values: Any) -> pa.Array | None:
    """Texts of a feature of bytes; None if they are not UTF-8."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    try:
        return array.cast(pa.large_string())
    except pa.ArrowInvalid:
        return None


def _doubt(graph: HeteroGraph, node_set: str, feature: Feature) -> ColumnDoubt | None:
    """The doubt about a single value: by a sample, and by all values where these decide."""
    if feature.width > 1 or feature.dtype == "bool":
        return None
    given = graph.node_feature(node_set, feature.name)
    values: Any = _texts(given) if feature.dtype == STRING else np.array(given).reshape(-1)
    sample = values[:: -(-len(values) // SAMPLE) or 1]
    doubt = doubt_of(feature.name, _plain(sample))
    return doubt_of(feature.name, _plain(values)) if doubt is not None and doubt.by_difference else doubt


def _plain(values: Any) -> Any:
    return values if isinstance(values, np.ndarray) else known(values).drop_null()
