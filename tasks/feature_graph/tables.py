"""Samples in a table, CSV or Parquet: a column of labels, and columns of features as those of nodes are read.

Numbers are features as they are, truth values 0 and 1, and each category of a text is a feature `column=category`. A
missing value is the mean of its column. Columns that seem to be ids or times are left out, with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.text_file import LINE_BYTES, open_unpacked
from superworkflow.tasks.feature_graph import SamplesParams
from superworkflow.tasks.heterograph.column_doubts import chosen_columns, doubt_of
from superworkflow.tasks.heterograph.feature_columns import (
    CATEGORIES,
    NodeColumn,
    Survey,
    column_numbers,
    left_out,
)
from superworkflow.tasks.heterograph.node_features import without_missing
from superworkflow.tasks.heterograph.tables import PARQUET, Table, TableBatch, names_in
from superworkflow.tasks.heterograph.values import is_list, is_text, known
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.formats.svmlight import Samples, is_finite

TABLE_FILE = "table.json"
"""File of a feature_graph dataset with the columns of the table that it was made of."""
LABEL_NAMES = ("label", "target", "class", "y")
_VALUE = re.compile(rb"\s\d+:")
_STAGE, _SHOWN = "feature_graph", 3


class SamplesTable(NamedTuple):
    """A table as it was learned from, by which further ones are read.

    Args:
        label: name of the column of labels.
        columns: the others that are features.
        means: of the numbers that the columns become, in place of missing ones.
    """

    label: str
    columns: list[NodeColumn]
    means: list[float]

    @property
    def features(self) -> list[str]:
        """Names of the numbers: of the columns, with their categories or with places in a list."""
        found: list[str] = []
        for each in self.columns:
            single = each.width == 1 and not each.values
            found += [each.name] if single else [f"{each.name}={value}" for value in each.values or range(each.width)]
        return found

    @classmethod
    def of(cls, graph: Dataset) -> SamplesTable | None:
        """The table of a feature_graph dataset; None where its samples were in the svmlight format."""
        if TABLE_FILE not in graph:
            return None
        found = graph.json(TABLE_FILE)
        columns = [NodeColumn(name, kind, width, tuple(values)) for name, kind, width, values in found["columns"]]
        return cls(found["label"], columns, found["means"])


def is_table(path: Path, where: str) -> bool:
    """True for Parquet, and for text whose first line has separators of columns and no values `index:value`."""
    with path.open("rb") as stream:
        if stream.read(len(PARQUET)) == PARQUET:
            return True
    with open_unpacked(path, where) as text:
        line = text.readline(LINE_BYTES)
    return any(each in line for each in (b",", b";", b"\t")) and not (line.startswith(b"#") or _VALUE.search(line))


def label_in(names: Sequence[str]) -> str:
    """Name of the column that is the label by its name; empty if there is none."""
    return next((name for name in names if name.strip().lower() in LABEL_NAMES), "")


def read_table(job: StageRun[SamplesParams], source: Source) -> tuple[Samples, SamplesTable, list[InputWarning]]:
    """Samples to learn from.

    Raises:
        UserError: no column can be a feature, or a value or label is bad.
    """
    params, uri, warnings = job.params, source.uri, list[InputWarning]()
    names = names_in(source.local(job.scratch), uri)
    if len(set(names)) < len(names) or not any(names):
        raise UserError("columns of a table have names, each one of its own", where=uri, value=", ".join(names)[:200],
                        remedy="Name them in the first row")  # fmt: skip
    label = params.label or label_in(names)
    if "" in names:
        warnings.append(InputWarning("a column without a name, as pandas writes its index, is left out of the features",
                                     uri, f"column {names.index('') + 1}", "Give it a name if it is one"))  # fmt: skip
        names.remove("")
    if label not in ("", *names):
        raise UserError("the table has no such column", where=f"{uri}, {_STAGE}.label", value=label,
                        remedy=f"It has: {', '.join(names)[:1000]}")  # fmt: skip
    if not label:
        label = names[-1]
        warnings.append(InputWarning("no column is called label, target, class or y, and the last one is what is "
                                     "predicted", uri, label, f"Set {_STAGE}.label to another column"))  # fmt: skip
    others = [name for name in names if name != label]
    taken = chosen_columns(params.take, others, f"{_STAGE}.take")
    left = chosen_columns(params.leave_out, others, f"{_STAGE}.leave_out")
    names, dates = [name for name in others if name not in left], list[str]()
    whole = _Whole(_rows(job, source, [label, *names]), [label, *names])
    for name in list(names):
        doubt = None if is_list(whole[name].type) else doubt_of(name, without_missing(whole[name]))
        if doubt and name in taken:
            dates += [name] if doubt.dates else []
        elif doubt:
            warnings.append(doubt.warning(name, uri, _STAGE))
            if not doubt.is_read:
                names.remove(name)
    survey = Survey(names, [whole[name] for name in names], uri, dates)
    survey.add([whole[name] for name in survey.texts])
    every = survey.columns(whole, taken)
    warnings += left_out(every, uri, is_schema=True)
    table = SamplesTable(label, [each for each in every if each.width], [])
    if not table.columns:
        raise UserError("no column of the table is a feature", where=uri, value=", ".join(others)[:200] or None,
                        remedy=f"Give columns of numbers or categories, or name some in {_STAGE}.take")  # fmt: skip
    matrix, means, missing = _matrix(table, whole)
    if missing:
        shown = ", ".join(f"{name}: {count}" for name, count in list(missing.items())[:_SHOWN])
        warnings.append(InputWarning(
            f"{sum(missing.values())} values of features are missing; they are the means of their columns", uri,
            shown + (", …" if len(missing) > _SHOWN else ""), "Fill them in the file where a mean is no good value",
        ))  # fmt: skip
    labels = _labels(whole, label, params.labels == "classes")
    return Samples(labels, matrix), table._replace(means=means.tolist()), warnings


def read_further(
    job: StageRun[Any], source: Source, table: SamplesTable, texts: bool
) -> tuple[Samples, NDArray[np.bool_], int]:
    """Samples as those of a table that was learned from, which of them have a label, and how many values are missing or
    unknown.

    Missing values, and categories that the table does not have, are the mean of their column.

    Raises:
        UserError: a column of features is missing, or a value or label is bad.
    """
    is_labelled = table.label in names_in(source.local(job.scratch), source.uri)
    names = [*([table.label] if is_labelled else []), *(each.name for each in table.columns)]
    whole = _Whole(_rows(job, source, names), names)
    matrix, _, missing = _matrix(table, whole, np.array(table.means))
    if is_labelled:
        labels = _labels(whole, table.label, texts, texts, may_lack=True)
    else:
        labels = np.full(matrix.shape[0], "" if texts else np.nan)
    return Samples(labels, matrix), labels != "" if texts else ~np.isnan(labels), sum(missing.values())


class _Whole:
    """Columns of all rows, also in the form in which `Survey` reads them."""

    def __init__(self, rows: TableBatch, names: list[str]):
        self.rows, self._names = rows, names

    def __getitem__(self, name: str) -> Any:
        return self.rows.columns[self._names.index(name)]

    def batches(self, names: Sequence[str], width: int = 1) -> Iterator[TableBatch]:
        """One batch of all rows."""
        yield self.rows._replace(columns=[self[name] for name in names])


def _rows(job: StageRun[Any], source: Source, names: list[str]) -> TableBatch:
    """Columns of all rows."""
    table = Table(source, source.location.name, job.scratch, job.threads)
    found = list(table.batches(names, len(names)))
    table.close()
    if not found:
        raise UserError("the table has no rows", where=source.uri, remedy="Give each sample a row")
    columns = [
        pa.chunked_array(parts).combine_chunks() for parts in zip(*(each.columns for each in found), strict=True)
    ]
    return found[0]._replace(columns=columns)


def _matrix(
    table: SamplesTable, whole: _Whole, means: NDArray[np.float64] | None = None
) -> tuple[sp.csr_array, NDArray[np.float64], dict[str, int]]:
    """Numbers of all columns, [samples, numbers], their means, and how many values of columns are missing.

    Args:
        table: its columns.
        whole: all rows.
        means: in place of what is missing; by default those of the rows.
    """
    parts, found, missing, end = list[sp.csc_array](), list[NDArray[np.float64]](), dict[str, int](), 0
    for each in table.columns:
        if each.kind == CATEGORIES:
            given = None if means is None else means[end : end + each.width]
            part, shares, lacking = _one_hot(each, known(whole[each.name]), given)
            end += each.width
            parts.append(part)
            found.append(shares)
            missing |= {each.name: lacking} if lacking else {}
            continue
        numbers = column_numbers(each, whole[each.name], whole.rows).astype(np.float64)
        absent, end = np.isnan(numbers), end + each.width
        if (infinite := np.isinf(numbers).any(axis=1)).any():
            raise UserError(
                "a feature is not finite", where=f"{whole.rows.where}, row {infinite.argmax() + 1}", value=each.name,
                remedy="Leave the value empty where it is not known",
            )  # fmt: skip
        if means is None:
            sums = np.where(absent, 0, numbers).sum(axis=0)
            found.append(sums / np.maximum(len(numbers) - absent.sum(axis=0), 1))
        else:
            found.append(means[end - each.width : end])
        if absent.any():
            missing[each.name] = int(absent.sum(axis=0).max())
            numbers = np.where(absent, found[-1], numbers)
        parts.append(sp.csc_array(numbers))
    return sp.csr_array(sp.hstack(parts)), np.concatenate(found), missing


def _one_hot(
    column: NodeColumn, texts: Any, means: NDArray[np.float64] | None
) -> tuple[sp.csc_array, NDArray[np.float64], int]:
    """Categories as numbers [samples, categories], without the zeros ever being there, their means, and how many rows
    have none, which get the means.

    Args:
        column: with the categories.
        texts: of all rows.
        means: in place of what is missing; by default those of the rows.
    """
    place = pc.index_in(texts, value_set=pa.array(column.values, texts.type), skip_nulls=True)
    rows, places = np.flatnonzero(place.is_valid()), place.drop_null().to_numpy()
    absent = np.flatnonzero(place.is_null())
    if means is None:
        means = np.bincount(places, minlength=column.width) / max(len(rows), 1)
    values = np.concatenate([np.ones(len(rows)), np.tile(means, len(absent))])
    places = np.concatenate([places, np.tile(np.arange(column.width), len(absent))])
    rows = np.concatenate([rows, np.repeat(absent, column.width)])
    part = sp.csc_array((values, (rows, places)), (len(texts), column.width))
    part.eliminate_zeros()
    part.sort_indices()
    return part, means, len(absent)


def _labels(
    whole: _Whole, name: str, of_classes: bool, texts: bool = False, may_lack: bool = False
) -> NDArray[Any]:  # fmt: skip
    """Labels of samples: float64, or texts where these are classes and not all are numbers.

    Args:
        whole: the table.
        name: of the column.
        of_classes: labels are classes.
        texts: labels are texts, even where all look like numbers.
        may_lack: a missing label is NaN, or the empty text.
    """
    column = whole[name]
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    values = known(column if is_text(kind) else column.cast(pa.string()))
    lacks = values.is_null().to_numpy(zero_copy_only=False)
    if may_lack:
        values = values.fill_null("" if texts else "nan")
    elif values.null_count:
        row = pc.index(values.is_null(), True).as_py()
        raise UserError("a label is missing", where=f"{whole.rows.where}, row {row + 1}, column {name}",
                        remedy="Leave rows without a label out")  # fmt: skip
    try:
        numbers = np.array(values.to_pylist() if texts else values.cast(pa.float64()).to_numpy())
    except pa.ArrowInvalid as error:
        numbers = np.array(values.to_pylist())
        if not of_classes:
            fault = next(row for row, each in enumerate(numbers) if not is_finite(each))
            raise UserError("a label is no number", where=f"{whole.rows.where}, row {fault + 1}, column {name}",
                            value=str(numbers[fault]), remedy="Run svm to predict classes, or set feature_graph.label "
                            "to the column that is predicted") from error  # fmt: skip
    if numbers.dtype.kind == "f" and not np.isfinite(numbers[~lacks]).all():
        row = int(np.flatnonzero(~np.isfinite(numbers) & ~lacks)[0])
        raise UserError("a label is a finite number", where=f"{whole.rows.where}, row {row + 1}, column {name}",
                        value=str(numbers[row]), remedy="Leave the row out")  # fmt: skip
    return numbers
