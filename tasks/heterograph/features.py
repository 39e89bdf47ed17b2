"""Features of a set, or of the graph as a whole, from its table to their files, in the order of the set's items."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.heterograph.layout import SchemaLayout, sorted_features
from superworkflow.tasks.heterograph.tables import Table, TableBatch
from superworkflow.tasks.heterograph.values import BadValue, values_of
from superworkflow.tasks.lib.graph.dtypes import DTYPES, STRING
from superworkflow.tasks.lib.graph.heterograph import Feature, Ragged, feature_stem, string_type, take
from superworkflow.tasks.lib.graph.heterograph_writer import write_feature

_HELD_BYTES = 64 << 20
"""Bytes of pages that stay mapped of a file being filled, where each item is on pages of its own."""

_MOST_FILES = 400
"""Files that are filled at a time: each takes two of the 1,024 that a process may usually open."""


class FeatureOwner(NamedTuple):
    """Owner of features: the kind and number in the names of their files, and their number of items."""

    kind: str
    number: int | None
    items: int


def write_features(
    output: FileWriter, owner: FeatureOwner, features: Sequence[Feature], table: Table, place: NDArray[Any]
) -> None:
    """Write the features of a set.

    Those of fixed size are written as they are read, in one pass through the table for each `_MOST_FILES` of them.
    Ragged ones and strings are held in memory, one at a time, each in a pass of its own.

    Args:
        output: where to.
        owner: of the features.
        features: sorted by name.
        table: that has their columns.
        place: item of each row of the table, -1 where the row is left out.

    Raises:
        UserError: a value is not what the schema says; names file and row.
    """
    stems = [feature_stem(owner.kind, owner.number, number) for number in range(len(features))]
    fixed = [number for number, feature in enumerate(features) if feature.dtype != STRING and not feature.is_ragged]
    for first in range(0, len(fixed), _MOST_FILES):
        some = [(features[number], stems[number]) for number in fixed[first : first + _MOST_FILES]]
        _write_fixed(output, owner.items, some, table, place)
    order: NDArray[np.int64] | None = None
    for number, feature in enumerate(features):
        if number not in fixed:
            if order is None:
                order = np.empty(owner.items, np.int64)
                kept = np.flatnonzero(place >= 0)
                order[place[kept]] = kept
            parts = [column_values(batch, 0, feature) for batch in table.batches([feature.name])]
            write_feature(output, stems[number], feature, take(joined_values(feature, parts), order))


def _write_fixed(
    output: FileWriter, items: int, features: list[tuple[Feature, str]], table: Table, place: NDArray[Any]
) -> None:
    with ExitStack() as files:
        filled = []
        for feature, stem in features:
            path = files.enter_context(output.file(f"{stem}.npy"))
            shape = tuple(size for size in feature.shape if size is not None)
            filled.append(files.enter_context(_filled(path, np.dtype(DTYPES[feature.dtype]), (items, *shape))))
        row = 0
        names = [feature.name for feature, _ in features]
        for batch in table.batches(names, sum(feature.width for feature, _ in features)):
            places = place[row : row + len(batch.columns[0])]
            row += len(batch.columns[0])
            keep = places >= 0
            everything = bool(keep.all())
            for number, (feature, _) in enumerate(features):
                values = column_values(batch, number, feature)
                filled[number].put(places, values) if everything else filled[number].put(places[keep], values[keep])


class _Filled:
    """An array in a file, whose items are put there in any order."""

    def __init__(self, values: NDArray[Any], pages: mmap.mmap | None):
        self._values, self._pages, self._put_bytes = values, pages, 0

    def put(self, places: NDArray[Any], values: NDArray[Any]) -> None:
        self._values[places] = values
        self._put_bytes += (
            len(places) * (-(-values.dtype.itemsize * values[:1].size // mmap.PAGESIZE) + 1) * mmap.PAGESIZE
        )
        if self._pages is not None and self._put_bytes > _HELD_BYTES:
            self._pages.madvise(mmap.MADV_DONTNEED)  # they are the file's: it has what was written
            self._put_bytes = 0


@contextmanager
def _filled(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Iterator[_Filled]:
    """A new `.npy` file to be filled."""
    with path.open("w+b") as stream:
        header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        begin, size = stream.tell(), dtype.itemsize * int(np.prod(shape))
        if not size:
            yield _Filled(np.empty(shape, dtype), None)
            return
        stream.flush()
        _reserve(stream.fileno(), begin + size)
        pages = mmap.mmap(stream.fileno(), begin + size)
        values = np.frombuffer(pages, dtype, offset=begin).reshape(shape)
        filled = _Filled(values, pages if hasattr(mmap, "MADV_DONTNEED") else None)
        yield filled


def _reserve(file: int, size: int) -> None:
    """Give a file this size, and disk for all of it: a mapped page that finds none would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.truncate(file, size)


def column_values(batch: TableBatch, column: int, feature: Feature) -> Any:
    """The values of a feature in a column of a batch.

    Raises:
        UserError: a value is not what the schema says; names file and row.
    """
    try:
        return values_of(batch.columns[column], feature, batch.text)
    except BadValue as error:
        raise batch.fault(error) from None


def joined_values(feature: Feature, parts: list[Any]) -> Any:
    """Values of a feature, one part behind the other."""
    if feature.dtype == STRING:
        chunks = [chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
        return pa.chunked_array(chunks, string_type(feature))
    shape = tuple(size for size in feature.shape[feature.is_ragged :] if size is not None)
    none = np.empty((0, *shape), DTYPES[feature.dtype])
    if not feature.is_ragged:
        return np.concatenate([none, *parts])
    bounds = np.cumsum([0, *(len(part.values) for part in parts)])
    starts = [part.starts[:-1] + start for part, start in zip(parts, bounds, strict=False)]
    return Ragged(np.concatenate([none, *(part.values for part in parts)]), np.concatenate([*starts, bounds[-1:]]))


def write_context(job: StageRun[Any], source: Source, layout: SchemaLayout) -> tuple[Feature, ...]:
    """Write the features of the context and return them.

    Raises:
        UserError: its table has not one row, or a value is not what the schema says.
    """
    name = layout.table(layout.context)
    features = sorted_features(layout.context.features)
    if not name:
        if features:
            job.progress.log("the context has no table; its features are left out")
        return ()
    table = Table(source, name, job.scratch, job.threads)
    rows = sum(len(batch.columns[0]) for batch in table.batches([features[0].name])) if features else 1
    if rows != 1:
        raise UserError("the table of the context has one row", where=layout.where, value=f"{rows} rows",
                        remedy="Give the features of the whole graph in one row")  # fmt: skip
    write_features(job.output, FeatureOwner("context", None, 1), features, table, np.zeros(1, np.int32))
    table.close()
    return features
