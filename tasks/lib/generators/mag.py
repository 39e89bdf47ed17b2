"""A random graph with the sets and sizes of OGBN-MAG (Hu et al., NeurIPS 2020), at any scale, in bounded memory.

    generate_mag(1.0, "mag", seed=7)

writes `schema.pbtxt`, `spec.pbtxt` and a Parquet table for each node and edge set. At scale 1 every table has as many
rows as the original. Each node and its edges are a pure function of (seed, number of the node), so the tables are the
same on any machine and number of threads.

Nodes lie on a line, cut into blocks. Most neighbours are drawn from the block at the same place of the line, by a power
law of the rank within the block: co-authors write several papers together, and papers cite those of their own field, as
real ones do. The others are drawn from all blocks. A node's name is independent of its place. A paper's venue, its
label, depends on the place too, and its features on the venue: features and neighbours both predict it.

Degrees were tuned until a record of the spec had the published 147 kB, with the ids of nodes, which the original's have
as a feature (2026-11-22, 1,500 seeds: 147.8 kB; without ids 135.8 kB).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.graph.sparse_rows import row_starts
from superworkflow.tasks.lib.kernels.permutation import half_bits_of, permuted
from superworkflow.tasks.lib.kernels.permutation import key as key_of_seed
from superworkflow.tasks.lib.kernels.random import GAMMA, fill_around, mix, rank_by_weight, uniform

NODES = {"author": 1_134_649, "field_of_study": 59_965, "institution": 8_740, "paper": 736_389}
VENUES = 349
FEATURES = 128
YEARS = ((2018, 629_571), (2019, 64_879), (2020, 41_939))
"""Papers of the years before each, since 2010, and since the one before: those to train on, to validate and to test."""

SMALLEST, LARGEST = 0.001, 1000.0
CHUNK_NODES = 1 << 16
"""Nodes whose features or edges are made at a time."""
GROUP_ROWS = 1 << 20
SHARD_ROWS = 1 << 23

_VENUE_POWER = 2.0
"""Power of the sizes of venues: paper number p of n belongs to venue (p / n) ^ (1 / power)."""
_OFFSET = 2.0
"""A drawn node of rank r has a weight of about (r + this)^(power - 1)."""
_SIGNAL = 9_000
"""Spread of the venues' centroids, where that of the noise around them is 37,836 (four uniform numbers below 2¹⁶)."""


class GeneratedEdges(NamedTuple):
    """One set of edges.

    Args:
        name: of the set.
        drawer: the node set whose nodes draw their neighbours.
        drawn: the node set that they draw from.
        total: edges at scale 1.
        least: edges that every node draws.
        degree_power: edges of the node of rank r are in proportion to (r + n / spread) ^ -degree_power.
        spread: flattens the head of that power law.
        block: nodes of a block.
        local: share of the draws from the block at the same place.
        popularity: the node of rank r in its block is drawn in proportion to (r + 2) ^ -popularity.
        turned: whether those that draw are the targets.
    """

    name: str
    drawer: str
    drawn: str
    total: int
    least: int
    degree_power: float
    spread: float
    block: int
    local: float
    popularity: float
    turned: bool = False


EDGES = (
    GeneratedEdges("affiliated_with", "author", "institution", 1_043_998, 0, 0.45, 500.0, 16, 0.8, 0.5),
    GeneratedEdges("cites", "paper", "paper", 5_416_271, 0, 0.55, 1000.0, 512, 0.8, 0.7),
    GeneratedEdges("has_topic", "paper", "field_of_study", 7_505_078, 2, 0.2, 200.0, 16, 0.5, 0.9),
    GeneratedEdges("writes", "paper", "author", 7_145_660, 1, 0.7, 2000.0, 128, 0.93, 0.5, turned=True),
)

SPEC = """seed_op { op_name: "seed" node_set_name: "paper" }
sampling_ops {
  op_name: "seed->paper"
  input_op_names: "seed"
  edge_set_name: "cites"
  sample_size: 32
  strategy: RANDOM_UNIFORM
}
sampling_ops {
  op_name: "paper->author"
  input_op_names: "seed"
  input_op_names: "seed->paper"
  edge_set_name: "written"
  sample_size: 8
  strategy: RANDOM_UNIFORM
}
sampling_ops {
  op_name: "author->paper"
  input_op_names: "paper->author"
  edge_set_name: "writes"
  sample_size: 16
  strategy: RANDOM_UNIFORM
}
sampling_ops {
  op_name: "author->institution"
  input_op_names: "paper->author"
  edge_set_name: "affiliated_with"
  sample_size: 16
  strategy: RANDOM_UNIFORM
}
sampling_ops {
  op_name: "paper->field_of_study"
  input_op_names: "seed"
  input_op_names: "seed->paper"
  input_op_names: "author->paper"
  edge_set_name: "has_topic"
  sample_size: 16
  strategy: RANDOM_UNIFORM
}
"""


def generate_mag(
    scale: float, folder: str | Path, seed: int = 0, *, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Write the graph's tables, its schema and the spec by which it is sampled.

    Args:
        scale: of the counts of nodes and edges, 0.001 to 1000.
        folder: local; made if it is not there.
        seed: another seed, another graph.
        progress: called with (rows written, rows in all) after each chunk.

    Returns:
        The folder.

    Raises:
        UserError: the scale is out of range.
    """
    if not SMALLEST <= scale <= LARGEST:
        raise UserError("out of range", where="scale", value=scale, remedy=f"Give {SMALLEST:g} to {LARGEST:g}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    nodes = {name: round(count * scale) for name, count in NODES.items()}
    edges = {each.name: round(each.total * scale) for each in EDGES}
    total, done = sum(nodes.values()) + sum(edges.values()), 0
    (folder / "spec.pbtxt").write_text(SPEC)
    (folder / "schema.pbtxt").write_text(schema_text(nodes, edges))
    parts = [(name, _node_tables(name, count, seed), count) for name, count in nodes.items()]
    parts += [(each.name, _edge_tables(each, nodes, edges[each.name], seed), edges[each.name]) for each in EDGES]
    for name, tables, rows in parts:
        kind = "nodes" if name in nodes else "edges"
        for written in _write(folder, f"{kind}-{name}", tables, rows):
            done += written
            if progress:
                progress(done, total)
    return folder


def schema_text(nodes: dict[str, int], edges: dict[str, int]) -> str:
    """The schema of such a graph of these counts."""
    text = ""
    for name, count in nodes.items():
        features = ""
        if name == "paper":
            features = (
                f'    features {{ key: "feat" value {{ dtype: DT_FLOAT shape {{ dim {{ size: {FEATURES} }} }} }} }}\n'
                '    features { key: "labels" value { dtype: DT_INT64 } }\n'
                '    features { key: "year" value { dtype: DT_INT64 } }\n'
            )
        where = f'metadata {{ filename: "{_pattern(f"nodes-{name}", count)}" cardinality: {count} }}'
        text += f'node_sets {{\n  key: "{name}"\n  value {{\n{features}    {where}\n  }}\n}}\n'
    for each in EDGES:
        ends = (each.drawn, each.drawer) if each.turned else (each.drawer, each.drawn)
        text += _edge_text(each.name, *ends, f"edges-{each.name}", edges[each.name])
        if each.turned:
            text += _edge_text("written", *ends[::-1], f"edges-{each.name}", edges[each.name], is_reversed=True)
    return text


def _edge_text(name: str, source: str, target: str, table: str, count: int, is_reversed: bool = False) -> str:
    extra = ' extra { key: "edge_type" value: "reversed" }' if is_reversed else ""
    where = f'metadata {{ filename: "{_pattern(table, count)}" cardinality: {count}{extra} }}'
    ends = f'    source: "{source}"\n    target: "{target}"\n'
    return f'edge_sets {{\n  key: "{name}"\n  value {{\n{ends}    {where}\n  }}\n}}\n'


def _shards(rows: int) -> int:
    return -(-rows // SHARD_ROWS)


def _pattern(table: str, rows: int) -> str:
    """The name of a table as a schema says it."""
    return f"{table}.parquet" if _shards(rows) == 1 else f"{table}@{_shards(rows)}.parquet"


def _write(folder: Path, name: str, tables: Iterator[pa.Table], rows: int) -> Iterator[int]:
    """Write a table of `rows` rows in groups of one size, whatever the chunks; yields the rows of each group."""
    shards = _shards(rows)
    waiting: list[pa.Table] = []
    for shard in range(shards):
        left = min(SHARD_ROWS, rows - shard * SHARD_ROWS)
        file = f"{name}.parquet" if shards == 1 else f"{name}-{shard:05d}-of-{shards:05d}.parquet"
        with ExitStack() as stack:
            writer = None
            while left:
                wanted = min(GROUP_ROWS, left)
                while sum(map(len, waiting)) < wanted:
                    waiting.append(next(tables))
                table = pa.concat_tables(waiting)
                if writer is None:
                    options = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}
                    writer = stack.enter_context(pq.ParquetWriter(folder / file, table.schema, **options))
                # In one piece: pages end where pieces do.
                writer.write_table(table.slice(0, wanted).combine_chunks(), row_group_size=wanted)
                waiting = [table.slice(wanted)]
                left -= wanted
                yield wanted


def _node_tables(name: str, count: int, seed: int) -> Iterator[pa.Table]:
    """Parts of the table of a node set."""
    key, number = _key(seed, name), np.empty(0, np.int64)
    for first in range(0, count, CHUNK_NODES):
        number = np.empty(min(CHUNK_NODES, count - first), np.int64)
        _numbers(first, count, key, number)
        columns = {"id": column(number).cast(pa.string())}
        if name == "paper":
            columns |= _paper_columns(first, len(number), count, seed)
        yield pa.table(columns)


def _paper_columns(first: int, rows: int, count: int, seed: int) -> dict[str, pa.Array]:
    values, venues = np.empty((rows, FEATURES), np.float32), np.empty(rows, np.int64)
    of_features, of_years = key_of_seed(seed, _FEATURES_STREAM), key_of_seed(seed, _YEARS_STREAM)
    _features(first, count, of_features, values, venues)
    place = np.empty(rows, np.int64)
    _numbers(first, count, of_years, place)  # in an order by year
    return {
        "feat": pa.FixedSizeListArray.from_arrays(column(values.reshape(-1)), FEATURES),
        "labels": column(venues),
        "year": column(_years(place, count)),
    }


def _years(place: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Years of papers in their order by year: 2010 to 2017, 2018 and 2019, with the shares that the original has."""
    of_all = NODES["paper"]
    bounds = [round(sum(n for _, n in YEARS[: i + 1]) * count / of_all) for i in range(2)]
    early = 2010 + place * 8 // max(bounds[0], 1)
    return np.where(place < bounds[0], early, np.where(place < bounds[1], 2018, 2019))


def _edge_tables(edges: GeneratedEdges, nodes: dict[str, int], count: int, seed: int) -> Iterator[pa.Table]:
    """Parts of the table of an edge set, in the order of the places of those that draw."""
    drawers, drawn = nodes[edges.drawer], nodes[edges.drawn]
    keys = tuple(key_of_seed(seed, _EDGES_STREAM, EDGES.index(edges), part) for part in range(3))
    names = ("target", "source") if edges.turned else ("source", "target")
    for first in range(0, drawers, CHUNK_NODES):
        rows = min(CHUNK_NODES, drawers - first)
        degrees = np.empty(rows, np.int64)
        _degrees(
            first, drawers, count - edges.least * drawers, edges.least, 1.0 - edges.degree_power,
            max(1.0, drawers / edges.spread), keys[0], degrees,
        )  # fmt: skip
        starts = row_starts(degrees)
        ends = np.empty((2, int(starts[-1])), np.int64)
        _draw(
            first, drawers, drawn, starts, edges.block, edges.local, 1.0 - edges.popularity, keys[1], keys[2],
            edges.drawer == edges.drawn, ends[1],
        )  # fmt: skip
        _name(first, drawers, starts, _key(seed, edges.drawer), _key(seed, edges.drawn), drawn, ends)
        both = {name: column(end).cast(pa.string()) for name, end in zip(names, ends, strict=True)}
        yield pa.table({"source": both["source"], "target": both["target"]})


_NAMES_STREAM, _FEATURES_STREAM, _YEARS_STREAM, _EDGES_STREAM = range(1_000, 1_004)
"""Set the random streams apart."""


def _key(seed: int, node_set: str) -> np.uint64:
    """Key of the permutation from a node's place to its number."""
    return key_of_seed(seed, _NAMES_STREAM, list(NODES).index(node_set))


@nb.njit(parallel=True, cache=True)
def _numbers(first: int, count: int, key: np.uint64, out: NDArray[np.int64]) -> None:
    """Write the numbers of the nodes at places `first`, `first` + 1, … to `out`."""
    size = np.uint64(count)
    half_bits = half_bits_of(size)
    for i in nb.prange(len(out)):
        out[i] = np.int64(permuted(np.uint64(first + i), size, half_bits, key))


@nb.njit(parallel=True, cache=True)
def _features(first: int, count: int, key: np.uint64, values: NDArray[np.float32], venues: NDArray[np.int64]) -> None:
    """Write features `values` [k, d] and `venues` [k] of papers: the venue's centroid and noise, scaled once."""
    for i in nb.prange(len(values)):
        place = np.float64(first + i) / np.float64(count)
        venue: Any = min(np.int64(place ** (1.0 / _VENUE_POWER) * VENUES), VENUES - 1)
        venues[i] = venue
        state, centroid = mix(key ^ mix(np.uint64(first + i))), mix(key + np.uint64(venue) * GAMMA)
        fill_around(values[i], centroid, state, _SIGNAL, np.float32(2.0**-16))


@nb.njit(cache=True)
def _up_to(rank: Any, total: int, low: float, high: float, power: float, offset: float) -> Any:
    return np.int64(total * ((rank + offset) ** power - low) / (high - low))


@nb.njit(parallel=True, cache=True)
def _degrees(
    first: int, count: int, total: int, least: int, power: float, offset: float, key: np.uint64,
    out: NDArray[np.int64],
) -> None:  # fmt: skip
    """Write how many edges each node draws to `out`: differences of rounded cumulative weights, `total` in all."""
    low, high = offset**power, (count + offset) ** power
    size = np.uint64(count)
    half_bits = half_bits_of(size)
    for i in nb.prange(len(out)):
        rank = np.int64(permuted(np.uint64(first + i), size, half_bits, key))
        until = total if rank == count - 1 else _up_to(rank + 1, total, low, high, power, offset)
        out[i] = least + until - _up_to(rank, total, low, high, power, offset)


@nb.njit(parallel=True, cache=True)
def _draw(
    first: int, drawers: int, drawn: int, starts: NDArray[np.int64], block: int, local: float, power: float,
    key: np.uint64, hubs: np.uint64, same: bool, out: NDArray[np.int64],
) -> None:  # fmt: skip
    """Places of the nodes that those at places `first`, … draw: distinct for each, and never itself.

    Args:
        starts: where the draws of each begin in `out` [k + 1].
        power: 1 - the exponent of popularity.
        hubs: key of the order of blocks by popularity.
        same: True if both are of one node set.
        out: output, places that are drawn.
    """
    blocks = (drawn + block - 1) // block
    low = _OFFSET**power
    high, high_blocks = (block + _OFFSET) ** power, (blocks + _OFFSET) ** power
    half_bits = half_bits_of(np.uint64(blocks))
    for i in nb.prange(len(starts) - 1):
        state = mix(key ^ mix(np.uint64(first + i)))
        own = (first + i) * blocks // drawers
        begin, end = starts[i], starts[i + 1]
        distinct = end - begin < drawn
        for draw in range(begin, end):
            attempt, place = 0, -1
            while True:
                if attempt < 32:
                    state += GAMMA
                    where: Any = own
                    if uniform(state) >= local:
                        state += GAMMA
                        rank = rank_by_weight(uniform(state), low, high_blocks, power, _OFFSET, blocks)
                        where = np.int64(permuted(np.uint64(rank), np.uint64(blocks), half_bits, hubs))
                    state += GAMMA
                    place = (where * block + rank_by_weight(uniform(state), low, high, power, _OFFSET, block)) % drawn
                else:  # nearly all of what it draws from is taken: the next one that is free
                    place = (place + 1) % drawn
                attempt += 1
                taken = same and place == first + i
                for before in range(begin, draw):
                    taken |= out[before] == place
                if not taken or not distinct:
                    break
            out[draw] = place


@nb.njit(parallel=True, cache=True)
def _name(
    first: int, drawers: int, starts: NDArray[np.int64], key: np.uint64, key_drawn: np.uint64, drawn: int,
    ends: NDArray[np.int64],
) -> None:  # fmt: skip
    """Fill `ends` [2, k] with numbers: of those that draw, and of the places that they drew."""
    size, size_drawn = np.uint64(drawers), np.uint64(drawn)
    half_bits, half_bits_drawn = half_bits_of(size), half_bits_of(size_drawn)
    for i in nb.prange(len(starts) - 1):
        number = np.int64(permuted(np.uint64(first + i), size, half_bits, key))
        for draw in range(starts[i], starts[i + 1]):
            ends[0, draw] = number
            ends[1, draw] = np.int64(permuted(np.uint64(ends[1, draw]), size_drawn, half_bits_drawn, key_drawn))
