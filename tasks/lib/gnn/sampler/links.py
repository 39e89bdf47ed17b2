"""Links to predict: the links of a graph, and the links that stage holdout_links held out.

A link joins two nodes by an edge of one edge set. Within one node set it has no direction unless that is asked for:
edges in both directions are one link, its smaller node comes first, and loops are not links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset, FileWriter
from superworkflow.tasks.lib.edge_list.bipartite import side_vertices
from superworkflow.tasks.lib.gnn.sampler.negative_sampling import edges_between
from superworkflow.tasks.lib.graph.heterograph import CsrRows, EdgeSet, HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged
from superworkflow.tasks.lib.graph.seed_times import UNTIMED
from superworkflow.tasks.lib.kernels.arrays import distinct, read_only

LINKS_FILE, TRIPLES_FILE, SIDES_FILE = "links.json", "triples.json", "link-sides.npy"
FORMAT = 1
HELD_OUT = ("validation", "test")
Pairs = NDArray[np.int64]
_PAIRS = 1 << 16


@dataclass(frozen=True)
class HeldOut:
    """Edges held out of an edge set.

    Args:
        edges: name of the set.
        links: by split of `HELD_OUT`, sources and targets, int64 [links, 2].
        others: by split, equally many pairs that no edge of the whole graph joins.
        candidates: by split, all pairs among which links are to be found, where they are given; sources and targets.
        times: by split, where edges have times, that of each link, int64: see `link_times`. A pair of `others` has the
            time of the link in its place.
        directed: within one node set a link from one node to another is none back; both are then in one split.
    """

    edges: str
    links: Mapping[str, Pairs]
    others: Mapping[str, Pairs]
    candidates: Mapping[str, Pairs] = field(default_factory=dict)
    times: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    directed: bool = False

    def negatives(self, split: str) -> Pairs:
        """Pairs that links are compared with."""
        return self.candidates.get(split, self.others[split])

    def write(self, output: FileWriter) -> None:
        """Write its files: `links.json`, `links-<split>.npy`, `non-links-<split>.npy`, of given ones
        `candidates-<split>.npy`, and `times-<split>.npy` where edges have times."""
        output.json(LINKS_FILE, {"format": FORMAT, "edges": self.edges, "directed": self.directed})
        for split in HELD_OUT:
            output.array(f"links-{split}.npy", self.links[split])
            output.array(f"non-links-{split}.npy", self.others[split])
            if split in self.candidates:
                output.array(f"candidates-{split}.npy", self.candidates[split])
            if split in self.times:
                output.array(f"times-{split}.npy", self.times[split])


def has_links(dataset: Dataset) -> bool:
    """True if links of the graph, or triples of all its relations, were held out for prediction."""
    return LINKS_FILE in dataset or TRIPLES_FILE in dataset


def read_held_out(graph: HeteroGraph) -> HeldOut:
    """Read the edges held out of a graph.

    Raises:
        DatasetDamaged: files contradict each other.
        UserError: no links were held out.
    """
    dataset = graph.dataset
    if LINKS_FILE not in dataset:
        raise UserError("no links were held out of this graph", where=dataset.uri,
                        remedy="Give the output of stage holdout_links")  # fmt: skip
    document = dataset.json(LINKS_FILE)
    name = document.get("edges") if isinstance(document, dict) else None
    if not isinstance(name, str) or document.get("format") != FORMAT or name not in graph.edge_sets:
        raise damaged(dataset, LINKS_FILE, "it names no edge set of the graph")
    edges = graph.edge_sets[name]
    sizes = [graph.node_sets[each].count for each in (edges.source, edges.target)]
    found: dict[str, Pairs] = {}
    for kind in ("links", "non-links", "candidates"):
        for split in HELD_OUT:
            file = f"{kind}-{split}.npy"
            if kind == "candidates" and file not in dataset:
                continue
            pairs: NDArray[Any] = dataset.array(file, mmap=False) if file in dataset else np.empty(0)
            if pairs.dtype != np.int64 or pairs.ndim != 2 or pairs.shape[1] != 2:
                raise damaged(dataset, file, "pairs are int64 [pairs, 2]")
            if len(pairs) and (pairs.min() < 0 or (pairs.max(axis=0) >= sizes).any()):
                raise damaged(dataset, file, "an end is not a node")
            found[f"{kind}-{split}"] = pairs
    if any(len(found[f"links-{split}"]) != len(found[f"non-links-{split}"]) for split in HELD_OUT):
        raise damaged(dataset, LINKS_FILE, "there are not as many links as pairs without one")
    links, others = ({split: found[f"{kind}-{split}"] for split in HELD_OUT} for kind in ("links", "non-links"))
    given = {split: found[f"candidates-{split}"] for split in HELD_OUT if f"candidates-{split}" in found}
    times = {split: dataset.array(f"times-{split}.npy", mmap=False) for split in HELD_OUT
             if f"times-{split}.npy" in dataset}  # fmt: skip
    for split, each in times.items():
        if each.dtype != np.int64 or each.shape != (len(links[split]),):
            raise damaged(dataset, f"times-{split}.npy", "there is not one time for each link")
    return HeldOut(name, links, others, given, times, document.get("directed") is True)


def true_links_of(graph: HeteroGraph, held_out: HeldOut) -> tuple[Pairs, bool]:
    """All links of the set, held out or not, and whether their ends have no order: without it a node with itself
    counts as one, since it is no pair to rank among."""
    edges = graph.edge_sets[held_out.edges]
    one_set = edges.source == edges.target
    links = [links_of(graph.rows(edges.name), one_set and not held_out.directed), *held_out.links.values()]
    if held_out.directed:
        links.append(np.stack([np.arange(graph.node_sets[edges.source].count)] * 2, 1))
    return np.concatenate(links), one_set and not held_out.directed


def directed_links_of(rows: CsrRows) -> Pairs:
    """Links with a direction within one node set, int64 [links, 2], ascending, each once and without loops."""
    links = links_of(rows, False)
    found: Pairs = links[links[:, 0] != links[:, 1]]
    return found


def is_one_way(pairs: Pairs, links: Pairs) -> NDArray[np.bool_]:
    """True for each of some pairs whose reverse is not among the links."""
    return ~are_links(pairs[:, ::-1], links, False)


def are_links(pairs: Pairs, links: Pairs, no_order: bool) -> NDArray[np.bool_]:
    """True for each of some pairs that is among the links, [pairs]; with `no_order` either way round."""
    if not len(links):
        return np.zeros(len(pairs), bool)
    packed, own = packed_pairs(pairs, no_order), np.sort(packed_pairs(links, no_order))
    found: NDArray[np.bool_] = own[np.minimum(np.searchsorted(own, packed), len(own) - 1)] == packed
    return found


def packed_pairs(pairs: NDArray[np.integer], one_set: bool = False) -> NDArray[np.uint64]:
    """One number for each pair, uint64 [pairs], ascending as pairs do; `one_set`, the same number for both ways."""
    ends = (np.sort(pairs, axis=1) if one_set else pairs).astype(np.uint64, copy=False)
    packed: NDArray[np.uint64] = (ends[:, 0] << np.uint64(32)) | ends[:, 1]
    return packed


def links_of(rows: CsrRows, one_set: bool) -> Pairs:
    """Links of an edge set, int64 [links, 2], ascending; see the module."""
    return distinct_links(_ends_of(rows), one_set)


def distinct_links(ends: NDArray[Any], one_set: bool) -> Pairs:
    """Each link once, int64 [links, 2], ascending; within one node set its smaller node comes first, without loops.

    Args:
        ends: sources and targets [edges, 2], uint64; changed.
        one_set: they are of one node set, and have no direction.
    """
    if one_set:
        ends.sort(axis=1)
        ends = ends[ends[:, 0] != ends[:, 1]]
    packed = distinct(packed_pairs(ends))
    links = np.empty((len(packed), 2), np.int64)
    links[:, 0], links[:, 1] = packed >> np.uint64(32), packed & np.uint64(0xFFFFFFFF)
    return links


def _ends_of(rows: CsrRows) -> NDArray[np.uint64]:
    """Ends of all edges of a set, [edges, 2]."""
    ends = np.empty((len(rows.indices), 2), np.uint64)
    ends[:, 0] = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    ends[:, 1] = rows.indices
    return ends


def link_times(rows: CsrRows, one_set: bool, times: NDArray[np.int64], links: Pairs) -> NDArray[np.int64]:
    """Time of each link, that of the earliest of its edges, int64 [links]; `UNTIMED` for pairs without an edge.

    Args:
        rows: rows of the edge set.
        one_set: links have no direction.
        times: of the edges, int64 [edges].
        links: int64 [links, 2].
    """
    packed, wanted = (packed_pairs(each, one_set) for each in (_ends_of(rows), links))
    order = np.lexsort((times, packed))
    packed, found = packed[order], np.full(len(links), UNTIMED)
    places = np.searchsorted(packed, wanted)
    inside = places < len(packed)
    there = np.zeros(len(links), bool)
    there[inside] = packed[places[inside]] == wanted[inside]
    found[there] = times[order[places[there]]]
    return found


def sides_of_nodes(graph: HeteroGraph, edges: EdgeSet) -> NDArray[np.int8]:
    """Side of each node if the graph is that of a bipartite edge list: 1, 2, or 0 of a node without edges; else empty.

    Two nodes of one side have no link. Stage holdout_links finds sides that the edge list does not name.
    """
    if SIDES_FILE in graph.dataset:
        return graph.dataset.array(SIDES_FILE)
    if edges.source != edges.target or not graph.dataset.stats.get("bipartite"):
        return np.empty(0, np.int8)
    sides = np.zeros(graph.node_sets[edges.source].count, np.int8)
    for side, nodes in enumerate(side_vertices(graph.ids(edges.source), graph.dataset.stats), 1):
        sides[nodes] = side
    return sides


def scores_of(
    sources: NDArray[np.float32], targets: NDArray[np.float32], factors: NDArray[np.float32], pairs: Pairs
) -> NDArray[np.float32]:
    """Scores of pairs by the decoder, float32 [pairs].

    Args:
        sources, targets: vectors of the nodes, float32 [nodes, width].
        factors: factors of the columns, float32 [width].
        pairs: int64 [pairs, 2].
    """
    found = np.empty(len(pairs), np.float32)
    for first in range(0, len(pairs), _PAIRS):
        part = pairs[first : first + _PAIRS]
        found[first : first + _PAIRS] = (sources[part[:, 0]] * factors * targets[part[:, 1]]).sum(axis=1)
    return found


def is_directed(graph: HeteroGraph, edges: EdgeSet) -> bool:
    """True if the edges of a set have a direction: not those of an edge list that one set has in both directions."""
    if edges.source != edges.target or len(graph.edge_sets) > 1:
        return True
    stats = graph.dataset.stats
    return 2 * int(stats.get("reversed_edges") or 0) != int(stats.get("edges") or 0) or not edges.count


def sets_of_links(graph: HeteroGraph, edges: EdgeSet) -> dict[int, EdgeSet]:
    """The edge set of links, and all sets that reverse it, by number."""
    table = edges.reversed_of or edges.name
    return {number: each for number, each in enumerate(graph.edge_sets.values())
            if table in (each.name, each.reversed_of)}  # fmt: skip


class Places:
    """Positions of the links' edges, in their edge set and in all sets that reverse it.

    Args:
        graph: the graph.
        edges: the edge set.
        directed: a pair is an edge from its first node to its second alone; else edges both ways within one node set.
    """

    def __init__(self, graph: HeteroGraph, edges: EdgeSet, directed: bool = False):
        self._one_set = edges.source == edges.target and not directed
        self._sets: list[tuple[int, CsrRows, bool]] = []
        for number, each in sets_of_links(graph, edges).items():
            rows = CsrRows(*map(read_only, graph.rows(each.name)))
            turned = (each.reversed_of is None) != (edges.reversed_of is None)
            self._sets.append((number, rows, turned))

    def of(self, links: Pairs) -> dict[int, NDArray[np.int64]]:
        """Positions of the edges of some links, by the number of the edge set, ascending and distinct."""
        found = {}
        for number, rows, turned in self._sets:
            ways = (0, 1) if self._one_set else (int(turned),)
            parts = [self._between(rows, links[:, way], links[:, 1 - way]) for way in ways]
            found[number] = np.unique(np.concatenate(parts))
        return found

    @staticmethod
    def _between(rows: CsrRows, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
        firsts, counts = np.empty(len(sources), np.int64), np.empty(len(sources), np.int64)
        one, other = (read_only(np.ascontiguousarray(ends)) for ends in (sources, targets))
        edges_between(rows.indptr, rows.indices, one, other, firsts, counts)
        before = np.cumsum(counts) - counts
        return np.repeat(firsts - before, counts) + np.arange(int(counts.sum()))
