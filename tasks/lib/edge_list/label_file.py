"""Rows of a file of labels that a user gives."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.text_file import numbered_lines, open_unpacked

_FORMAT = "Rows are `node,label`, separated by comma, tab or blanks; a node with several labels has several rows"
_NODE_HEADERS = {"node", "node_id", "nodeid", "vertex", "vertex_id", "id"}


@dataclass(frozen=True)
class LabelRows:
    """All different rows, in the order of the file.

    Args:
        lines: number of the line on which each occurs first.
        nodes: names of nodes.
        labels: names of labels.
        times: int64, how often each occurs.
        splits: of each, where they were asked for; empty where the row has none.
    """

    lines: list[int]
    nodes: list[str]
    labels: list[str]
    times: NDArray[np.int64]
    splits: list[str] = field(default_factory=list)


def parse(path: Path, where: str, splits: bool = False) -> LabelRows:
    """Read a file of labels.

    Args:
        path: CSV, TSV or blank-separated text, also gzipped; lines that start with # or % are comments; a header is
            recognised by its names.
        where: how messages call the file.
        splits: rows may have a third column, `split`.

    Raises:
        UserError: with the line, its content and what to do.
    """
    lines: list[int] = []
    times: list[int] = []
    place: dict[tuple[str, str, str], int] = {}
    delimiter: str | None = None
    node_at, label_at, split_at, width = 0, 1, -1, 2
    for number, line in _text_lines(path, where):
        if delimiter is None:
            delimiter = "\t" if "\t" in line else "," if "," in line else " "
            header = [name.lower() for name in _fields(line, delimiter)]
            if header[0] in _NODE_HEADERS or {"node", "label"} <= set(header):
                node_at, label_at, width = _columns(header, f"{where}:{number}", line)
                split_at = header.index("split") if splits and "split" in header else -1
                continue
            if splits and len(header) == 3:
                split_at, width = 2, 3
        fields = _fields(line, delimiter)
        if len(fields) != width:
            what = f"{len(fields)} {'column' if len(fields) == 1 else 'columns'} instead of {width}"
            raise UserError(what, where=f"{where}:{number}", value=line[:80], remedy=_FORMAT)
        if not fields[node_at] or not fields[label_at]:
            raise UserError("node or label is empty", where=f"{where}:{number}", value=line[:80], remedy=_FORMAT)
        split = fields[split_at] if split_at >= 0 else ""
        index = place.setdefault((fields[node_at], fields[label_at], split), len(lines))
        if index == len(lines):
            lines.append(number)
            times.append(0)
        times[index] += 1
    if not lines:
        raise UserError("no labels in this file", where=where, remedy=_FORMAT)
    nodes, labels, given = ([row[index] for row in place] for index in range(3))
    return LabelRows(lines, nodes, labels, np.array(times, np.int64), given if splits else [])


def _columns(header: list[str], where: str, line: str) -> tuple[int, int, int]:
    """Positions of node and label, and the number of columns."""
    node_at = header.index("node") if "node" in header else 0
    if "label" in header:
        return node_at, header.index("label"), len(header)
    if len(header) == 2:
        return node_at, 1 - node_at, 2
    raise UserError(
        "the header has no column `label`", where=where, value=line[:80], remedy="Name the columns `node` and `label`"
    )


def _fields(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        return line.split()
    parts = next(csv.reader([line], delimiter=delimiter)) if '"' in line else line.split(delimiter)
    return [part.strip() for part in parts]


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
