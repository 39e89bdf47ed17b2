"""Dialect of an edge list file, and the parameters that decide it."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.bipartite import Sides
from superworkflow.tasks.lib.edge_list.edge_times import EdgeTimes
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning

NUMBER = r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[ \t]*"
"""Pattern of a weight, for SQL and for the search for bad rows; the kernels accept the same."""


class ReadParams(Protocol):
    """Parameters that say how an edge list is read; see the fields of the stage `index`."""

    @property
    def format(self) -> str: ...
    @property
    def delimiter(self) -> str | None: ...
    @property
    def header(self) -> bool | str: ...
    @property
    def source(self) -> str | None: ...
    @property
    def target(self) -> str | None: ...
    @property
    def weight(self) -> str | None: ...
    @property
    def weighted(self) -> bool | str: ...
    @property
    def negative(self) -> str: ...
    @property
    def missing(self) -> str: ...
    @property
    def bipartite(self) -> bool | str: ...
    @property
    def source_prefix(self) -> str | None: ...
    @property
    def target_prefix(self) -> str | None: ...
    @property
    def time(self) -> str | None: ...
    @property
    def from_time(self) -> str | None: ...
    @property
    def until(self) -> str | None: ...


@dataclass(frozen=True)
class Dialect:
    """Dialect of an edge list file.

    Args:
        kind: csv, tsv, whitespace or parquet.
        separator: character between fields (csv, tsv).
        gzipped: the file is compressed.
        data_offset: bytes of the text before the first data row: byte order mark, comments at the top, header.
        skipped_lines: lines in those bytes.
        columns: number of the source, target and weight column from 0; -1 for no weights.
        names: column names of the header; empty when there is none.
        negative: what becomes of rows with negative weights, as `index.negative`.
        missing: what becomes of rows without an id: error, drop, or keep, which reads names such as NULL as nodes.
        sides: prefixes of the names of sources and targets, if these are two sets of nodes.
        warnings: doubts about how the file is read.
        relation: number of the column of relations, which a reader of triples sets; -1 for none.
        times: of the rows, if they are asked for.
        texts: numbers of further columns whose texts come after all others, empty where a row has none; no rows are
            left out for them, so that they are read without weights and times.
    """

    kind: Literal["csv", "tsv", "whitespace", "parquet"]
    separator: str = " "
    gzipped: bool = False
    data_offset: int = 0
    skipped_lines: int = 0
    columns: tuple[int, int, int] = (0, 1, -1)
    names: tuple[str, ...] = ()
    negative: str = "error"
    missing: str = "keep"
    sides: Sides | None = None
    warnings: tuple[InputWarning, ...] = ()
    relation: int = -1
    texts: tuple[int, ...] = ()
    times: EdgeTimes | None = None

    @property
    def weighted(self) -> bool:
        return self.columns[2] >= 0

    @property
    def min_columns(self) -> int:
        """Columns that every row must have."""
        return max(self.chosen) + 1

    @property
    def reads_times(self) -> bool:
        """True if rows are read with their times."""
        return self.times is not None and self.times.read

    @property
    def chosen(self) -> list[int]:
        """Numbers of the columns to read: source, target, the weight or the relation, the time, and the texts."""
        time = self.times.column if self.times is not None and self.times.read else -1
        return [column for column in (*self.columns, self.relation, time, *self.texts) if column >= 0]

    def fields(self, line: str) -> list[str]:
        """The fields of one line (of a csv file: without quoted line ends)."""
        if self.kind == "whitespace":
            return [field for field in line.replace("\t", " ").split(" ") if field]
        if self.kind == "tsv" or '"' not in line:
            return line.split(self.separator)
        return next(csv.reader([line], delimiter=self.separator), [])

    def with_times(self) -> Dialect:
        """The dialect whose rows come with their times, if it knows the column."""
        return self if self.times is None else replace(self, times=replace(self.times, kept=True))

    def name_stats(self, dropped: int, sources: int) -> dict[str, str | int | bool]:
        """Stats of how nodes are named, where that is not as in the file.

        Args:
            dropped: rows that were left out, since they lack an id.
            sources: vertices that are sources, if the sides are two sets of nodes.
        """
        stats: dict[str, str | int | bool] = {"missing_dropped": dropped} if self.missing == "drop" else {}
        if self.sides is not None:
            source, target = self.sides
            stats |= {"bipartite": True, "source_prefix": source, "target_prefix": target, "source_vertices": sources}
        return stats

    def describe(self) -> str:
        """One line for the log."""
        names = ("first", "second", "third")
        shown = [
            self.names[column] if self.names else names[column] if column < 3 else f"{column + 1}th"
            for column in self.columns
            if column >= 0
        ]
        header = "with header" if self.names else "no header"
        roles = ", ".join(f"{role} = {name}" for role, name in zip(("source", "target", "weight"), shown, strict=False))
        packed = ", gzipped" if self.gzipped else ""
        if self.times is not None and self.times.read:
            place = self.times.column
            roles += f", time = {self.names[place] if self.names else f'column {place + 1}'}"
        sides = f"; two sets of nodes, named {self.sides[0]}… and {self.sides[1]}…" if self.sides else ""
        return f"reading {self.kind}{packed}, {header}; {roles}{sides}"


class NoRows(UserError):
    """A file without rows."""


def no_rows(where: str) -> NoRows:
    return NoRows("the file has no rows", where=where, remedy="Give a file with one edge in each row")


def lone_return_in(place: str, line: str) -> UserError:
    """The error for a carriage return that ends no line."""
    return UserError(
        "the line has a carriage return before its end", where=place, value=line[:200],
        remedy="End lines in a newline, for example with tr '\\r' '\\n', or quote the field in a csv file",
    )  # fmt: skip
