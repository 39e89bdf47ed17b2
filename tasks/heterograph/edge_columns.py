"""Columns of an edge list that are features of its edges: numbers, truth values and categories.

They are read as those of nodes are (`feature_columns`): missing values are the mean of their column, and a text is a 1
in the column of its category. Each category is a feature of its own, so that another graph's are distinguished by name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.tasks.heterograph import EDGE_SET, HeterographParams
from superworkflow.tasks.heterograph.column_doubts import chosen_columns
from superworkflow.tasks.heterograph.feature_columns import NodeColumn, Survey, column_numbers, with_categories
from superworkflow.tasks.heterograph.node_features import table_of
from superworkflow.tasks.heterograph.tables import Table, TableBatch
from superworkflow.tasks.heterograph.values import BadValue
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig, read_shape

WHERE = "heterograph.edge_features"
Feature = tuple[str, NDArray[Any]]
"""Type of a feature, and its values, [edges] or [edges, values] of a list."""


def edge_features(
    job: StageRun[HeterographParams], dialect: Dialect, rows: int, chosen: NDArray[np.int64], taken: Collection[str]
) -> tuple[dict[str, Feature], list[InputWarning]]:
    """Features of edges by name, and warnings.

    Args:
        job: the stage's run.
        dialect: how the edge list was read.
        rows: all rows that were read.
        chosen: of these the ones that are edges, int64 [edges].
        taken: names that edges have already.

    Raises:
        UserError: the file has no header or commas, no such column, or rows that the other reading has left out.
    """
    source, params = job.sources["edges"], job.params
    if dialect.kind not in ("csv", "parquet") or dialect.separator not in (",", " ") or not dialect.names:
        raise UserError("features of edges are columns of CSV with commas and a header, or of Parquet", where=WHERE,
                        value=dialect.describe()[:200], remedy="Convert the file first")  # fmt: skip
    names = sorted(chosen_columns(params.edge_features, list(dialect.names), WHERE))
    table = table_of(source, job)
    first = next(table.batches(names, len(names)))
    survey = Survey(names, first.columns, source.uri)
    for batch in table.batches(survey.texts, len(names)) if survey.texts else ():
        survey.add(batch.columns)
    doubts: list[InputWarning] = []
    columns = survey.columns(table, names)
    if "network" in job.inputs:
        columns, doubts = _as_learned(columns, read_shape(job.inputs["network"]), source.uri)
    values, absent = _values(table, columns, rows, source.uri)
    table.close()
    found: dict[str, Feature] = {}
    place = 0
    for each in columns:
        part = values[chosen, place : place + each.width]
        place += each.width
        parts = {f"{each.name}={value}": part[:, number] for number, value in enumerate(each.values)}
        for name, given in (parts or {each.name: part[:, 0] if each.width == 1 else part}).items():
            if name in taken:
                raise UserError("edges have a feature of this name already", where=WHERE, value=name,
                                remedy="Leave it out, or give the column another name")  # fmt: skip
            found[name] = ("float", np.ascontiguousarray(given))
    job.progress.log(f"features of edges: {', '.join(found)}"[:500])
    if absent:
        shown = ", ".join(f"{name}: {count}" for name, count in absent.items())[:200]
        doubts.append(InputWarning("values of features of edges are missing; they are the means of their columns",
                                   source.uri, shown,
                                   "Fill them in the file where a mean is no good value"))  # fmt: skip
    log_warnings(job.progress, doubts)
    return found, doubts


def _as_learned(
    columns: list[NodeColumn], shape: NetworkConfig, where: str
) -> tuple[list[NodeColumn], list[InputWarning]]:
    """The columns, with the categories that a network reads of edges, each of which is a feature `COLUMN=VALUE`."""
    names = [name for name, _ in shape.edge_columns.get(EDGE_SET, ())]
    found: list[NodeColumn] = []
    warnings: list[InputWarning] = []
    for each in columns:
        values = [name.removeprefix(f"{each.name}=") for name in names if name.startswith(f"{each.name}=")]
        column, strange = with_categories([each], {each.name: values}, where) if values else ([each], [])
        found += column
        warnings += strange
    return found, warnings


def _values(
    table: Table, columns: list[NodeColumn], rows: int, where: str
) -> tuple[NDArray[np.float32], dict[str, int]]:
    """Numbers of all rows, [rows, values], of which missing ones are means; and how many were missing, by column."""
    values = np.empty((rows, sum(each.width for each in columns)), np.float32)
    row = 0
    for batch in table.batches([each.name for each in columns], values.shape[1]):
        count = len(batch.columns[0])
        if row + count <= rows:
            place = 0
            for each, given in zip(columns, batch.columns, strict=True):
                values[row : row + count, place : place + each.width] = column_numbers(each, given, batch)
                place += each.width
            _check_finite(values[row : row + count], batch)
        row += count
    if row != rows:
        raise UserError("the edge list has rows that are not read as edges, such as comments or those of other times",
                        where=where, value=f"{row} rows, {rows} of them edges",
                        remedy=f"Leave such rows out of the file, or {WHERE} out")  # fmt: skip
    absent, place = {}, 0
    for each in columns:
        part = values[:, place : place + each.width]
        place += each.width
        none = np.isnan(part)
        if none.any():
            absent[each.name] = int(none.any(axis=1).sum())
            if none.all(axis=0).any():
                raise UserError("a column of features has no values", where=where, value=each.name,
                                remedy="Leave the column out")  # fmt: skip
            part[:] = np.where(none, np.nanmean(part, axis=0, dtype=np.float64).astype(np.float32), part)
    return values, absent


def _check_finite(values: NDArray[np.float32], batch: TableBatch) -> None:
    bad = np.isinf(values).any(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        fault = BadValue(
            row, "a feature of an edge is not a finite number", float(values[row][np.isinf(values[row])][0])
        )
        raise batch.fault(fault, "Give each edge a number for each feature")
