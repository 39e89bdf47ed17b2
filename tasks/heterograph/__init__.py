"""The stage heterograph: the tables that a schema names become one typed graph with numbered nodes.

The schema is TF-GNN's `GraphSchema` in text format (`tasks.lib.graph.schema`), given as a file or as a folder that has
it as `schema.pbtxt`. Tables lie below its folder: `papers.csv`, `papers@8.csv` or `papers.csv@8` for eight shards,
`papers-?????-of-00008.csv` for the same, or a pattern.

Rules:

- CSV has a header, commas, and quotes as RFC 4180 has them, and may be gzipped; Parquet; TFRecord of tf.train.Example.
- Node tables have a column `id` or `#id`, edge tables `source` and `target` or `#source` and `#target`. Ids are text,
  exactly as the file has it: `007` is not `7`. Whole numbers become their decimal digits.
- A node set without a table has the nodes that edges name.
- Nodes are numbered by the bytes of their ids. Edges are in the order of source, target, and row; rows of a table in
  several files are those of its files, sorted by name, one after the other.
- An edge with an end that is no node is an error, or is dropped (`dangling`), before anything is sampled.
- Edges between the same two nodes stay, or only the first row does (`parallel_edges`).
- An edge set that is marked as reversed and has the table of another set has that set's edges the other way round; the
  table is read once. If no other set has its table, the columns of its ends are exchanged.
- Features are values, or lists of them as their shape says; of a ragged one the lists may differ in length.
- The context's table has one row.

Instead of a schema the `metadata.json` of DGL's chunked format may describe the graph (`chunked`). Instead of either an
edge list may be given, with features and labels of its nodes (`homogeneous`): a graph of one set
of nodes and one of edges.

The files are described in `tasks.lib.graph.heterograph`. The dataset is the same on any number of threads, and on the
members of an engine, whose tasks read the tables and have no more of the graph than a range of a set (`on_members`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Resources, Stage, StageParams, Stats
from superworkflow.tasks.heterograph.bins import bins_of
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.index import estimate as estimate_index
from superworkflow.tasks.lib.edge_list.time_bounds import ColumnName, TimeBound
from superworkflow.tasks.lib.graph.csr_limits import MOST_ARCS, PIECE
from superworkflow.tasks.lib.graph.dtypes import FEATURES as FEATURES

NODE_SET, EDGE_SET = "node", "edge"
"""Sets of a graph that is made of an edge list."""
REVERSE_EDGE_SET = "reverse_edge"
"""Its edges the other way round, where they have a direction."""
LABEL, SPLIT, TIME = "label", "split", "time"
"""Features of its nodes, and `FEATURES`."""
WEIGHT = "weight"
"""Feature of its edges, where they have weights."""
TIMESTAMP = "timestamp"
"""Feature of its edges, where their times are kept; the sampler of `subgraphs` and networks read it."""


class FeatureParams(StageParams):
    """Parameters of the features of nodes that a network reads."""

    scaling: Literal["auto", "none", "row", "standard", "quantile", "piecewise"] = Field(
        default="auto",
        description="Scaling of the features of nodes; of a schema's, in gnn alone. row divides a node's values by "
        "their sum, standard subtracts each column's mean and divides it by its standard deviation. Of single numbers, "
        "quantile makes normal scores of their ranks, and piecewise the place in each of 16 to 32 intervals between "
        "quantiles. auto takes row for sparse values that are not negative; where a column's mean is beyond 3 or its "
        "deviation above 3 or below 1/3, piecewise from 4000 nodes on (quantile of more than 64 numbers, or 2 GiB), "
        "quantile from 1000 on, else standard; and none otherwise.",
    )
    take: str = Field(
        default="",
        description="Columns that are features although they look like ids or times, with commas between them; with a "
        "schema as SET.FEATURE. Dates become days since 1970.",
    )
    leave_out: str = Field(
        default="", description="Columns that are no features, with commas between them; with a schema as SET.FEATURE."
    )


class HeterographParams(FeatureParams):
    """Parameters of the stage heterograph."""

    format: Literal["auto", "triples"] = Field(
        default="auto",
        description="Form of an edge list: auto finds it; triples reads rows head, relation, tail as one edge set for "
        "each of at most 1,000 relations, and one with the prefix reverse_ for its edges the other way round.",
    )
    dangling: Literal["error", "drop"] = Field(
        default="error", description="What becomes of an edge with an end that is no node: error refuses the tables."
    )
    precision: Literal["float32", "float16"] = Field(
        default="float32",
        description="Type of the features that come with an edge list; float16 takes half the bytes. With a schema the "
        "schema says it.",
    )
    parallel_edges: Literal["keep", "first"] = Field(
        default="keep",
        description="Whether all edges between the same two nodes are kept, or only that of the first row.",
    )
    missing: Literal["auto", "error", "drop", "keep"] = Field(
        default="auto", description="Rows of an edge list whose source or target is missing; see `index.missing`."
    )
    bipartite: Literal["auto"] | bool = Field(
        default="auto",
        description="Whether the two columns of an edge list are two sets of nodes, even where ids coincide; see "
        "`index.bipartite`. Names get the prefixes that index gives them.",
    )
    time: ColumnName = Field(
        default=None,
        description="Column of times of an edge list, by name or by number from 1; auto finds it, see `index.time`. "
        "Edges keep them as the feature `timestamp`, int64: numbers as they are, dates as Unix times in seconds, both "
        "rounded down. Rows of equal edges are then not merged, see `parallel_edges`. null: times are not kept.",
    )
    from_time: TimeBound = Field(
        default=None, description="Rows of an edge list before this time are left out; see `index.from_time`."
    )
    until: TimeBound = Field(
        default=None, description="Rows of an edge list of this time and later are left out; see `index.until`."
    )
    edge_features: str = Field(
        default="",
        description="Columns of an edge list that are features of its edges, with commas between them: CSV with commas "
        "and a header, or Parquet. Numbers become a feature of the column's name, text one for each of at most 100 "
        "values, `COLUMN=VALUE`. Both directions of an edge have them. Rows of equal edges are then not merged, see "
        "`parallel_edges`.",
    )
    other_columns: str = Field(
        default="",
        description="Columns of an edge list that other stages read, with commas between them, of which no warning "
        "says that they are not used; gnn names the labels of edges and what splits them.",
        json_schema_extra={"affects_result": False},
    )
    directed: bool = Field(
        default=False,
        description="Whether edges of an edge list have a direction. They then become two edge sets: `edge`, in which "
        "a node receives from its targets, and `reverse_edge`, from its sources, each with weights of its own in a "
        "network. Without, one set has each edge both ways, which published results on citation, social and "
        "co-purchase graphs take for granted.",
    )
    sparse: Literal["auto"] | bool = Field(
        default="auto",
        description="Whether a file of features has a row for each value that is not zero: node, column, value. auto "
        "finds it by these names in the header.",
    )
    several_labels: bool = Field(
        default=False,
        description="Nodes may have several labels even if fewer than 1 in 100 does; otherwise that is an error.",
        json_schema_extra={"affects_result": False},
    )


_PROCESS_BYTES = 256 << 20
"""Resident set of the interpreter with NumPy, Arrow and the compiled kernels."""
_TEXT_BYTES, _MOST_TEXT = 48 << 20, 256 << 20
"""Bytes that DuckDB takes by itself, and at most for reading text."""
_FILL_BYTES = 136 << 20
"""Pages of a feature's file that are held while it is filled, and batches of rows with the pages they are from."""
_NODE_BYTES, _EDGE_BYTES, _REVERSED_BYTES = 90, 30, 50
"""Bytes of a node: its id in a table, and its rank. Of an edge of the largest set, and if that is reversed as well."""
_TASK_BYTES = 608 << 20
"""Bytes of a task on Spark: a part of a table and the ids or features of a range: read, sorted, written."""
_SPARK_START_S, _SPARK_WORK = 27, 4.0
"""CPU seconds of Java and of some forty small jobs, whatever the size; and how many times the work costs in process."""
_START_S = 1.3


def estimate(params: HeterographParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Predict from the sizes of tables (`sizes.graph_stats`); without them every byte is taken for one of features."""
    if "edges" in inputs:
        return _estimate_homogeneous(params, inputs, resources)
    source = inputs.get("graph", {})

    def known(name: str) -> int:
        return int(source.get(name) or 0)

    features = known("fixed_bytes") if "fixed_bytes" in source else known("bytes")
    variable, text = known("variable_bytes"), known("text_bytes")
    nodes, edges, back = known("nodes"), known("table_edges"), known("reversed_edges")
    output = features + 2 * variable + 8 * known("row_starts") + 8 * edges + 12 * back + 6 * nodes
    memory = _PROCESS_BYTES + _NODE_BYTES * nodes + 3 * variable + (_FILL_BYTES if features > _FILL_BYTES else features)
    memory += max(_EDGE_BYTES * known("largest_edge_set"), _REVERSED_BYTES * known("largest_reversed"))
    if text:
        memory += _TEXT_BYTES + min(_MOST_TEXT, known("largest_text") * 7 // 10)
    work_s = (
        6e-7 * (nodes + known("named_edges")) + 4e-7 * edges + 1e-7 * back + 8e-9 * features + 2e-8 * (text + variable)
    )
    kept = ("nodes", "edges", "reversed_edges", "node_sets", "edge_sets")
    facts = {
        name: value
        for name, value in source.items()
        if name in kept or name.startswith(("nodes.", "edges.", "values.", "record_bytes."))
    }
    return Estimate(
        memory_bytes=memory, cpu_s=_START_S + work_s, output_bytes=output, stats={**facts, "bytes": output},
        parallel=0.4, start_s=_START_S, base_bytes=_PROCESS_BYTES,
    )  # fmt: skip


def _estimate_homogeneous(params: HeterographParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """An edge list is read as `index` reads it; then the edges are ordered once in both directions."""
    reading = estimate_index(IndexParams(engine="compiled", directed=params.directed), inputs, resources)
    features, labels = inputs.get("features", {}), inputs.get("labels", {})
    edges = int(reading.stats["edges"] or 0)
    nodes = int(features.get("rows") or reading.stats["vertices"] or 0)
    given = int(features.get("unpacked_bytes") or features.get("bytes") or 0)
    singles = int(features.get("singles") or 0)
    widened = singles * (bins_of(nodes, params.scaling, singles) or 1) - singles
    values = 4 * nodes * (int(features["width"] or 0) + widened) if "width" in features else given
    half, present = params.precision == "float16", int(features.get("present") or 0)
    stored = values // 2 if half else values
    labelled = int(labels.get("rows") or int(labels.get("bytes") or 0) // 8)
    rows = _PROCESS_BYTES + 8 * edges + 8 * min(2 * edges, MOST_ARCS) + 4 * PIECE + _NODE_BYTES * nodes
    weights = 8 * edges if reading.stats.get("weighted") else 0
    times = 16 * edges if params.time is not None else 0
    times += 8 * edges * (1 + len(params.edge_features.split(","))) if params.edge_features else 0
    rows += 3 * times + (40 * edges if times or params.directed else 0)
    output = 8 * edges + weights + times + 20 * nodes + stored + 10 * labelled
    passes = 2 if half else 1  # what is halved is a file of float32 first
    # Columns of Parquet take as long as the values they unpack to, however few bytes these are in the file.
    read_s = 5e-9 * values if "unpacked_bytes" in features else 3e-8 * given
    work_s = 1.5e-7 * edges + 6e-7 * nodes + read_s + 3e-9 * passes * values + 4e-7 * present + 4e-6 * labelled
    held = passes * min(values, _FILL_BYTES) + 40 * present
    sets = (EDGE_SET, REVERSE_EDGE_SET) if params.directed else (EDGE_SET,)
    return Estimate(
        memory_bytes=max(reading.memory_bytes, rows) + 500 * labelled + held,
        cpu_s=reading.cpu_s + _START_S + work_s,
        output_bytes=output,
        stats={
            "nodes": nodes, "edges": 2 * edges, "reversed_edges": edges, "node_sets": 1, "edge_sets": len(sets),
            f"nodes.{NODE_SET}": nodes, "bytes": output,
            **{f"edges.{name}": 2 * edges // len(sets) for name in sets},
            **{f"edges.{name}.{end}": NODE_SET for name in sets for end in ("source", "target")},
            **{f"values.edges.{name}": bool(weights) + bool(times) for name in sets},
            f"record_bytes.nodes.{NODE_SET}": stored // max(nodes, 1),
            f"values.nodes.{NODE_SET}": values // 4 // max(nodes, 1),
            "labelled": min(nodes, labelled) or None,
        },
        parallel=0.4, start_s=_START_S, base_bytes=_PROCESS_BYTES, kind="edges",
    )  # fmt: skip


def estimate_on_members(params: HeterographParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """As in process, but each core has no more than a part of a table or a range of a set."""
    alone = estimate(params, inputs, resources)
    cores = max(1, int(resources.executors.cpu)) if resources.executors else resources.threads
    memory = min(alone.memory_bytes, _PROCESS_BYTES + cores * _TASK_BYTES)
    cpu_s = _SPARK_START_S + _SPARK_WORK * (alone.cpu_s - alone.start_s)
    return replace(alone, cpu_s=cpu_s, memory_bytes=memory, kind="partitioned")


_ENGINES = ("spark", "dask")

STAGE = Stage(
    name="heterograph",
    version="14",
    params=HeterographParams,
    inputs={
        "graph": Input(
            "schema of a graph (schema.pbtxt) or DGL's metadata.json that names its tables, or a folder with a schema",
            tables="superworkflow.tasks.lib.importers.dgl_chunked:named_tables",
            inside="schema.pbtxt",
            optional=True,
            stats="superworkflow.tasks.heterograph.sizes:graph_stats",
        ),
        "edges": Input(
            "instead of a schema an edge list: CSV, TSV, whitespace-separated or Parquet, optionally gzipped; or a "
            "folder of part files",
            optional=True,
            file=True,
            parts=True,
            stats="superworkflow.tasks.heterograph.file_sample:table_stats",
        ),
        "features": Input(
            "with an edge list, features of its nodes: CSV with a header, Parquet, or SciPy's sparse .npz; or a folder "
            "of part files",
            optional=True,
            file=True,
            parts=True,
            stats="superworkflow.tasks.heterograph.feature_stats:feature_stats",
        ),
        "network": Input(
            "train dataset: the network for which the graph is made; its columns of features, their categories and "
            "scaling are applied",
            optional=True,
        ),
        "labels": Input(
            "with an edge list, labels of its nodes: rows `node,label` or `node,label,split`; or a folder of part "
            "files",
            optional=True,
            file=True,
            parts=True,
            stats="superworkflow.tasks.heterograph.file_sample:table_stats",
        ),
    },
    run="superworkflow.tasks.heterograph.run:run",
    doubts="superworkflow.tasks.heterograph.doubts:doubts",
    engines=dict.fromkeys(_ENGINES, "superworkflow.tasks.heterograph.on_members:run"),
    estimate=estimate,
    estimates=dict.fromkeys(_ENGINES, estimate_on_members),
    help="tables of a schema, or an edge list, to a typed graph with numbered nodes",
    late=("superworkflow.tasks.lib.edge_list.duckdb_reader", "superworkflow.tasks.lib.formats.tfrecord"),
)
