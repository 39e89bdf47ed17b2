"""Sizes of a graph's tables for plans: from the schema, the sizes of files, and a sample of some of them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from superworkflow.infra.contract.estimate import Stats
from superworkflow.infra.storage.manifest import Stat
from superworkflow.infra.storage.source import DESCRIPTION_BYTES, Source
from superworkflow.infra.storage.text_file import unpacked
from superworkflow.tasks.heterograph.layout import SchemaLayout, keeps_ends, layout_of, named_ends
from superworkflow.tasks.lib.graph.dtypes import DTYPES, STRING
from superworkflow.tasks.lib.graph.schema import ContextSchema, EdgeSetSchema, NodeSetSchema, SchemaFeature, read_schema
from superworkflow.tasks.lib.graph.stat_names import end_stats, record_stats, stat_name
from superworkflow.tasks.lib.importers.dgl_chunked import ChunkedGraph, is_chunked, read_chunked

_MOST_LOOKED_AT = 16
"""Files of a table, of which the others are taken to be alike."""
_RECORDS, _MOST_RECORD = 4000, 1 << 20
_GZIP_RATIO = 3
_ROW_BYTES = 16
"""Bytes of an edge or an id in a file that cannot be sampled."""
_EDGES_PER_NODE = 8
"""Guess for the nodes of a set without a table."""


def graph_stats(source: Source, look_bytes: int) -> Stats:
    """Sizes of the graph that a schema's tables make, for `estimate`.

    Numbers of items are those of the schema (`cardinality`), else of Parquet's metadata, else guessed from parts of
    files. They are named by the rules of `tasks.lib.graph.heterograph_writer.stats_of`; further ones are of the work.
    """
    with source.location.open() as stream:
        text = stream.read(DESCRIPTION_BYTES).decode()
    if is_chunked(text):
        return _chunked_stats(source, read_chunked(text, source.uri))
    layout = layout_of(read_schema(text, source.uri), source.uri)
    sets: list[NodeSetSchema | EdgeSetSchema] = [*layout.node_sets, *layout.edge_sets]
    look = look_bytes // max(1, len(sets))
    rows = {id(each): _rows(source, layout, each, look) for each in sets}
    named = [rows[id(each)] for each in layout.edge_sets if each.name not in layout.reversed_of]
    latent = sum(named) // _EDGES_PER_NODE + 1
    nodes = [
        rows[id(each)] if layout.table(each) else (each.metadata.cardinality or latent) for each in layout.node_sets
    ]
    edges = [rows[id(each)] for each in layout.edge_sets]
    naming = named_ends(layout)
    number = {each.name: index for index, each in enumerate(layout.node_sets)}
    back = [rows[id(each)] for each in layout.edge_sets if each.name in layout.reversed_of]
    tables = dict.fromkeys(layout.table(each) for each in sets if layout.table(each))
    sizes = {name: _text_bytes(source, source.files(name)) for name in tables}
    described = [each for each in sets if each.features and each.name not in layout.reversed_of]
    stats: dict[str, Stat] = {
        "nodes": sum(nodes),
        "edges": sum(edges),
        "node_sets": len(nodes),
        "edge_sets": len(edges),
        "table_edges": sum(named),
        "named_edges": 0 if keeps_ends(naming) else sum(rows[id(each)] for each, _ in naming),
        "largest_edge_set": max(named, default=0),
        "reversed_edges": sum(back),
        "largest_reversed": max(back, default=0),
        "row_starts": sum(nodes[number[each.source]] for each in layout.edge_sets),
        "fixed_bytes": sum(rows[id(each)] * _fixed_bytes(each.features) for each in described),
        "variable_bytes": max((_table_bytes(source, layout, each) for each in described if _varies(each)), default=0),
        "text_bytes": sum(sizes.values()),
        "largest_text": max(sizes.values(), default=0),
    }
    stats |= {f"nodes.{stat_name(each.name, index)}": nodes[index] for index, each in enumerate(layout.node_sets)}
    stats |= {f"edges.{stat_name(each.name, index)}": edges[index] for index, each in enumerate(layout.edge_sets)}
    stats |= record_stats("nodes", layout.node_sets) | record_stats("edges", layout.edge_sets)
    return stats | end_stats(layout.edge_sets)


def _chunked_stats(source: Source, graph: ChunkedGraph) -> Stats:
    """Stats of DGL's chunked format, which has counts; each edge type is reversed as well."""
    counts = [sum(each.edges.counts) for each in graph.edges]
    of_features = [chunks for each in graph.features.values() for chunks in each.values()]
    of_features += [chunks for each in graph.edges for chunks in each.features.values()]
    bytes_of = {path: member.state.size for path, member in source.members.items()}
    features = sum(bytes_of.get(path, 0) for each in of_features for name in each.files for path in source.files(name))
    edge_bytes = [bytes_of.get(p, 0) for e in graph.edges for name in e.edges.files for p in source.files(name)]
    return {
        "nodes": sum(graph.nodes.values()), "edges": 2 * sum(counts), "node_sets": len(graph.nodes),
        "edge_sets": 2 * len(counts), "table_edges": sum(counts), "named_edges": 0,
        "largest_edge_set": max(counts, default=0), "reversed_edges": sum(counts),
        "largest_reversed": max(counts, default=0), "fixed_bytes": features,
        "row_starts": sum(graph.nodes[each.source] + graph.nodes[each.target] for each in graph.edges),
        "variable_bytes": 0, "text_bytes": sum(edge_bytes), "largest_text": max(edge_bytes, default=0),
        **{f"nodes.{stat_name(name, index)}": n for index, (name, n) in enumerate(sorted(graph.nodes.items()))},
    }  # fmt: skip


def _rows(source: Source, layout: SchemaLayout, items: NodeSetSchema | EdgeSetSchema, look: int) -> int:
    name = layout.table(items)
    if items.metadata.cardinality is not None:
        return items.metadata.cardinality
    if not name:
        return 0
    files = source.files(name)
    sizes = {file: source.members[file].state.size for file in files}
    seen = files[:: max(1, len(files) // _MOST_LOOKED_AT)][:_MOST_LOOKED_AT]
    paths = [(sizes[file], source.members[file].location.local_path) for file in seen if sizes[file]]
    counted = [(size, _rows_in(path, look // len(paths))) for size, path in paths if path is not None]
    looked_at = sum(size for size, _ in counted)
    if not looked_at:
        return sum(sizes.values()) // (_ROW_BYTES + _fixed_bytes(items.features))
    return round(sum(count for _, count in counted) * sum(sizes.values()) / looked_at)


def _rows_in(path: Path, look: int) -> int:
    """Rows of a file."""
    import pyarrow.parquet as pq  # what tables without files of their own do without

    from superworkflow.tasks.heterograph.file_sample import sample_table

    with path.open("rb") as stream:
        magic = stream.read(4)
    if magic == b"PAR1":
        return int(pq.read_metadata(path).num_rows)
    if "tfrecord" in path.name:
        return _records_in(path)
    return max(0, int(sample_table(path, max(look, 1 << 16))["rows"]) - 1)  # less the header


def _records_in(path: Path) -> int:
    """Records of a file, at the mean length of the first ones, and as far as those are packed."""
    size, records, length = path.stat().st_size, 0, 0
    with path.open("rb") as raw:
        stream, gzipped = unpacked(raw, str(path))
        while records < _RECORDS:
            begin = stream.read(12)
            if len(begin) < 12:
                return records
            (bytes_,) = struct.unpack("<Q", begin[:8])
            if bytes_ > _MOST_RECORD or len(stream.read(bytes_ + 4)) < bytes_ + 4:
                break
            records, length = records + 1, length + bytes_ + 16
        share = raw.tell() / size if gzipped else length / size
    return round(records / max(share, 1e-9))


def _text_bytes(source: Source, files: list[str]) -> int:
    """Bytes that must be parsed, since they are no Parquet."""
    plain = [(file, source.members[file].state.size) for file in files if ".parquet" not in file]
    return sum(size * (_GZIP_RATIO if file.endswith(".gz") else 1) for file, size in plain)


def _table_bytes(source: Source, layout: SchemaLayout, items: NodeSetSchema | EdgeSetSchema) -> int:
    sizes: list[int] = [source.members[file].state.size for file in source.files(layout.table(items))]
    return sum(sizes)


def _fixed_bytes(features: tuple[SchemaFeature, ...]) -> int:
    """Bytes of one item's features of fixed size."""
    fixed = [each for each in features if each.dtype != STRING and None not in each.shape]
    widths = [int(np.prod([size or 0 for size in each.shape])) for each in fixed]
    return sum(width * np.dtype(DTYPES[each.dtype]).itemsize for each, width in zip(fixed, widths, strict=True))


def _varies(items: NodeSetSchema | EdgeSetSchema | ContextSchema) -> bool:
    return any(each.dtype == STRING or None in each.shape for each in items.features)
