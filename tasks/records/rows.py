"""Parquet files of subgraphs with their features: a row for each, a column for each feature, by the Examples' names.

A set that is empty in a subgraph has size 0 and empty lists there. Features of an item with a shape are lists of their
values; all are of the types that they have in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.graph.heterograph import STRING, Feature, Ragged, Values, take
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock
from superworkflow.tasks.records.features import READOUT, READOUT_ENDS, FeatureSource, Items
from superworkflow.tasks.records.shards import SplitSubgraphs


def write_rows(
    sink: Any, subgraphs: SplitSubgraphs, source: FeatureSource, first: int, last: int, compression: str
) -> int:
    """Write the subgraphs `first` to `last` - 1 of a split; their bytes in memory.

    Args:
        sink: a stream to write to.
        subgraphs: of the split.
        source: of features.
        first, last: which ones.
        compression: of the columns, `none` or `gzip`.
    """
    # A file of no subgraphs has the columns of one that has some.
    empty = table_of_rows(source, _nothing(source), subgraphs.layout.used_nodes, subgraphs.layout.used_edges)
    written = 0
    with pq.ParquetWriter(sink, empty.schema, compression=compression, use_dictionary=False) as writer:
        for group, block in subgraphs.blocks(first, last, source.featureless()):
            table = table_of_rows(source, block, subgraphs.layout.used_nodes, subgraphs.layout.used_edges)
            begin, end = max(first, group.first), min(last, group.last)
            rows = table.slice(begin - group.first, end - begin)
            writer.write_table(rows, row_group_size=max(1, end - begin))
            written += rows.nbytes
    return written


def table_of_rows(
    source: FeatureSource, block: SubgraphBlock, used_nodes: tuple[int, ...], used_edges: tuple[int, ...]
) -> pa.Table:
    """A block as a table with features, columns sorted by name.

    Args:
        source: of features.
        block: some subgraphs.
        used_nodes, used_edges: numbers of the sets that get columns.
    """
    columns = dict(_context(source, block))
    for i, items in enumerate(source.node_items(block)):
        if i in used_nodes:
            columns |= dict(_set_columns(source, "nodes", items))
    for j, items in enumerate(source.edge_items(block, source.featureless())):
        if j in used_edges:
            prefix = f"edges/{items.set.name}."
            columns |= {f"{prefix}#source": _lists(items.starts, column(block.sources[j])),
                        f"{prefix}#target": _lists(items.starts, column(block.targets[j]))}  # fmt: skip
            columns |= dict(_set_columns(source, "edges", items))
    names = sorted(columns, key=str.encode)
    return pa.Table.from_arrays([columns[name] for name in names], names=names)


def _context(source: FeatureSource, block: SubgraphBlock) -> Iterator[tuple[str, pa.Array]]:
    yield "context/sample_id", block.sample_ids.cast(pa.large_binary())
    ends = len(source.seed_sets)
    ids = source.seed_ids(block)
    starts = np.arange(0, ends * block.subgraphs + 1, ends)
    yield "context/seed_id", ids if ends == 1 else _lists(starts, ids)
    if ends == 1:
        return
    places, each = source.seed_places(block), np.arange(block.subgraphs + 1)
    one, none = np.ones(block.subgraphs, np.int64), column(np.zeros(block.subgraphs, np.int32))
    yield f"nodes/{READOUT}.#size", column(one)
    for end, name in enumerate(READOUT_ENDS):
        yield f"edges/{name}.#size", column(one)
        yield f"edges/{name}.#source", _lists(each, column(places[:, end].astype(np.int32)))
        yield f"edges/{name}.#target", _lists(each, none)


def _set_columns(source: FeatureSource, kind: str, items: Items) -> Iterator[tuple[str, pa.Array]]:
    prefix = f"{kind}/{items.set.name}."
    yield f"{prefix}#size", column(np.diff(items.starts))
    for feature in items.set.features:
        values = take(source.values(kind, items.set, feature.name), items.rows)
        yield f"{prefix}{feature.name}", _lists(items.starts, _arrow(values, feature))


def _arrow(values: Values, feature: Feature) -> pa.Array:
    """Values of items as an array of items."""
    if feature.dtype == STRING:
        assert isinstance(values, pa.Array | pa.ChunkedArray)
        return (
            values if isinstance(values, pa.Array) else pa.concat_arrays(values.chunks or [pa.array([], values.type)])
        )
    if isinstance(values, Ragged):
        return _lists(values.starts, _fixed(values.values, feature.width, len(feature.shape) > 1))
    assert isinstance(values, np.ndarray)
    return _fixed(values, feature.width, bool(feature.shape))


def _fixed(values: NDArray[Any], width: int, listed: bool) -> pa.Array:
    count, flat = len(values), np.ascontiguousarray(values).reshape(-1)
    items = pa.array(flat) if flat.dtype == np.bool_ else column(flat)
    if not listed:
        return items
    return (
        _lists(np.arange(0, count + 1) * width, items) if not width else pa.FixedSizeListArray.from_arrays(items, width)
    )


def _lists(starts: NDArray[np.int64], values: pa.Array) -> pa.Array:
    return pa.LargeListArray.from_arrays(column(starts), values)


def _nothing(source: FeatureSource) -> SubgraphBlock:
    none, nodes, edges = np.zeros(1, np.int64), len(source.graph.node_sets), len(source.graph.edge_sets)
    empty, places = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return SubgraphBlock(
        pa.array([], pa.string()), np.zeros((0, len(source.seed_sets)), np.int64), [none] * nodes, [empty] * nodes,
        [none] * edges, [places] * edges, [places] * edges, [empty] * edges,
    )  # fmt: skip
