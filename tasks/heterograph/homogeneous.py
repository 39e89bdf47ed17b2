"""A graph of one kind of nodes and edges, from what is at hand of it: an edge list, features, labels.

The edge list is read as the stage `index` reads it: loops are dropped, equal edges merged. Without direction the set
`edge` has each edge in both directions, so that a node's row holds its neighbours; with `directed` it has the edges as
they are, and `reverse_edge` the other way round. Weights, of equal edges their sum, become the feature `weight` of
edges. With `time` or `edge_features` no edges are merged: each row has its own `timestamp`, and its columns that are
features of edges (`edge_columns`).

Of features the first column, or the one called `node` or `id`, names the nodes. The other columns are numbers or lists
of them, truth values or categories (`feature_columns`), and together become the feature `features`, float or half
[nodes, values], scaled where they ask for it (`scaling`); `columns.json` has their names and widths. Such a table lists
the nodes of the graph, also those without edges; without it these are the nodes that edges name. Sparse features
(`sparse_features`) may leave out nodes of edges, whose values are then zero.

Labels and splits become the features `label` and `split` of the nodes, texts that are empty where a node has none. If a
node has several labels, in several rows, `label` is a ragged list of them. Times of labels become the feature `time`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.heterograph import (
    EDGE_SET,
    FEATURES,
    LABEL,
    NODE_SET,
    SPLIT,
    TIME,
    TIMESTAMP,
    WEIGHT,
    HeterographParams,
)
from superworkflow.tasks.heterograph.csr import renumber
from superworkflow.tasks.heterograph.doubts import index_params, own_warnings, without_parameters
from superworkflow.tasks.heterograph.edge_columns import edge_features
from superworkflow.tasks.heterograph.edge_rows import UnmergedRows, write_edge_sets
from superworkflow.tasks.heterograph.ids import Ids
from superworkflow.tasks.heterograph.refusals import UNKNOWN
from superworkflow.tasks.heterograph.sparse_features import features_file
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.index.run import Indexed, index_compiled, unpacked_parquet
from superworkflow.tasks.lib.edge_list.bipartite import source_count
from superworkflow.tasks.lib.edge_list.diagnose import WeightFault, no_edges
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.edge_files import edge_files
from superworkflow.tasks.lib.edge_list.edge_times import NO_TIME, whole_times
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats
from superworkflow.tasks.lib.edge_list.label_file import NOTE, LabelRows, check_several, read_labels
from superworkflow.tasks.lib.formats.npy import write_header
from superworkflow.tasks.lib.gnn.model.config import read_shape
from superworkflow.tasks.lib.gnn.objective.splits import BY_NAME
from superworkflow.tasks.lib.graph import csr as _csr
from superworkflow.tasks.lib.graph.dtypes import STRING
from superworkflow.tasks.lib.graph.heterograph import PAIRS_FILE, EdgeSet, Feature, NodeSet, feature_stem, string_type
from superworkflow.tasks.lib.graph.heterograph_writer import (
    rows_names,
    stats_of,
    write_feature,
    write_graph_file,
    write_ids,
)
from superworkflow.tasks.lib.graph.missing_labels import is_below_zero
from superworkflow.tasks.lib.graph.seed_times import UNTIMED

MOST_ARCS = 2**31 - 1
_SHOWN = 3
_STRANGERS = 0.05
"""Largest share of rows of labels that may be about nodes that the graph lacks."""
_PIECE = 1 << 20
LeaksOf = Callable[[NDArray[np.int64]], list[InputWarning]]
"""Warnings of features that give away the class of each node, -1 for none; see `label_leaks`."""


def make_homogeneous(job: StageRun[HeterographParams]) -> Output:
    """Make a heterograph of an edge list.

    Raises:
        UserError: a file cannot be read, or the files name different nodes; with file and row or line.
    """
    graph, dialect = _edges(job)
    labels, edges, weights = graph.labels, graph.edges, graph.weights
    values: dict[str, tuple[str, NDArray[Any]]] = {} if weights is None else {WEIGHT: ("float", weights)}
    doubts: list[InputWarning] = []
    own_rows = job.params.directed
    if isinstance(graph, UnmergedRows):
        own_rows = True
        if graph.times is not None:
            values[TIMESTAMP] = ("int64", graph.times)
        if job.params.edge_features:
            of_edges, doubts = edge_features(job, dialect, graph.read, graph.numbers, values)
            values |= of_edges
            del of_edges
    naming = dialect.name_stats(graph.dropped, source_count(labels, dialect.sides))
    del graph
    ids = Ids(job.threads)
    features = features_file(job, job.sources["features"], ids) if "features" in job.sources else None
    pieces = [labels[first : first + _PIECE].cast(pa.string()) for first in range(0, len(labels), _PIECE)]
    if features is None or not features.lists_nodes:
        for piece in pieces:
            ids.add(piece)
    rank, names = ids.ranked()
    node = np.concatenate([ids.ranks_of(piece) for piece in pieces])
    if features is not None and (node == UNKNOWN).any():
        raise _without_features(job, labels.filter(pa.array(node == UNKNOWN)), features.source)
    job.progress.update(1, 4, "parts")
    if not job.params.directed and "network" in job.inputs and read_shape(job.inputs["network"]).head.of_pairs:
        job.output.array(PAIRS_FILE, _pairs_as_given(job, ids))
    nodes, arcs = len(rank), 2 * len(edges)
    if arcs > MOST_ARCS:
        what = f"a graph from an edge list has at most {MOST_ARCS // 2} edges"
        where = job.sources["edges"].uri
        raise UserError(what, where=where, value=len(edges), remedy="Give a schema of several sets")
    renumber(edges, node, node)
    merged = 0
    if own_rows:
        edge_sets = write_edge_sets(job, edges, values, nodes)
        left = sum(each.count for each in edge_sets)
        arcs, merged = left, arcs - left
    else:
        _write_rows(job, edges, weights, nodes)
        weighted = [] if weights is None else [Feature(WEIGHT, "float", ())]
        edge_sets = [EdgeSet(EDGE_SET, NODE_SET, NODE_SET, arcs, None, tuple(weighted))]
    del edges, weights, values
    job.progress.update(2, 4, "parts")
    write_ids(job.output, 0, names)
    found, scaled = list[Feature](), {}
    if features is not None:
        scaled["scaling"], of_features = features.write(rank)
        found.append(Feature(FEATURES, features.dtype, (features.width,)))
        doubts += of_features
        job.progress.update(3, 4, "parts")
    described, labelled, of_labels = write_labels(
        job, names, None if features is None else features.label_leaks, len(found)
    )
    found += described
    node_set = NodeSet(NODE_SET, nodes, tuple(found))
    write_graph_file(job.output, [node_set], edge_sets)
    job.progress.update(4, 4, "parts")
    stats = stats_of([node_set], edge_sets) | {
        "node_sets": 1, "edge_sets": len(edge_sets), "reversed_edges": arcs // 2, "dangling_edges": 0,
        "parallel_edges": merged, "bytes": job.output.bytes_written, **naming, **scaled,
        **warning_stats([*dialect.warnings, *doubts, *of_labels]),
    }  # fmt: skip
    if labelled:
        stats["labelled"] = labelled["labelled"]
    return Output(rows=nodes + arcs, stats=stats)


def _pairs_as_given(job: StageRun[HeterographParams], ids: Ids) -> NDArray[np.int32]:
    """Pairs of `PAIRS_FILE`; the rows are read again: a graph without direction forgets which end came first."""
    source = job.sources["edges"]
    files = unpacked_parquet(edge_files(source, index_params(job.params), job.scratch), job.scratch)
    plain = [file._replace(dialect=replace(file.dialect, columns=(*file.dialect.columns[:2], -1))) for file in files]
    rows = UnmergedRows(job, plain, source.uri)
    _, first = np.unique(rows.edges, return_index=True)
    return ids.ranks_of(rows.labels.cast(pa.string()))[_csr.unpack(rows.edges[np.sort(first)])]


def _write_rows(job: StageRun[HeterographParams], edges: _csr.Edges, weights: _csr.Weights | None, nodes: int) -> None:
    """Write each edge into the rows of both its ends, of which only pieces are in memory."""
    counts = _csr.count_ends(edges, nodes, job.threads)
    starts = _csr.row_starts(counts.sum(axis=(0, 1), dtype=np.int64))
    indptr, indices = rows_names(0)
    job.output.array(indptr, starts)
    with contextlib.ExitStack() as files:
        stream = files.enter_context(files.enter_context(job.output.file(indices)).open("wb"))
        write_header(stream, (2 * len(edges),), np.dtype(np.int32))
        if weights is not None:
            name = f"{feature_stem('edges', 0, 0)}.npy"
            of_weights = files.enter_context(files.enter_context(job.output.file(name)).open("wb"))
            write_header(of_weights, (2 * len(edges),), np.dtype(np.float32))
        for piece, moved in _csr.assemble(edges, weights, starts, True, counts):
            stream.write(piece.data)
            if moved is not None:
                of_weights.write(moved.data)


def _edges(job: StageRun[HeterographParams]) -> tuple[Indexed | UnmergedRows, Dialect]:
    """The edge list as `index` reads it, and how, with warnings that fit this stage; negative weights are not read."""
    given = index_params(job.params)
    try:
        try:
            return _read_edges(job, given)
        except WeightFault as fault:
            if not str(fault.value).strip().startswith("-"):
                raise
            return _read_edges(job, given.model_copy(update={"weighted": False}))
    except UserError as error:
        raise without_parameters(error) from None


def _read_edges(job: StageRun[HeterographParams], given: IndexParams) -> tuple[Indexed | UnmergedRows, Dialect]:
    source, params = job.sources["edges"], job.params
    reading = replace(job, params=given)  # type: ignore[arg-type]  # it is index that reads
    files = unpacked_parquet(edge_files(source, given, job.scratch), job.scratch)
    if params.time is not None:
        files = [file._replace(dialect=file.dialect.with_times()) for file in files]
    dialect = files[0].dialect
    dialect = replace(dialect, warnings=own_warnings(dialect.warnings, params))
    job.progress.log(dialect.describe())
    log_warnings(job.progress, dialect.warnings)
    graph: Indexed | UnmergedRows = (
        index_compiled(reading, files, source.uri)  # type: ignore[arg-type]
        if params.time is None and not params.edge_features
        else UnmergedRows(job, files, source.uri)
    )
    if graph.dropped:
        job.progress.log(f"{graph.dropped} rows without an id are left out")
    if not len(graph.edges):
        raise no_edges(graph.rows, dialect, source.uri)
    return graph, dialect


def _without_features(job: StageRun[HeterographParams], missing: pa.Array, source: Source) -> UserError:
    shown = ", ".join(repr(each) for each in missing[:_SHOWN].to_pylist())
    return UserError(
        f"edges name nodes without features, such as {shown}", where=source.uri, value=f"{len(missing)} nodes",
        remedy=f"Give each node of {job.sources['edges'].uri} a row of features",
    )  # fmt: skip


def write_labels(
    job: StageRun[Any], names: pa.Array, leaks_of: LeaksOf | None, first: int
) -> tuple[list[Feature], dict[str, int], list[InputWarning]]:  # fmt: skip
    """Write labels and splits, as features from number `first` on.

    Args:
        job: the stage's argument.
        names: of the nodes.
        leaks_of: warnings of features that give away the labels; None where nodes have no features.
        first: number of the first feature.

    Returns:
        The features; how many nodes are `labelled`, and where splits are given how many are `train_nodes` and
        `validation_nodes`; warnings. All are empty where there are no labels.
    """
    if "labels" not in job.sources:
        return [], {}, []
    source = job.sources["labels"]
    rows, warnings = read_labels(source, job.scratch, names, splits=True, below_zero=True)
    below_zero = [is_below_zero(label) for label in rows.labels]
    if rows.missing or any(below_zero):
        missing = rows.missing + int(rows.times[below_zero].sum())
        job.progress.log(f"{missing} {NOTE}; numbers below 0 count with train.task=regression")
    if not job.params.several_labels:
        check_several(rows, "heterograph.several_labels")
    node, strangers = _nodes_of(rows, names)
    warnings = [*warnings, *strangers]
    log_warnings(job.progress, warnings)
    splits = np.full(len(names), "", object)
    lists: dict[int, dict[str, None]] = {}
    for row, number in enumerate(node.tolist()):
        if number < 0:
            continue
        own = lists.setdefault(number, {})
        if not own or not below_zero[row]:
            own[rows.labels[row]] = None
        if rows.splits and rows.splits[row]:
            _note_split(splits, number, rows, row, rows.splits[row], ", or nothing")
    if "split" in job.sources:
        if splits.any():
            raise UserError("splits are given twice", where=job.sources["split"].uri, value=source.uri,
                            remedy="Leave the column of splits out of the labels, or the file of splits")  # fmt: skip
        splits = _splits_of(job, names)
    for own in lists.values():
        if len(own) > 1 and is_below_zero(next(iter(own))):
            del own[next(iter(own))]
    several = any(len(each) > 1 for each in lists.values())
    if several:
        job.progress.log("nodes have several labels")
    found = (lists.get(number, ()) for number in range(len(names)))
    given: dict[str, Any] = {LABEL: [list(each) if several else next(iter(each), "") for each in found]}
    if splits.any():
        given[SPLIT] = splits.tolist()
    described = []
    for number, (name, values) in enumerate(given.items(), first):
        feature = Feature(name, STRING, (None,) if several and name == LABEL else ())
        kind = pa.large_list(pa.large_string()) if feature.shape else pa.large_string()
        column = pa.array(values, kind).cast(string_type(feature))
        write_feature(job.output, feature_stem("nodes", 0, number), feature, column)
        described.append(feature)
    if any(rows.seed_times):
        feature = Feature(TIME, "int64", ())
        write_feature(job.output, feature_stem("nodes", 0, first + len(given)), feature, _times(rows, node, len(names)))
        described.append(feature)
    if leaks_of is not None and not several:
        own_labels = ["" if is_below_zero(each) else each for each in given[LABEL]]
        texts, classes = np.unique(own_labels, return_inverse=True)
        leaks = leaks_of(classes.reshape(-1) - int(texts[0] == ""))
        log_warnings(job.progress, leaks)
        warnings = [*warnings, *leaks]
    counts = {"labelled": sum(not is_below_zero(next(iter(each))) for each in lists.values())}
    if SPLIT in given:
        counts |= {f"{name}_nodes": given[SPLIT].count(name) for name in ("train", "validation")}
    return described, counts, warnings


def _times(rows: LabelRows, node: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Time of each node, int64 [count]; `UNTIMED` for none."""
    timed = [row for row, text in enumerate(rows.seed_times) if text and node[row] >= 0]
    found = whole_times([rows.seed_times[row] for row in timed])
    if found is None:
        row = next((each for each in timed if whole_times([rows.seed_times[each]]) is None), timed[0])
        raise UserError(NO_TIME, where=rows.place(row), value=rows.seed_times[row],
                        remedy="Write all times of labels in one of these ways, as those of the edges")  # fmt: skip
    times = np.full(count, UNTIMED)
    for row, number, time in zip(timed, node[timed].tolist(), found.tolist(), strict=True):
        if times[number] not in (UNTIMED, time):
            raise UserError(f"node {rows.nodes[row]!r} has a second time", where=rows.place(row),
                            value=rows.seed_times[row], remedy="Give each node one time")  # fmt: skip
        times[number] = time
    return times


def _splits_of(job: StageRun[Any], names: pa.Array) -> NDArray[Any]:
    """Split of each node from a file of its own; empty for none."""
    rows, _ = read_labels(job.sources["split"], job.scratch, names)
    splits = np.full(len(names), "", object)
    node, strangers = _nodes_of(rows, names, "splits", "node,split")
    log_warnings(job.progress, strangers)
    for row, number in enumerate(node.tolist()):
        if number >= 0:
            _note_split(splits, number, rows, row, rows.labels[row], "; the rows are `node,split`")
    return splits


def _note_split(splits: NDArray[Any], number: int, rows: LabelRows, row: int, text: str, form: str) -> None:
    """Note the split of a node by what a row says; `form` of such texts is for the error.

    Raises:
        UserError: there is no such split, or the node has another one.
    """
    split = BY_NAME.get(text.lower())
    if split is None:
        raise UserError("no such split", where=rows.place(row), value=text,
                        remedy=f"Valid: train, validation, test{form}")  # fmt: skip
    if splits[number] not in ("", split):
        raise UserError(f"node {rows.nodes[row]!r} is in a second split", where=rows.place(row), value=text,
                        remedy="Give each node one split")  # fmt: skip
    splits[number] = split


def _nodes_of(
    rows: LabelRows, names: pa.Array, what: str = "labels", header: str = "node,label` or `node,label,split"
) -> tuple[NDArray[np.int64], list[InputWarning]]:
    """Number of the node of each row, -1 where the graph lacks it; the warning that names those.

    Raises:
        UserError: the graph lacks more than `_STRANGERS` of them.
    """
    found = pc.index_in(pa.array(rows.nodes, names.type), value_set=names)
    numbers: NDArray[np.int64] = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    if not found.null_count:
        return numbers, []
    strangers = np.flatnonzero(numbers < 0)
    shown = ", ".join(f"{rows.nodes[row]!r} on line {rows.lines[row]}" for row in strangers[:_SHOWN])
    there = f"there are {what} of nodes that are not in the graph"
    if len(strangers) <= _STRANGERS * len(numbers):
        return numbers, [InputWarning(
            f"{there}, as those without edges, and are left out", rows.place(int(strangers[0])),
            f"{len(strangers)} of {len(numbers)}: {shown}", "Give features of all nodes to have them in the graph",
        )]  # fmt: skip
    raise UserError(
        f"{there}: {shown}", where=rows.place(int(strangers[0])), value=len(strangers),
        remedy=f"Check that both files name nodes in the same way: the graph has {names[0].as_py()!r} "
        f"(a header row must be `{header}`), or leave such rows out",
    )  # fmt: skip
