"""Rows of a file of labels that a user gives."""

from __future__ import annotations

import csv
import io
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.part_files import differ, part_files, part_uri, partition_values
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.text_file import numbered_lines, open_unpacked
from superworkflow.tasks.lib.edge_list.edge_times import NAMES as TIMES
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.graph.missing_labels import NO_LABEL, is_below_zero, is_blank, is_missing

NOTE = f"rows have no label ({NO_LABEL}) and are left out"
FEW = 0.01
"""Share of labelled nodes with several labels below which these are taken for mistakes."""
_FORMAT = "Rows are `node,label`, separated by comma, tab or blanks; a node with several labels has several rows"
PARQUET_ROWS = "Parquet"
_PARQUET = b"PAR1"
_NODE_HEADERS = {"node", "node_id", "nodeid", "vertex", "vertex_id", "id"}


@dataclass(frozen=True)
class LabelRows:
    """All different rows that have a label, in the order of the file.

    Args:
        lines: number of the line on which each occurs first, in its file.
        nodes: names of nodes.
        labels: names of labels.
        times: int64, how often each occurs.
        missing: number of rows without a label.
        splits: of each, where they were asked for; empty where the row has none.
        files: names of the files for people, and of each its first row here.
        seed_times: times of the nodes, where splits were asked for; empty where the row has none.
        unused: names of columns that are not read.
    """

    lines: list[int]
    nodes: list[str]
    labels: list[str]
    times: NDArray[np.int64]
    missing: int
    splits: list[str] = field(default_factory=list)
    files: list[tuple[str, int]] = field(default_factory=list)
    seed_times: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def place(self, row: int) -> str:
        """File and line of a row, for people."""
        name = self.files[bisect_right(self.files, row, key=itemgetter(1)) - 1][0]
        return f"{name}:{self.lines[row]}"

    def without_first(self) -> LabelRows:
        """All rows but the first."""
        return LabelRows(
            self.lines[1:], self.nodes[1:], self.labels[1:], self.times[1:], self.missing, self.splits[1:],
            [(name, max(0, first - 1)) for name, first in self.files], self.seed_times[1:], self.unused,
        )  # fmt: skip


class LabelFile(NamedTuple):
    """A file of labels.

    Args:
        path: local file.
        where: its name for people.
        partition: columns that the names of its folders hold, with their values.
    """

    path: Path
    where: str
    partition: Mapping[str, str] = MappingProxyType({})


def read_labels(
    source: Source, scratch: Path, nodes: pa.Array | pa.ChunkedArray, splits: bool = False, below_zero: bool = False
) -> tuple[LabelRows, list[InputWarning]]:
    """The rows of a file of labels or a folder of part files, and warnings; see `parse_files`.

    A first row whose node the graph lacks, while it has the second one's, is a header if its label occurs once.

    Args:
        source: the file or folder.
        scratch: folder for local copies.
        nodes: names of the graph's nodes.
        splits, below_zero: as for `parse_files`.
    """
    names = part_files(source)
    files = [
        LabelFile(
            source.local(scratch, name), part_uri(source, name), partition_values(name) if source.is_folder else {}
        )
        for name in names
    ]
    rows = parse_files(files, source.uri, splits, below_zero)
    warnings = label_warnings(rows, source.uri)
    if _begins_with_header(rows, nodes):
        warnings.append(InputWarning(
            f"the first row is read as a header, since no node is called {rows.nodes[0]!r}", rows.place(0),
            f"{rows.nodes[0]}, {rows.labels[0]}", "Call the columns node and label",
        ))  # fmt: skip
        rows = rows.without_first()
    return rows, warnings


def parse(path: Path, where: str, splits: bool = False) -> LabelRows:
    """Read one file of labels; see `parse_files`."""
    return parse_files([LabelFile(path, where)], where, splits)


def parse_files(files: Sequence[LabelFile], where: str, splits: bool = False, below_zero: bool = False) -> LabelRows:
    """Read files of labels of one form, each with or without its own header.

    Args:
        files: CSV, TSV or blank-separated text, also gzipped; lines that start with # or % are comments; a header is
            recognised by its names. Or Parquet, in which a list has the labels of a node, and lines are rows.
        where: how messages call the file, or the folder of them.
        splits: rows may have further columns: a third one, or one called `split`, and one of times called so.
        below_zero: whole numbers below 0 are labels, such as numbers to predict.

    Raises:
        UserError: with the line, its content and what to do.
    """
    lines: list[int] = []
    times: list[int] = []
    place: dict[tuple[str, str, str, str], int] = {}
    starts: list[tuple[str, int]] = []
    unused: list[str] = []
    form: tuple[str, str, list[str]] | None = None
    node_at, label_at, split_at, time_at, width, missing = 0, 1, -1, -1, 2, 0
    for file in files:
        name, more = file.where, list(file.partition.values())
        for number, fields, separator in _rows_of(file):
            if not starts or starts[-1][0] != name:
                starts.append((name, len(lines)))
                header = _header(fields, separator)
                if form is not None and (separator, header) != form[1:]:
                    shown = [", ".join(each) or "no header" for each in (form[2], header)]
                    raise differ(form[0], name, f"the one has {shown[0]}, the other {shown[1]}, separated by "
                                 f"{form[1]!r} and {separator!r}")  # fmt: skip
                form = form or (name, separator, header)
                names = header and [*header, *map(str.lower, file.partition)]
                if names:
                    node_at, label_at, width = _columns(names, f"{name}:{number}")
                    split_at = names.index("split") if splits and "split" in names else -1
                    times_at = [names.index(each) for each in TIMES if splits and each in names]
                    time_at = next((each for each in times_at if each not in (node_at, label_at)), -1)
                    read = {"", "split", *TIMES, names[node_at], names[label_at]}  # some stages leave splits out
                    unused = [each for each in header if each not in read]
                    continue
                width = 3 if splits and len(fields) == 3 else 2
                split_at = 2 if width == 3 else -1
                if splits and "split" in file.partition:
                    split_at = width + list(file.partition).index("split")
                width += len(more)
            line = (", " if separator == PARQUET_ROWS else separator).join(fields)[:80]
            fields += more
            if len(fields) != width:
                found, wanted = len(fields) - len(more), width - len(more)
                what = f"{found} {'column' if found == 1 else 'columns'} instead of {wanted}"
                raise UserError(what, where=f"{name}:{number}", value=line, remedy=_FORMAT)
            if not fields[node_at]:
                raise UserError("the node is empty", where=f"{name}:{number}", value=line, remedy=_FORMAT)
            if is_blank(fields[label_at]) or (not below_zero and is_below_zero(fields[label_at])):
                missing += 1
                continue
            split = fields[split_at] if split_at >= 0 else ""
            time = fields[time_at] if time_at >= 0 else ""
            index = place.setdefault((fields[node_at], fields[label_at], split, time), len(lines))
            if index == len(lines):
                lines.append(number)
                times.append(0)
            times[index] += 1
    if not lines:
        raise UserError("no labels in this file", where=where, value=f"{missing} {NOTE}" if missing else None,
                        remedy=_FORMAT)  # fmt: skip
    nodes, labels, given, seed_times = ([row[index] for row in place] for index in range(4))
    counts = np.array(times, np.int64)
    return LabelRows(
        lines, nodes, labels, counts, missing, given if splits else [], starts, seed_times if splits else [], unused
    )


def check_several(rows: LabelRows, parameter: str) -> None:
    """Refuse second labels of few nodes: one row too many would make all of training one for several labels a node.

    Args:
        rows: of the file.
        parameter: dotted name of the parameter that allows them.

    Raises:
        UserError: with the line of the first of them.
    """
    first: dict[str, int] = {}
    second: dict[str, int] = {}
    for i, node in enumerate(rows.nodes):
        if is_missing(rows.labels[i]):
            continue
        if rows.labels[first.setdefault(node, i)] != rows.labels[i]:
            second.setdefault(node, i)
    if second and len(second) < FEW * len(first):
        node, i = next(iter(second.items()))
        raise UserError(
            f"node {node!r} has a second label, and only {len(second)} of {len(first)} nodes have several",
            where=rows.place(i), value=f"{rows.labels[i]}, after {rows.labels[first[node]]}",
            remedy=f"Correct the rows, or set {parameter}=true if nodes may have several labels",
        )  # fmt: skip


def label_warnings(rows: LabelRows, where: str) -> list[InputWarning]:
    """Doubts: columns that are not read, and labels such as `Action|Comedy`, where others are `Action` or `Drama`."""
    unread = [InputWarning(
        "columns of the labels are not read", where, ", ".join(rows.unused)[:80],
        "Call one of train, validation and test split; features belong in a file of features",
    )] if rows.unused else []  # fmt: skip
    kinds = set(rows.labels)
    for mark in "|;":
        joined = {kind: kind.split(mark) for kind in kinds if mark in kind}
        parts = Counter(part for each in joined.values() for part in each)
        if found := next((k for k, each in joined.items() if any(p in kinds or parts[p] > 1 for p in each)), None):
            return [*unread, InputWarning(
                f"labels joined by {mark!r} are labels of their own", where, found,
                f"Write a row for each, in pandas: .str.split({mark!r}) and .explode()",
            )]  # fmt: skip
    return unread


def _begins_with_header(rows: LabelRows, nodes: pa.Array | pa.ChunkedArray) -> bool:
    """True if the first row names columns: not a node, as the second one does, nor a label of others."""
    if len(rows.nodes) < 2 or rows.labels.count(rows.labels[0]) > 1:
        return False
    first, second = (pc.index(nodes, pa.scalar(name, nodes.type)).as_py() for name in rows.nodes[:2])
    return bool(first < 0 <= second)


def _header(fields: Sequence[str], separator: str) -> list[str]:
    """Names of the columns that the first row of a file shows; none where it is a row."""
    header = [name.lower() for name in fields]
    is_header = separator == PARQUET_ROWS or header[0] in _NODE_HEADERS or {"node", "label"} <= set(header)
    return header if is_header else []


def _columns(header: list[str], where: str) -> tuple[int, int, int]:
    """Positions of node and label, and the number of columns."""
    node_at = next((place for place, name in enumerate(header) if name in _NODE_HEADERS), 0)
    node_at = header.index("node") if "node" in header else node_at
    if "label" in header:
        return node_at, header.index("label"), len(header)
    if len(header) == 2:
        return node_at, 1 - node_at, 2
    raise UserError(
        "the header has no column `label`", where=where, value=", ".join(header)[:80],
        remedy="Name the columns `node` and `label`",
    )  # fmt: skip


def _fields(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        return line.split()
    parts = next(csv.reader([line], delimiter=delimiter)) if '"' in line else line.split(delimiter)
    return [part.strip() for part in parts]


def _rows_of(file: LabelFile) -> Iterator[tuple[int, list[str], str]]:
    """Rows by the number of their line, with what separates fields; of Parquet the names of its columns come first."""
    with file.path.open("rb") as stream:
        is_parquet = stream.read(len(_PARQUET)) == _PARQUET
    if is_parquet:
        from superworkflow.tasks.lib.edge_list.label_table_file import parquet_rows  # files of text do without

        yield from ((number, fields, PARQUET_ROWS) for number, fields in parquet_rows(file.path, file.where))
        return
    separator = ""
    for number, line in _text_lines(file.path, file.where):
        separator = separator or ("\t" if "\t" in line else "," if "," in line else " ")
        yield number, _fields(line, separator), separator


def _text_lines(path: Path, where: str) -> Iterator[tuple[int, str]]:
    """Lines with content and without comments, by their number."""
    number = 0
    try:
        with open_unpacked(path, where) as stream, io.TextIOWrapper(stream, "utf-8-sig") as text:
            for number, raw in numbered_lines(text, where):
                line = raw.strip("\r\n")
                if line.strip() and line.lstrip()[0] not in "#%":
                    yield number, line
    except UnicodeDecodeError:
        raise UserError(
            "not text in UTF-8", where=f"{where}:{number + 1}", remedy="Save the file as UTF-8 text"
        ) from None
