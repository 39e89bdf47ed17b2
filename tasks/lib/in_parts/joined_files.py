"""Files of a dataset from the parts that tasks have left: one task joins a file, through a bounded buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.digest import SummedStream
from superworkflow.infra.storage.manifest import FileEntry
from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs

_COPY_BYTES = 8 << 20


@dataclass(frozen=True)
class ArrayFile:
    """A `.npy` file.

    Args:
        kept: what was left.
        name: of the file.
        dtype, shape: of the array.
        parts: of which it is made, in order.
        bases: what is added to the entries of each part, with a 0 before all; None for the parts as they are.
    """

    kept: TaskOutputs
    name: str
    dtype: str
    shape: tuple[int, ...]
    parts: tuple[str, ...]
    bases: tuple[int, ...] | None = None


@dataclass(frozen=True)
class TableFile:
    """A Parquet file.

    Args:
        kept: what was left.
        name: of the file.
        schema: of the parts as well, but for the names of columns.
        options: of `pq.write_table`, with `row_group_size`.
        rows: how many it has.
        parts: of which it is made, in order.
    """

    kept: TaskOutputs
    name: str
    schema: pa.Schema
    options: Mapping[str, Any]
    rows: int
    parts: tuple[str, ...]


def join_file(file: ArrayFile | TableFile) -> FileEntry:
    """Make a file of its parts."""
    writer = TaskWriter(file.kept.output)
    with writer.stream(file.name) as out:
        if isinstance(file, ArrayFile):
            _join_array(file, out)
        else:
            _join_table(file, out)
    return writer.entries[0]


def _join_array(file: ArrayFile, out: SummedStream) -> None:
    header: Any = {"descr": np.dtype(file.dtype).str, "fortran_order": False, "shape": file.shape}
    np.lib.format.write_array_header_1_0(out, header)
    if file.bases is not None:
        out.write(np.zeros(1, file.dtype).tobytes())
    for number, part in enumerate(file.parts):
        with file.kept.location(part).open() as stream:
            while chunk := stream.read(_COPY_BYTES):
                if file.bases is not None:
                    chunk = (np.frombuffer(chunk, file.dtype) + file.bases[number]).astype(file.dtype).tobytes()
                out.write(chunk)


def _join_table(file: TableFile, out: SummedStream) -> None:
    """Row groups of the same size, whatever the parts' sizes are."""
    schema, options = file.schema, dict(file.options)
    most = options.pop("row_group_size")
    waiting = schema.empty_table()
    with pq.ParquetWriter(out, schema, **options) as writer:
        for part in file.parts:
            waiting = pa.concat_tables([waiting, file.kept.table(part).rename_columns(schema.names).cast(schema)])
            while len(waiting) >= most:
                writer.write_table(waiting.slice(0, most).combine_chunks(), most)
                waiting = waiting.slice(most)
        if len(waiting) or not file.rows:
            writer.write_table(waiting.combine_chunks(), most)
