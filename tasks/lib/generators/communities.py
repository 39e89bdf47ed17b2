"""Random graphs with communities, features and labels, of any size in bounded memory.

    generate_communities(1_000_000, 10_000_000, "communities", seed=7)
    generate_csbm(232_965, 57_307_946, "reddit-like", communities=41, width=602, homophily=0.75, signal=0.05)

write `edges.parquet`, `features.parquet` and `labels.csv`, as `gnn` and `full_graph` take them. The first is the
degree-corrected planted partition (Karrer and Newman, 2011): ends of edges are drawn in proportion to the vertices'
weights, which follow a power law as those of `chung-lu`, and most edges stay within a community. Vertices in the order
of their weights belong to the communities in turn, so that all communities have the same degrees. The second is the
contextual stochastic block model (Deshpande, Sen, Montanari and Mossel, 2018) for any number of classes: all vertices
have the same expected degree, a share of edges, `homophily`, is within a class, and features are the class's mean,
±`signal` in each column, under noise with a standard deviation of 1. The first edges begin at one vertex each, so that
none is without an edge where there are at least as many edges as vertices.

The label of a node is its community. Its features are the community's centroid under noise, the sum of four uniform
numbers: under as much as `generate_communities` has, they alone predict little, the mean over many neighbours more. Of
larger graphs only the first million nodes by number, as good as drawn at random, have a label.

Each edge and node is a pure function of (seed, its number): the files are the same on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.generators.edge_lists import check_sizes, format_pairs, offset_of
from superworkflow.tasks.lib.kernels.permutation import half_bits_of, permuted
from superworkflow.tasks.lib.kernels.permutation import key as key_of_seed
from superworkflow.tasks.lib.kernels.random import GAMMA, fill_around, mix, rank_by_weight, uniform

EDGES, FEATURES, LABELS = "edges.parquet", "features.parquet", "labels.csv"
MOST_LABELS = 1_000_000
MOST_FEATURES = 4096
MOST_SIGNAL = 10.0
CHUNK_EDGES = 1 << 20
CHUNK_VALUES = 1 << 23
"""Edges, and values of features, made and written at a time."""

_LOCAL = 0.7
"""Share of the edges whose second end is drawn from the community of the first."""
_SIGNAL = 4_000
"""Standard deviation of the communities' centroids in each feature, where the noise has `_NOISE`."""
_NOISE = 37_836
"""Standard deviation of the noise of `random.fill_around`."""
_NAMES_STREAM, _EDGES_STREAM, _FEATURES_STREAM = range(2_000, 2_003)
"""Set the random streams apart."""
_PARQUET = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}


def generate_communities(
    nodes: int,
    edges: int,
    folder: str | Path,
    seed: int = 0,
    *,
    communities: int = 50,
    width: int = 100,
    exponent: float = 2.5,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write such a graph.

    Args:
        nodes: number of vertices, 2 to 2³¹.
        edges: number of rows to write; a pair may occur twice.
        folder: local; made if it is not there.
        seed: another seed, another graph.
        communities: how many, from 2 to half of the vertices.
        width: numbers of each node's features, 1 to 4096.
        exponent: of the power law of degrees, above 2.
        progress: called with (rows written, rows in all) after each chunk.

    Returns:
        The folder.

    Raises:
        UserError: names the argument that is out of range.
    """
    check_sizes(nodes, edges, exponent)
    weights = _Weights(1.0 - 1.0 / (exponent - 1.0), offset_of(nodes, edges, exponent))
    model = _Model(nodes, edges, communities, width, weights, _LOCAL, _SIGNAL, 2.0**-16)
    return _write(model, Path(folder), seed, progress)


def generate_csbm(
    nodes: int,
    edges: int,
    folder: str | Path,
    seed: int = 0,
    *,
    communities: int = 50,
    width: int = 100,
    homophily: float = 0.7,
    signal: float = 0.1,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write a graph of the contextual stochastic block model.

    Args:
        nodes, edges, folder, seed, communities, width, progress: as in `generate_communities`; communities are the
            planted classes.
        homophily: share of edges within a class, from 1 / communities, which says nothing of classes, to 1.
        signal: distance of a class's mean from 0 in each column, in standard deviations of the noise, 0 to 10.

    Returns:
        The folder.

    Raises:
        UserError: names the argument that is out of range.
    """
    check_sizes(nodes, edges, None)
    if not 0 <= signal <= MOST_SIGNAL:
        raise UserError("out of range", where="signal", value=signal, remedy=f"Give 0 to {MOST_SIGNAL:g}")
    if not 1 / max(1, communities) <= homophily <= 1:
        raise UserError("out of range", where="homophily", value=homophily,
                        remedy=f"Give {1 / max(1, communities):g}, edges at random, to 1")  # fmt: skip
    chance = 1 / max(2, communities)  # to meet one's own class at random
    local = (homophily - chance) / (1 - chance)
    model = _Model(
        nodes, edges, communities, width, _Weights(1.0, 0.0), local, round(signal * _NOISE), 1 / _NOISE,
    )  # fmt: skip
    return _write(model, Path(folder), seed, progress)


class _Weights(NamedTuple):
    """Cumulative weights (rank + offset)^power of vertices by which ends of edges are drawn; 1 and 0: all equal."""

    power: float
    offset: float


class _Model(NamedTuple):
    """A graph to be drawn.

    Args:
        nodes, edges, communities, width: its sizes.
        weights: of the vertices.
        local: share of edges whose second end is drawn from the community of the first.
        signal: distance of centroids from 0, where the noise has `_NOISE`.
        unit: scale of the features.
    """

    nodes: int
    edges: int
    communities: int
    width: int
    weights: _Weights
    local: float
    signal: int
    unit: float


def _write(model: _Model, folder: Path, seed: int, progress: Callable[[int, int], None] | None) -> Path:
    """Write a graph's files; refuses communities and widths that are out of range."""
    nodes, edges, communities, width = model[:4]
    if not 2 <= communities <= nodes // 2:
        raise UserError("out of range", where="communities", value=communities,
                        remedy=f"Give 2 to {nodes // 2} communities, of at least two vertices each")  # fmt: skip
    if not 1 <= width <= MOST_FEATURES:
        raise UserError("out of range", where="width", value=width, remedy=f"Give 1 to {MOST_FEATURES} numbers")
    folder.mkdir(parents=True, exist_ok=True)
    names = key_of_seed(seed, _NAMES_STREAM)
    done, total = 0, edges + nodes

    def written(rows: int) -> None:
        nonlocal done
        done += rows
        if progress:
            progress(done, total)

    schema = pa.schema([("source", pa.int64()), ("target", pa.int64())])
    with pq.ParquetWriter(folder / EDGES, schema, **_PARQUET) as writer:
        key = key_of_seed(seed, _EDGES_STREAM)
        covered = nodes if edges >= nodes else 0
        for start in range(0, edges, CHUNK_EDGES):
            ends = np.empty((2, min(CHUNK_EDGES, edges - start)), np.int64)
            _draw_edges(ends, start, covered, nodes, communities, model.local, key, names, *model.weights)
            writer.write_table(pa.table([column(ends[0]), column(ends[1])], schema))
            written(ends.shape[1])
    _write_nodes(folder, model, (names, key_of_seed(seed, _FEATURES_STREAM)), written)
    return folder


def _write_nodes(
    folder: Path, model: _Model, keys: tuple[np.uint64, np.uint64], written: Callable[[int], None]
) -> None:
    """Write features of all nodes and labels of the first, in the order of the nodes' weights."""
    nodes, features = model.nodes, model.width
    rows = max(1, CHUNK_VALUES // features)
    schema = pa.schema([("node", pa.int64()), ("features", pa.list_(pa.float32(), features))])
    with pq.ParquetWriter(folder / FEATURES, schema, **_PARQUET) as writer, (folder / LABELS).open("wb") as labels:
        labels.write(b"node,label\n")
        for first in range(0, nodes, rows):
            count = min(rows, nodes - first)
            values, named = np.empty((count, features), np.float32), np.empty((count, 2), np.int64)
            _make_nodes(first, nodes, model.communities, *keys, model.signal, np.float32(model.unit), values, named)
            lists = pa.FixedSizeListArray.from_arrays(column(values.reshape(-1)), features)
            writer.write_table(pa.table([column(named[:, 0]), lists], schema))
            text, lengths = format_pairs(named[named[:, 0] < MOST_LABELS], np.empty(0, np.uint8), ord(","))
            for part, length in zip(text, lengths, strict=True):
                labels.write(part[:length].data)
            written(count)


@nb.njit(parallel=True, cache=True)
def _draw_edges(
    ends: NDArray[np.int64], start: int, covered: int, nodes: int, communities: int, local: float, key: np.uint64,
    names: np.uint64, power: float, offset: float,
) -> None:  # fmt: skip
    """Fill `ends` [2, k] with edges number `start`, `start` + 1, …; i begins at rank i if below `covered`.

    Other ends are drawn by inverting the cumulative weight, which is (x + offset)^power up to scale. The second
    end of one within a community is moved to the rank nearby that belongs to it.
    """
    low, high = offset**power, (nodes + offset) ** power
    size = np.uint64(nodes)
    half_bits = half_bits_of(size)
    for i in nb.prange(ends.shape[1]):
        state = mix(key ^ mix(np.uint64(start + i)))
        u, v = np.int64(0), np.int64(0)
        while u == v:
            for end in range(2):
                state += GAMMA
                rank = rank_by_weight(uniform(state), low, high, power, offset, nodes)
                if end == 0:
                    u = rank if start + i >= covered else np.int64(start + i)
                    continue
                state += GAMMA
                if uniform(state) < local:
                    rank = rank - rank % communities + u % communities
                    if rank >= nodes:
                        rank -= communities
                v = rank
        # Numbers independent of degree and community, as in real files.
        ends[0, i] = np.int64(permuted(np.uint64(u), size, half_bits, names))
        ends[1, i] = np.int64(permuted(np.uint64(v), size, half_bits, names))


@nb.njit(parallel=True, cache=True)
def _make_nodes(
    first: int, nodes: int, communities: int, names: np.uint64, key: np.uint64, signal: int, unit: np.float32,
    values: NDArray[np.float32], named: NDArray[np.int64],
) -> None:  # fmt: skip
    """Make the nodes of rank `first`, `first` + 1, …; output: features `values` [k, d], `named` (number, community)."""
    size = np.uint64(nodes)
    half_bits = half_bits_of(size)
    for i in nb.prange(len(values)):
        community = (first + i) % communities
        named[i, 0] = np.int64(permuted(np.uint64(first + i), size, half_bits, names))
        named[i, 1] = community
        state, centroid = mix(key ^ mix(np.uint64(first + i))), mix(key + np.uint64(community + 1) * GAMMA)
        fill_around(values[i], centroid, state, signal, unit)
