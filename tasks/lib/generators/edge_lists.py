"""Random graphs of any size as edge list files, made in chunks of bounded memory.

    generate("chung-lu", nodes=1_000_000, edges=20_000_000, path="graph.csv.gz", seed=7)

Each edge is a pure function of (model, seed, its number), so the file is the same on any machine and number of
threads.

- `er`: the uniform random simple graph G(n, m). The edges are the first m values of a keyed permutation of all
  n(n-1)/2 vertex pairs, hence distinct without remembering any.
- `chung-lu`: power-law expected degrees (Chung and Lu, 2002). Both ends of an edge are drawn in proportion to the
  vertices' weights, so that the file may name an edge twice (the index stage merges such rows); self-loops are
  drawn again. The largest expected degree is at most sqrt(2m), the model's own condition.

Vertices that no edge reaches do not occur in the file, as in any edge list.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, get_args

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.kernels.permutation import half_bits_of, permuted, unordered_pair
from superworkflow.tasks.lib.kernels.permutation import key as key_of_seed
from superworkflow.tasks.lib.kernels.random import GAMMA, mix, rank_by_weight, uniform

Model = Literal["er", "chung-lu"]

CHUNK_EDGES = 1 << 20
"""Edges made and written at a time."""


def generate(
    model: Model,
    nodes: int,
    edges: int,
    path: str | Path,
    seed: int = 0,
    *,
    exponent: float = 2.5,
    prefix: str = "",
    header: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write a random undirected graph as an edge list.

    Args:
        model: `er` or `chung-lu`.
        nodes: number of vertices, 2 to 2³¹.
        edges: number of rows to write.
        path: local file; its ending chooses the format: `.csv`, `.tsv`, `.txt` (blanks, no header; also
            `.edges`), each also with `.gz`, or `.parquet`.
        seed: another seed, another graph.
        exponent: of the power law of degrees, above 2; `chung-lu` only.
        prefix: put before each vertex number to make labels of strings, such as `user`.
        header: write `source,target` first (`.csv` and `.tsv`).
        progress: called with (edges written, edges in all) after each chunk.

    Returns:
        The path of the file.

    Raises:
        UserError: names the argument that is out of range.
    """
    path = Path(path)
    if model not in get_args(Model):
        raise UserError(
            "unknown model", where="model", value=model, remedy=f"Choose one of {', '.join(get_args(Model))}"
        )
    check_sizes(nodes, edges, exponent if model == "chung-lu" else None)
    if set(prefix) & set("\"',\t\n\r #%") or not prefix.isascii():
        raise UserError(
            "must be ASCII without blanks, commas, quotes, # and %", where="prefix", value=prefix,
            remedy="Choose a word such as user",
        )  # fmt: skip
    key = key_of_seed(seed, get_args(Model).index(model))
    offset = offset_of(nodes, edges, exponent) if model == "chung-lu" else 0.0
    with _writer(path, prefix, header) as write:
        for start in range(0, edges, CHUNK_EDGES):
            pairs = np.empty((min(CHUNK_EDGES, edges - start), 2), np.int64)
            if model == "er":
                _er_edges(pairs, start, nodes, key)
            else:
                _chung_lu_edges(pairs, start, nodes, key, 1.0 - 1.0 / (exponent - 1.0), offset)
            write(pairs)
            if progress:
                progress(start + len(pairs), edges)
    return path


def check_sizes(nodes: int, edges: int, exponent: float | None) -> None:
    """Refuse counts that no graph has, and an exponent (None: there is none) without a mean.

    Raises:
        UserError: names the one that is out of range.
    """
    if not 2 <= nodes <= 1 << 31:
        raise UserError("out of range", where="nodes", value=nodes, remedy="Give 2 to 2147483648 vertices")
    most = nodes * (nodes - 1) // 2
    if not 1 <= edges <= most:
        raise UserError(
            "out of range",
            where="edges",
            value=edges,
            remedy=f"Give 1 to {most} edges, all that {nodes} vertices can have",
        )
    if exponent is not None and exponent <= 2:
        raise UserError("must be above 2", where="exponent", value=exponent, remedy="Real graphs have 2.1 to 3")


def offset_of(nodes: int, edges: int, exponent: float) -> float:
    """The i0 of the weights (i + i0)^(-1/(exponent-1)) that bounds the first vertex's expected degree by sqrt(2m)."""
    power = 1.0 - 1.0 / (exponent - 1.0)

    def first_degree(offset: float) -> float:
        low, high = offset**power, (nodes + offset) ** power
        return float(2.0 * edges * ((1.0 + offset) ** power - low) / (high - low))

    lowest, highest = 0.0, 1.0
    while first_degree(highest) > np.sqrt(2.0 * edges) and highest < 64.0 * nodes:
        highest *= 2.0
    for _ in range(60):
        middle = (lowest + highest) / 2.0
        if first_degree(middle) > np.sqrt(2.0 * edges):
            lowest = middle
        else:
            highest = middle
    return highest


@nb.njit(parallel=True, cache=True)
def _er_edges(pairs: NDArray[np.int64], start: int, nodes: int, key: np.uint64) -> None:
    """Fill `pairs` [k, 2] with edges number `start`, `start` + 1, …: pair number i is row u of the lower triangle."""
    size = np.uint64(nodes) * np.uint64(nodes - 1) // np.uint64(2)
    half_bits = half_bits_of(size)
    for i in nb.prange(len(pairs)):
        number = np.int64(permuted(np.uint64(start + i), size, half_bits, key))
        u, v = unordered_pair(number)
        flip = mix(np.uint64(number) ^ key) & np.uint64(1)
        pairs[i, 0] = v if flip else u
        pairs[i, 1] = u if flip else v


@nb.njit(parallel=True, cache=True)
def _chung_lu_edges(
    pairs: NDArray[np.int64], start: int, nodes: int, key: np.uint64, power: float, offset: float
) -> None:
    """Fill `pairs` [k, 2]: each end by inverting the cumulative weight, which is (x + offset)^power up to scale."""
    low, high = offset**power, (nodes + offset) ** power
    size = np.uint64(nodes)
    half_bits = half_bits_of(size)
    for i in nb.prange(len(pairs)):
        state = mix(key ^ mix(np.uint64(start + i)))
        u, v = np.int64(nodes), np.int64(nodes)
        while u == v:
            for end in range(2):
                state += GAMMA
                rank = rank_by_weight(uniform(state), low, high, power, offset, nodes)
                if end == 0:
                    u = rank
                else:
                    v = rank
        # Numbers independent of the degree, as in real files.
        pairs[i, 0] = np.int64(permuted(np.uint64(u), size, half_bits, key))
        pairs[i, 1] = np.int64(permuted(np.uint64(v), size, half_bits, key))


@contextmanager
def _writer(path: Path, prefix: str, header: bool) -> Iterator[Callable[[NDArray[np.int64]], None]]:
    """A function that appends pairs [k, 2] to the file in the format that its ending names."""
    name = path.name.lower()
    kind = name.removesuffix(".gz").rpartition(".")[2]
    if kind == "parquet" and not name.endswith(".gz"):
        yield from _parquet_writer(path, prefix)
        return
    separators = {"csv": ",", "tsv": "\t", "txt": " ", "edges": " "}
    if kind not in separators:
        raise UserError(
            "unknown file ending", where=str(path), value=path.suffix,
            remedy="End the name in .csv, .tsv, .txt (each also .gz) or .parquet",
        )  # fmt: skip
    separator, label = separators[kind], np.frombuffer(prefix.encode(), np.uint8)
    with path.open("wb") as raw:
        # No name and no time in the gzip header: the same graph is the same bytes.
        stream: IO[bytes] | Any = gzip.GzipFile("", "wb", 1, raw, mtime=0) if name.endswith(".gz") else raw
        if header and separator != " ":
            stream.write(f"source{separator}target\n".encode())

        def write(pairs: NDArray[np.int64]) -> None:
            text, lengths = format_pairs(pairs, label, ord(separator))
            for part, length in zip(text, lengths, strict=True):
                stream.write(part[:length].data)

        yield write
        if stream is not raw:
            stream.close()


def _parquet_writer(path: Path, prefix: str) -> Iterator[Callable[[NDArray[np.int64]], None]]:
    kind = pa.string() if prefix else pa.int64()
    schema = pa.schema([("source", kind), ("target", kind)])
    with pq.ParquetWriter(path, schema) as parquet:

        def column(values: NDArray[np.int64]) -> pa.Array:
            if not prefix:
                return pa.array(values)
            return pa.compute.binary_join_element_wise(prefix, pa.array(values).cast(pa.string()), "")

        def write(pairs: NDArray[np.int64]) -> None:
            parquet.write_table(pa.table([column(np.ascontiguousarray(pairs[:, end])) for end in (0, 1)], schema))

        yield write


@nb.njit(parallel=True, cache=True)
def format_pairs(
    pairs: NDArray[np.int64], prefix: NDArray[np.uint8], separator: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Text of `pairs` in 64 parts: bytes [64, room] and the length of each."""
    parts = 64
    rows = (len(pairs) + parts - 1) // parts
    text = np.empty((parts, rows * 2 * (len(prefix) + 21)), np.uint8)
    lengths = np.zeros(parts, np.int64)
    for part in nb.prange(parts):
        length = 0
        for row in range(part * rows, min((part + 1) * rows, len(pairs))):
            for end in range(2):
                for byte in prefix:
                    text[part, length] = byte
                    length += 1
                value = pairs[row, end]
                digits = 1
                limit = np.int64(10)
                while value >= limit:
                    digits += 1
                    limit *= 10
                for place in range(digits - 1, -1, -1):
                    text[part, length + place] = 48 + value % 10
                    value //= 10
                length += digits
                text[part, length] = separator if end == 0 else 10
                length += 1
        lengths[part] = length
    return text, lengths
