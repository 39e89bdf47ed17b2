"""Sampled subgraphs: blocks of them in memory, and the shards of a `sample` dataset that hold them.

Files of the dataset: `sampled.json` and shards `subgraphs-<split>-<00000>.parquet`, a row a subgraph, in the order of
seeds and repeats. Columns, by the numbers of node set i and edge set j in the heterograph:

- `sample_id`: the seed's id; `id:1`, `id:2`, … of repeats.
- `seed`: number of the seed node in its set; of a link seed a list, source and target.
- `nodes.<i>`: list of node numbers; the seeds first in their set, all others ascending.
- `source.<j>`, `target.<j>`: lists of places in the lists of nodes of the edge's ends.
- `first.<j>`, `step.<j>`: positions of the edges in the heterograph, see `tasks.lib.subgraphs.edge_positions`: lists of
  those of the first edge of each source, and of the differences of all others from the edge before.

Edges are ordered by (source, target, position). Sets that the spec cannot reach have no columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.formats.parquet_lists import Lists
from superworkflow.tasks.lib.subgraphs.edge_positions import joined_positions, split_positions
from superworkflow.tasks.lib.subgraphs.shard_layout import SPLITS as SPLITS

DESCRIPTION = "sampled.json"


class SubgraphBlock(NamedTuple):
    """Consecutive subgraphs, by columns; lists are by the number of the node set or edge set.

    Args:
        sample_ids: string or binary [b].
        seeds: node numbers in the seeds' set, int32 or int64 [b], of link seeds [b, 2].
        node_starts: int64 [b + 1] each: nodes of subgraph s are ``nodes[i][node_starts[i][s]:node_starts[i][s + 1]]``.
        nodes: node numbers, int32 or int64.
        edge_starts: int64 [b + 1] each.
        sources, targets: places among the subgraph's nodes of the ends' sets, int32.
        positions: in the rows of the heterograph, int32 or int64; of a set whose positions were not read, none.
    """

    sample_ids: pa.Array
    seeds: NDArray[Any]
    node_starts: list[NDArray[np.int64]]
    nodes: list[NDArray[Any]]
    edge_starts: list[NDArray[np.int64]]
    sources: list[NDArray[np.int32]]
    targets: list[NDArray[np.int32]]
    positions: list[NDArray[Any]]

    @property
    def subgraphs(self) -> int:
        """Width of the part."""
        return len(self.sample_ids)


class SubgraphLayout(NamedTuple):
    """Layout that all blocks of a dataset share.

    Args:
        node_sets, edge_sets: how many the heterograph has.
        used_nodes, used_edges: numbers of those that subgraphs may hold.
    """

    node_sets: int
    edge_sets: int
    used_nodes: tuple[int, ...]
    used_edges: tuple[int, ...]


def shard_names(dataset: Dataset, split: str) -> list[str]:
    """Names of the shards of one split, in their order."""
    return dataset.files(f"subgraphs-{split}-*.parquet")


def layout_of(dataset: Dataset) -> SubgraphLayout:
    """The layout of a `sample` dataset.

    Raises:
        DatasetDamaged: its description says nothing sensible.
    """
    document = dataset.json(DESCRIPTION)
    try:
        layout = SubgraphLayout(
            int(document["node_sets"]), int(document["edge_sets"]),
            tuple(map(int, document["used_node_sets"])), tuple(map(int, document["used_edge_sets"])),
        )  # fmt: skip
        pairs = ((layout.used_nodes, layout.node_sets), (layout.used_edges, layout.edge_sets))
        if any(number not in range(count) for used, count in pairs for number in used):
            raise ValueError("a number of a set is out of range")
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetDamaged(
            f"not the description of sampled subgraphs: {error}", where=f"{dataset.uri}/{DESCRIPTION}",
            remedy=f"Delete the folder {dataset.uri} and run again; it will be computed anew",
        ) from None  # fmt: skip
    return layout


def read_blocks(dataset: Dataset, split: str) -> Iterator[SubgraphBlock]:
    """All subgraphs of a split, in order, a block for each row group.

    Raises:
        DatasetDamaged: a file is not as it was written.
    """
    layout = layout_of(dataset)
    for name in shard_names(dataset, split):
        file = dataset.parquet(name)
        for group in range(file.num_row_groups):
            yield read_group(file, group, layout)
        file.close()
        dataset.release(name)


def read_group(
    file: pq.ParquetFile, group: int, layout: SubgraphLayout, without_positions: Collection[int] = ()
) -> SubgraphBlock:
    """The block in one row group of a shard; `tasks.lib.subgraphs.shard_reader` reads many of them in less time.

    Args:
        file: the shard.
        group: number of the row group.
        layout: of the dataset.
        without_positions: numbers of the edge sets whose positions are not needed.
    """
    skipped = {f"{name}.{j}" for j in without_positions for name in POSITIONS}
    names = [name for name in file.schema_arrow.names if name not in skipped]
    return block_of(file.read_row_group(group, columns=names, use_threads=False), layout)


@contextmanager
def shard_writer(path: Path, schema: pa.Schema) -> Iterator[Callable[[SubgraphBlock], None]]:
    """Writes a shard; what it gives takes one block for each row group.

    Args:
        path: local file.
        schema: see `shard_schema`.
    """
    lists = [name for name in schema.names if "." in name]
    writer = pq.ParquetWriter(
        path, schema, compression="zstd", compression_level=1, use_dictionary=False, write_statistics=False,
        column_encoding={f"{name}.list.element": _ENCODINGS[name.split(".")[0]] for name in lists},
        data_page_size=1 << 20,
    )  # fmt: skip
    with writer:
        yield lambda block: writer.write_table(table_of(block, schema), row_group_size=max(1, block.subgraphs))


POSITIONS = ("first", "step")
_ENCODINGS = {
    "nodes": "DELTA_BINARY_PACKED",
    "source": "DELTA_BINARY_PACKED",
    # Not ascending, or far apart: what Zstandard finds is that most of the higher bytes are alike.
    "target": "BYTE_STREAM_SPLIT",
    "first": "BYTE_STREAM_SPLIT",
    "step": "BYTE_STREAM_SPLIT",
}


def shard_schema(block: SubgraphBlock, layout: SubgraphLayout) -> pa.Schema:
    """Columns and types of the shards that hold blocks like this one."""
    seed = pa.from_numpy_dtype(block.seeds.dtype)
    fields = [
        pa.field("sample_id", block.sample_ids.type, nullable=False),
        pa.field("seed", _list_of(seed) if block.seeds.ndim == 2 else seed, nullable=False),
    ]
    for i in layout.used_nodes:
        fields.append(_list_field(f"nodes.{i}", block.nodes[i]))
    for j in layout.used_edges:
        columns = {"source": block.sources, "target": block.targets, **dict.fromkeys(POSITIONS, block.positions)}
        fields += [_list_field(f"{name}.{j}", values[j]) for name, values in columns.items()]
    return pa.schema(fields)


def _list_of(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", item, nullable=False))


def _list_field(name: str, values: NDArray[Any]) -> pa.Field:
    return pa.field(name, _list_of(pa.from_numpy_dtype(values.dtype)), nullable=False)


def table_of(block: SubgraphBlock, schema: pa.Schema) -> pa.Table:
    """A block as a table of the columns in the schema."""

    @cache
    def positions(j: int) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64], NDArray[Any]]:
        return split_positions(block.edge_starts[j], block.sources[j], block.positions[j])

    kinds: dict[str, Callable[[int], tuple[NDArray[np.int64], NDArray[Any]]]] = {
        "nodes": lambda i: (block.node_starts[i], block.nodes[i]),
        "source": lambda j: (block.edge_starts[j], block.sources[j]),
        "target": lambda j: (block.edge_starts[j], block.targets[j]),
        "first": lambda j: positions(j)[:2],
        "step": lambda j: positions(j)[2:],
    }
    columns = []
    for field in schema:
        name, _, number = field.name.partition(".")
        if name == "sample_id":
            columns.append(block.sample_ids)
        elif name == "seed" and block.seeds.ndim == 2:
            starts = np.arange(0, block.seeds.size + 1, block.seeds.shape[1])
            columns.append(_lists(starts, block.seeds.reshape(-1), field.type))
        elif name == "seed":
            columns.append(column(block.seeds))
        else:
            columns.append(_lists(*kinds[name](int(number)), field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _lists(starts: NDArray[Any], values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(column(starts.astype(np.int32)), column(values), type=kind)


def block_of(
    table: pa.Table, layout: SubgraphLayout, lists_read: Mapping[str, Lists] = MappingProxyType({})
) -> SubgraphBlock:
    """The block in a table of one row group; `lists_read` holds its columns of lists that were read without Arrow."""
    table = table.combine_chunks()
    rows = table.num_rows
    none = np.zeros(rows + 1, np.int64)

    def found(name: str) -> Lists | None:
        if name in lists_read:
            return lists_read[name]
        return _from_lists(_whole(table, name)) if name in table.column_names else None

    def lists(name: str, number: int, used: tuple[int, ...]) -> Lists:
        if number not in used:
            return none, np.zeros(0, np.int32)
        return lists_read.get(f"{name}.{number}") or _from_lists(_whole(table, f"{name}.{number}"))

    def positions(j: int) -> NDArray[Any]:
        firsts, steps = (found(f"{name}.{j}") for name in POSITIONS)
        if firsts is None or steps is None:
            return np.zeros(0, np.int32)
        return joined_positions(*sources[j], firsts[1], steps[1])

    nodes = [lists("nodes", i, layout.used_nodes) for i in range(layout.node_sets)]
    sources, targets = (
        [lists(name, j, layout.used_edges) for j in range(layout.edge_sets)] for name in ("source", "target")
    )
    seeds = _whole(table, "seed")
    is_link = pa.types.is_list(seeds.type)
    return SubgraphBlock(
        sample_ids=_whole(table, "sample_id"),
        seeds=_from_lists(seeds)[1].reshape(rows, 2) if is_link else seeds.to_numpy(zero_copy_only=False),
        node_starts=[starts for starts, _ in nodes],
        nodes=[values for _, values in nodes],
        edge_starts=[starts for starts, _ in sources],
        sources=[values for _, values in sources],
        targets=[values for _, values in targets],
        positions=[positions(j) for j in range(layout.edge_sets)],
    )


def _whole(table: pa.Table, name: str) -> pa.Array:
    chunks = table[name]
    return chunks.chunk(0) if chunks.num_chunks else pa.array([], chunks.type)


def _from_lists(lists: pa.ListArray) -> Lists:
    starts = lists.offsets.to_numpy().astype(np.int64)
    return starts - starts[0], lists.flatten().to_numpy(zero_copy_only=False)
