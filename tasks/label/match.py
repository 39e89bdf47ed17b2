"""Rows of labels against the nodes of a graph."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.label.table import Labels
from superworkflow.tasks.lib.edge_list.label_file import LabelRows

_SHOWN = 3


def match(rows: LabelRows, where: str, nodes: pa.ChunkedArray, most: float) -> tuple[Labels, int]:
    """Match labels with vertices, and count the rows of nodes that the graph does not have.

    Args:
        rows: of the file; at least one.
        where: how messages call the file.
        nodes: string array of the graph's nodes in vertex order.
        most: largest share of rows that may be about nodes outside the graph; they are left out.

    Raises:
        UserError: no node is in the graph, or too many are not; or there is only one kind of label.
    """
    vertices = _vertices(rows.nodes, nodes)
    strangers = np.flatnonzero(vertices < 0)
    count = int(rows.times[strangers].sum())
    share = count / int(rows.times.sum())
    if len(strangers) and (share > most or len(strangers) == len(vertices)):
        shown = ", ".join(f"{rows.nodes[i]!r} on line {rows.lines[i]}" for i in strangers[:_SHOWN])
        more = f" and {count - _SHOWN} more" if count > _SHOWN and len(strangers) >= _SHOWN else ""
        all_of_them = len(strangers) == len(vertices)
        which = "all labels are" if all_of_them else f"{share:.1%} of the labels are"
        raise UserError(
            f"{which} for nodes that are not in the graph: {shown}{more}",
            where=rows.place(int(strangers[0])), value=count,
            remedy=f"Check that both files name nodes in the same way: the graph has {nodes[0].as_py()!r} (a header "
            "row must be `node,label`)"
            + ("" if all_of_them else f", or drop such rows with --set label.max_unknown={above(share)}"),
        )  # fmt: skip
    matched = np.flatnonzero(vertices >= 0)
    names = sorted({rows.labels[i] for i in matched}, key=_by_number)
    if len(names) < 2:
        raise UserError(
            "all nodes have the same label, so there is nothing to classify", where=where, value=names[0],
            remedy="Give labels of at least two kinds, or none",
        )  # fmt: skip
    number = {name: kind for kind, name in enumerate(names)}
    kinds = np.fromiter((number[rows.labels[i]] for i in matched), np.int32, len(matched))
    order = np.lexsort((kinds, vertices[matched]))
    labelled, first = np.unique(vertices[matched][order], return_index=True)
    return Labels(labelled, np.append(first, len(matched)).astype(np.int64), kinds[order], names), count


def above(share: float) -> float:
    """A round share that is no smaller."""
    return min(1.0, math.ceil(share * 100) / 100)


def _vertices(texts: list[str], nodes: pa.ChunkedArray) -> NDArray[np.int64]:
    """Vertex of each text, -1 where the graph has none. Looked up are the graph's nodes, which may be far more."""
    coded = pa.array(texts, nodes.type).dictionary_encode()
    found = pc.index_in(nodes, value_set=coded.dictionary)
    rows = np.flatnonzero(found.is_valid().to_numpy())
    vertex = np.full(len(coded.dictionary), -1, np.int64)
    vertex[found.drop_null().to_numpy()] = rows
    vertices: NDArray[np.int64] = vertex[coded.indices.to_numpy()]
    return vertices


def _by_number(name: str) -> tuple[int, int, str]:
    return (0, int(name), name) if name.isascii() and name.isdecimal() else (1, 0, name)
