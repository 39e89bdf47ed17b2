"""One file of DGL's chunked format as an array, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.lib.graph.dtypes import DTYPES
from superworkflow.tasks.lib.importers.dgl_chunked import Chunks

_NAMES = {np.dtype(given): name for name, given in DTYPES.items()}


def feature_dtype(values: NDArray[Any]) -> str:
    """The name of an array's type."""
    return _NAMES[values.dtype]


def read_chunk(job: StageRun[Any], source: Source, chunks: Chunks, file: str, count: int) -> NDArray[Any]:
    """The numbers of a file, [rows] or [rows, columns].

    Args:
        job: the stage's run.
        source: the description.
        chunks: that the file is one of.
        file: its name there.
        count: rows that it must have.

    Raises:
        UserError: it cannot be read, has other rows than it must, or what is no finite number.
    """
    where = f"{source.uri}, {file}"
    members = source.files(file)
    if len(members) != 1:
        raise UserError(f"a chunk of {chunks.name} is one file", where=where, value=f"{len(members)} files",
                        remedy="Name each file")  # fmt: skip
    path = source.local(job.scratch, members[0])
    try:
        values = _READERS[chunks.kind](path, chunks.delimiter)
    except (ValueError, EOFError, OSError, pa.ArrowException) as error:
        what = f"a file of {chunks.name} cannot be read as {chunks.kind}: {reason_of(error)}"
        remedy = "Give rows of as many numbers each, in the format that the metadata says"
        raise UserError(what, where=where, remedy=remedy) from None
    values = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
    if values.ndim == 0 or len(values) != count:
        what, found = f"a file of {chunks.name} has other rows than the metadata counts", len(np.atleast_1d(values))
        raise UserError(what, where=where, value=found, remedy=f"Give {count} rows, or correct the counts")
    if values.dtype not in _NAMES:
        raise UserError(f"a file of {chunks.name} has values of another type than numbers", where=where,
                        value=str(values.dtype), remedy="Give whole or floating-point numbers")  # fmt: skip
    if values.dtype.kind == "f":
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise UserError(f"a value of {chunks.name} is not a finite number", where=f"{where}, row {row + 1}",
                            value=str(values[row])[:80], remedy="Give each one a number")  # fmt: skip
    return values


def _csv(path: Path, delimiter: str) -> NDArray[Any]:
    table = pacsv.read_csv(
        path,
        read_options=pacsv.ReadOptions(autogenerate_column_names=True),
        parse_options=pacsv.ParseOptions(delimiter=delimiter),
        convert_options=pacsv.ConvertOptions(strings_can_be_null=False, null_values=[]),
    )
    return _matrix(table)


def _parquet(path: Path, delimiter: str) -> NDArray[Any]:
    return _matrix(pq.read_table(path))


def _numpy(path: Path, delimiter: str) -> NDArray[Any]:
    values: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return values


def _matrix(table: pa.Table) -> NDArray[Any]:
    """The columns of a table side by side; a single one as it is."""
    parts = []
    for name in table.column_names:
        column = table[name].combine_chunks()
        if column.null_count:
            raise ValueError(f"column {name} has missing values")
        if pa.types.is_fixed_size_list(column.type):
            parts.append(_plain(name, column.flatten()).reshape(len(column), column.type.list_size))
            continue
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            lengths = np.diff(column.offsets.to_numpy())
            if len(lengths) and (lengths != lengths[0]).any():
                row = int(np.flatnonzero(lengths != lengths[0])[0])
                raise ValueError(f"row {row + 1} has {lengths[row]} values, row 1 {lengths[0]}")
            parts.append(_plain(name, column.flatten()).reshape(len(column), -1))
            continue
        parts.append(_plain(name, column))
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _plain(name: str, column: pa.Array) -> NDArray[Any]:
    if column.null_count:
        raise ValueError(f"column {name} has missing values")
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
        raise ValueError(f"column {name} has values of type {column.type}, such as {str(column[0])[:40]!r}")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


_READERS = {"csv": _csv, "numpy": _numpy, "parquet": _parquet}
