"""Seeds: all nodes of a set or those of a table, their splits, latest timestamps and repeats."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.text_file import open_unpacked
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.formats.text_header import separator_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.random import mix
from superworkflow.tasks.lib.subgraphs.blocks import SPLITS
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.sampler import TIMESTAMP, SeedRows
from superworkflow.tasks.sample.spec import SamplingSpec

SPLIT = "split"
NO_SPLIT = -1
_ALIASES = {"valid": "validation", "val": "validation", "dev": "validation"}
_ENDS = ("source", "target")
_PARQUET = b"PAR1"
_LATEST = np.iinfo(np.int64).max


class SeedTable:
    """All seeds of a dataset, by splits.

    Args:
        ids: of the nodes of the seeds' set.
        numbers: of the seeds' nodes [n, 1], of links [n, 2].
        times: int64 [n].
        splits: int8 [n], places in `SPLITS`; `NO_SPLIT` for those that are left out.
        repeats: subgraphs of each.

    Attributes:
        doubts: warnings about the table.
    """

    def __init__(
        self, ids: pa.Array, numbers: NDArray[Any], times: NDArray[np.int64], splits: NDArray[np.int8], repeats: int
    ):
        self._ids, self._numbers, self._times, self._repeats = ids, numbers, times, repeats
        self._earlier = _earlier(numbers)
        self.doubts: list[InputWarning] = []
        self._rows = {name: np.flatnonzero(splits == number) for number, name in enumerate(SPLITS)}

    def in_several(self, where: str) -> list[InputWarning]:
        """A warning if seeds are in more than one split."""
        if not self._earlier.any():
            return []
        nodes, splits = np.unique(
            np.concatenate([np.unique(self._numbers[rows], axis=0) for rows in self._rows.values()]),
            axis=0, return_counts=True,
        )  # fmt: skip
        found = nodes[splits > 1]
        if not len(found):
            return []
        first = "/".join(self._ids.take(pa.array(found[0])).cast(pa.string()).to_pylist())
        what = f"{len(found)} seeds are in more than one split, so that a model is judged on what it has learned"
        return [InputWarning(what, f"{where}, column {SPLIT}", first, "Give each seed one split")]

    def count(self, split: str) -> int:
        """Subgraphs of a split."""
        return len(self._rows[split]) * self._repeats

    def rows(self, split: str, first: int = 0, last: int | None = None) -> SeedRows:
        """Subgraphs `first` to `last - 1` of a split, in the order of seeds and repeats."""
        places = np.arange(first, self.count(split) if last is None else last)
        rows = self._rows[split][places // self._repeats]
        repeats = self._earlier[rows] * self._repeats + places % self._repeats
        ids = self._ids.take(pa.array(self._numbers[rows, 0]))
        if self._numbers.shape[1] == 2:
            ids = _joined(ids, self._ids.take(pa.array(self._numbers[rows, 1])), "/")
        again = _joined(ids, pc.cast(pa.array(repeats), ids.type), ":")
        ids = pc.cast(pc.if_else(pa.array(repeats > 0), again, ids), pa.string())
        return SeedRows(ids, self._numbers[rows], self._times[rows], repeats)


def find_seeds(
    graph: HeteroGraph,
    spec: SamplingSpec,
    params: SampleParams,
    table: Path | pa.Table | None = None,
    where: str = "seeds",
) -> SeedTable:
    """All seeds.

    Args:
        graph: that they are nodes of.
        spec: with the node set of its seeds; see `SamplingSpec.fitted`.
        params: repeats and fractions.
        table: CSV, Parquet or what `read_table` gave of such, with column `id`, of links `source` and `target`, and
            perhaps `split` and `timestamp`;
            None for all nodes of the set.
        where: the table's name for people.

    Raises:
        UserError: a seed is no node of the set, the table cannot be read, or a timestamp that is needed is missing.
    """
    ids = graph.ids(spec.node_set).combine_chunks()
    needs_time = any(op.strategy == "LATEST_K" for op in spec.ops)
    if table is None and spec.is_link:
        raise UserError(
            "links need a table of seeds", where=f"{spec.where}, op {spec.seed_op}",
            remedy="Give seeds, a table with columns source and target",
        )  # fmt: skip
    given = read_table(table, where) if isinstance(table, Path) else pa.table({}) if table is None else table
    if table is None:
        numbers = np.arange(len(ids), dtype=np.int64).reshape(-1, 1)
    else:
        names = _ENDS if spec.is_link else ("id",)
        numbers = np.stack([_numbers(ids, given, name, spec.node_set, where) for name in names], 1)
    features = {each.name for each in graph.node_sets[spec.node_set].features} if not spec.is_link else set()
    times = np.full(len(numbers), _LATEST)
    if needs_time:
        times = _times(graph, spec, given, features, numbers, where)
    if SPLIT in given.column_names:
        splits = _splits(given[SPLIT], where)
    elif SPLIT in features:
        owner = f"node set {spec.node_set}, feature {SPLIT}"
        splits = _splits(graph.node_feature(spec.node_set, SPLIT), owner)[numbers[:, 0]]
    else:
        splits = _by_hash(ids, numbers, params.fractions)
    if table is not None and not (splits != NO_SPLIT).any():
        raise UserError("the table of seeds has no seed in a split", where=where, value=f"{len(splits)} rows",
                        remedy="Give at least one, or no table of seeds for all nodes of the set")  # fmt: skip
    seeds = SeedTable(ids, numbers, times, splits, params.repeats)
    if not needs_time:
        seeds.doubts = seeds.in_several(where)
    return seeds


def _joined(left: pa.Array, right: pa.Array, mark: str) -> pa.Array:
    return pc.binary_join_element_wise(left, right, pa.scalar(mark, left.type))


def read_table(path: Path, where: str) -> pa.Table:
    """The columns that seeds may have, ids and splits as text.

    Raises:
        UserError: it is neither CSV with a header nor Parquet, or lacks a column.
    """
    import pyarrow.csv as arrow_csv  # most runs have no table of seeds
    import pyarrow.parquet as pq

    wanted = ("id", *_ENDS, SPLIT, TIMESTAMP)
    try:
        with open_unpacked(path, where) as stream:
            content = stream.read()
        if content.startswith(_PARQUET):
            with pq.ParquetFile(pa.BufferReader(content)) as file:
                names = [name for name in file.schema_arrow.names if name.removeprefix("#") in wanted]
                table = file.read(names)
        else:
            line = content.split(b"\n", 1)[0].decode("utf-8-sig").strip("\r")
            separator = separator_of(line, where)
            header = next(csv.reader([line], delimiter=separator), [])
            names = [name for name in header if name.removeprefix("#") in wanted]
            options = arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.large_string()), include_columns=names or ["id"]
            )
            parsing = arrow_csv.ParseOptions(delimiter=separator)
            table = arrow_csv.read_csv(io.BytesIO(content), parse_options=parsing, convert_options=options)
    except (pa.ArrowException, KeyError, ValueError, csv.Error) as error:
        raise UserError(
            f"the table of seeds cannot be read: {error}", where=where,
            remedy="Give CSV with a header, or Parquet, with a column id, or source and target",
        ) from None  # fmt: skip
    return table.rename_columns([name.removeprefix("#") for name in table.column_names])


def _numbers(ids: pa.Array, table: pa.Table, column: str, node_set: str, where: str) -> NDArray[np.int64]:
    """Numbers of the nodes in a column of ids."""
    if column not in table.column_names:
        raise UserError(f"the table of seeds has no column {column}", where=where, value=table.column_names)
    seeds = pc.cast(table[column].combine_chunks(), ids.type)
    matches = pc.index_in(ids, value_set=pc.unique(seeds))  # a hash table of the seeds, not of all nodes
    nodes = np.flatnonzero(matches.is_valid().to_numpy(zero_copy_only=False))
    found = pc.index_in(seeds, value_set=ids.take(pa.array(nodes)))
    if found.null_count:
        raise UserError(
            f"{found.null_count} of {len(seeds)} seeds are no nodes of set {node_set!r}, the first one is given",
            where=f"{where}, column {column}", value=seeds[found.is_null().index(True).as_py()].as_py(),
            remedy="Give ids as they stand in the node set's table",
        )  # fmt: skip
    numbers: NDArray[np.int64] = nodes[found.to_numpy(zero_copy_only=False)]
    return numbers


def _times(
    graph: HeteroGraph, spec: SamplingSpec, table: pa.Table, features: set[str], numbers: NDArray[np.int64], where: str
) -> NDArray[np.int64]:
    """Timestamps of the seeds, from the table or the nodes' feature."""
    if TIMESTAMP in table.column_names:
        column = table[TIMESTAMP].combine_chunks()
        try:
            return np.asarray(
                pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False).astype(np.int64, casting="safe")
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
            raise UserError(
                f"a seed has no timestamp, or one that is no integer: {error}", where=f"{where}, column {TIMESTAMP}",
                remedy="Give each seed a timestamp",
            ) from None  # fmt: skip
    if TIMESTAMP in features:
        values = graph.node_feature(spec.node_set, TIMESTAMP)
        if isinstance(values, np.ndarray) and values.dtype.kind == "i" and values.ndim == 1:
            return np.asarray(values[numbers[:, 0]], np.int64)
    raise UserError(
        "the seeds have no timestamps, and LATEST_K samples no later edges", where=f"{spec.where}, op {spec.seed_op}",
        remedy=f"Give seeds with a column {TIMESTAMP}, or their node set a feature {TIMESTAMP}, int64",
    )  # fmt: skip


def _splits(values: Any, where: str) -> NDArray[np.int8]:
    """Places in `SPLITS` of words or numbers; an empty one is in no split."""
    column = pa.array(values) if isinstance(values, np.ndarray) and values.ndim == 1 else values
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    words = pc.dictionary_encode(pc.fill_null(pc.cast(pc.cast(column, pa.large_binary())
            if pa.types.is_binary(column.type) else column, pa.large_string()), ""))  # fmt: skip
    places = {name: number for number, name in enumerate(SPLITS)} | {str(n): n for n in range(len(SPLITS))}
    places |= {alias: SPLITS.index(name) for alias, name in _ALIASES.items()} | {"": NO_SPLIT}
    kinds = words.dictionary.to_pylist()
    for kind in kinds:
        if kind not in places:
            raise UserError(
                "unknown split", where=f"{where}, column {SPLIT}" if "feature" not in where else where, value=kind,
                remedy=f"Valid: {', '.join(SPLITS)}; empty for none",
            )  # fmt: skip
    codes = np.array([places[kind] for kind in kinds] or [NO_SPLIT], np.int8)
    found: NDArray[np.int8] = codes[words.indices.to_numpy(zero_copy_only=False)]
    return found


def _by_hash(ids: pa.Array, numbers: NDArray[np.int64], fractions: tuple[float, ...]) -> NDArray[np.int8]:
    """Splits by the ids alone, so that a seed keeps its own whatever else is in the graph."""
    offsets = np.frombuffer(ids.buffers()[1], np.int64)[ids.offset : ids.offset + len(ids) + 1]
    data = np.frombuffer(ids.buffers()[2] or b"", np.uint8)
    words = np.zeros(len(numbers), np.uint64)
    for array in (offsets, data):
        array.flags.writeable = False  # whether Arrow lets write to it or not: the kernel is compiled for one of them
    for end in range(numbers.shape[1]):
        _hash_texts(offsets, data, np.ascontiguousarray(numbers[:, end]), words)
    shares = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    bounds = np.cumsum(fractions[:-1])
    bounds[bounds > 1 - 1e-9] = 1.0  # sums of fractions are not exact
    return np.searchsorted(bounds, shares, side="right").astype(np.int8)


@nb.njit(nogil=True, cache=True)
def _hash_texts(offsets: Any, data: Any, numbers: Any, words: Any) -> None:
    """Mix texts [n] into words [n]: FNV-1a, then SplitMix64's finaliser."""
    for i in range(len(numbers)):
        word = np.uint64(0xCBF29CE484222325)
        for byte in range(offsets[numbers[i]], offsets[numbers[i] + 1]):
            word = (word ^ np.uint64(data[byte])) * np.uint64(0x100000001B3)
        words[i] = mix(words[i] ^ mix(word))


def _earlier(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of earlier rows with the same nodes, for each seed, int64 [n]."""
    if numbers.shape[1] == 1 and (np.diff(numbers[:, 0]) > 0).all():
        return np.zeros(len(numbers), np.int64)
    order = np.lexsort(numbers.T[::-1])
    starts = np.r_[True, (np.diff(numbers[order], axis=0) != 0).any(1)] if len(order) else np.zeros(0, bool)
    begins = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    earlier = np.empty(len(order), np.int64)
    earlier[order] = np.arange(len(order)) - begins
    return earlier
