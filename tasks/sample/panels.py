"""Panels of sampled subgraphs: sizes by set, and the fan-outs that were reached."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.panel import Part, packed, plot, table
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.subgraphs.blocks import DESCRIPTION, SPLITS, SubgraphBlock, layout_of, read_blocks

_BLOCKS = 4
"""Blocks of each split that are read; a block is a row group of a few thousand subgraphs."""
_BINS = 40


def sizes(datasets: Mapping[str, Dataset]) -> list[Part] | None:
    """Parts of a sample dataset, the first, with the names of its graph, the second."""
    sampled, *others = datasets.values()
    if not others:
        return None
    graph, layout = HeteroGraph.open(others[0]), layout_of(sampled)
    node_sets, edge_sets = list(graph.node_sets), list(graph.edge_sets)
    blocks = [block for split in SPLITS for block in islice(read_blocks(sampled, split), _BLOCKS)]
    if not blocks:
        return None
    seen = sum(block.subgraphs for block in blocks)
    note = f"Of {seen:,} subgraphs."
    counted = {
        "Nodes by set": {node_sets[i]: _counts(blocks, i, "node_starts") for i in layout.used_nodes},
        "Edges by set": {edge_sets[j]: _counts(blocks, j, "edge_starts") for j in layout.used_edges},
    }
    parts = [_histogram(title, found, note) for title, found in counted.items() if found]
    limits: dict[str, int] = {}
    for op in sampled.json(DESCRIPTION)["spec"].get("sampling_ops", ()):
        limits[op["edge_set_name"]] = max(limits.get(op["edge_set_name"], 0), int(op["sample_size"]))
    rows = [_fan_out(edge_sets[j], limits.get(edge_sets[j]), blocks, j) for j in layout.used_edges]
    note = "Sampled edges of a node that has any, next to the largest sample size of the ops on this set."
    columns = ["edge set", "sample size", "mean", "median", "95%", "most", "% that reach it"]
    return [*parts, table(columns, rows, title="Fan-outs reached", note=note)]


def _counts(blocks: list[SubgraphBlock], number: int, starts: str) -> NDArray[np.int64]:
    return np.concatenate([np.diff(getattr(block, starts)[number]) for block in blocks])


def _histogram(title: str, found: Mapping[str, NDArray[np.int64]], note: str) -> Part:
    """Subgraphs by the number of their items of each set."""
    traces: list[dict[str, Any]] = []
    for name, counts in found.items():
        bins = np.unique(np.linspace(counts.min(), counts.max() + 1, _BINS).astype(np.int64))
        heights, bins = np.histogram(counts, bins)
        traces.append({"type": "scatter", "mode": "lines", "line": {"shape": "hv"}, "name": name,
                       "x": packed(bins[:-1]), "y": packed(heights / max(1, len(counts))),
                       "hovertemplate": "%{x}: %{y:.1%}<extra>%{fullData.name}</extra>"})  # fmt: skip
    return plot(traces, title=title, note=note, showlegend=True, xaxis={"title": {"text": "in a subgraph"}},
                yaxis={"tickformat": ".0%", "rangemode": "tozero", "title": {"text": "subgraphs"}})  # fmt: skip


def _fan_out(name: str, limit: int | None, blocks: list[SubgraphBlock], j: int) -> list[Any]:
    """Edges of each node that starts some in a subgraph."""
    found = []
    for block in blocks:
        subgraph = np.repeat(np.arange(block.subgraphs), np.diff(block.edge_starts[j]))
        source = block.sources[j].astype(np.int64)
        _, counts = np.unique(subgraph * (source.max(initial=0) + 1) + source, return_counts=True)
        found.append(counts)
    degrees = np.concatenate(found)
    if not len(degrees):
        return [name, limit, 0, 0, 0, 0, 0]
    reached = round(100 * float((degrees >= limit).mean()), 1) if limit else None
    median, high = (int(each) for each in np.quantile(degrees, (0.5, 0.95)))
    return [name, limit, round(float(degrees.mean()), 2), median, high, int(degrees.max()), reached]
