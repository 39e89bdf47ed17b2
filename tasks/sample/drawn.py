"""One sampled subgraph as a picture: its nodes on rings around the seed, by hops, coloured by their sets."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.store import Place, Store
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.subgraphs.blocks import SPLITS, SubgraphBlock, read_blocks

MOST_DRAWN = 28
"""Nodes of the subgraph that is drawn: of the first ones with no more, the largest of those with nodes of most sets."""
_MOST_READ = 4 << 20
"""Nodes of sets whose ids are read for it; there is no picture of larger graphs."""
_MOST_LABEL = 26

Node = tuple[int, int]
"""Number of the set, and place in the subgraph's list of its nodes."""


class Subgraph(NamedTuple):
    """A subgraph to draw.

    Args:
        nodes: label of each.
        edges: ends of each.
        seeds: of the nodes.
    """

    nodes: dict[Node, str]
    edges: list[tuple[Node, Node]]
    seeds: list[Node]


def draw(dataset: Dataset, path: Path) -> None:
    """Write a PNG of one subgraph in a `sample` dataset; none if the graph is not in the same store, or is large."""
    store, entry = Place.of(dataset.uri).store, dataset.manifest.inputs["graph"]
    found = Store(store.uri).find(entry.stage or "", entry.digest) if entry.stage else None
    if found is None:
        return
    with closing(found):
        graph = HeteroGraph.open(found)
        first = next((block for split in SPLITS for block in read_blocks(dataset, split)), None)
        chosen = None if first is None else _chosen(first)
        if first is None or chosen is None or sum(each.count for each in graph.node_sets.values()) > _MOST_READ:
            return
        _draw(list(graph.node_sets), subgraph_of(graph, first, chosen), first.sample_ids[chosen].as_py(), path)


def _chosen(block: SubgraphBlock) -> int | None:
    """The subgraph that is drawn."""
    counts = np.stack([np.diff(starts) for starts in block.node_starts])
    sizes, sets = counts.sum(axis=0), (counts > 0).sum(axis=0)
    fitting = [number for number in range(block.subgraphs) if sizes[number] <= MOST_DRAWN]
    return max(fitting, key=lambda number: (sets[number], sizes[number]), default=None)


def subgraph_of(graph: HeteroGraph, block: SubgraphBlock, number: int) -> Subgraph:
    """One of a block's subgraphs, with the ids of its nodes."""
    nodes: dict[Node, str] = {}
    for i, name in enumerate(graph.node_sets):
        here = block.nodes[i][block.node_starts[i][number] : block.node_starts[i][number + 1]]
        labels = graph.ids(name).take(pa.array(here)).cast(pa.large_string()).to_pylist() if len(here) else []
        nodes |= {(i, place): label for place, label in enumerate(labels)}
    edges: list[tuple[Node, Node]] = []
    for j, each in enumerate(graph.edge_sets.values()):
        span = slice(block.edge_starts[j][number], block.edge_starts[j][number + 1])
        ends = zip(block.sources[j][span].tolist(), block.targets[j][span].tolist(), strict=True)
        sets = graph.node_number(each.source), graph.node_number(each.target)
        edges += [((sets[0], source), (sets[1], target)) for source, target in ends]
    wanted = set(block.seeds[number].reshape(-1).tolist())
    seeds = [node for node in nodes if _is_seed(block, number, node, wanted)]
    return Subgraph(nodes, edges, seeds)


def _is_seed(block: SubgraphBlock, number: int, node: Node, wanted: set[int]) -> bool:
    """Seeds are the first nodes of their set, before all others."""
    i, place = node
    return place < len(wanted) and int(block.nodes[i][block.node_starts[i][number] + place]) in wanted


def rings(subgraph: Subgraph) -> dict[Node, tuple[int, float]]:
    """Hops from the seeds, and the angle, of each node: below what led to it first, wider the more it leads to.

    Nodes that no sampled edge leads to are on a ring of their own, the outermost one.
    """
    following: dict[Node, list[Node]] = {}
    for source, target in subgraph.edges:
        following.setdefault(source, []).append(target)
    hops = dict.fromkeys(subgraph.seeds, 0)
    children: dict[Node, list[Node]] = {}
    waiting = list(subgraph.seeds)
    for node in waiting:
        for other in following.get(node, []):
            if other not in hops:
                hops[other] = hops[node] + 1
                children.setdefault(node, []).append(other)
                waiting.append(other)
    alone = [node for node in subgraph.nodes if node not in hops]
    outermost = 1 + max(hops.values(), default=0)
    leaves: dict[Node, int] = {}
    for node in reversed(waiting):
        leaves[node] = max(1, sum(leaves[each] for each in children.get(node, [])))
    total, leaf = sum(leaves[node] for node in subgraph.seeds) + len(alone), 0.0
    places: dict[Node, tuple[int, float]] = {}
    begins: dict[Node, float] = {}
    for node in subgraph.seeds:
        begins[node], leaf = leaf, leaf + leaves[node]
    for node in waiting:
        places[node] = hops[node], 2 * math.pi * (begins[node] + leaves[node] / 2) / total
        start = begins[node]
        for child in children.get(node, []):
            begins[child], start = start, start + leaves[child]
    for number, node in enumerate(alone):
        places[node] = outermost, 2 * math.pi * (leaf + number + 0.5) / total
    return places


def _draw(sets: list[str], subgraph: Subgraph, title: str, path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from superworkflow.infra.base.plot_style import COLOURS, DPI, FAINT, GREY, INK, layout, plain, save

    places = rings(subgraph)
    several = len(subgraph.seeds) > 1
    points = {
        node: ((hop + 0.4 * several) * math.cos(angle), (hop + 0.4 * several) * math.sin(angle))
        for node, (hop, angle) in places.items()
    }
    figure = Figure(figsize=(8.4, 6.4), dpi=DPI, layout=layout())
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.margins(0.16, 0.08)
    for source, target in dict.fromkeys(subgraph.edges):
        axes.annotate(
            "", xy=points[target], xytext=points[source], zorder=1,
            arrowprops={"arrowstyle": "->", "color": GREY, "shrinkA": 4, "shrinkB": 5, "linewidth": 0.9,
                        "connectionstyle": "arc3,rad=0.06"},
        )  # fmt: skip
    used = sorted({number for number, _ in subgraph.nodes})
    colour = {number: COLOURS[place % len(COLOURS)] for place, number in enumerate(used)}
    for number in used:
        members = [node for node in subgraph.nodes if node[0] == number]
        xs, ys = zip(*(points[node] for node in members), strict=True)
        edge = [INK if node in subgraph.seeds else "white" for node in members]
        sizes = [110 if node in subgraph.seeds else 46 for node in members]
        axes.scatter(xs, ys, s=sizes, color=colour[number], edgecolors=edge, linewidths=1.0, zorder=2)
    for node, label in subgraph.nodes.items():
        hop, angle = places[node]
        left = math.cos(angle) < -1e-9
        outside = hop > 0
        axes.annotate(
            plain(_text(label)), points[node], xytext=((-6 if left else 6) if outside else 0, 0 if outside else 9),
            textcoords="offset points", fontsize=6.5, color=INK if node in subgraph.seeds else FAINT, zorder=3,
            ha=("right" if left else "left") if outside else "center", va="center" if outside else "bottom",
        )  # fmt: skip
    handles = [
        Line2D([], [], linestyle="", marker="o", color=colour[number],
               label=f"{plain(_text(sets[number]))} {sum(node[0] == number for node in subgraph.nodes)}")
        for number in used
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    axes.set_title(
        plain(f"around {_text(title)}: {len(subgraph.nodes)} nodes, {len(subgraph.edges)} edges"), fontsize=9
    )
    save(figure, path)


def _text(name: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return shown if len(shown) <= _MOST_LABEL else f"{shown[: _MOST_LABEL - 1]}…"
