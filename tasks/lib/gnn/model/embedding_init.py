"""First values of learned embeddings: a function of (seed, node set, node), independent of the node's owner."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.kernels.random import GAMMA

_AT_ONCE = 1 << 17


def first_embeddings(nodes: NDArray[np.int64], count: int, width: int, seed: int, node_set: int) -> NDArray[np.float32]:
    """Embeddings of nodes, float32 [nodes, width], uniform as Glorot and Bengio (2010) draw a table of all nodes.

    Args:
        nodes: numbers of the nodes in their set.
        count: number of nodes of the set.
        width: width of an embedding.
        seed: seed of all random numbers.
        node_set: number of the set.
    """
    keys = random_streams.words(nodes, seed, random_streams.EMBEDDING, node_set)
    columns = np.arange(1, width + 1, dtype=np.uint64) * np.uint64(GAMMA)
    found, bound = np.empty((len(nodes), width), np.float32), (6.0 / (max(1, count) + width)) ** 0.5
    rows = max(1, _AT_ONCE // width)
    for first in range(0, len(nodes), rows):
        words = keys[first : first + rows, None] + columns
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words ^= words >> np.uint64(31)
        shares = (words >> np.uint64(40)).astype(np.float64) * 2.0**-24
        found[first : first + rows] = (2 * shares - 1) * bound
    return found
