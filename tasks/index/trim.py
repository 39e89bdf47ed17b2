"""Bound the degree of hubs: a vertex above the limit keeps a random sample of its neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.graph.csr import Edges
from superworkflow.tasks.lib.kernels.random import GAMMA, mix

_U = np.uint64


def kept_edges(
    edges: Edges, degree: NDArray[np.int64], directed: bool, max_degree: int, seed: int
) -> NDArray[np.bool_]:
    """Edges that remain when no vertex may have more than `max_degree` neighbours.

    Each vertex above the limit keeps the neighbours whose edges have the smallest hashes of (seed, edge). Without
    direction both ends are asked, and an edge stays if no end drops it.

    Args:
        edges: packed edges [m] in final numbers.
        degree: neighbours of each vertex; out-neighbours if directed.
        directed: only sources are asked.
        max_degree: the limit.
        seed: another seed, another sample.

    Returns:
        Boolean [m], the same whatever the order of edges.
    """
    if not directed:
        edges = np.minimum(edges, (edges << _U(32)) | (edges >> _U(32)))  # smaller end first, for one hash per edge
    hub = degree > max_degree
    first, second = (edges >> _U(32)).astype(np.int64), (edges & _U(0xFFFFFFFF)).astype(np.int64)
    positions = np.flatnonzero(hub[first])
    owner = first[positions]
    if not directed:
        other = np.flatnonzero(hub[second])
        positions, owner = np.concatenate([positions, other]), np.concatenate([owner, second[other]])
    del first, second
    kept = np.ones(len(edges), np.bool_)
    kept[positions[dropped(owner, edges[positions], max_degree, seed)]] = False
    return kept


def dropped(owner: NDArray[Any], edges: Edges, max_degree: int, seed: int) -> NDArray[np.int64]:
    """Positions of edges that their owners drop.

    Args:
        owner: vertex above the limit that has each edge; all edges of an owner are here.
        edges: packed edges in final numbers, without direction the smaller end first.
        max_degree, seed: see `kept_edges`.
    """
    order = np.lexsort((edges, edge_rank(edges, seed), owner))
    owner = owner[order]
    starts = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]])) if len(owner) else np.empty(0, np.int64)
    sizes = np.diff(np.append(starts, len(owner)))
    place = np.arange(len(owner)) - np.repeat(starts, sizes)
    return order[place >= max_degree]


def edge_rank(edges: Edges, seed: int) -> NDArray[np.uint64]:
    """Place of each packed edge in a random order of all edges; a vertex keeps those that come first."""
    return _hashed(edges ^ _hashed(np.array([seed], np.uint64)))


def _hashed(words: Edges) -> Edges:
    """SplitMix64 of each word."""
    hashed: Edges = mix.py_func(words + GAMMA)
    return hashed
