"""Fields of a vertex program whose values are given in a table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.vertex.program import VertexProgram

VERTICES, COLUMNS = "vertices.npy", "columns.parquet"
"""Files of a vertex_fields dataset."""
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


class GivenFields(NamedTuple):
    """Values of fields.

    Args:
        values: by field, [vertices] or [vertices, length]; 0 without a row, of classes -1.
        classes: names of the classes of a field by their number, in the order of their bytes.
    """

    values: Mapping[str, NDArray[Any]]
    classes: Mapping[str, list[str]]

    @property
    def lengths(self) -> dict[str, int]:
        """Lengths of vectors with a value for each class, by the field of the class."""
        return {name: len(names) for name, names in self.classes.items()}


NOTHING_GIVEN = GivenFields(MappingProxyType({}), MappingProxyType({}))


def given_fields(program: VertexProgram, table: Dataset, vertices: int, nodes: Any) -> GivenFields:
    """The fields of a program that a table gives, by the names of its columns; the only one is that of classes.

    Args:
        program: names them.
        table: vertex_fields dataset of the graph.
        vertices: of the graph.
        nodes: function of a vertex to its name, for messages.

    Raises:
        UserError: a column is missing or has other values than its field; or a value is missing or no number.
    """
    rows = table.array(VERTICES, mmap=False)
    if len(rows) and (rows[0] < 0 or rows[-1] >= vertices or (np.diff(rows) <= 0).any()):
        raise UserError("the table's vertices are not those of this graph", where=table.uri,
                        remedy="Delete the dataset and run again")  # fmt: skip
    values: dict[str, NDArray[Any]] = {}
    classes: dict[str, list[str]] = {}
    with table.parquet(COLUMNS) as file:
        have = file.schema_arrow.names
        for name in program.given:
            only = name in program.classes and len(program.given) == len(have) == 1
            if name not in have and not only:
                raise UserError(
                    "the table of vertices lacks a column", where=f"program {program.name}: field {name}", value=name,
                    remedy=f"Name the column of --vertices so; it has {', '.join(have)[:200]}",
                )  # fmt: skip
            column = file.read([have[0] if only else name]).column(0).combine_chunks()
            column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            if name in program.classes:
                numbers, classes[name] = _classes(column, f"program {program.name}: field {name}")
                values[name] = np.full(vertices, -1, np.int32)
            else:
                place = _Place(program.name, name, rows, nodes)
                numbers = _numbers(column, program.fields[name], place)
                values[name] = np.zeros((vertices, *numbers.shape[1:]), numbers.dtype)
            values[name][rows] = numbers
    return GivenFields(values, classes)


class _Place(NamedTuple):
    program: str
    field: str
    rows: NDArray[np.int32]
    nodes: Any

    def fault(self, row: int, what: str, value: object, remedy: str) -> UserError:
        """The error for a value of a vertex."""
        where = f"program {self.program}: field {self.field} of vertex {self.nodes(int(self.rows[row]))!r}"
        return UserError(what, where=where, value=value, remedy=remedy)


def _classes(column: Any, where: str) -> tuple[NDArray[np.int32], list[str]]:
    """Number of the class of each row, -1 without; and the classes."""
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, None)
    try:
        texts = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UserError("the column has no names of classes", where=where, value=str(column.type),
                        remedy="Give text or whole numbers") from None  # fmt: skip
    texts = pc.if_else(pc.equal(texts, ""), None, texts)
    names = sorted(pc.unique(texts).drop_null().to_pylist(), key=str.encode)
    if not names:
        raise UserError("no vertex has a class", where=where, remedy="Give some vertices their class")
    found = pc.index_in(texts, value_set=pa.array(names, texts.type))
    return pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int32), names


def _numbers(column: Any, kind: str | tuple[str, int | str], place: _Place) -> NDArray[Any]:
    """Values of a column as its field's numbers, [rows] or [rows, length]."""
    dtype, length = kind if isinstance(kind, tuple) else (kind, 0)
    wanted, width = np.dtype(dtype), int(length) or 1
    is_list = any(each(column.type) for each in _LISTS)
    if is_list != bool(length):
        remedy = f"Give lists of {width} numbers, as Parquet has them" if length else "Give single numbers"
        raise place.fault(0, "the column has lists" if is_list else "the column has no lists", str(column.type), remedy)
    if is_list:
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        if (lengths != width).any():
            row = int(np.flatnonzero(lengths != width)[0])
            raise place.fault(row, f"the vector has not {width} values", int(lengths[row]), f"Give lists of {width}")
        column = column.flatten()
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if missing.any():
        raise place.fault(int(np.argmax(missing)) // width, "the value is missing", None,
                          "Give a value, or leave the row out")  # fmt: skip
    exact = pa.from_numpy_dtype(wanted)
    try:
        if wanted.kind != "f":
            numbers: NDArray[Any] = column.cast(exact).to_numpy(zero_copy_only=False)
        else:
            numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        row = next(row for row in range(len(column)) if not _fits(column[row], exact))
        raise place.fault(row // width, f"the value is no {wanted.name}", column[row].as_py(),
                          "Correct the table") from None  # fmt: skip
    if wanted.kind == "f" and not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        raise place.fault(row // width, "the value is no finite number", column[row].as_py(),
                          "Give a number, or leave the row out")  # fmt: skip
    return numbers.reshape(-1, width) if length else numbers


def _fits(value: Any, kind: Any) -> bool:
    try:
        pa.array([value.as_py()], value.type).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True
