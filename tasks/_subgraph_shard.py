"""One shard of sampled subgraphs, open to read its row groups one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.tasks._parquet_lists import Lists, new_array, read_lists
from superworkflow.tasks._subgraphs import POSITIONS, Block, Layout, block_of


class Shard:
    """A shard; what its schema says of its columns is looked at once.

    Args:
        path: local file, which is mapped as long as this lives.
        layout: of the dataset.
    """

    def __init__(self, path: Path, layout: Layout):
        whole = pa.memory_map(str(path))
        self._file, self._layout = pq.ParquetFile(whole), layout
        self._data = memoryview(whole.read_buffer())  # of the mapping, not a copy
        self._metadata, schema = self._file.metadata, self._file.schema_arrow
        leaves = (self._metadata.schema.column(number).path for number in range(self._metadata.num_columns))
        names = [leaf.removesuffix(".list.element") for leaf in leaves]
        self._lists = [(number, name) for number, name in enumerate(names) if "." in name and _is_read(schema, name)]
        self._names = schema.names

    def read(
        self, group: int, without_positions: frozenset[int] = frozenset(),
        new: Callable[[int, np.dtype[Any]], NDArray[Any]] = new_array,
    ) -> Block:  # fmt: skip
        """The block in one row group, as `read_group` reads it.

        Args:
            group: number of the row group.
            without_positions: numbers of the edge sets whose positions are not needed.
            new: see `read_lists`.
        """
        skipped = {f"{name}.{j}" for j in without_positions for name in POSITIONS}
        told = self._metadata.row_group(group)
        rows, known = told.num_rows, dict[str, Lists]()
        for number, name in self._lists:
            if name not in skipped and (found := read_lists(self._data, told.column(number), rows, new)) is not None:
                known[name] = found
        names = [name for name in self._names if name not in skipped and name not in known]
        return block_of(self._file.read_row_group(group, columns=names, use_threads=False), self._layout, known)


def _is_read(schema: pa.Schema, name: str) -> bool:
    """Whether `read_lists` knows such a column: nothing in it can be null."""
    field = schema.field(name)
    is_list = pa.types.is_list(field.type) and not field.nullable and not field.type.value_field.nullable
    return is_list and field.type.value_type in (pa.int32(), pa.int64())
