"""Profile of a graph: sizes, degrees, components, labels, and warnings about the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.contract.panel import Part, packed, plot, table
from superworkflow.infra.contract.resources import format_bytes
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import warnings_of
from superworkflow.tasks.lib.graph.dtypes import STRING
from superworkflow.tasks.lib.graph.heterograph import GRAPH_FILE, HeteroGraph

MOST_ARCS = 20_000_000
"""Arcs of a graph whose components are counted here; that of a larger one would take longer than a second or two."""
_SHOWN = 20


class _Rows(NamedTuple):
    """Sparse rows of one set of edges; `square` says that sources and targets are the same nodes."""

    name: str
    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    targets: int
    square: bool


def profile(datasets: Mapping[str, Dataset]) -> list[Part]:
    """Profile of an index or heterograph dataset, the first one; of the others the labels."""
    graph, *others = datasets.values()
    typed = GRAPH_FILE in graph
    rows = list(_typed_rows(graph) if typed else _rows(graph))
    parts = [_sizes(graph, rows)]
    if rows:
        parts.append(_degrees(rows))
    if found := _components(rows):
        parts.append(found)
    for dataset in (*others, *([graph] if typed else [])):
        if shares := _labels(dataset):
            parts.append(shares)
            break
    if warnings := [text for each in datasets.values() for text in warnings_of(each.stats)]:
        parts.append(table(["warning"], [[text] for text in warnings], title="Input warnings"))
    return parts


def _rows(graph: Dataset) -> Iterator[_Rows]:
    indptr, indices = graph.array("indptr.npy"), graph.array("indices.npy")
    yield _Rows("edges", indptr, indices, len(indptr) - 1, True)


def _typed_rows(dataset: Dataset) -> Iterator[_Rows]:
    graph = HeteroGraph.open(dataset)
    for name, edges in graph.edge_sets.items():
        if edges.reversed_of is None:
            found = graph.rows(name)
            targets = graph.node_sets[edges.target].count
            yield _Rows(name, found.indptr, found.indices, targets, edges.source == edges.target)


def _sizes(graph: Dataset, rows: Sequence[_Rows]) -> Part:
    """Numbers among the stats, and what the rows have."""
    facts: list[list[str | int | float]] = [
        ["size", format_bytes(value)] if name == "bytes" else [name.replace("_", " "), value]
        for name, value in graph.stats.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and "." not in name
    ]  # fmt: skip
    for each in rows[:_SHOWN]:
        degrees = np.diff(each.indptr)
        mean, most = float(degrees.mean()) if len(degrees) else 0.0, int(degrees.max(initial=0))
        facts.append([f"{each.name}: mean out-degree", round(mean, 2)])
        facts.append([f"{each.name}: highest out-degree", most])
        facts.append([f"{each.name}: nodes without any", int((degrees == 0).sum())])
    return table(["figure", "value"], facts, title="Sizes")


def _degrees(rows: Sequence[_Rows]) -> Part:
    """Distribution of out-degrees, in bins that double."""
    traces = []
    for each in rows[:_SHOWN]:
        counts = np.bincount(_bin(np.diff(each.indptr)))
        traces.append({"type": "bar", "name": each.name, "x": [_bin_text(number) for number in range(len(counts))],
                       "y": packed(counts), "hovertemplate": "degree %{x}: %{y:,} nodes<extra></extra>"})  # fmt: skip
    return plot(traces, title="Degree distribution", note="Nodes by out-degree (by degree, without direction).",
                xaxis={"title": {"text": "degree"}, "type": "category"}, showlegend=len(traces) > 1,
                yaxis={"title": {"text": "nodes"}, "type": "log", "dtick": 1}, barmode="group")  # fmt: skip


def _bin(degrees: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, then 1, 2–3, 4–7, …"""
    bins: NDArray[np.int64] = np.frexp(degrees.astype(np.float64))[1].astype(np.int64)
    return bins


def _bin_text(number: int) -> str:
    low = 1 << number >> 1
    return str(low) if low < 2 else f"{low:,}–{2 * low - 1:,}"


def _components(rows: Sequence[_Rows]) -> Part | None:
    """Weakly connected components of a graph of one set; None of larger and of typed graphs."""
    if len(rows) != 1 or not rows[0].square or len(rows[0].indices) > MOST_ARCS:
        return None
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    each = rows[0]
    nodes = len(each.indptr) - 1
    values = np.ones(len(each.indices), np.int8)
    matrix = csr_array((values, np.asarray(each.indices), np.asarray(each.indptr)), shape=(nodes, nodes))
    count, component = connected_components(matrix, directed=True, connection="weak")
    sizes = np.sort(np.bincount(component))[::-1]
    ones = int((sizes == 1).sum())
    shown = [[place, int(size), round(100 * int(size) / nodes, 2)] for place, size in enumerate(sizes[:_SHOWN], 1)
             if size > 1]  # fmt: skip
    note = f"{count:,} in all, {ones:,} of a single node." if count > 1 else "All nodes are connected."
    return table(["component", "nodes", "% of all"], shown, title="Components", note=note)


def _labels(dataset: Dataset) -> Part | None:
    """Share of each label: of a label dataset, or of a feature `label` of a typed graph."""
    counts: list[tuple[str, int]] = []
    if "kinds.npy" in dataset and "names.json" in dataset:
        names, kinds = dataset.json("names.json"), dataset.array("kinds.npy")
        counts = list(zip(names, np.bincount(kinds, minlength=len(names)).tolist(), strict=True))
    elif GRAPH_FILE in dataset:
        graph = HeteroGraph.open(dataset)
        for name, nodes in graph.node_sets.items():
            if any(each.name == "label" and each.dtype == STRING for each in nodes.features):
                counts = _counted(graph.node_feature(name, "label"))
    if not counts:
        return None
    counts.sort(key=lambda pair: -pair[1])
    whole, shown = sum(count for _, count in counts), counts[:40]
    rest = f" {len(counts) - len(shown)} further labels are not drawn." if len(counts) > len(shown) else ""
    bars = {
        "type": "bar", "x": [name for name, _ in shown], "y": [count / whole for _, count in shown],
        "text": [f"{count:,}" for _, count in shown], "textposition": "none",
        "hovertemplate": "%{x}: %{text} (%{y:.1%})<extra></extra>",
    }  # fmt: skip
    return plot([bars], title="Label shares", note=f"{len(counts)} labels, {whole:,} labelled.{rest}",
                xaxis={"type": "category"}, yaxis={"tickformat": ".0%"})  # fmt: skip


def _counted(values: Any) -> list[tuple[str, int]]:
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        column = column.flatten()
    found = pc.value_counts(column.cast(pa.large_string()))
    texts = Counter({each["values"]: each["counts"] for each in found.to_pylist() if each["values"] not in (None, "")})
    return list(texts.items())
