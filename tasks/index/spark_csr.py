"""Compressed sparse rows from relations on Spark: executors write contiguous ranges of vertices, then whole files.

Vertices are cut into blocks of a bounded number of arcs (a single vertex's row is never cut). One task sorts a block
and writes its parts of the files to the store; one task for each file joins them there, through a bounded buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.engines.spark.tasks import run_tasks, spark_errors
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.digest import SummedStream
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import PARTS_FOLDER, FileEntry
from superworkflow.tasks.lib.graph.graph_writer import VERTICES, VERTICES_FORMAT, VERTICES_ROW_GROUP
from superworkflow.tasks.lib.kernels.random import GAMMA, mix

BLOCK_ARCS = 1 << 22
BLOCK_VERTICES = 1 << 20
_SINGLE = 1 << 15  # vertices of the highest degrees, which are counted one by one
_BUCKETS = 1 << 15
_COPY_BYTES = 8 << 20
_WRITTEN = "block int, n bigint, rows bigint"  # of a block: items, and the sum of its rows


FILES = ("indptr.npy", "indices.npy", "vertices.parquet", "weights.npy")
"""Files of a graph; the last one where edges have weights."""


@dataclass(frozen=True)
class VertexBlocks:
    """Blocks into which the vertices are cut.

    Args:
        firsts: first vertex of each block, and the number of vertices, [blocks + 1].
        arcs: number of the first arc of each block, and the number of arcs, [blocks + 1].
    """

    firsts: NDArray[np.int64]
    arcs: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.firsts) - 1

    def with_arcs(self) -> list[int]:
        """The blocks that have any."""
        return [int(block) for block in np.flatnonzero(np.diff(self.arcs))]


def cut(vertices: Any, count: int) -> VertexBlocks:
    """Blocks of a relation of vertices.

    Args:
        vertices: id, length (arcs in the row).
        count: how many vertices.
    """
    from pyspark.sql import functions as f

    # Vertices are numbered by degree: buckets of many hold none of the long rows.
    width = max(1, -(-count // _BUCKETS))
    bucket = f.when(f.col("id") < _SINGLE, f.col("id")).otherwise(
        f.lit(_SINGLE) + f.floor((f.col("id") - _SINGLE) / f.lit(width))
    )
    lengths = vertices.groupBy(bucket.cast("bigint").alias("bucket")).agg(f.sum("length").alias("arcs")).collect()
    arcs = np.zeros(max(row["bucket"] for row in lengths) + 1, np.int64)
    for row in lengths:
        arcs[row["bucket"]] = row["arcs"]
    number = np.arange(len(arcs), dtype=np.int64)
    starts = np.where(number < _SINGLE, number, _SINGLE + (number - _SINGLE) * width)
    return blocks_of(arcs, np.append(starts, count))


def blocks_of(arcs: NDArray[np.int64], starts: NDArray[np.int64]) -> VertexBlocks:
    """Join buckets of vertices to blocks of about `BLOCK_ARCS` arcs and `BLOCK_VERTICES` vertices.

    Args:
        arcs: of each bucket [buckets].
        starts: first vertex of each bucket, and the number of vertices, [buckets + 1].
    """
    before = np.concatenate([[0], np.cumsum(arcs)])
    bucket, marks = 0, [0]
    while bucket < len(arcs):
        by_arcs = int(np.searchsorted(before, before[bucket] + BLOCK_ARCS, "right")) - 1
        by_vertices = int(np.searchsorted(starts, starts[bucket] + BLOCK_VERTICES, "right")) - 1
        bucket = max(bucket + 1, min(by_arcs, by_vertices, len(arcs)))
        marks.append(bucket)
    return VertexBlocks(starts[marks], before[marks])


def write_files(
    session: Any, output: Location, vertices: Any, edges: Any, blocks: VertexBlocks, directed: bool, weighted: bool
) -> list[FileEntry]:
    """Write the files of a graph dataset, the same as `tasks.lib.graph.graph_writer.write_graph` writes.

    Args:
        session: the Spark session.
        output: the dataset's folder.
        vertices: id, node, degree, length.
        edges: u, v, and weight if weighted.
        blocks: see `cut`.
        directed: an edge is stored in the row of u only.
        weighted: edges have weights.
    """
    arcs_schema = "block int, u int, v int" + (", weight float" if weighted else "")
    arcs = edges.mapInArrow(partial(_arcs, blocks.firsts, directed, weighted), arcs_schema)
    placed = vertices.mapInArrow(
        partial(_placed, blocks.firsts), "block int, id bigint, node string, degree bigint, length bigint"
    )

    # Spark reads from the types of a function what to give it; those of a partial it does not find.
    def write_arcs(block: pa.Table) -> pa.Table:
        return _write_arcs(output.uri, weighted, block)

    def write_vertices(block: pa.Table) -> pa.Table:
        return _write_vertices(output.uri, blocks.arcs, block)

    with spark_errors():
        written = arcs.groupBy("block").applyInArrow(write_arcs, _WRITTEN).collect()
        named = placed.groupBy("block").applyInArrow(write_vertices, _WRITTEN).collect()
    _check(written, np.diff(blocks.arcs), "arcs")
    _check(named, np.diff(blocks.firsts), "vertices")
    _check_rows(written, named, len(blocks))
    count, total = int(blocks.firsts[-1]), int(blocks.arcs[-1])
    every = list(range(len(blocks)))
    files = [
        ConcatenatedFile(output.uri, "indptr.npy", "<i8", count + 1, every),
        ConcatenatedFile(output.uri, "indices.npy", "<i4", total, blocks.with_arcs()),
        ConcatenatedFile(output.uri, "vertices.parquet", "", count, every),
    ]
    if weighted:
        files.append(ConcatenatedFile(output.uri, "weights.npy", "<f4", total, blocks.with_arcs()))
    return run_tasks(session, join_parts, files)


def _check(written: list[Any], expected: NDArray[np.int64], what: str) -> None:
    found = _by_block(written, "n", len(expected))
    wrong = np.flatnonzero(found != expected)[:10]
    if len(wrong):
        raise RuntimeError(
            f"blocks with the wrong number of {what}: {wrong}, written {found[wrong]}, expected {expected[wrong]}"
        )


def _check_rows(arcs: list[Any], vertices: list[Any], blocks: int) -> None:
    """The rows that were written are as long as `indptr.npy` says: arcs and lengths come from two evaluations."""
    wrong = np.flatnonzero(_by_block(arcs, "rows", blocks) != _by_block(vertices, "rows", blocks))[:10]
    if len(wrong):
        raise RuntimeError(f"blocks whose arcs are not those that their vertices have: {wrong}")


def _by_block(written: list[Any], column: str, blocks: int) -> NDArray[np.int64]:
    found = np.zeros(blocks, np.int64)
    for row in written:
        found[row["block"]] += row[column]
    return found


def _rows_sum(ids: NDArray[Any], lengths: NDArray[np.int64] | int = 1) -> int:
    """Checksum of row lengths: the sum of each vertex's hash times the length of its row, modulo 2⁶⁴."""
    total = (mix.py_func(ids.astype(np.uint64) + GAMMA) * np.asarray(lengths).astype(np.uint64)).sum(dtype=np.uint64)
    return int(total.view(np.int64))


def _block_of(firsts: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int32]:
    return (np.searchsorted(firsts, ids, "right") - 1).astype(np.int32)


def _arcs(
    firsts: NDArray[np.int64], directed: bool, weighted: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        u, v = batch["u"].to_numpy(), batch["v"].to_numpy()
        for first, second in [(u, v)] if directed else [(u, v), (v, u)]:
            columns = [_block_of(firsts, first), first.astype(np.int32), second.astype(np.int32)]
            arrays = [pa.array(column) for column in columns] + ([batch["weight"]] if weighted else [])
            yield pa.RecordBatch.from_arrays(arrays, ["block", "u", "v", *(["weight"] if weighted else [])])


def _placed(firsts: NDArray[np.int64], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = ["id", "node", "degree", "length"]
    for batch in batches:
        block = pa.array(_block_of(firsts, batch["id"].to_numpy()))
        yield pa.RecordBatch.from_arrays([block, *(batch[name] for name in names)], ["block", *names])


def part_name(file: str, block: int) -> str:
    """Path of a block's part of a file, inside the dataset's folder."""
    return f"{PARTS_FOLDER}/{file}-{block:06d}"


def _write_arcs(output: str, weighted: bool, table: pa.Table) -> pa.Table:
    """Sort the arcs of one block and write its parts of `indices.npy` and `weights.npy`."""
    block = table["block"][0].as_py()
    u = table["u"].to_numpy()
    keys = (u.astype(np.uint64) << np.uint64(32)) | table["v"].to_numpy().astype(np.uint64)
    order = np.argsort(keys)
    writer = TaskWriter(Location.of(output))
    with writer.file(part_name("indices.npy", block)) as path:
        path.write_bytes(table["v"].to_numpy()[order].astype("<i4").data)
    if weighted:
        with writer.file(part_name("weights.npy", block)) as path:
            path.write_bytes(table["weight"].to_numpy()[order].astype("<f4").data)
    return _written(block, len(order), _rows_sum(u))


def _write_vertices(output: str, arcs: NDArray[np.int64], table: pa.Table) -> pa.Table:
    """Sort the vertices of one block and write its parts of `vertices.parquet` and `indptr.npy` (where rows end)."""
    block = table["block"][0].as_py()
    table = table.sort_by("id")
    lengths = table["length"].to_numpy()
    ends = int(arcs[block]) + np.cumsum(lengths, dtype=np.int64)
    writer = TaskWriter(Location.of(output))
    with writer.file(part_name("indptr.npy", block)) as path:
        path.write_bytes(ends.astype("<i8").data)
    with writer.file(part_name("vertices.parquet", block)) as path:
        with pa.ipc.new_file(path, VERTICES) as stream:
            stream.write_table(table.select(["node", "degree"]).cast(VERTICES))
    return _written(block, len(ends), _rows_sum(table["id"].to_numpy(), lengths))


def _written(block: int, count: int, rows: int) -> pa.Table:
    return pa.table({"block": pa.array([block], pa.int32()), "n": [count], "rows": [rows]})


@dataclass(frozen=True)
class ConcatenatedFile:
    """A file of the dataset that is made of parts.

    Args:
        output: URI of the dataset's folder.
        name: of the file.
        dtype: of the array; empty for `vertices.parquet`.
        length: items of the array, or rows.
        blocks: whose parts it is made of, in order.
    """

    output: str
    name: str
    dtype: str
    length: int
    blocks: list[int]


def join_parts(file: ConcatenatedFile) -> FileEntry:
    """Make one file of its parts; its content goes through a bounded buffer."""
    folder = Location.of(file.output)
    writer = TaskWriter(folder)
    with writer.stream(file.name) as out:
        if not file.dtype:
            join_vertices((folder.join(part_name(file.name, block)) for block in file.blocks), out)
        else:
            header: Any = {"descr": file.dtype, "fortran_order": False, "shape": (file.length,)}
            np.lib.format.write_array_header_1_0(out, header)
            if file.name == "indptr.npy":
                out.write(np.zeros(1, file.dtype))
            for block in file.blocks:
                with folder.join(part_name(file.name, block)).open() as part:
                    while chunk := part.read(_COPY_BYTES):
                        out.write(chunk)
    return writer.entries[0]


def join_vertices(parts: Iterator[Location], out: SummedStream) -> None:
    """`vertices.parquet` from Arrow files of its rows, in row groups of the same size whatever the parts' sizes are."""
    waiting = VERTICES.empty_table()
    with pq.ParquetWriter(out, VERTICES, **VERTICES_FORMAT) as writer:
        for part in parts:
            with part.open() as stream, pa.ipc.open_file(stream) as file:
                waiting = pa.concat_tables([waiting, file.read_all()])
            while len(waiting) >= VERTICES_ROW_GROUP:
                writer.write_table(waiting.slice(0, VERTICES_ROW_GROUP).combine_chunks(), VERTICES_ROW_GROUP)
                waiting = waiting.slice(VERTICES_ROW_GROUP)
        if len(waiting):
            writer.write_table(waiting.combine_chunks(), VERTICES_ROW_GROUP)
