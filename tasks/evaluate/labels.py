"""Labels of nodes: the file that a user gives, and the nodes × labels matrix made of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.errors import UserError
from superworkflow.infra.text_file import numbered_lines, open_unpacked

_FORMAT = "Rows are `node,label`, separated by comma, tab or blanks; a node with several labels has several rows"
_NODE_HEADERS = {"node", "node_id", "nodeid", "vertex", "vertex_id", "id"}
_SHOWN = 3


@dataclass(frozen=True)
class Labels:
    """Which nodes have which labels.

    Args:
        vertices: int64 `[n]`, vertex ids of the labelled nodes, ascending.
        names: names of the labels, numbers by value, others by text.
        matrix: bool `[n, len(names)]`; every row has at least one label.
        unknown: rows of the file whose node is not in the graph.
    """

    vertices: NDArray[np.int64]
    names: list[str]
    matrix: NDArray[np.bool_]
    unknown: int = 0


def read_labels(path: Path, where: str, nodes: pa.ChunkedArray, unknown: Literal["error", "ignore"]) -> Labels:
    """Read a file of labels against the nodes of a graph.

    Args:
        path: CSV, TSV or blank-separated text, also gzipped; lines that start with # or % are comments; a header is
            recognised by its names.
        where: how messages call the file.
        nodes: string array of the graph's nodes in vertex order.
        unknown: what to do with labels of nodes outside the graph.

    Raises:
        UserError: with the line, its content and what to do.
    """
    lines, node_texts, label_texts, times = _parse(path, where)
    if not lines:
        raise UserError("no labels in this file", where=where, remedy=_FORMAT)
    found = pc.index_in(pa.array(node_texts, nodes.type), value_set=nodes)
    vertices = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    strangers = np.flatnonzero(vertices < 0)
    if len(strangers) and (unknown == "error" or len(strangers) == len(vertices)):
        shown = ", ".join(f"{node_texts[i]!r} on line {lines[i]}" for i in strangers[:_SHOWN])
        count = int(times[strangers].sum())
        more = f" and {count - _SHOWN} more" if count > _SHOWN and len(strangers) >= _SHOWN else ""
        all_of_them = len(strangers) == len(vertices)
        which = "all labels are" if all_of_them else "there are labels"
        raise UserError(
            f"{which} for nodes that are not in the graph: {shown}{more}",
            where=f"{where}:{lines[strangers[0]]}", value=count,
            remedy="Check that both files name nodes in the same way (a header row must be `node,label`)"
            + ("" if all_of_them else ", or pass over such rows with --set evaluate.unknown_labels=ignore"),
        )  # fmt: skip
    known = vertices >= 0
    names = sorted({label for label, kept in zip(label_texts, known, strict=True) if kept}, key=_by_number)
    if len(names) < 2:
        raise UserError(
            "all nodes have the same label, so there is nothing to tell apart", where=where, value=names[0],
            remedy="Give labels of at least two kinds, or none",
        )  # fmt: skip
    ids, rows = np.unique(vertices[known], return_inverse=True)
    column = {name: number for number, name in enumerate(names)}
    matrix = np.zeros((len(ids), len(names)), dtype=bool)
    matrix[rows, [column[label] for label, kept in zip(label_texts, known, strict=True) if kept]] = True
    return Labels(ids, names, matrix, int(times[strangers].sum()))


def _parse(path: Path, where: str) -> tuple[list[int], list[str], list[str], NDArray[np.int64]]:
    """Line numbers, nodes and labels of all different rows, and how often each occurs; the line is of its first."""
    lines: list[int] = []
    times: list[int] = []
    place: dict[tuple[str, str], int] = {}
    delimiter: str | None = None
    node_at, label_at, width = 0, 1, 2
    for number, line in _text_lines(path, where):
        if delimiter is None:
            delimiter = "\t" if "\t" in line else "," if "," in line else " "
            header = [name.lower() for name in _fields(line, delimiter)]
            if header[0] in _NODE_HEADERS or {"node", "label"} <= set(header):
                node_at, label_at, width = _columns(header, f"{where}:{number}", line)
                continue
        fields = _fields(line, delimiter)
        if len(fields) != width:
            what = f"{len(fields)} {'column' if len(fields) == 1 else 'columns'} instead of {width}"
            raise UserError(what, where=f"{where}:{number}", value=line[:80], remedy=_FORMAT)
        if not fields[node_at] or not fields[label_at]:
            raise UserError("node or label is empty", where=f"{where}:{number}", value=line[:80], remedy=_FORMAT)
        at = place.setdefault((fields[node_at], fields[label_at]), len(lines))
        if at == len(lines):
            lines.append(number)
            times.append(0)
        times[at] += 1
    return lines, [node for node, _ in place], [label for _, label in place], np.array(times, np.int64)


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


def _by_number(name: str) -> tuple[int, int, str]:
    return (0, int(name), name) if name.isascii() and name.isdecimal() else (1, 0, name)
