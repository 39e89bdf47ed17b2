"""Features of the nodes of an edge list, from their table to their file."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.storage.part_files import differ, part_files, part_uri, partition_values
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.heterograph import NODE_SET, HeterographParams
from superworkflow.tasks.heterograph.bins import may_widen
from superworkflow.tasks.heterograph.column_doubts import SAMPLE, ColumnDoubt, chosen_columns, doubt_of
from superworkflow.tasks.heterograph.feature_columns import (
    NODE_COLUMNS,
    NONE,
    Survey,
    column_numbers,
    left_out,
    with_categories,
    without_values,
)
from superworkflow.tasks.heterograph.ids import Ids, first_repeated
from superworkflow.tasks.heterograph.label_leaks import label_leaks
from superworkflow.tasks.heterograph.scaled_matrix import fill_and_fit, write_scaled
from superworkflow.tasks.heterograph.scaling import Scaling
from superworkflow.tasks.heterograph.tables import BATCH_VALUES, Table, TableBatch, names_in
from superworkflow.tasks.heterograph.values import BadValue, ids_of, is_list, is_text, known
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings
from superworkflow.tasks.lib.gnn.column_scaling import PIECEWISE, ROW, scaled_widths
from superworkflow.tasks.lib.gnn.model.config import read_shape
from superworkflow.tasks.lib.graph.heterograph import COLUMNS_FILE, SCALING_FILE, feature_stem
from superworkflow.tasks.lib.kernels.huge_pages import release

_HELD_BYTES = 64 << 20
"""Bytes of pages that stay mapped of the file while it is filled."""


@dataclass
class NodeFeatures:
    """A table of features, whose nodes are added to `ids` when it is opened."""

    job: StageRun[HeterographParams]
    source: Source
    ids: Ids
    lists_nodes: ClassVar[bool] = True
    """A node of an edge that has no row is an error."""

    def __post_init__(self) -> None:
        self.dtype = "half" if self.job.params.precision == "float16" else "float"
        files = part_files(self.source)
        self.table = table_of(self.source, self.job)
        names = column_names(self.source, files, self.job)
        self._doubts: list[InputWarning] = []
        self.node = next((name for name in NODE_COLUMNS if name in names), names[0])
        self.columns = [name for name in names if name != self.node]
        if not self.columns or len(set(names)) < len(names):
            raise UserError(
                "the table has two columns of one name" if self.columns else "the table has no features",
                where=self.source.uri, value=", ".join(names)[:200],
                remedy="Give a column `node`, and columns of numbers or lists of them, each with a name of its own",
            )  # fmt: skip
        parts: list[NDArray[np.int32]] = []
        first, dates = self._chosen_columns()
        survey = Survey(self.columns, first, self.source.uri, dates)
        for batch in self.table.batches([self.node, *survey.texts], len(survey.texts) + 1):
            parts.append(self.ids.add(self._ids(batch)))
            survey.add(batch.columns[1:])
        rows = sum(map(len, parts))
        self._numbers = np.concatenate(parts)
        if self.ids.count < rows:
            raise self._repeated(first_repeated(self._numbers))
        every = survey.columns(self.table, self._needed)
        self._doubts += left_out(every, self.source.uri)
        if scaling := self._network_scaling():
            every, strange = with_categories(every, scaling["categories"], self.source.uri)
            self._doubts += strange
        self.found = [each for each in every if each.kind != NONE]
        self.columns = [each.name for each in self.found]
        self._check_any(each.name for each in every)
        if empty := [each.name for each in self.found if not each.width]:
            raise UserError("a list of features is empty", where=f"{self.source.uri}, row 1",
                            value=empty[0], remedy="Give each node its features")  # fmt: skip
        self.width = sum(each.width for each in self.found)

    def _chosen_columns(self) -> tuple[list[pa.Array], list[str]]:
        """Leave out columns that are no features; the first rows of the others, and which are dates."""
        params, uri, learned = self.job.params, self.source.uri, self.network_columns()
        taken = self._needed = chosen_columns(params.take, self.columns, "heterograph.take") | set(learned)
        left = chosen_columns(params.leave_out, self.columns, "heterograph.leave_out")
        self.columns = [name for name in self.columns if name not in left]
        width = max(len(self.columns), BATCH_VALUES // SAMPLE)  # lists may be long: no more rows than are looked at
        batch = next(self.table.batches(self.columns, width), None) if self.columns else None
        if self.columns and batch is None:
            raise UserError("the table has no rows", where=uri, remedy="Give each node a row")
        first = dict(zip(self.columns, batch.columns if batch else [], strict=True))
        first |= dict.fromkeys(self._empty(first), pa.nulls(0))
        doubted: dict[str, ColumnDoubt] = {}
        for name, column in first.items():
            if not is_list(column.type) and (doubt := doubt_of(name, without_missing(column[:SAMPLE]))):
                doubted[name] = doubt
        unsure = [name for name, doubt in doubted.items() if doubt.by_difference and name not in taken]
        parts = [each.columns for each in self.table.batches(unsure)] if unsure else []
        for name, chunks in zip(unsure, zip(*parts, strict=True), strict=False):
            if found := doubt_of(name, without_missing(pa.chunked_array(chunks).combine_chunks())):
                doubted[name] = found
            else:
                del doubted[name]
        dates = [name for name in doubted if name in taken and doubted[name].dates]
        doubted = {name: doubt for name, doubt in doubted.items() if name not in taken}
        self._doubts += [doubt.warning(name, uri) for name, doubt in doubted.items()]
        self.columns = [name for name in self.columns if name not in doubted or doubted[name].is_read]
        if learned:
            self._take_columns(learned)
        self._check_any(first)
        return [first[name] for name in self.columns], dates

    def _empty(self, first: Mapping[str, Any]) -> list[str]:
        """Names of the columns without a value, of those of whose first rows none has one."""
        names = [name for name, column in first.items() if without_values(column)]
        empty = set(names)
        for batch in self.table.batches(names) if names else ():
            empty -= {name for name, column in zip(names, batch.columns, strict=True) if not without_values(column)}
        return [name for name in names if name in empty]

    def _take_columns(self, learned: list[str]) -> None:
        """Take the columns of a network in its order, and leave out others with a warning."""
        uri = self.source.uri
        if lacking := [name for name in learned if name not in self.columns]:
            raise UserError("the table lacks features that the network reads", where=uri,
                            value=", ".join(lacking)[:200],
                            remedy=f"Give these columns: {', '.join(learned)[:500]}")  # fmt: skip
        if strange := [name for name in self.columns if name not in learned]:
            self._doubts.append(InputWarning("columns that the network does not read are left out", uri,
                                             ", ".join(strange)[:200],
                                             "Train again with these columns if they matter"))  # fmt: skip
        self.columns = learned

    def _check_any(self, given: Iterable[str]) -> None:
        """Refuse a table none of whose columns, the given ones, is left as a feature."""
        if not self.columns:
            raise UserError("no column of the table is a feature", where=self.source.uri,
                            value=", ".join(given)[:200],
                            remedy="Name columns of ids or times that are features in heterograph.take")  # fmt: skip

    def _network_scaling(self) -> Mapping[str, Any]:
        """The scaling of features of the network for which the graph is made; empty without one."""
        if "network" not in self.job.inputs:
            return {}
        return read_shape(self.job.inputs["network"]).scaling.get(NODE_SET, {})

    def network_columns(self) -> list[str]:
        """Columns that the network reads for which the graph is made; empty without one."""
        if "network" not in self.job.inputs:
            return []
        return [name for name, _ in read_shape(self.job.inputs["network"]).columns.get(NODE_SET, ())]

    def write(self, rank: NDArray[np.int32]) -> tuple[str, list[InputWarning]]:
        """Write the features, in the order of the nodes, and `scaling.json`; the scaling's kind, and warnings.

        `found` and `width` are those of scaled values from then on.
        """
        shape, half = (len(rank), self.width), self.dtype == "half"
        wanted, widths = self.job.params.scaling, [each.width for each in self.found]
        absent = np.zeros(self.width, np.int64)

        def fill(filled: NDArray[np.float32]) -> Scaling:
            self._fill(filled, rank, absent)
            learned = self._scaling_of_model()
            scaling, doubts = fill_and_fit(filled, absent, self.found, self.source.uri, learned, wanted)
            self._doubts += doubts
            log_warnings(self.job.progress, self._doubts)
            return scaling

        name, scratch = f"{feature_stem('nodes', 0, 0)}.npy", self.job.scratch
        learned_kind = self._network_scaling().get("kind")
        may = may_widen(len(rank), wanted, widths.count(1)) or learned_kind == PIECEWISE
        scaling, written = write_scaled(self.job.output, name, shape, half, fill, scratch, self.source.uri, may)
        self.job.progress.log(f"scaling of features: {scaling.kind}")
        self._written, self.width = (written, scaling.kind), written.shape[1]
        found = zip(self.found, scaled_widths(widths, scaling._asdict()), strict=True)
        self.found = [each._replace(width=width) for each, width in found]
        columns = [each._asdict() for each in self.found]
        self.job.output.json(COLUMNS_FILE, {NODE_SET: [[each.name, each.width] for each in self.found]})
        self.job.output.json(SCALING_FILE, {NODE_SET: {"columns": columns, **scaling.document()}})
        return scaling.kind, self._doubts

    def label_leaks(self, classes: NDArray[np.int64]) -> list[InputWarning]:
        """Warning of features that give away the label; see `label_leaks`. Called after `write`.

        Args:
            classes: class of each node, -1 for none.
        """
        values, kind = self._written
        return label_leaks(values, kind == ROW, self.found, classes, self.source.uri)

    def _scaling_of_model(self) -> Scaling | None:
        """The scaling of the features of the network for which the graph is made; None without such a network."""
        found = self._network_scaling()
        learned = Scaling.read(found) if found else None
        return learned if learned is not None and learned.fits(self.width) else None  # infer names what differs

    def _fill(self, filled: NDArray[np.float32], rank: NDArray[np.int32], absent: NDArray[np.int64]) -> None:
        """Put the values of all rows into a matrix of zeros, and count those that are missing, by column."""
        row, put, place = 0, 0, rank[self._numbers]
        page_bytes = (-(-4 * self.width // mmap.PAGESIZE) + 1) * mmap.PAGESIZE  # rows are put anywhere
        for batch in self.table.batches(self.columns, self.width):
            values = self._values(batch)
            absent += np.isnan(values).sum(axis=0)
            filled[place[row : row + len(values)]] = values
            row, put = row + len(values), put + len(values) * page_bytes
            if put > _HELD_BYTES:
                release(filled)
                put = 0
        self.table.close()

    def _values(self, batch: TableBatch) -> NDArray[np.float32]:
        given = zip(self.found, batch.columns, strict=True)
        values = np.concatenate([column_numbers(column, each, batch) for column, each in given], axis=1)
        if (bad := np.isinf(values)).any():
            bad_row, column = (int(each[0]) for each in np.nonzero(bad))
            fault = BadValue(bad_row, "a feature is not a finite number", float(values[bad_row, column]))
            raise batch.fault(fault, "Give each node a number for each feature")
        return values

    def _ids(self, batch: TableBatch) -> pa.Array:
        try:
            return ids_of(batch.columns[0])
        except BadValue as error:
            raise batch.fault(error, "Name a node in each row") from None

    def _repeated(self, row: int) -> UserError:
        for batch in self.table.batches([self.node]):
            if row < len(batch.columns[0]):
                return UserError(
                    "an earlier row has the same node", where=f"{batch.where}, row {batch.row + row}",
                    value=str(self._ids(batch)[row].as_py()), remedy="Give each node one row",
                )  # fmt: skip
            row -= len(batch.columns[0])
        raise AssertionError


def table_of(source: Source, job: StageRun[HeterographParams]) -> Table:
    """The table of a file, or of all files of a folder."""
    return Table(source, "*" if source.is_folder else source.location.name, job.scratch, job.threads)


def without_missing(column: Any) -> Any:
    """A column without its dictionary; of texts, those that are not missing."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not is_text(kind):
        return column.cast(kind)
    try:
        return known(column).drop_null()
    except pa.ArrowInvalid:
        return pa.nulls(0)  # the survey names the column


def column_names(source: Source, files: Sequence[str], job: StageRun[HeterographParams]) -> list[str]:
    """Names of the columns, which all files of the table have."""
    found = [names_in(source.local(job.scratch, name), part_uri(source, name)) for name in files]
    for name, names in zip(files, found, strict=True):
        if names != found[0]:
            shown = [", ".join(each)[:400] for each in (found[0], names)]
            raise differ(part_uri(source, files[0]), part_uri(source, name),
                         f"the one has {shown[0]}, the other {shown[1]}")  # fmt: skip
    constant = partition_values(files[0]) if source.is_folder else {}
    return [*found[0], *(name for name in constant if name not in found[0])]
