"""Labelled edges as they are given: rows of an edge list, or edges of a set that have a feature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.tasks.heterograph import EDGE_SET, NODE_SET
from superworkflow.tasks.heterograph.doubts import without_parameters
from superworkflow.tasks.heterograph.edge_rows import edge_rows
from superworkflow.tasks.holdout_edges import HoldoutEdgesParams
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.index.run import unpacked_parquet
from superworkflow.tasks.lib.edge_list.edge_files import EdgeFile, edge_files
from superworkflow.tasks.lib.graph.heterograph import STRING, Feature, HeteroGraph

WHERE = "train.label"
RANDOM, TIME = "random", "time"


class LabelledRows(NamedTuple):
    """Edges with the texts of their labels, [n] each.

    Args:
        edges: name of their set.
        label: name of the labels, for people.
        pairs: source and target, int64 [n, 2].
        labels: large_string, empty for none.
        order: what `split_by` names, large_string; None where the split is random.
    """

    edges: str
    label: str
    pairs: NDArray[np.int64]
    labels: pa.LargeStringArray
    order: pa.LargeStringArray | None


def rows_of_list(job: StageRun[HoldoutEdgesParams], graph: HeteroGraph) -> LabelledRows:
    """Rows of the source `edges`, without those that the graph does not have.

    Raises:
        UserError: there is no such column, or a row cannot be read.
    """
    source, params = job.sources["edges"], job.params
    timed = params.split_by == TIME
    reading = IndexParams(
        engine="compiled", missing=params.missing, bipartite=params.bipartite, from_time=params.from_time,
        until=params.until, time=(params.time or "auto") if timed else params.time,
    )  # fmt: skip
    try:
        files = unpacked_parquet(edge_files(source, reading, job.scratch), job.scratch)
    except UserError as error:
        raise without_parameters(error) from None
    dialect = files[0].dialect
    texts = [_column(files[0], params.label, WHERE)]
    if timed:
        assert dialect.times is not None
        texts.append(dialect.times.column)
    elif params.split_by != RANDOM:
        texts.append(_column(files[0], params.split_by, "train.split_by"))
    if dialect.times is not None:
        texts.append(dialect.times.column)
    plain = [
        file._replace(dialect=replace(file.dialect, columns=(*file.dialect.columns[:2], -1), times=None,
                                      texts=tuple(texts)))
        for file in files
    ]  # fmt: skip
    batches = [columns for columns, _ in edge_rows(job, plain, source.uri)]  # type: ignore[arg-type]
    columns = [pa.chunked_array([batch[i] for batch in batches]).cast(pa.large_string()) for i in range(2 + len(texts))]
    kept = np.ones(len(columns[0]), np.bool_)
    if dialect.times is not None:
        times = dialect.times.numbers(columns.pop().combine_chunks())
        if times is None:
            raise UserError("a row has no time", where=source.uri, remedy="Give each row a time, or leave it out")
        kept &= dialect.times.inside(times)
    ids = graph.ids(NODE_SET).combine_chunks()
    ends = [pc.index_in(column, value_set=ids).fill_null(-1).to_numpy().astype(np.int64) for column in columns[:2]]
    kept &= (ends[0] >= 0) & (ends[1] >= 0) & (ends[0] != ends[1])  # loops and rows without an id are in no graph
    labels, *order = (column.filter(pa.array(kept)).combine_chunks() for column in columns[2:])
    return LabelledRows(EDGE_SET, params.label, np.stack(ends, 1)[kept], labels, order[0] if order else None)


def edges_of_set(graph: HeteroGraph, params: HoldoutEdgesParams) -> LabelledRows:
    """Edges of the set that `label` names as SET.FEATURE.

    Raises:
        UserError: there is no such feature of edges, or it has several values.
    """
    features = {
        f"{name}.{feature.name}": (name, feature)
        for name, edges in graph.edge_sets.items()
        for feature in edges.features
    }
    if params.label not in features:
        what = "the graph has no such feature of edges" if params.label else "no label of edges is named"
        raise UserError(what, where=WHERE, value=params.label,
                        remedy=f"Give --label SET.FEATURE, of {', '.join(features)[:500] or 'none'}")  # fmt: skip
    name, feature = features[params.label]
    order = None
    if params.split_by != RANDOM:
        wanted = f"{name}.{params.split_by}".removeprefix(f"{name}.{name}.")
        wanted = wanted if wanted.startswith(f"{name}.") else f"{name}.{wanted}"
        if wanted not in features:
            raise UserError("the edges have no such feature to split them by", where="train.split_by",
                            value=params.split_by, remedy=f"Valid: random, {', '.join(features)[:500]}")  # fmt: skip
        order = _texts(graph, name, features[wanted][1], "train.split_by")
    rows = graph.rows(name)
    pairs = np.stack([np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr)), rows.indices], 1)
    return LabelledRows(name, params.label, pairs.astype(np.int64), _texts(graph, name, feature, WHERE), order)


def _column(file: EdgeFile, wanted: str, where: str) -> int:
    """Number of a column by its name, or by its number from 1."""
    names, dialect = file.dialect.names, file.dialect
    taken = {dialect.columns[0]: "source", dialect.columns[1]: "target"}
    column = names.index(wanted) if wanted in names else int(wanted) - 1 if wanted.isdecimal() else -1
    if not wanted or column < 0 or (names and column >= len(names)):
        shown = ", ".join(names) if names else "no header, and columns are counted from 1"
        what = "the edge list has no such column" if wanted else "no column of labels is named"
        remedy = f"Give --label COLUMN; it has: {shown}" if where == WHERE else f"It has: {shown}"
        raise UserError(what, where=f"{file.where}, {where}", value=wanted, remedy=remedy)  # fmt: skip
    if column in taken:
        raise UserError(f"this column is the {taken[column]} of the edges", where=f"{file.where}, {where}",
                        value=wanted, remedy="Name another column")  # fmt: skip
    return column


def _texts(graph: HeteroGraph, edges: str, feature: Feature, where: str) -> pa.LargeStringArray:
    values: Any = graph.edge_feature(edges, feature.name)
    if feature.width != 1 or feature.is_ragged:
        raise UserError("edges have one label each, and this feature has several values", where=where,
                        value=f"{edges}.{feature.name}", remedy="Name a feature of one value")  # fmt: skip
    if feature.dtype != STRING:
        return pa.array(np.asarray(values).reshape(-1)).cast(pa.large_string())
    column = values.combine_chunks()
    if feature.shape:
        column = pc.list_element(column, 0)
    return column.cast(pa.large_string()).fill_null("")
