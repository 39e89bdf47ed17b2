"""Two graphs of the index stage, vertex by vertex and edge by edge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.drift import ARCS_AT_ONCE
from superworkflow.tasks.lib.graph.integrity import check_rows, unfit
from superworkflow.tasks.lib.graph.sparse_rows import has_arcs

_BINS = 10


@dataclass(frozen=True)
class IndexedGraph:
    """An index dataset, opened and checked.

    Args:
        nodes: labels of the vertices, large_string.
        degrees: int64 `[vertices]`.
        indptr: int64 `[vertices + 1]`, begins of rows.
        indices: `[arcs]`, ascending in each row.
        directed: whether an edge is one arc; else it is two.
    """

    nodes: pa.ChunkedArray
    degrees: NDArray[np.int64]
    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    directed: bool

    @classmethod
    def open(cls, dataset: Dataset) -> IndexedGraph:
        """Open one.

        Raises:
            DatasetDamaged: files that do not fit each other.
        """
        table = dataset.parquet("vertices.parquet").read(columns=["node", "degree"])
        indptr, indices = dataset.array("indptr.npy"), dataset.array("indices.npy")
        check_rows(dataset.uri, indptr, indices, None, len(table))
        if len(indptr) != len(table) + 1 or table["node"].null_count or table["degree"].null_count:
            raise unfit(dataset.uri, "a row for each vertex expected")
        nodes = table["node"].cast(pa.large_string())
        return cls(nodes, table["degree"].to_numpy(), indptr, indices, bool(dataset.stats.get("directed")))

    @property
    def edges(self) -> int:
        return len(self.indices) if self.directed else len(self.indices) // 2


def places(graph: IndexedGraph, before: IndexedGraph) -> NDArray[np.int64]:
    """Vertex of the earlier graph with the same label, by vertex; -1 where there is none."""
    found = pc.index_in(graph.nodes, value_set=before.nodes)
    there: NDArray[np.int64] = found.fill_null(-1).to_numpy().astype(np.int64)
    return there


def compare(
    graph: IndexedGraph, before: IndexedGraph, there: NDArray[np.int64], threads: int = 1
) -> dict[str, float | int]:
    """Figures of two graphs, see `tasks.drift`; `there` from `places`, `threads` look edges up."""
    kept = int((there >= 0).sum())
    counts = {"vertices": (len(graph.nodes), len(before.nodes), kept)}
    if graph.directed == before.directed:
        counts["edges"] = (graph.edges, before.edges, shared_edges(graph, before, there, threads))
    figures: dict[str, float | int] = {}
    for name, (now, then, both) in counts.items():
        for what, count in (("added", now - both), ("gone", then - both)):
            figures[f"{name}_{what}"] = count
            figures[f"{name}_{what}_share"] = count / max(then, 1)
    return figures | {"degree_psi": stability_index(graph.degrees, before.degrees)}


def shared_edges(graph: IndexedGraph, before: IndexedGraph, there: NDArray[np.int64], threads: int) -> int:
    """Edges of one graph that the other one has as well: each arc is looked for in its row, all of a block at once."""

    def block(begin: int) -> int:
        end = min(begin + ARCS_AT_ONCE, len(graph.indices))
        first, last = np.searchsorted(graph.indptr, [begin, end - 1], "right") - 1
        bounds = np.clip(graph.indptr[first : last + 2], begin, end)
        sources = np.repeat(np.arange(first, last + 1), np.diff(bounds))
        targets = graph.indices[begin:end]
        if not graph.directed:  # an edge is looked for once
            once = sources < targets
            sources, targets = sources[once], targets[once]
        sources, targets = there[sources], there[targets]
        both = (sources >= 0) & (targets >= 0)
        return int(has_arcs(before.indptr, before.indices, sources[both], targets[both]).sum())

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(block, range(0, len(graph.indices), ARCS_AT_ONCE)))


def stability_index(now: NDArray[np.int64], before: NDArray[np.int64]) -> float:
    """Population stability index of two samples, over bins with equally many values of the earlier one.

    Half a value is added to each bin, so that one that is empty in one of the samples does not make it infinite.
    """
    if not len(now) or not len(before):
        return 0.0
    cuts = np.unique(np.quantile(before, np.arange(1, _BINS) / _BINS, method="lower"))
    p, q = (
        (np.bincount(np.searchsorted(cuts, each), minlength=len(cuts) + 1) + 0.5) / (len(each) + 0.5 * (len(cuts) + 1))
        for each in (now, before)
    )
    return float(((p - q) * np.log(p / q)).sum())
