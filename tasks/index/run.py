"""The work of the index stage; see the package for its rules."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.text_file import open_unpacked
from superworkflow.tasks.index import IndexParams, compiled_memory, sql_memory, uses_kernels
from superworkflow.tasks.index.trim import kept_edges
from superworkflow.tasks.lib.edge_list.bipartite import source_count
from superworkflow.tasks.lib.edge_list.diagnose import bad_row, duplicate_edge, no_edges, too_heavy, too_little_memory
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.edge_files import EdgeFile, edge_files, text_rows_of
from superworkflow.tasks.lib.edge_list.encode import Encoder, NeedsReader, encode_file
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.edge_list.node_names import settle_names
from superworkflow.tasks.lib.edge_list.text_rows import BadRow
from superworkflow.tasks.lib.edge_list.vertex_order import label_array, order_by_degree
from superworkflow.tasks.lib.graph import csr
from superworkflow.tasks.lib.graph.csr_limits import MOST_ARCS
from superworkflow.tasks.lib.graph.graph_writer import write_graph
from superworkflow.tasks.lib.kernels.huge_pages import small_pages
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()
LARGE_TEXT = 1 << 30
"""Bytes of an edge list from which on its arrays are on huge pages: they are used long enough (`small_pages`)."""
_RULES = {"sum": csr.SUM, "max": csr.MAX, "min": csr.MIN, "error": csr.MAX}


@dataclass
class Indexed:
    """A simple graph with numbered vertices.

    Args:
        labels: Arrow strings [vertices], row i is vertex i.
        edges: packed edges [m] in any order; without direction the order of an edge's ends means nothing.
        weights: float32 [m] or None.
        rows, self_loops: rows read, and those with the same node twice.
        counts: of the edges' ends.
        scratch: memory that is no longer needed.
        dropped: rows that were left out, since they lack an id; they are not in `rows`.
    """

    labels: pa.Array
    edges: csr.Edges
    weights: csr.Weights | None
    rows: int
    self_loops: int
    counts: csr.EndCounts
    scratch: csr.Edges | None = None
    dropped: int = 0


def run(job: StageRun[IndexParams]) -> Output:
    """Index one edge list.

    Raises:
        UserError: names file, line or field, the value and the remedy.
    """
    source = job.sources["edges"]
    where = source.uri
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    files = unpacked_parquet(edge_files(source, job.params, job.scratch), job.scratch)
    dialect = files[0].dialect
    job.progress.log(dialect.describe())
    log_warnings(job.progress, dialect.warnings)
    with small_pages(_size(files) < LARGE_TEXT):
        return _index(job, files, where)


def _index(job: StageRun[IndexParams], files: Sequence[EdgeFile], where: str) -> Output:
    params, dialect = job.params, files[0].dialect
    work = index_compiled if _suits_kernels(job, files) else index_relational
    graph = work(job, files, where)
    if graph.dropped:
        job.progress.log(f"{graph.dropped} rows without an id are left out")
    if graph.self_loops:
        job.progress.log(f"{graph.self_loops} edges from a node to itself are left out")
    if not len(graph.edges):
        raise no_edges(graph.rows, dialect, where)
    duplicates = graph.rows - graph.self_loops - len(graph.edges)
    if duplicates and params.duplicates == "error":
        raise duplicate_edge(files, params.directed, where, duplicates)
    return _write(job, graph, duplicates, dialect)


def index_compiled(job: StageRun[IndexParams], files: Sequence[EdgeFile], where: str) -> Indexed:
    """Index with kernels, in memory."""
    params, threads = job.params, job.threads
    encoder = _encode(job, files, where)
    dropped = encoder.dropped
    buffer, rows, weights, keys, arena = encoder.result()
    ends = buffer[: 2 * rows].reshape(-1, 2)
    del encoder
    job.progress.log(f"{rows} rows, {len(keys)} nodes; merging edges")
    edges, weights, loops, _ = csr.merge_edges(ends, weights, params.directed, _RULES[params.duplicates], threads)
    if weights is not None and not np.isfinite(weights.max(initial=0)):
        heavy = csr.unpack(edges[~np.isfinite(weights)]).T
        pairs = [_labels(np.ascontiguousarray(side), keys, arena, files, where) for side in heavy]
        raise too_heavy(zip(*(side.to_pylist() for side in pairs), strict=True), params.directed, where)
    del ends
    buffer.resize(min(len(buffer), 2 * MOST_ARCS), refcheck=False)
    counts = csr.count_ends(edges, len(keys), threads)
    first, second = csr.degrees(counts)
    order = order_by_degree(first + second, keys, arena)
    for side in counts:
        for part in side:
            part[:] = part[order]
    number = np.zeros(len(keys), np.uint32)
    number[order] = np.arange(len(order), dtype=np.uint32)
    _renumber(edges, number)
    labels = _labels(order, keys, arena, files, where)
    return Indexed(labels, edges, weights, rows, loops, counts, buffer.view(np.uint64), dropped)


def _labels(
    order: NDArray[np.int32],
    keys: NDArray[np.uint64],
    arena: NDArray[np.uint8],
    files: Sequence[EdgeFile],
    where: str,
) -> pa.Array:
    try:
        return label_array(order, keys, arena)
    except pa.ArrowInvalid:
        raise bad_row(files, where) from None


def index_relational(job: StageRun[IndexParams], files: Sequence[EdgeFile], where: str) -> Indexed:
    """Index with SQL on DuckDB, which spills to the scratch folder."""
    import duckdb

    from superworkflow.tasks.index import relational
    from superworkflow.tasks.lib.edge_list import duckdb_reader

    params, memory, dialect = job.params, sql_memory(job.resources), files[0].dialect
    connection = duckdb_reader.connect(memory, job.threads, job.scratch)
    connection.execute("SET preserve_insertion_order = false")

    try:
        if dialect.kind == "parquet" and not dialect.reads_times:
            for i, file in enumerate(files):
                query = duckdb_reader.rows_query(connection, str(file.path), file.dialect)
                connection.execute(f"{'INSERT INTO edge_rows' if i else 'CREATE TABLE edge_rows AS'} {query}")
        else:
            read = text_rows_of(files) if dialect.kind != "parquet" else duckdb_reader.rows_of(connection, files)
            duckdb_reader.make_rows(connection, "edge_rows", dialect.weighted, read)
        found = relational.index(
            connection, directed=params.directed, weighted=dialect.weighted, duplicates=params.duplicates,
            drop=dialect.missing == "drop",
        )  # fmt: skip
        if found.bad_rows:
            raise BadRow
        if found.too_heavy:
            raise too_heavy(found.too_heavy, params.directed, where)
        edges, weights = _fetch_edges(found.edges, dialect.weighted)
        labels = found.vertices.order("id").project("node").to_arrow_table()
    except BadRow:
        raise bad_row(files, where) from None
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if duckdb_reader.lacks_memory(error):
            raise too_little_memory(where, job.resources, memory, str(error)) from None
        if not isinstance(error, duckdb.Error):
            raise
        raise bad_row(files, where, str(error)) from None
    finally:
        connection.close()
    column = labels.column(0).cast(pa.large_string()).combine_chunks()
    counts = csr.count_ends(edges, len(column), job.threads)
    return Indexed(column, edges, weights, found.rows, found.self_loops, counts, dropped=found.dropped)


def _size(files: Sequence[EdgeFile]) -> int:
    return sum(file.path.stat().st_size for file in files)


def _suits_kernels(job: StageRun[IndexParams], files: Sequence[EdgeFile]) -> bool:
    """True if the files are worth compiling kernels for, and they have room (at a guess of 14 bytes of text a row)."""
    dialect, stored = files[0].dialect, _size(files)
    packed = dialect.kind == "parquet" or any(file.dialect.gzipped for file in files)
    size = stored * (3 if packed else 1)
    rows = size // 14
    arcs = rows if job.params.directed else 2 * rows
    need = compiled_memory(rows, rows // 20, arcs, dialect.weighted, size, job.threads)
    return uses_kernels(job.params, stored, need, job.resources)


def _encode(job: StageRun[IndexParams], files: Sequence[EdgeFile], where: str) -> Encoder:
    size, before, dialect = _size(files), 0, files[0].dialect
    try:
        plain = dialect.negative in ("error", "keep") or not dialect.weighted
        if dialect.kind != "parquet" and plain and not dialect.reads_times:
            encoder = Encoder(job.threads, dialect.weighted)
            for path, each, name in files:
                encode_file(
                    encoder,
                    str(path),
                    each,
                    name,
                    size,
                    lambda read: job.progress.update(read, size, "bytes", rows=encoder.rows),
                    before,
                )
                before += path.stat().st_size
            return settle_names(encoder, dialect)
    except NeedsReader:
        pass
    except (BadRow, pa.ArrowInvalid):
        if dialect.negative != "keep":  # else the kernels know no number of either sign
            raise bad_row(files, where) from None
    return _encode_parquet(job, files, where) if dialect.kind == "parquet" else _encode_rows(job, files, where)


def _encode_rows(job: StageRun[IndexParams], files: Sequence[EdgeFile], where: str) -> Encoder:
    """Text again from its beginning, by the reader that knows quotes."""
    encoder = Encoder(job.threads, files[0].dialect.weighted)
    try:
        for columns, weights in text_rows_of(files):
            encoder.add_columns(columns, weights, 0, drop=files[0].dialect.missing == "drop")
    except BadRow:
        raise bad_row(files, where) from None
    return encoder


def _encode_parquet(job: StageRun[IndexParams], files: Sequence[EdgeFile], where: str) -> Encoder:
    import duckdb

    from superworkflow.tasks.lib.edge_list import duckdb_reader

    encoder = Encoder(job.threads, files[0].dialect.weighted)
    total = sum(pq.ParquetFile(file.path).metadata.num_rows for file in files)
    memory = max(256 << 20, job.resources.memory // 4)
    connection = duckdb_reader.connect(memory, job.threads, job.scratch)
    try:
        for path, dialect, _ in files:
            for columns, weights in duckdb_reader.label_batches(connection, str(path), dialect):
                encoder.add_columns(columns, weights, total, drop=dialect.missing == "drop")
                job.progress.update(encoder.rows, max(total, encoder.rows + 1), "rows")
    except BadRow:
        raise bad_row(files, where) from None
    except (duckdb.Error, pa.ArrowException, OSError) as error:  # later batches come through Arrow
        if duckdb_reader.lacks_memory(error):
            raise too_little_memory(where, job.resources, memory, str(error)) from None
        raise bad_row(files, where, str(error)) from None
    finally:
        connection.close()
    return encoder


def _fetch_edges(relation: Any, weighted: bool) -> tuple[csr.Edges, csr.Weights | None]:
    edges, weights = [], []
    for batch in relation.to_arrow_reader(1 << 20):
        edges.append(csr.pack(batch.column(0).to_numpy(), batch.column(1).to_numpy()))
        if weighted:
            weights.append(batch.column(2).to_numpy())
    if not edges:
        return np.empty(0, np.uint64), np.empty(0, np.float32) if weighted else None
    return np.concatenate(edges), np.concatenate(weights) if weighted else None


@nb.njit(cache=True, parallel=True)
def _renumber(edges: csr.Edges, number: NDArray[np.uint32]) -> None:
    for i in nb.prange(len(edges)):
        first, second = number[np.int64(edges[i] >> np.uint64(32))], number[np.int64(edges[i] & np.uint64(0xFFFFFFFF))]
        edges[i] = (np.uint64(first) << np.uint64(32)) | np.uint64(second)


def _write(job: StageRun[IndexParams], graph: Indexed, duplicates: int, dialect: Dialect) -> Output:
    params, threads, vertices = job.params, job.threads, len(graph.labels)
    edges, weights, counts = graph.edges, graph.weights, graph.counts
    first, second = csr.degrees(counts)
    neighbours = first if params.directed else first + second
    max_degree_seen, trimmed_vertices, trimmed_edges = int(neighbours.max()), 0, 0
    if params.max_degree is not None and max_degree_seen > params.max_degree:
        trimmed_vertices = int((neighbours > params.max_degree).sum())
        kept = kept_edges(edges, neighbours, params.directed, params.max_degree, params.seed)
        trimmed_edges = int(len(kept) - kept.sum())
        edges, weights = edges[kept], weights[kept] if weights is not None else None
        counts = csr.count_ends(edges, vertices, threads)
    sources = source_count(graph.labels, dialect.sides)
    job.progress.log(f"{vertices} vertices, {len(edges)} edges; writing rows")
    symmetric = not params.directed
    stats = write_graph(job.output, edges, weights, counts, graph.labels, symmetric, graph.scratch)
    return Output(
        rows=len(edges),
        stats={
            **stats,
            "rows_read": graph.rows,
            "self_loops_dropped": graph.self_loops,
            "duplicates_merged": duplicates,
            "max_degree_seen": max_degree_seen,
            "trimmed_vertices": trimmed_vertices,
            "trimmed_edges": trimmed_edges,
            **dialect.name_stats(graph.dropped, sources),
            **warning_stats(dialect.warnings),
        },
    )


def unpacked_parquet(files: Sequence[EdgeFile], scratch: Path) -> list[EdgeFile]:
    """The files, compressed Parquet ones uncompressed, since their reader must jump about in them."""
    found = list(files)
    for i, (path, dialect, where) in enumerate(files):
        if dialect.kind == "parquet" and dialect.gzipped:
            plain = scratch / f"edges-{i}.parquet"
            with open_unpacked(path, where) as packed, plain.open("wb") as out:
                shutil.copyfileobj(packed, out)
            found[i] = EdgeFile(plain, replace(dialect, gzipped=False), where)
    return found
