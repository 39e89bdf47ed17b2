"""Tables of graphs in every format, their schema, and what the stage heterograph makes of them by plain Python."""

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.tasks.heterograph import STAGE
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph, Ragged
from superworkflow.tasks.lib.graph.schema import (
    ContextSchema,
    EdgeSetSchema,
    GraphSchema,
    Metadata,
    NodeSetSchema,
    SchemaFeature,
    schema_text,
)
from tests.tasks.examples import framed, serialized

FORMATS = ("csv", "csv.gz", "tsv", "parquet", "tfrecord", "tfrecord.gz")
KINDS = {"float": "float_list", "int64": "int64_list", "string": "bytes_list"}
REVERSED = (("edge_type", "reversed"),)


@dataclass
class Items:
    """A set: rows of values by column; a column is an id or a feature.

    Args:
        columns: values by column.
        features: type and shape by feature; what is not here is text.
        ends: node sets of source and target, of an edge set.
        file: of the table, as the schema has it; empty for none.
        reverses: name of the edge set that it reverses.
    """

    columns: dict[str, list[Any]] = field(default_factory=dict)
    features: dict[str, tuple[str, tuple[int | None, ...]]] = field(default_factory=dict)
    ends: tuple[str, str] | None = None
    file: str = ""
    reverses: str = ""


def table_bytes(ending: str, columns: Mapping[str, list[Any]], dtypes: Mapping[str, str]) -> bytes:
    """A table in a format."""
    rows = list(zip(*columns.values(), strict=True))
    if ending.startswith(("csv", "tsv")):
        text = io.StringIO()
        csv.writer(text, delimiter="\t" if ending == "tsv" else ",").writerows(
            [list(columns), *([_field(value) for value in row] for row in rows)]
        )
        data = text.getvalue().encode()
    elif ending.startswith("tfrecord"):
        kinds = [KINDS.get(dtypes.get(name, "string"), "int64_list") for name in columns]
        named = [{n: (k, _several(v)) for n, k, v in zip(columns, kinds, row, strict=True)} for row in rows]
        data = b"".join(framed(serialized(each)) for each in named)
    else:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), sink)
        data = sink.getvalue().to_pybytes()
    return gzip.compress(data) if ending.endswith("gz") else data


def write_graph(
    folder: Path, nodes: Mapping[str, Items], edges: Mapping[str, Items], context: Items | None = None
) -> Path:
    """Tables and `schema.pbtxt` in a folder; a table `name@3.csv` in three shards, of which the last is empty."""
    folder.mkdir(parents=True, exist_ok=True)
    for items in [*nodes.values(), *edges.values(), *([context] if context else [])]:
        if items.file and not items.reverses:
            dtypes = {name: dtype for name, (dtype, _) in items.features.items()}
            for name, begin, end in _pieces(items.file, len(next(iter(items.columns.values())))):
                part = {column: values[begin:end] for column, values in items.columns.items()}
                ending = next(each for each in reversed(FORMATS) if f".{each}" in name)
                (folder / name).write_bytes(table_bytes(ending, part, dtypes))
    (folder / "schema.pbtxt").write_text(schema_text(_schema(nodes, edges, context)))
    return folder


def run_stage(given: Path | str, folder: Path | str, threads: int = 2, **params: Any) -> HeteroGraph:
    """The graph that the stage makes."""
    progress = Progress("heterograph", stream=io.StringIO())
    resources = Resources(cpu=threads, memory=2 << 30)
    return HeteroGraph.open(execute(STAGE, params, {"graph": str(given)}, str(folder), resources, progress).dataset)


def found(graph: HeteroGraph) -> dict[str, Any]:
    """All that a graph holds, as Python values."""
    sets: dict[str, Any] = {}
    for name, nodes in graph.node_sets.items():
        features = {each.name: plain(graph.node_feature(name, each.name)) for each in nodes.features}
        sets[name] = (graph.ids(name).to_pylist(), features)
    for name, edges in graph.edge_sets.items():
        features = {each.name: plain(graph.edge_feature(name, each.name)) for each in edges.features}
        origin = graph.origin(name)
        sets[name] = (
            *(part.tolist() for part in graph.rows(name)), None if origin is None else origin.tolist(), features,
            graph.table_rows(name).tolist(),
        )  # fmt: skip
    return sets


def expected(
    nodes: Mapping[str, Items], edges: Mapping[str, Items], *, first: bool = False, drop: bool = False
) -> dict[str, Any]:
    """The same by plain Python, slowly."""
    sets: dict[str, Any] = {}
    number: dict[str, dict[str, int]] = {}
    for name, items in nodes.items():
        given = items.columns.get("id", items.columns.get("#id"))
        if given is None:
            given = list({end for each in edges.values() if not each.reverses for end in _named(each, name)})
        order = sorted(range(len(given)), key=lambda row, ids=given: str(ids[row]).encode())
        number[name] = {str(given[row]): rank for rank, row in enumerate(order)}
        sets[name] = ([str(given[row]) for row in order], _in_order(items, order))
    kept: dict[str, list[tuple[int, int, int]]] = {}
    for name, items in edges.items():
        if not items.reverses:
            ends = [number[end] for end in items.ends or ()]
            rows = [
                (ends[0][source], ends[1][target], row)
                for row, (source, target) in enumerate(_pairs(items))
                if not drop or (source in ends[0] and target in ends[1])
            ]
            rows.sort()
            if first:
                rows = [edge for index, edge in enumerate(rows) if not index or edge[:2] != rows[index - 1][:2]]
            kept[name] = rows
            numbers = [row for _, _, row in rows]
            sets[name] = (*_csr(rows, len(ends[0])), None, _in_order(items, numbers), numbers)
    for name, items in edges.items():
        if items.reverses:
            back = sorted((t, s, index) for index, (s, t, _) in enumerate(kept[items.reverses]))
            origin = [index for _, _, index in back]
            numbers = [kept[items.reverses][index][2] for index in origin]
            features = _in_order(edges[items.reverses], numbers)
            sets[name] = (*_csr(back, len(number[(items.ends or ("",))[0]])), origin, features, numbers)
    return sets


def plain(values: Any) -> list[Any]:
    """Values of a feature as lists."""
    if isinstance(values, Ragged):
        return [values.values[a:b].tolist() for a, b in zip(values.starts, values.starts[1:], strict=False)]
    return values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()


def _schema(nodes: Mapping[str, Items], edges: Mapping[str, Items], context: Items | None) -> GraphSchema:
    return GraphSchema(
        {name: NodeSetSchema(name, _features(items), Metadata(items.file)) for name, items in nodes.items()},
        {
            name: EdgeSetSchema(
                name, *(items.ends or ("", "")), () if items.reverses else _features(items),
                Metadata(items.file, extra=REVERSED if items.reverses else ()),
            )
            for name, items in edges.items()
        },
        ContextSchema() if context is None else ContextSchema(_features(context), Metadata(context.file)),
    )  # fmt: skip


def _features(items: Items) -> tuple[SchemaFeature, ...]:
    return tuple(SchemaFeature(name, dtype, shape) for name, (dtype, shape) in items.features.items())


def _pieces(name: str, rows: int) -> Sequence[tuple[str, int, int]]:
    stem, mark, rest = name.partition("@")
    if not mark:
        return [(name, 0, rows)]
    count, dot, ending = rest.partition(".")
    bounds = [min(rows, rows * shard // max(1, int(count) - 1)) for shard in range(int(count))] + [rows]
    names = [f"{stem}-{shard:05d}-of-{int(count):05d}{dot}{ending}" for shard in range(int(count))]
    return list(zip(names, bounds, bounds[1:], strict=False))


def _several(value: Any) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    return [each.encode() if isinstance(each, str) else int(each) if isinstance(each, bool) else each
            for each in values]  # fmt: skip


def _field(value: Any) -> Any:
    if isinstance(value, list):
        return "[" + ", ".join(map(str, value)) + "]"
    return int(value) if isinstance(value, bool) else value


def _pairs(items: Items) -> list[tuple[str, str]]:
    ends = [next(items.columns[name] for name in (f"#{end}", end) if name in items.columns) for end in
            ("source", "target")]  # fmt: skip
    return [(str(source), str(target)) for source, target in zip(*ends, strict=True)]


def _named(edges: Items, node_set: str) -> list[str]:
    pairs = _pairs(edges)
    return [pair[end] for end in range(2) if (edges.ends or ())[end] == node_set for pair in pairs]


def _csr(edges: list[tuple[int, int, int]], sources: int) -> tuple[list[int], list[int]]:
    return [sum(source < row for source, _, _ in edges) for row in range(sources + 1)], [t for _, t, _ in edges]


def _in_order(items: Items, order: Sequence[int]) -> dict[str, list[Any]]:
    given = {name: [items.columns[name][row] for row in order] for name in sorted(items.features, key=str.encode)}
    return {
        name: [value.encode() for value in values] if items.features[name][0] == "string" else values
        for name, values in given.items()
    }
