"""Columns of a table of features: their kinds, from all of their values, and their values as numbers.

A column of numbers is read as it is; a list of numbers has the length that it has in the first row, and lists and what
is in them may be missing. Truth values become 0 and 1. Other text, with at most `MOST_CATEGORIES` different values,
becomes a column of 0 and 1 for each of them, in the order of their bytes; with more it is left out, as is a column
without values. A column of which at least half is numbers is a column of numbers with mistakes. A value is missing
where it is null, NaN, or one of `MISSING` in upper or lower case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.heterograph.column_doubts import days_of
from superworkflow.tasks.heterograph.tables import TableBatch
from superworkflow.tasks.heterograph.values import TRUTH_VALUES, BadValue, is_list, is_text, known, values_of
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.graph.heterograph import Feature
from superworkflow.tasks.lib.kernels.huge_pages import rows_of_pieces

NODE_COLUMNS = ("node", "id", "#id", "node_id", "nodeid", "vertex", "vertex_id")
COLUMN_NAMES = ("column", "col", "feature", "feature_id", "word", "term")
VALUE_NAMES = ("value", "val", "count", "weight")
"""Names of the columns of nodes, and of columns and values of sparse features."""
ZIP = b"PK\x03\x04"
"""First bytes of a matrix that SciPy has saved."""
MOST_CATEGORIES = 100
_SHOWN = 3
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity)$"
_NO_VALUES, _MANY_TEXTS = "a column without values", f"a column of text of more than {MOST_CATEGORIES} different values"
_OTHER_TYPE = "a column of another type than numbers, text and lists of numbers"
_MORE = "…"
_NUMBERS = "numbers instead, such as an embedding of a text"

Kind = Literal["numbers", "truth", "categories", "days", "none"]
NUMBERS: Kind = "numbers"
TRUTH: Kind = "truth"
CATEGORIES: Kind = "categories"
DAYS: Kind = "days"
NONE: Kind = "none"


class NodeColumn(NamedTuple):
    """A column.

    Args:
        name: of the column.
        kind: `numbers`, `truth`, `categories`, `days`, of dates, or `none`, what cannot be a feature.
        width: numbers that it becomes.
        values: its categories; of text that cannot be a feature some of its values; of another such column its type.
    """

    name: str
    kind: Kind
    width: int
    values: tuple[str, ...] = ()


class Batches(Protocol):
    """Columns that are read in batches of rows, as those of a `Table` are."""

    def batches(self, names: Sequence[str], width: int = 1) -> Iterator[TableBatch]:
        """Columns of all rows; see `Table.batches`."""
        ...


class Survey:
    """Counts of the values of columns of text, by which `columns` finds their kinds.

    Args:
        names: of the columns.
        first: rows of each, the first ones of the table.
        where: the file, for people.
        dates: names of columns of dates.
    """

    def __init__(self, names: Sequence[str], first: Sequence[Any], where: str, dates: Collection[str] = ()):
        self._names, self._where, self._dates = list(names), where, dates
        self._kinds = [_value_type(column.type) for column in first]
        self._widths = [_width(column) for column in first]
        self._present = np.zeros(len(names), np.int64)
        self._numbers, self._truth = np.zeros_like(self._present), np.zeros_like(self._present)
        self._texts = [number for number, kind in enumerate(self._kinds) if is_text(kind)]
        self.texts = [self._names[number] for number in self._texts]
        """Names of the columns to give to `add`."""

    def add(self, columns: Sequence[Any]) -> None:
        """Count the values of a batch of rows of `texts`.

        Raises:
            UserError: a column is not UTF-8; names it.
        """
        for number, column in zip(self._texts, columns, strict=True):
            try:
                texts = known(column)
            except pa.ArrowInvalid:
                raise UserError("a column of features is not text in UTF-8", where=self._where,
                                value=self._names[number], remedy="Leave the column out") from None  # fmt: skip
            self._present[number] += len(texts) - texts.null_count
            self._numbers[number] += _count_numbers(texts)
            if self._numbers[number] == 0:
                in_set = pc.is_in(texts, value_set=pa.array(TRUTH_VALUES, texts.type), skip_nulls=True)
                self._truth[number] += pc.sum(in_set).as_py() or 0

    def columns(self, table: Batches, needed: Collection[str]) -> list[NodeColumn]:
        """The columns; those of categories are read once more.

        Args:
            table: of which the batches are.
            needed: names of columns that must be features.

        Raises:
            UserError: such a column has no values, or too many for categories; names the column.
        """
        found: list[NodeColumn] = []
        for number, name in enumerate(self._names):
            kind = self._kinds[number]
            if name in self._dates:
                found.append(NodeColumn(name, DAYS, 1))
            elif pa.types.is_null(kind) or (is_text(kind) and not self._present[number]):
                found.append(NodeColumn(name, NONE, 0))
            elif pa.types.is_boolean(kind) or (is_text(kind) and self._truth[number] == self._present[number]):
                found.append(NodeColumn(name, TRUTH, 1))
            elif not _is_readable(kind):
                found.append(NodeColumn(name, NONE, 0, (str(kind),)))
            elif is_text(kind) and 2 * self._numbers[number] < self._present[number]:
                found.append(NodeColumn(name, CATEGORIES, 0))
            else:
                found.append(NodeColumn(name, NUMBERS, self._widths[number]))
        texts = [column.name for column in found if column.kind == CATEGORIES]
        values = _different(table, texts) if texts else {}
        found = [_of_text(each, values[each.name]) if each.name in values else each for each in found]
        if fault := next((each for each in found if each.kind == NONE and each.name in needed), None):
            raise UserError(
                _fault(fault), where=f"{self._where}, column {fault.name}",
                value=", ".join(fault.values) or None, remedy=f"Leave the column out, or give {_NUMBERS}",
            )  # fmt: skip
        return found


def left_out(columns: Sequence[NodeColumn], where: str, is_schema: bool = False) -> list[InputWarning]:
    """Warnings of columns that cannot be features.

    Args:
        columns: with them.
        where: the file, for people.
        is_schema: a schema says which column names the nodes.
    """
    found = []
    for each in columns:
        if each.kind == NONE:
            what = f"{_fault(each)} is left out of the features"
            settle = f"Give {_NUMBERS}" if is_schema else f"Call it node if it names the nodes, or give {_NUMBERS}"
            if _fault(each) == _OTHER_TYPE:
                settle = "Write it as numbers or text if it matters"
            shown = ", ".join(each.values) or "nothing"
            found.append(InputWarning(what, f"{where}, column {each.name}", shown, settle))
    return found


def _fault(column: NodeColumn) -> str:
    """Why a column cannot be a feature."""
    if not column.values:
        return _NO_VALUES
    return _MANY_TEXTS if column.values[-1] == _MORE else _OTHER_TYPE


def with_categories(
    columns: Sequence[NodeColumn], categories: Mapping[str, Sequence[str]], where: str
) -> tuple[list[NodeColumn], list[InputWarning]]:
    """The columns with a network's categories instead of their own, and warnings of texts that are none of these.

    Args:
        columns: of the graph.
        categories: by name of the column, of the network.
        where: the file or graph, for people.

    Raises:
        UserError: a column that is numbers in the network is text.
    """
    found: list[NodeColumn] = []
    warnings: list[InputWarning] = []
    for each in columns:
        if (values := categories.get(each.name)) is None:
            if each.kind == CATEGORIES:
                raise UserError("a column has text, and the network reads numbers",
                                where=f"{where}, column {each.name}", value=", ".join(each.values[:_SHOWN]),
                                remedy="Give numbers")  # fmt: skip
            found.append(each)
            continue
        found.append(NodeColumn(each.name, CATEGORIES, len(values), tuple(values)))
        if strange := [value for value in each.values if value not in values]:
            warnings.append(InputWarning(
                "the network has no such categories, and these values count as missing", f"{where}, column {each.name}",
                ", ".join(strange[:_SHOWN]) + (", …" if len(strange) > _SHOWN else ""),
                f"Train again with them if they matter; it knows {', '.join(values[:_SHOWN])}",
            ))  # fmt: skip
    return found, warnings


def fill_missing(
    filled: NDArray[np.float32], absent: NDArray[np.int64], columns: Sequence[NodeColumn], where: str,
    learned: NDArray[np.float64] | None = None,
) -> tuple[list[InputWarning], NDArray[np.float64] | None]:  # fmt: skip
    """Replace missing values by the mean of their column, or by 0 where all others are the same, such as the 1 of an
    only category: being there is what they say.

    Args:
        filled: numbers of all columns, NaN where they are missing, [rows, numbers].
        absent: number of missing values of each number [numbers].
        columns: the columns.
        where: the file or graph, for people.
        learned: what stood for missing values in the columns that a network was trained on, which serves instead
            [numbers]; None or empty without any.

    Returns:
        The warning that names them, and what stands for missing values, float64 [numbers]; None where none is missing.

    Raises:
        UserError: a column has no values, of which the mean is wanted; names it.
    """
    ends = np.cumsum([each.width for each in columns]).tolist()
    counts = {each.name: int(absent[end - each.width : end].max()) for each, end in zip(columns, ends, strict=True)}
    lacking = {name: count for name, count in counts.items() if count}
    if not lacking:
        return [], None
    own = learned is None or not len(learned)
    if own:
        if empty := [name for name, count in lacking.items() if count == len(filled)]:
            raise UserError("a column of features has no values", where=where, value=empty[0],
                            remedy="Leave the column out")  # fmt: skip
        total, low, high = np.zeros(filled.shape[1]), np.float32(np.inf), np.float32(-np.inf)
        for rows in rows_of_pieces(filled):
            total += np.nansum(filled[rows], axis=0, dtype=np.float64)
            low, high = np.fmin(low, np.fmin.reduce(filled[rows])), np.fmax(high, np.fmax.reduce(filled[rows]))
        learned = np.where((absent > 0) & (low == high), 0, total / np.maximum(len(filled) - absent, 1))
    fill = np.asarray(learned, np.float64)
    for rows in rows_of_pieces(filled):
        filled[rows] = np.where(np.isnan(filled[rows]), fill.astype(np.float32), filled[rows])
    shown = ", ".join(f"{name}: {count}" for name, count in list(lacking.items())[:_SHOWN])
    how = " in training" if not own else "" if fill[absent > 0].all() else ", or 0 where all others are the same"
    return [InputWarning(
        f"{sum(lacking.values())} values of features are missing; they are the means of their columns{how}", where,
        shown + (", …" if len(lacking) > _SHOWN else ""), "Fill them in the file where a mean is no good value",
    )], fill  # fmt: skip


def column_numbers(column: NodeColumn, given: Any, batch: TableBatch) -> NDArray[np.float32]:
    """Numbers of a column, float32 [rows, width], NaN where they are missing.

    Raises:
        UserError: a value is not of the column's kind; names file, row and column.
    """
    array = given if isinstance(given, pa.Array) else given.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if column.kind == CATEGORIES:
        return _one_hot(column, known(array if is_text(array.type) else array.cast(pa.string())))
    text = is_text(array.type)
    if column.kind == DAYS:
        return days_of(known(array) if text else array).astype(np.float32)[:, None]
    shape = (column.width,) if is_list(array.type) else ()
    kind = "bool" if column.kind == TRUTH else "float"
    array = known(array) if text else array
    there = array.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(there)
    numbers = np.full((len(array), column.width), np.nan, np.float32)
    try:
        present = array if there.all() else array.take(pa.array(rows))
        values = values_of(_without_nulls(present) if shape else present, Feature(column.name, kind, shape), text)
    except BadValue as error:
        fault = BadValue(int(rows[error.row]), f"column {column.name}: {error.what}", error.value)
        remedy = "Give each node as many features as the first row has, all of them numbers, or leave the column out"
        raise batch.fault(fault, remedy) from None
    numbers[rows] = np.asarray(values, np.float32).reshape(len(rows), column.width)
    return numbers


def _without_nulls(lists: Any) -> Any:
    """Lists of numbers with NaN in place of null; there is no missing list."""
    values = lists.flatten()
    if not values.null_count or not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return lists
    bounds = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(pc.list_value_length(lists).to_numpy(zero_copy_only=False), out=bounds[1:])
    return pa.LargeListArray.from_arrays(pa.array(bounds), pc.fill_null(values.cast(pa.float64()), np.nan))


def sparse_columns(names: list[str]) -> tuple[str, str, str] | None:
    """The columns of nodes, columns and values among three, if their names show which is which."""
    found = [next((name for name in names if name.lower() in each), "")
             for each in (NODE_COLUMNS, COLUMN_NAMES, VALUE_NAMES)]  # fmt: skip
    return (found[0], found[1], found[2]) if len(names) == 3 and all(found) else None


def without_values(column: Any) -> bool:
    """True if all values of a column are null or NaN."""
    return bool(pc.all(pc.is_null(column, nan_is_null=True), min_count=0).as_py())


def _count_numbers(texts: Any) -> int:
    try:
        texts.cast(pa.float32())
        return len(texts) - int(texts.null_count)
    except pa.ArrowInvalid:
        return int(pc.sum(pc.match_substring_regex(texts, _NUMBER)).as_py() or 0)


def _different(table: Batches, names: Sequence[str]) -> dict[str, set[str]]:
    """The different values of columns, of columns with many of them not all."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for batch in table.batches(names):
        for values, column in zip(found.values(), batch.columns, strict=True):
            if len(values) <= MOST_CATEGORIES:
                values.update(pc.unique(known(column)).drop_null().to_pylist())
    return found


def _of_text(column: NodeColumn, values: set[str]) -> NodeColumn:
    """A column with its categories, sorted by their bytes; with some of its values if these are too many."""
    ordered = tuple(sorted(values, key=str.encode))
    if len(ordered) > MOST_CATEGORIES:
        return NodeColumn(column.name, NONE, 0, (*(each[:20] for each in ordered[:2]), _MORE))
    return column._replace(width=len(ordered), values=ordered)


def _one_hot(column: NodeColumn, texts: Any) -> NDArray[np.float32]:
    place = pc.index_in(texts, value_set=pa.array(column.values, texts.type), skip_nulls=True)
    numbers = np.eye(column.width + 1, column.width, dtype=np.float32)
    numbers[column.width] = np.nan
    chosen: NDArray[np.float32] = numbers[pc.fill_null(place, column.width).to_numpy(zero_copy_only=False)]
    return chosen


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_readable(kind: pa.DataType) -> bool:
    """True for types of which some values are features: numbers, text, truth values, and lists of numbers."""
    element = kind.value_type if is_list(kind) else kind
    is_number = pa.types.is_integer(element) or pa.types.is_floating(element) or pa.types.is_decimal(element)
    return is_number or pa.types.is_boolean(element) or (is_text(kind) and not is_list(kind))


def _width(column: Any) -> int:
    """Numbers in the first row that has some."""
    if not is_list(column.type):
        return 1
    first = column.drop_null()[:1]
    return int(pc.list_value_length(first)[0].as_py()) if len(first) else 0
