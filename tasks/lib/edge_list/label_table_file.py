"""Rows of a Parquet file of labels, as texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.formats.arrow import is_damage

_ROWS = 1 << 16


def parquet_rows(path: Path, where: str) -> Iterator[tuple[int, list[str]]]:
    """The names of the columns as row 0, then rows by their number from 1 on; a list's values are rows of their own.

    Whole numbers are their digits also where they are floats, as pandas writes them if some are missing. Missing values
    are empty texts.

    Raises:
        UserError: it cannot be read, or a column has values that are no names.
    """
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            yield 0, list(names)
            first = 1
            for batch in file.iter_batches(_ROWS, use_threads=False):
                rows, columns = list(range(first, first + len(batch))), batch.columns
                for place, column in enumerate(columns):
                    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
                        parents = pc.list_parent_indices(column)
                        rows = [rows[parent] for parent in parents.to_pylist()]
                        columns = [each.take(parents) if other != place else pc.list_flatten(column)
                                   for other, each in enumerate(columns)]  # fmt: skip
                texts = [_texts(column, f"{where}, column {name}").to_pylist()
                         for name, column in zip(names, columns, strict=True)]  # fmt: skip
                yield from zip(rows, map(list, zip(*texts, strict=True)), strict=True)
                first += len(batch)
    except (pa.ArrowException, OSError) as error:
        if not is_damage(error):
            raise
        raise UserError(f"the labels cannot be read: {error}", where=where,
                        remedy="Write the file again; it is damaged") from None  # fmt: skip


def _texts(column: Any, where: str) -> Any:
    array = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_floating(array.type):
        there = pc.is_finite(array)
        if pc.all(pc.equal(array, pc.floor(array)).filter(there)).as_py() is not False:
            array = pc.if_else(there, array, None).cast(pa.int64())
    try:
        return pc.utf8_trim_whitespace(pc.fill_null(array.cast(pa.large_string()), ""))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UserError("a column of labels has values that are no names", where=where, value=str(array.type),
                        remedy="Give text or whole numbers, or lists of them") from None  # fmt: skip
