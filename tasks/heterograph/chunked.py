"""A typed graph from DGL's chunked format (`tasks.lib.importers.dgl_chunked`).

Nodes have their numbers as ids, and are numbered anew by the bytes of these, as all nodes are. Each edge type becomes
an edge set of the relation's name, or of the whole type's where several have that relation, and `reverse_…`, the same
edges the other way round: in DGL messages go from source to destination, here a node receives from the targets of its
edges. Features keep their types. `train_mask`, `val_mask` and `test_mask` of a node type become its feature `split`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.heterograph import SPLIT, HeterographParams
from superworkflow.tasks.heterograph.chunks import feature_dtype, read_chunk
from superworkflow.tasks.heterograph.csr import first_of_each, order_edges, pack, reverse
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.graph.dtypes import STRING
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, Feature, NodeSet, feature_stem
from superworkflow.tasks.lib.graph.heterograph_writer import (
    by_name,
    stats_of,
    write_feature,
    write_graph_file,
    write_ids,
    write_rows,
)
from superworkflow.tasks.lib.importers.dgl_chunked import ChunkedGraph, Chunks, EdgeType

REVERSE = "reverse_"
_MASKS = {"train_mask": b"train", "val_mask": b"validation", "test_mask": b"test"}


def make_chunked(job: StageRun[HeterographParams], source: Source, graph: ChunkedGraph) -> Output:
    """Make a heterograph of the files that a `metadata.json` names.

    Raises:
        UserError: a file is not what the metadata says, or a feature is not finite; with file and row.
    """
    names = [name for each in graph.edges for name in (each.name, f"{REVERSE}{each.name}")]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"an edge type is called as another one's reverse is, or as another one: {twice}",
                        where=source.uri, value=twice, remedy="Give edge types other names")  # fmt: skip
    names.sort(key=str.encode)
    ranks: dict[str, NDArray[np.int32]] = {}
    node_sets = []
    for number, name in enumerate(sorted(graph.nodes, key=str.encode)):
        ids = column(np.arange(graph.nodes[name])).cast(pa.large_string())
        order = pc.sort_indices(ids)
        write_ids(job.output, number, ids.take(order))
        ranks[name] = np.empty(len(ids), np.int32)
        ranks[name][order.to_numpy()] = np.arange(len(ids), dtype=np.int32)
        features = _write_node_features(job, source, number, graph.features[name], order.to_numpy())
        node_sets.append(NodeSet(name, len(ids), features))
        job.progress.update(number + 1, len(graph.nodes) + len(graph.edges), "sets")
    edge_sets: dict[str, EdgeSet] = {}
    for done, each in enumerate(graph.edges, len(graph.nodes) + 1):
        numbers = names.index(each.name), names.index(f"{REVERSE}{each.name}")
        edge_sets |= {made.name: made for made in _edge_sets(job, source, each, numbers, ranks)}
        job.progress.update(done, len(graph.nodes) + len(graph.edges), "sets")
    in_order = [edge_sets[name] for name in names]
    write_graph_file(job.output, node_sets, in_order)
    read = sum(sum(each.edges.counts) for each in graph.edges)
    kept = sum(each.count for each in in_order if each.reversed_of is None)
    stats = stats_of(node_sets, in_order) | {
        "node_sets": len(node_sets), "edge_sets": len(in_order), "dangling_edges": 0,
        "parallel_edges": read - kept, "bytes": job.output.bytes_written,
    }  # fmt: skip
    return Output(rows=int(stats["nodes"] or 0) + int(stats["edges"] or 0), stats=stats)


def _write_node_features(
    job: StageRun[HeterographParams], source: Source, number: int, given: dict[str, Chunks], order: NDArray[np.int64]
) -> tuple[Feature, ...]:
    """Write features of a node type, whose nodes are put in this order; masks as one."""
    masks = {name: given[name] for name in _MASKS if name in given} if SPLIT not in given else {}
    made = [(name, chunks) for name, chunks in given.items() if name not in masks]
    found = []
    names = sorted([*dict(made), *([SPLIT] if masks else [])], key=str.encode)
    stems = {name: place for place, name in enumerate(names)}
    for name, chunks in made:
        values = _values(job, source, chunks)
        found.append(Feature(name, feature_dtype(values), values.shape[1:]))
        write_feature(job.output, feature_stem("nodes", number, stems[name]), found[-1], values[order])
    if masks:
        splits = np.full(len(order), b"", object)
        for name, chunks in masks.items():
            marked = _values(job, source, chunks).reshape(len(order), -1)[:, 0] != 0
            if (splits[marked] != b"").any():
                row = int(np.flatnonzero(marked & (splits != b""))[0])
                raise UserError("a node is in two splits", where=f"{source.uri}, {chunks.name}", value=row,
                                remedy="Mark each node in one of the masks at most")  # fmt: skip
            splits[marked] = _MASKS[name]
        found.append(Feature(SPLIT, STRING, ()))
        ordered = pa.array(splits[order].tolist(), pa.large_binary())
        write_feature(job.output, feature_stem("nodes", number, stems[SPLIT]), found[-1], ordered)
    return tuple(by_name(found))


def _edge_sets(
    job: StageRun[HeterographParams], source: Source, each: EdgeType, numbers: tuple[int, int],
    ranks: dict[str, NDArray[np.int32]],
) -> list[EdgeSet]:  # fmt: skip
    """Write edges of one type, and the other way round."""
    from_, to = ranks[each.source], ranks[each.target]
    packed = []
    for file, count in zip(each.edges.files, each.edges.counts, strict=True):
        ends = read_chunk(job, source, each.edges, file, count)
        _check_ends(ends, (each.source, len(from_)), (each.target, len(to)), f"{source.uri}, {file}")
        packed.append(pack(from_[ends[:, 0]], to[ends[:, 1]]))
    edges = np.concatenate([np.empty(0, np.uint64), *packed])
    del packed
    rows = np.arange(len(edges), dtype=np.int32)
    ordered = order_edges(edges, rows, len(from_), len(to), job.threads)
    if job.params.parallel_edges == "first":
        ordered = first_of_each(ordered)
    write_rows(job.output, numbers[0], ordered.indptr, ordered.indices, table_rows=ordered.rows)
    features = []
    for place, name in enumerate(sorted(each.features, key=str.encode)):
        values = _values(job, source, each.features[name])
        features.append(Feature(name, feature_dtype(values), values.shape[1:]))
        write_feature(job.output, feature_stem("edges", numbers[0], place), features[-1], values[ordered.rows])
    backward = reverse(ordered, len(from_), len(to), job.threads)
    write_rows(job.output, numbers[1], backward.indptr, backward.indices, backward.rows.astype(np.int64))
    count, back = len(ordered.indices), f"{REVERSE}{each.name}"
    job.progress.log(f"{each.name}: {count} edges")
    return [
        EdgeSet(each.name, each.source, each.target, count, None, tuple(features)),
        EdgeSet(back, each.target, each.source, count, each.name, tuple(features)),
    ]


def _check_ends(ends: NDArray[Any], sources: tuple[str, int], targets: tuple[str, int], where: str) -> None:
    if ends.dtype.kind not in "iu" or ends.ndim != 2 or ends.shape[1] != 2:
        raise UserError("edges are two whole numbers each", where=where, value=f"{ends.dtype}{list(ends.shape)}",
                        remedy="Give columns source and destination")  # fmt: skip
    for end, (name, nodes) in enumerate((sources, targets)):
        bad = (ends[:, end] < 0) | (ends[:, end] >= nodes)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise UserError(f"an edge names a node that {name!r} has not: there are {nodes}",
                            where=f"{where}, row {row + 1}", value=int(ends[row, end]),
                            remedy="Correct the edge, or num_nodes_per_chunk")  # fmt: skip


def _values(job: StageRun[HeterographParams], source: Source, chunks: Chunks) -> NDArray[Any]:
    """All chunks of a feature, which have one type and width."""
    parts = [read_chunk(job, source, chunks, *each) for each in zip(chunks.files, chunks.counts, strict=True)]
    kinds = [f"{part.dtype}{list(part.shape[1:])}" for part in parts]
    for file, kind in zip(chunks.files, kinds, strict=True):
        if kind != kinds[0]:
            raise UserError("chunks of a feature differ in type or width", where=f"{source.uri}, {file}", value=kind,
                            remedy=f"Give {kinds[0]} as in {chunks.files[0]}")  # fmt: skip
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
