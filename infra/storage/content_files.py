"""Files of a store that are named by their content, so that the same rows are the same file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from superworkflow.infra.storage.digest import file_sha256, json_sha256
from superworkflow.infra.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 20
"""Rows that a file is written by, so that its bytes do not depend on how they arrived."""
_INT64_DIGITS = 18


def keep_content(store: Store, folder: str, suffix: str, write: Callable[[Path], object]) -> str:
    """Write a file into the store as `<store>/<folder>/<SHA-256><suffix>`, unless it is there; its URI.

    Args:
        store: where.
        folder: of the store.
        suffix: of the file's name, such as `.parquet`.
        write: writes the content to a path.
    """
    kept = store.root.join(folder)
    if (local := kept.local_path) is not None:
        local.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".content-", dir=local) as scratch:
        path = Path(scratch) / f"content{suffix}"
        write(path)
        target = kept.join(f"{file_sha256(path)}{suffix}")
        if (final := target.local_path) is None:
            target.upload(path, create=True)
        elif not final.exists():
            path.replace(final)
    return target.uri


def keep_folder(store: Store, folder: str, write: Callable[[Path], str]) -> str:
    """Write files into the store as the folder `<store>/<folder>/<SHA-256>`, unless it is there; the URI of one.

    Args:
        store: where.
        folder: of the store.
        write: writes the files into a folder, and names the one that describes the others; it is written last.
    """
    kept = store.root.join(folder)
    if (local := kept.local_path) is not None:
        local.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".content-", dir=local) as scratch:
        made = Path(scratch) / "content"
        made.mkdir()
        title = write(made)
        names = sorted((path.name for path in made.iterdir()), key=lambda name: (name == title, name))
        sums = {name: file_sha256(made / name) for name in names}
        target = kept.join(json_sha256(sums))
        if (final := target.local_path) is None:
            for name in names:
                target.join(name).upload(made / name, create=True)
        elif not final.exists():
            made.replace(final)
    return target.join(title).uri


def write_parquet(tables: Iterable[pa.Table], path: Path, *, store_schema: bool = False) -> int:
    """Write tables as one Parquet file, in row groups of `ROW_GROUP` rows; the number of rows.

    Args:
        tables: at least one, of one schema; a column's type may be found only later in the first row group, where
            its first values are null or all of them whole numbers.
        path: of the file.
        store_schema: keep Arrow's own types, such as lists of one length.
    """
    import pyarrow.parquet as pq

    rows, writer = 0, None
    try:
        for table in _regrouped(tables):
            writer = writer or pq.ParquetWriter(path, table.schema, store_schema=store_schema)
            writer.write_table(table.cast(writer.schema), row_group_size=ROW_GROUP)
            rows += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    return rows


def _regrouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of `ROW_GROUP` rows, the last one of fewer; a table without rows if there is none."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        while rows >= ROW_GROUP:
            joined = pa.concat_tables(waiting, promote_options="permissive")
            yield joined.slice(0, ROW_GROUP)
            waiting, rows = [joined.slice(ROW_GROUP)], rows - ROW_GROUP
    if waiting:
        yield pa.concat_tables(waiting, promote_options="permissive")


def plain_table(table: pa.Table) -> pa.Table:
    """The table without what is the library's and not the data's: metadata, categories, large offsets, decimals."""
    import pyarrow as pa

    return pa.table({field.name: _plain(table[field.name], field.type) for field in table.schema})


def _plain(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """A column in one piece; extension types as what they are stored as, decimals with a fraction as floats.

    Whole decimals, as warehouses have for ids, keep all digits: as int64 if all of their type fit it, else as text.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        none = pa.DictionaryArray.from_arrays(pa.array([], kind.index_type), pa.array([], kind.value_type))
        chunks = [
            _plain(pa.chunked_array([each.dictionary]), kind.value_type).take(each.indices)
            for each in (*column.chunks, none)
        ]
        return pa.concat_arrays(chunks)
    if isinstance(kind, pa.BaseExtensionType):
        is_number = getattr(kind, "type_name", "") == "numeric"
        text = pa.chunked_array([chunk.storage for chunk in column.chunks], type=kind.storage_type)
        if str(kind).startswith("extension<arrow.uuid>"):
            text = pa.chunked_array([[str(each) if each else None for each in column.to_pylist()]], type=pa.string())
        column = text.cast(pa.float64()) if is_number else text
    elif pa.types.is_decimal(kind):
        whole = pa.int64() if kind.precision <= _INT64_DIGITS else pa.string()
        column = column.cast(pa.float64() if kind.scale > 0 else whole)
    elif pa.types.is_interval(kind):  # which Parquet does not have
        column = pa.chunked_array([[None if each is None else str(each) for each in column.to_pylist()]], pa.string())
    elif pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.string())
    elif pa.types.is_large_list(kind):
        column = column.cast(pa.list_(kind.value_type))
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
