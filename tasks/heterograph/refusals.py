"""Refusals of rows by the stage heterograph, in the same words on every engine."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.heterograph.tables import TableBatch
from superworkflow.tasks.heterograph.values import BadValue, ids_of
from superworkflow.tasks.lib.graph.schema import EdgeSetSchema
from superworkflow.tasks.lib.in_parts.id_ranges import UNKNOWN as UNKNOWN

MOST_NODES = MOST_EDGES = 2**31 - 1
"""Errors of one set."""
DUPLICATE = "Give each node one row, or give the rows ids of their own"
DANGLING = "Add the node to its table, or set heterograph.dangling=drop"


def duplicate(row: int, value: Any) -> BadValue:
    """An id that an earlier row has."""
    return BadValue(row, "an earlier row has the same id", value)


def dangling_end(edges: EdgeSetSchema, end: int, row: int, value: Any) -> BadValue:
    """The source (end 0) or target (1) of an edge that is no node."""
    name = (edges.source, edges.target)[end]
    return BadValue(row, f"the {('source', 'target')[end]} of an edge is no node of {name!r}", value)


def check_rows(rows: int, edges: EdgeSetSchema, where: str) -> None:
    """Refuse an edge set of too many rows.

    Raises:
        UserError: there are more than `MOST_EDGES`.
    """
    if rows > MOST_EDGES:
        raise UserError(f"an edge set has at most {MOST_EDGES} rows", where=where, value=edges.name,
                        remedy="Split the edge set in two")  # fmt: skip


def text_ids(batch: TableBatch) -> list[pa.Array]:
    """Columns of ids as text.

    Raises:
        UserError: one is missing, empty or no text; names file and row.
    """
    try:
        return [ids_of(column) for column in batch.columns]
    except BadValue as error:
        raise batch.fault(error, "Give each row the ids of its nodes") from None


def column_of(edges: EdgeSetSchema, end: str) -> str:
    """Column of an end: a set that is reversed and has a table alone has them exchanged."""
    return {"source": "target", "target": "source"}[end] if edges.is_reversed else end
