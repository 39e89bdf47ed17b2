"""Sources that are in memory: frames and other values, written to the store once, named by their content.

What has an Arrow stream (`__arrow_c_stream__`: polars, Arrow, DuckDB), pandas and mappings are tables as they are. What
else a source takes, its superworkflow says (`Superworkflow.in_memory`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from superworkflow.infra.base.errors import UserError, unwritable
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.described import Described
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.content_files import keep_content, keep_folder, plain_table, write_parquet
from superworkflow.infra.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

_FOLDER = "frames"
_REMEDY = "Give a path, a URI, a frame (pandas, polars, Arrow), or what the superworkflow's page names besides"


def source_uri(superworkflow: Superworkflow, name: str, value: Any, store: Store) -> tuple[str, tuple[str, ...]]:
    """Path or URI of a source: as given, or that of the file that a value in memory is written to.

    The file is `<store>/frames/<SHA-256>.parquet`, or `.npy`: equal values are one file, and their stages stay cached.
    Several tables are a folder, named by the content of all.

    Args:
        superworkflow: whose source it is.
        name: of the source.
        value: a path, a URI, a table, or what the superworkflow's converter for this source takes.
        store: where it is written.

    Returns:
        The URI, and the flags of the superworkflow that the value implies.

    Raises:
        UserError: a value of another kind or shape, or one without a row; the store cannot be written.
    """
    if isinstance(value, str | os.PathLike):
        return os.fspath(value), ()
    content, flags = content_of(superworkflow, name, value)
    try:
        return _kept(store, name, content), flags
    except OSError as error:
        if (reason := unwritable(error, store.uri)) is None:
            raise
        raise reason from error


def _kept(store: Store, name: str, content: Any) -> str:
    if isinstance(content, Described):
        return keep_folder(store, _FOLDER, lambda folder: _write(name, content, folder))
    if isinstance(content, np.ndarray):
        return keep_content(store, _FOLDER, ".npy", lambda path: np.save(path, content, allow_pickle=False))
    return keep_content(store, _FOLDER, ".parquet", lambda path: write_parquet([content], path))


def by_name(text: str, uris: Mapping[str, str]) -> str:
    """A message whose place is the file of a value in memory, with the source's name as its place.

    Args:
        text: of an error or a warning.
        uris: of sources by name.
    """
    for name, uri in uris.items():
        if f"/{_FOLDER}/" in uri and text.startswith(uri):
            return f"{name}{text.removeprefix(uri)}"
    return text


def content_of(superworkflow: Superworkflow, name: str, value: Any) -> tuple[Any, tuple[str, ...]]:
    """A value in memory as an Arrow table, an array, or tables with a description; and the flags it implies."""
    converted, flags = None, ()
    if name in superworkflow.in_memory:
        converted, flags = imported(superworkflow.in_memory[name])(value) or (None, ())
    if isinstance(converted, np.ndarray | Described):
        return converted, flags
    return table_of(name, value if converted is None else converted), flags


def _write(name: str, described: Described, folder: Path) -> str:
    """Write tables and their description; the name of that."""
    for file, value in described.tables.items():
        write_parquet([table_of(f"{name}, {file}", value)], folder / file, store_schema=True)
    title, text = described.describe(folder)
    (folder / title).write_text(text)
    return title


def table_of(name: str, value: Any) -> pa.Table:
    """A frame, or columns by name, as an Arrow table without metadata and categories.

    A named index of pandas is a column.

    Raises:
        UserError: a value of another kind or shape, or one without a row.
    """
    import pyarrow as pa

    try:
        columns = _columns(name, value)
        if columns is None:
            raise UserError("is no source", where=name, value=type(value).__name__, remedy=_REMEDY)
        table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise UserError("columns make no table", where=name, value="; ".join(map(str, error.args)),
                        remedy="Give columns of one length, each with values of one type; ids of several types, or "
                        "beyond 64 bits, as text: frame.astype({'source': str})") from error  # fmt: skip
    if not table.num_rows or not table.num_columns:
        raise UserError("has no row", where=name, value=f"{table.num_rows} rows", remedy="Give one with content")
    if twice := {each for each in table.column_names if table.column_names.count(each) > 1}:
        raise _twice(name, twice)
    return plain_table(table)


def _columns(name: str, value: Any) -> Any:
    """A table as a library gives it, or columns by name; None for what is no table."""
    import pyarrow as pa

    if type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns"):
        if any(each is not None for each in value.index.names):
            value = value.reset_index()
        if not value.columns.is_unique:
            raise _twice(name, set(map(str, value.columns[value.columns.duplicated()])))
        return pa.Table.from_pandas(value.rename(columns=str), preserve_index=False)
    if hasattr(value, "__arrow_c_stream__") and not hasattr(value, "index"):
        return pa.table(value)
    if isinstance(value, Mapping) and all(map(_is_column, value.values())):
        return {str(name): np.asarray(each) if hasattr(each, "numpy") else each for name, each in value.items()}
    return None


def _is_column(value: Any) -> bool:
    if isinstance(value, Sequence):
        return not isinstance(value, str | bytes)
    return hasattr(value, "__array__") and not hasattr(value, "columns")


def _twice(name: str, columns: set[str]) -> UserError:
    return UserError("two columns have one name", where=name, value=", ".join(sorted(columns)),
                     remedy="Rename one of them")  # fmt: skip
