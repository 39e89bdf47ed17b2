"""Triples to predict: links of all relations between the same node sets, and those that stage holdout_links held out.

A triple is a head, the number of a relation and a tail, int64: an edge of that relation's edge set, from head to tail.
It has a direction also within one node set, and a node may be both its head and its tail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import Dataset, FileWriter
from superworkflow.tasks.lib.gnn.sampler.links import HELD_OUT, TRIPLES_FILE, links_of, packed_pairs
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged
from superworkflow.tasks.lib.metrics.ranks import Vectors, filtered_ranks

FORMAT = 1
_AT_ONCE = 1 << 16
Triples = NDArray[np.int64]
Sides = tuple[tuple[Vectors, Vectors], tuple[Vectors, Vectors]]
"""Vectors whose products are scores: of all heads' queries with all tails, and of all tails' queries with all heads."""


@dataclass(frozen=True)
class HeldOutTriples:
    """Triples held out of a graph.

    Args:
        relations: names of the edge sets, by the number of the relation.
        triples: by split of `HELD_OUT`, int64 [triples, 3].
        others: by split, for each triple one of its relation that the whole graph does not have.
    """

    relations: tuple[str, ...]
    triples: Mapping[str, Triples]
    others: Mapping[str, Triples]

    def write(self, output: FileWriter) -> None:
        """Write its files: `triples.json`, and `triples-<split>.npy` and `non-triples-<split>.npy` of each split."""
        output.json(TRIPLES_FILE, {"format": FORMAT, "relations": list(self.relations)})
        for split in HELD_OUT:
            output.array(f"triples-{split}.npy", self.triples[split])
            output.array(f"non-triples-{split}.npy", self.others[split])


def read_triples(graph: HeteroGraph) -> HeldOutTriples:
    """Read the triples held out of a graph.

    Raises:
        DatasetDamaged: files contradict each other.
    """
    dataset = graph.dataset
    document = dataset.json(TRIPLES_FILE)
    names = document.get("relations") if isinstance(document, dict) else None
    if not isinstance(names, list) or document.get("format") != FORMAT or not names:
        raise damaged(dataset, TRIPLES_FILE, "it names no relations")
    sets = [graph.edge_sets.get(name) for name in names if isinstance(name, str)]
    ends = {(each.source, each.target) for each in sets if each is not None}
    if len(sets) != len(names) or None in sets or len(ends) != 1:
        raise damaged(dataset, TRIPLES_FILE, "a relation is no edge set of the graph, or joins other nodes")
    ((source, target),) = ends
    limits = graph.node_sets[source].count, len(names), graph.node_sets[target].count
    found = {f"{kind}-{split}": _read(dataset, f"{kind}-{split}.npy", limits)
             for kind in ("triples", "non-triples") for split in HELD_OUT}  # fmt: skip
    if any(len(found[f"triples-{split}"]) != len(found[f"non-triples-{split}"]) for split in HELD_OUT):
        raise damaged(dataset, TRIPLES_FILE, "there are not as many triples as others")
    parts = ({split: found[f"{kind}-{split}"] for split in HELD_OUT} for kind in ("triples", "non-triples"))
    return HeldOutTriples(tuple(names), *parts)


def _read(dataset: Dataset, file: str, limits: tuple[int, int, int]) -> Triples:
    triples: NDArray[Any] = dataset.array(file, mmap=False) if file in dataset else np.empty(0)
    if triples.dtype != np.int64 or triples.ndim != 2 or triples.shape[1] != 3:
        raise damaged(dataset, file, "triples are int64 [triples, 3]")
    if len(triples) and (triples.min() < 0 or (triples.max(axis=0) >= limits).any()):
        raise damaged(dataset, file, "an end is not a node, or a number not that of a relation")
    return triples


def has_triples(dataset: Dataset) -> bool:
    """True if triples of all relations were held out for prediction."""
    return TRIPLES_FILE in dataset


def relations_of(graph: HeteroGraph) -> list[EdgeSet]:
    """Edge sets that are relations: those that are no reverse of another; none if they join different node sets."""
    tables = [each for each in graph.edge_sets.values() if each.reversed_of is None]
    return tables if len({(each.source, each.target) for each in tables}) == 1 else []


def triples_of(graph: HeteroGraph, relations: Sequence[str]) -> Triples:
    """All triples of some relations, int64 [triples, 3], each once; ascending by relation, head and tail."""
    parts = []
    for number, name in enumerate(relations):
        links = links_of(graph.rows(name), False)
        parts.append(np.stack([links[:, 0], np.full(len(links), number), links[:, 1]], 1))
    return np.concatenate(parts)


def is_among(triples: Triples, given: Triples) -> NDArray[np.bool_]:
    """True for each of some triples that is among the given ones."""
    found = np.zeros(len(triples), np.bool_)
    for number in np.unique(triples[:, 1]):
        places = np.flatnonzero(triples[:, 1] == number)
        there = given[given[:, 1] == number]
        found[places] = np.isin(packed_pairs(triples[places][:, ::2]), packed_pairs(there[:, ::2]))
    return found


def loop_free(triples: Triples, relations: int, one_set: bool) -> NDArray[np.bool_]:
    """True for each relation none of whose triples joins a node to itself, [relations]; none between two node sets.

    Such a relation is taken to have no loops at all. Where tails resemble heads, as in a symmetric relation, a node's
    product with itself is larger than with its true tails.
    """
    free = np.full(relations, one_set)
    free[triples[triples[:, 0] == triples[:, 2], 1]] = False
    return free


def queries(rows: Any, factors: Any, decoder: str, of_tails: bool, join: Callable[..., Any] = np.concatenate) -> Any:
    """Vectors whose products with the rows of a triple's other end are its scores, [n, width]; arrays or tensors.

    Args:
        rows: rows of heads, or with `of_tails` of tails, [n, width].
        factors: of the relation, [width], or of each row's, [n, width].
        decoder: `distmult`, or `complex`: Re(sum(head * factors * conj(tail))), real parts first.
        of_tails: the other ends are heads.
        join: concatenates along an axis.
    """
    if decoder != "complex":
        return rows * factors
    half = rows.shape[-1] // 2
    real, imaginary = rows[..., :half], rows[..., half:]
    first, second = factors[..., :half], factors[..., half:]
    if not of_tails:
        second = -second
    return join([first * real + second * imaginary, first * imaginary - second * real], -1)


def triple_scores(
    heads: Vectors, tails: Vectors, factors: Vectors, decoder: str, triples: Triples
) -> Vectors:  # fmt: skip
    """Scores of triples, float32 [n], by rows of the nodes [nodes, width] and factors [relations, width]."""
    found = np.empty(len(triples), np.float32)
    for first in range(0, len(triples), _AT_ONCE):
        source, relation, target = triples[first : first + _AT_ONCE].T
        of_heads = queries(heads[source], factors[relation], decoder, False)
        found[first : first + _AT_ONCE] = (of_heads * tails[target]).sum(axis=1)
    return found


def triple_ranks(
    triples: Triples, given: Triples, free: NDArray[np.bool_], sides_of: Callable[[int], Sides]
) -> NDArray[np.float64]:
    """Filtered rank of each triple among those with another tail, and among those with another head.

    Args:
        triples: int64 [n, 3].
        given: all true triples, which are left out but for the one that is ranked, int64 [m, 3].
        free: relations without loops, see `loop_free`: a loop ranks last, so that no other triple ranks below it.
        sides_of: vectors of a relation.

    Returns:
        float64 [n, 2], from 1; of equal scores half rank before, so that it is the mean of their ranks.
    """
    ranks = np.empty((len(triples), 2))
    for number in np.unique(triples[:, 1]):
        places = np.flatnonzero(triples[:, 1] == number)
        links, true_links = triples[places][:, ::2], given[given[:, 1] == number][:, ::2]
        if free[number]:
            true_links = np.concatenate([true_links, np.repeat(np.unique(links)[:, None], 2, 1)])
        for side, vectors in enumerate(sides_of(int(number))):
            way = slice(None, None, -1 if side else 1)
            ranks[places, side] = filtered_ranks(*vectors, links[:, way], true_links[:, way], False)
            if free[number]:
                ranks[places[links[:, 0] == links[:, 1]], side] = len(vectors[1])
    return ranks
