"""Sparse features of the nodes of an edge list: rows node, column, value, or a saved matrix.

Columns are named by their texts, whole numbers in their order and others by their bytes. A value without a row is zero,
and so are all values of a node that has none. For a network the columns are the network's; rows of others are left out,
with a warning. In memory is what is not zero; `scaling` reads the matrix from its file.

The matrix in SciPy's `.npz` (`scipy.sparse.save_npz`) or in the svmlight format has a row for each node; nodes and
columns are named by their numbers from 0 on. Labels in the svmlight format are not read.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.storage.part_files import part_files
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.text_file import LINE_BYTES, open_unpacked
from superworkflow.tasks.heterograph import HeterographParams
from superworkflow.tasks.heterograph.column_doubts import chosen_columns
from superworkflow.tasks.heterograph.feature_columns import NUMBERS, ZIP, NodeColumn, column_numbers, sparse_columns
from superworkflow.tasks.heterograph.ids import Ids
from superworkflow.tasks.heterograph.node_features import NodeFeatures, column_names, table_of
from superworkflow.tasks.heterograph.values import BadValue, ids_of
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.formats.svmlight import read_samples
from superworkflow.tasks.lib.kernels.huge_pages import rows_of_pieces

MOST_COLUMNS = 1 << 20
_SHOWN = 3
_SAMPLE = re.compile(rb"[-+0-9.eE]+(\s+qid:\d+)?(\s+\d+:[-+0-9.eE]+)+\s*(#.*)?", re.DOTALL)
"""A line in the svmlight format."""


def features_file(job: StageRun[HeterographParams], source: Source, ids: Ids) -> NodeFeatures:
    """The features in a file or a folder of part files, whichever form they have.

    Raises:
        UserError: as `NodeFeatures` and `SparseFeatures`.
    """
    files = part_files(source)
    if not source.is_folder:
        with source.local(job.scratch, files[0]).open("rb") as stream:
            if stream.read(len(ZIP)) == ZIP:
                return SavedMatrix(job, source, ids)
        with open_unpacked(source.local(job.scratch, files[0]), source.uri) as text:
            if _SAMPLE.fullmatch(text.readline(LINE_BYTES)):
                return SvmlightMatrix(job, source, ids)
    sparse = job.params.sparse
    if sparse == "auto":
        sparse = sparse_columns(column_names(source, files, job)) is not None
    return (SparseFeatures if sparse else NodeFeatures)(job, source, ids)


class SparseFeatures(NodeFeatures):
    """Rows node, column, value, whose nodes are added to `ids`."""

    lists_nodes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.dtype = "half" if self.job.params.precision == "float16" else "float"
        self._doubts: list[InputWarning] = []
        rows, columns, values, texts = self._read()
        self._numbers, self._values_there = rows, values
        left = chosen_columns(self.job.params.leave_out, texts, "heterograph.leave_out")
        order = [name for name in self._order(texts) if name not in left]
        self.found = [NodeColumn(name, NUMBERS, 1) for name in order]
        self.width = len(order)
        if not 0 < self.width <= MOST_COLUMNS:
            raise UserError(f"sparse features have 1 to {MOST_COLUMNS} columns", where=self.source.uri,
                            value=self.width, remedy="Leave out columns with few values")  # fmt: skip
        number = {name: place for place, name in enumerate(order)}
        self._columns = np.array([number.get(text, -1) for text in texts], np.int32)[columns]
        if (gone := self._columns < 0).any():
            if strangers := sorted({texts[column] for column in np.unique(columns[gone]).tolist()} - left):
                self._doubts.append(InputWarning(
                    f"values of {len(strangers)} columns that the network does not have are left out", self.source.uri,
                    ", ".join(strangers[:_SHOWN]), "Train again with these columns if they matter",
                ))  # fmt: skip
            keep = ~gone
            self._numbers, self._columns, self._values_there = rows[keep], self._columns[keep], values[keep]
        self._refuse_repeated()

    def _read(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], list[str]]:
        """Numbers of nodes and of columns, values, and the columns' texts."""
        files = part_files(self.source)
        names = column_names(self.source, files, self.job)
        if len(names) != 3:
            raise UserError("sparse features have three columns", where=self.source.uri, value=", ".join(names)[:200],
                            remedy="Give node,column,value, or set heterograph.sparse=false")  # fmt: skip
        chosen = sparse_columns(names) or (names[0], names[1], names[2])
        table, seen = table_of(self.source, self.job), dict[str, int]()
        rows, columns, values = [np.empty(0, np.int32)], [np.empty(0, np.int32)], [np.empty(0, np.float32)]
        for batch in table.batches(chosen):
            rows.append(self.ids.add(self._ids(batch)))
            try:
                coded = ids_of(batch.columns[1]).dictionary_encode()
            except BadValue as error:
                raise batch.fault(error, "Name a column in each row") from None
            codes = [seen.setdefault(text, len(seen)) for text in coded.dictionary.to_pylist()]
            columns.append(np.array(codes, np.int32)[coded.indices.to_numpy()])
            found = column_numbers(NodeColumn(chosen[2], NUMBERS, 1), batch.columns[2], batch).reshape(-1)
            if (bad := ~np.isfinite(found)).any():
                row = int(np.flatnonzero(bad)[0])
                fault = BadValue(row, f"column {chosen[2]}: not a finite number", batch.columns[2][row].as_py())
                raise batch.fault(fault, "Leave rows without a value out")
            values.append(found)
        table.close()
        if len(rows) == 1:
            raise UserError("the table has no rows", where=self.source.uri, remedy="Give a row for each value")
        if self.job.params.sparse == "auto" and self.ids.count == sum(map(len, rows)):
            self._doubts.append(InputWarning(
                "rows are read as node, column, value of sparse features, and each node has one", self.source.uri,
                ", ".join(names), "Set heterograph.sparse=false if these are two features of each node",
            ))  # fmt: skip
        return np.concatenate(rows), np.concatenate(columns), np.concatenate(values), list(seen)

    def _order(self, texts: list[str]) -> list[str]:
        """Names of the columns in their order."""
        if learned := self.network_columns():
            return learned
        if all(text.isascii() and text.isdecimal() for text in texts):
            return sorted(texts, key=lambda text: (int(text), text))
        return sorted(texts, key=str.encode)

    def _refuse_repeated(self) -> None:
        keys = self._numbers.astype(np.int64) * self.width + self._columns
        ordered = np.sort(keys)
        if (again := ordered[1:] == ordered[:-1]).any():
            key = ordered[1:][again][0]
            row = int(np.flatnonzero(keys == key)[1])
            raise UserError(
                "a node has two values in one column", where=self.source.uri,
                value=f"column {self.found[int(key) % self.width].name}, value {self._values_there[row]:g}",
                remedy="Add them up first, in pandas: .groupby(['node', 'column'], as_index=False).sum()",
            )  # fmt: skip

    def _fill(self, filled: NDArray[np.float32], rank: NDArray[np.int32], absent: NDArray[np.int64]) -> None:
        place = rank[self._numbers]
        order = np.argsort(place, kind="stable")
        bounds = np.searchsorted(place, np.arange(len(filled) + 1), sorter=order)
        for rows in rows_of_pieces(filled):
            here = order[bounds[rows.start] : bounds[rows.stop]]
            filled[place[here], self._columns[here]] = self._values_there[here]


class SavedMatrix(SparseFeatures):
    """A sparse matrix in SciPy's `.npz`."""

    lists_nodes: ClassVar[bool] = True

    def _matrix(self) -> Any:
        from scipy import sparse

        try:
            return sparse.load_npz(self.source.local(self.job.scratch, self.source.location.name))
        except (ValueError, OSError, KeyError) as error:
            raise UserError(f"no sparse matrix can be read: {error}", where=self.source.uri,
                            remedy="Save it with scipy.sparse.save_npz") from None  # fmt: skip

    def _read(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], list[str]]:
        matrix = self._matrix().tocoo()
        values = matrix.data.astype(np.float32)
        if not np.isfinite(values).all():
            raise UserError("a feature is not a finite number", where=self.source.uri,
                            remedy="Give each entry a number")  # fmt: skip
        nodes = self.ids.add(pa.array(np.arange(matrix.shape[0])).cast(pa.string()))
        return nodes[matrix.row], matrix.col.astype(np.int32), values, list(map(str, range(matrix.shape[1])))


class SvmlightMatrix(SavedMatrix):
    """Samples in the svmlight format, whose labels are not read."""

    def _matrix(self) -> Any:
        samples = read_samples(self.source.local(self.job.scratch, self.source.location.name), self.source.uri)
        if len(different := np.unique(samples.labels)) > 1:
            self._doubts.append(InputWarning(
                "features are read from a file in the svmlight format, and its labels are not", self.source.uri,
                f"{len(different)} different ones, from {different[0]:g} to {different[-1]:g}",
                "Give labels in rows node,label, where the first line of the file is node 0",
            ))  # fmt: skip
        return samples.matrix
