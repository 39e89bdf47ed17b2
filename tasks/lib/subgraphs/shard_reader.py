"""One shard of sampled subgraphs, open to read its row groups one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.tasks.lib.formats.arrow import is_damage
from superworkflow.tasks.lib.formats.parquet_lists import Lists, new_array, read_lists
from superworkflow.tasks.lib.subgraphs.blocks import POSITIONS, SubgraphBlock, SubgraphLayout, block_of


class SubgraphShard:
    """A shard, whose schema is read and checked once.

    Args:
        path: local file, which is mapped as long as this lives.
        layout: of the dataset.
        where: what people know the file by.

    Raises:
        DatasetDamaged: the file is no shard with this layout.
    """

    def __init__(self, path: Path, layout: SubgraphLayout, where: str):
        self._layout, self._where = layout, where
        with damage_named(where):
            whole = pa.memory_map(str(path))
            self._file = pq.ParquetFile(whole)
            self._data = memoryview(whole.read_buffer())  # of the mapping, not a copy
            self._metadata, schema = self._file.metadata, self._file.schema_arrow
            self._names = schema.names
            _check_columns(schema, layout)
            leaves = (self._metadata.schema.column(number).path for number in range(self._metadata.num_columns))
            names = [(number, leaf.removesuffix(".list.element")) for number, leaf in enumerate(leaves)]
            self._lists = [(number, name) for number, name in names if "." in name and _is_read(schema, name)]

    def read(
        self, group: int, without_positions: frozenset[int] = frozenset(),
        new: Callable[[int, np.dtype[Any]], NDArray[Any]] = new_array,
    ) -> SubgraphBlock:  # fmt: skip
        """The block in one row group, as `read_group` reads it.

        Args:
            group: number of the row group.
            without_positions: numbers of the edge sets whose positions are not needed.
            new: see `read_lists`.

        Raises:
            DatasetDamaged: the row group cannot be read, or its columns do not match in length.
        """
        skipped = {f"{name}.{j}" for j in without_positions for name in POSITIONS}
        with damage_named(self._where):
            row_group = self._metadata.row_group(group)
            rows, lists = row_group.num_rows, dict[str, Lists]()
            for number, name in self._lists:
                if name in skipped:
                    continue
                if (found := read_lists(self._data, row_group.column(number), rows, new)) is not None:
                    lists[name] = found
            names = [name for name in self._names if name not in skipped and name not in lists]
            return block_of(self._file.read_row_group(group, columns=names, use_threads=False), self._layout, lists)


@contextmanager
def damage_named(where: str) -> Iterator[None]:
    """Raise faults of a file's bytes with its name.

    Raises:
        DatasetDamaged: in place of errors of Arrow, of failed look-ups, and of a `DatasetDamaged` that names no file.
    """
    try:
        yield
    except DatasetDamaged as error:
        if error.where is not None:
            raise
        raise _damaged(where, error.what) from None
    except (pa.ArrowException, OSError, LookupError, ValueError) as error:
        if isinstance(error, OSError) and not is_damage(error):
            raise
        raise _damaged(where, f"not a whole shard of subgraphs: {reason_of(error)}") from None


def _damaged(where: str, what: str) -> DatasetDamaged:
    remedy = "Delete the dataset's folder and run again; it will be computed anew"
    return DatasetDamaged(what, where=where, remedy=remedy)


def _check_columns(schema: pa.Schema, layout: SubgraphLayout) -> None:
    lists = [f"nodes.{i}" for i in layout.used_nodes]
    lists += [f"{name}.{j}" for j in layout.used_edges for name in ("source", "target", *POSITIONS)]
    for name in ("sample_id", "seed", *lists):
        if schema.get_field_index(name) < 0 or (name in lists and not pa.types.is_list(schema.field(name).type)):
            raise DatasetDamaged(f"the shard has no column {name}{' of lists' * (name in lists)}")


def _is_read(schema: pa.Schema, name: str) -> bool:
    """True if `read_lists` knows such a column: nothing in it can be null."""
    field = schema.field(name)
    is_list = pa.types.is_list(field.type) and not field.nullable and not field.type.value_field.nullable
    return is_list and field.type.value_type in (pa.int32(), pa.int64())
