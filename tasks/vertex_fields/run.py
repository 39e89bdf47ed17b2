"""The work of stage `vertex_fields`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.part_files import part_files
from superworkflow.tasks.heterograph.feature_columns import NODE_COLUMNS
from superworkflow.tasks.heterograph.ids import first_repeated
from superworkflow.tasks.heterograph.tables import Table, TableBatch, names_in
from superworkflow.tasks.heterograph.values import BadValue, ids_of
from superworkflow.tasks.label.match import above
from superworkflow.tasks.lib.edge_list.bipartite import prefixed
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats
from superworkflow.tasks.lib.vertex.given import COLUMNS, VERTICES
from superworkflow.tasks.vertex_fields import VertexFieldsParams


def run(job: StageRun[VertexFieldsParams]) -> Output:
    """Match a table with a graph; see `tasks.vertex_fields`.

    Raises:
        UserError: the table cannot be read, lacks names of columns, has a node twice, or too many that the graph lacks;
            with file and row.
    """
    source, graph = job.sources["table"], job.inputs["graph"]
    names = names_in(source.local(job.scratch, part_files(source)[0]), source.uri)
    node = next((name for name in NODE_COLUMNS if name in names), names[0])
    columns = [name for name in names if name != node]
    nodes = graph.table("vertices.parquet", ["node"]).column(0).combine_chunks()
    if node not in NODE_COLUMNS and pc.index(nodes, pa.scalar(node, nodes.type)).as_py() >= 0:
        raise UserError("the table's first row names a node where its columns should be named", where=source.uri,
                        value=node, remedy="Begin it with the names of its columns, such as node,label")  # fmt: skip
    if not columns or len(set(names)) < len(names):
        raise UserError(
            "the table has two columns of one name" if columns else "the table has only a column of nodes",
            where=source.uri, value=", ".join(names)[:200],
            remedy="Give a column `node`, and columns of values, each with a name of its own",
        )  # fmt: skip
    prefixes = [str(graph.stats[each]) for each in ("source_prefix", "target_prefix") if each in graph.stats]
    table = Table(source, "*" if source.is_folder else source.location.name, job.scratch, job.threads)
    batches, vertices = [], []
    try:
        for batch in table.batches([node, *columns], len(columns) + 1):
            vertices.append(_vertices(batch, nodes, prefixes))
            batches.append((batch, pa.table(batch.columns[1:], names=columns)))
    finally:
        table.close()
    if not batches:
        raise UserError("the table has no rows", where=source.uri, remedy="Give a row for each node that has values")
    numbers = np.concatenate(vertices)
    doubts = _strangers(batches, numbers, nodes, job.params.max_unknown)
    log_warnings(job.progress, doubts)
    rows = np.flatnonzero(numbers >= 0)
    numbers = numbers[rows]
    if len(np.unique(numbers)) < len(numbers):
        row = first_repeated(numbers)
        node = nodes[int(numbers[row])].as_py()
        raise UserError("a node has two rows", where=f"{source.uri}, row {rows[row] + 1}", value=node,
                        remedy="Give each node one row")  # fmt: skip
    order = np.argsort(numbers)
    job.output.array(VERTICES, numbers[order])
    try:
        whole = pa.concat_tables([part for _, part in batches]).take(pa.array(rows[order]))
    except pa.ArrowInvalid as error:
        raise UserError(f"the files of the table have different columns: {error}", where=source.uri,
                        remedy="Write them with one type for each column") from None  # fmt: skip
    job.output.table(COLUMNS, whole)
    job.progress.log(f"{len(numbers)} of {len(nodes)} nodes have values: {', '.join(columns)}"[:400])
    return Output(rows=len(numbers), stats={
        "rows": len(numbers), "columns": ",".join(columns)[:1000], **warning_stats(doubts),
    })  # fmt: skip


def _vertices(batch: TableBatch, nodes: Any, prefixes: Sequence[str]) -> NDArray[np.int32]:
    """int32 vertex of each row, -1 of a node that the graph lacks.

    A name without a prefix is that of the node which has it on one side, if the other side has none of this name.
    """
    try:
        ids = ids_of(batch.columns[0]).cast(nodes.type)
    except BadValue as error:
        raise batch.fault(error, "Give each row a node of the edge list") from None
    found: list[NDArray[np.int32]] = [
        pc.fill_null(pc.index_in(names, value_set=nodes), -1).to_numpy(zero_copy_only=False).astype(np.int32)
        for names in (ids, *(prefixed(ids, prefix) for prefix in prefixes))
    ]
    if len(found) == 1:
        return found[0]
    named, first, second = found
    alone = (named < 0) & (np.minimum(first, second) < 0)
    return np.where(alone, np.maximum(first, second), named)


def _strangers(
    batches: Sequence[tuple[TableBatch, Any]], numbers: NDArray[np.int32], nodes: Any, most: float
) -> list[InputWarning]:
    """A warning if rows are about nodes that the graph lacks; vertices are -1 there.

    Raises:
        UserError: all are, or a larger share than `most`.
    """
    count = int((numbers < 0).sum())
    if not count:
        return []
    row, share = int(np.argmin(numbers >= 0)), count / len(numbers)
    number = 0
    while row >= len(batches[number][1]):
        row -= len(batches[number][1])
        number += 1
    batch = batches[number][0]
    what = f"{share:.1%} of the rows are about nodes that the graph lacks"
    where = f"{batch.where}, row {batch.row + row}"
    value, settle = batch.columns[0][row].as_py(), f"Name nodes as the edge list does, such as {nodes[0].as_py()!r}"
    if count < len(numbers) and share <= most:
        return [InputWarning(f"{what}, and are left out", where, value, settle)]
    if count < len(numbers):
        settle += f", or drop such rows with --set vertex_fields.max_unknown={above(share)}"
    raise UserError(what, where=where, value=value, remedy=settle)
