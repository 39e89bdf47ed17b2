"""Graphs in the raw folders of the Open Graph Benchmark (Hu et al., NeurIPS 2020) as tables with a schema.

`raw/` of a homogeneous graph has `edge.csv.gz`, `num-node-list.csv.gz`, and perhaps `node-feat.csv.gz`, further
`node_….csv.gz`, `edge-feat.csv.gz`, `edge_….csv.gz` and `node-label.csv.gz`; that of a typed one has
`num-node-dict.csv.gz`, `triplet-type-list.csv.gz`, and such files in `relations/`, `node-feat/` and `node-label/`. They
have no header, and row i is of node or edge i; so they are written anew, as Parquet. What `split/` says of nodes
becomes a table of seeds.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.graph.schema import SCHEMA_FILE, schema_text
from superworkflow.tasks.lib.importers.plain_tables import EdgeTable, plain_schema

_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
_FEATURE_FILES = {"node-feat": "feat", "edge-feat": "feat", "node-label": "labels"}
_NODES, _EDGES = "nodes", "edges"
"""Names of the sets of a homogeneous graph."""
_BATCH = 1 << 16


class _Set(NamedTuple):
    """A set in the raw folder: its name, its rows, and the files of its features."""

    name: str
    rows: int
    files: list[Path]


def convert_ogb(folder: Path, out: Path) -> list[str]:
    """Write `schema.pbtxt` and the tables of a raw folder.

    Args:
        folder: `raw`, or the folder that has it.
        out: where to write; made if it is not there.

    Returns:
        Names of the files that were written.

    Raises:
        UserError: this is no such folder, or a file of it is not what it should be.
    """
    raw = folder / "raw" if (folder / "raw").is_dir() else folder
    out.mkdir(parents=True, exist_ok=True)
    typed = (raw / "triplet-type-list.csv.gz").is_file()
    if not typed and not (raw / "edge.csv.gz").is_file():
        raise UserError("no raw folder of a graph", where=str(raw),
                        remedy="Give a folder with edge.csv.gz or triplet-type-list.csv.gz")  # fmt: skip
    nodes: dict[str, str] = {}
    edges: list[EdgeTable] = []
    with _database() as connection:
        for each in _node_sets(raw, typed):
            nodes[each.name] = _write(connection, out / f"nodes-{each.name}.parquet", each, ["id"])
        for (source, target), found in _edge_sets(raw, typed):
            file = _write(connection, out / f"edges-{found.name}.parquet", found, ["source", "target"])
            edges.append(EdgeTable(source, found.name, target, file))
        schema = plain_schema(out, nodes, edges, {})
        (out / SCHEMA_FILE).write_text(schema_text(schema))
        written = [SCHEMA_FILE, *nodes.values(), *(each.file for each in edges)]
        return [*written, *_seeds(raw.parent / "split", out)]


def _database() -> Any:
    import duckdb

    return duckdb.connect(config={"threads": 1})  # rows in the order of the file


def _node_sets(raw: Path, typed: bool) -> Iterator[_Set]:
    if not typed:
        files = [file for file in sorted(raw.glob("node*.csv.gz")) if file.name != "node-split.csv.gz"]
        yield _Set(_NODES, int(_rows(raw / "num-node-list.csv.gz")[0][0]), files)
        return
    names, counts = _rows(raw / "num-node-dict.csv.gz")[:2]
    for name, count in zip(names, counts, strict=True):
        folders = [raw / kind / _checked(name, raw) for kind in ("node-feat", "node-label")]
        files = [file for folder in folders if folder.is_dir() for file in sorted(folder.glob("node*.csv.gz"))]
        yield _Set(name, int(count), files)


def _edge_sets(raw: Path, typed: bool) -> Iterator[tuple[tuple[str, str], _Set]]:
    places = {(_NODES, _EDGES, _NODES): raw}
    if typed:
        rows = _rows(raw / "triplet-type-list.csv.gz")
        places = {(a, b, c): raw / "relations" / "___".join(_checked(x, raw) for x in (a, b, c)) for a, b, c in rows}
    for (source, name, target), folder in places.items():
        files = [file for file in sorted(folder.glob("edge[-_]*.csv.gz")) if file.name != "edge_reltype.csv.gz"]
        yield (
            (source, target),
            _Set(name, int(_rows(folder / "num-edge-list.csv.gz")[0][0]), [folder / "edge.csv.gz", *files]),
        )


def _write(connection: Any, path: Path, found: _Set, ends: list[str]) -> str:
    """Write one table; the columns of the set's files side by side."""
    readers = [_columns(connection, file, ends if file.name == "edge.csv.gz" else None) for file in found.files]
    names = [name for names, _ in readers for name in names]
    own = [] if "source" in ends else ["id"]
    left, writer = found.rows, None
    try:
        while left:
            rows = min(left, _BATCH)
            columns = [pa.array(range(found.rows - left, found.rows - left + rows), pa.int64())] if own else []
            for file, (_, batches) in zip(found.files, readers, strict=True):
                part = next(batches, None)
                if part is None or part.num_rows != rows:
                    raise UserError("the file has another number of rows than its set", where=str(file),
                                    value=found.rows, remedy="Fetch the graph again")  # fmt: skip
                columns += part.columns
            table = pa.table(columns, [*own, *names])
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
            left -= rows
    finally:
        if writer is not None:
            writer.close()
    return path.name


def _columns(connection: Any, file: Path, ends: list[str] | None) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Names and batches of a file's columns: the ends of edges, or one feature, a vector where it has several."""
    import duckdb

    from superworkflow.tasks.lib.edge_list.duckdb_reader import path_literal

    rows = (
        f"read_csv({path_literal(str(file))}, header = false, delim = ',', sample_size = -1, "
        "auto_type_candidates = ['BIGINT', 'DOUBLE'], hive_partitioning = false)"
    )
    try:
        kinds = connection.sql(f"SELECT * FROM {rows}")
        columns, is_float = list(kinds.columns), "DOUBLE" in map(str, kinds.types)
        kind = "FLOAT" if is_float else "BIGINT"
        values = [f"CAST({name} AS {kind})" for name in columns]
        if ends:
            chosen, names = values[:2], ends
        else:
            stem = file.name.removesuffix(".csv.gz")
            names = [_FEATURE_FILES.get(stem, stem.removeprefix("node_").removeprefix("edge_"))]
            chosen = values if len(values) == 1 else [f"array_value({', '.join(values)})"]
        batches = connection.cursor().sql(f"SELECT {', '.join(chosen)} FROM {rows}").to_arrow_reader(_BATCH)
    except duckdb.Error as error:
        raise UserError(f"the file cannot be read: {' '.join(str(error).split())[:400]}", where=str(file),
                        remedy="Fetch the graph again") from None  # fmt: skip
    return names, _of_size(batches)


def _of_size(batches: Any) -> Iterator[pa.RecordBatch]:
    """Batches of one size, but for the last."""
    waiting, rows = [], 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        while rows >= _BATCH:
            table = pa.Table.from_batches(waiting).combine_chunks()
            yield table.slice(0, _BATCH).to_batches()[0]
            rest = table.slice(_BATCH)
            waiting, rows = rest.to_batches(), rest.num_rows
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]


def _seeds(split: Path, out: Path) -> list[str]:
    """Write a table of the nodes that a split names, of each set that it names nodes of."""
    written = []
    kinds = [path for path in sorted(split.glob("*")) if path.is_dir()]
    for folder in [each for kind in kinds[:1] for each in (kind, *sorted(kind.glob("*"))) if each.is_dir()]:
        files = {name: folder / f"{name}.csv.gz" for name in _SPLITS}
        if not all(file.is_file() for file in files.values()):
            continue
        ids: list[str] = []
        splits: list[str] = []
        for name, file in files.items():
            rows = [row[0] for row in _rows(file)]
            ids += rows
            splits += [_SPLITS[name]] * len(rows)
        name = "seeds.parquet" if folder == kinds[0] else f"seeds-{folder.name}.parquet"
        pq.write_table(pa.table({"id": ids, "split": splits}), out / name)
        written.append(name)
    return written


def _rows(file: Path) -> list[list[str]]:
    """All rows of a small file."""
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="") as stream:
            return [row for row in csv.reader(stream) if row]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"the file cannot be read: {error}", where=str(file), remedy="Fetch the graph again") from None


def _checked(name: str, raw: Path) -> str:
    """A name of a set, which becomes a part of file names."""
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise UserError("no name that a set can have", where=str(raw), value=name, remedy="Fetch the graph again")
    return name
