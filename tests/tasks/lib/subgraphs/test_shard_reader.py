"""Shards of sampled subgraphs as they are read: what Arrow reads in them, by any thread, and damaged ones refused."""

import hashlib
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.loader.subgraphs import Stored
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.buffer_pool import Arena, Memory
from superworkflow.tasks.lib.subgraphs.blocks import DESCRIPTION, SubgraphBlock
from superworkflow.tasks.lib.subgraphs.shard_layout import shard_name
from superworkflow.tasks.lib.subgraphs.shard_reader import SubgraphShard
from superworkflow.tasks.records.shards import SplitSubgraphs
from tests.datasets import commit
from tests.tasks.heterographs import write_heterograph
from tests.tasks.subgraphs import layout_of, some_block, some_graph, write_subgraphs

SHARDS, GROUPS, SIZE = 3, 2, 40
COLUMNS = ("node_starts", "nodes", "edge_starts", "sources", "targets", "positions")


class Made(NamedTuple):
    dataset: Dataset
    blocks: list[list[SubgraphBlock]]
    layout: Any

    def path(self, number: int = 0) -> Path:
        return self.dataset.local(shard_name("train", number))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder, rng = tmp_path_factory.mktemp("shards"), np.random.default_rng(2)
    graph = HeteroGraph.open(write_heterograph(folder / "graph", *some_graph(rng)))
    blocks = [[some_block(graph, rng, SIZE, ("paper",)) for _ in range(GROUPS)] for _ in range(SHARDS)]
    return Made(write_subgraphs(folder / "sample", graph, {"train": blocks}), blocks, layout_of(graph))


def same(one: SubgraphBlock, other: SubgraphBlock, without: frozenset[int] = frozenset()) -> None:
    assert one.sample_ids.to_pylist() == other.sample_ids.to_pylist()
    np.testing.assert_array_equal(one.seeds, other.seeds)
    for name in COLUMNS:
        for number, (left, right) in enumerate(zip(getattr(one, name), getattr(other, name), strict=True)):
            if name == "positions" and number in without:
                assert not len(left)
                continue
            assert left.dtype == right.dtype, (name, number)
            np.testing.assert_array_equal(left, right, f"{name}.{number}")


def test_what_is_read_is_what_arrow_reads_and_what_was_written(made: Made) -> None:
    shard = SubgraphShard(made.path(), made.layout, "here")
    for group, block in enumerate(made.blocks[0]):
        read = shard.read(group)
        same(read, block)
        table = pq.ParquetFile(made.path()).read_row_group(group)
        for name, begins, values in (
            ("nodes", read.node_starts, read.nodes),
            ("target", read.edge_starts, read.targets),
        ):
            for number, starts in enumerate(begins):
                lists = [values[number][a:b].tolist() for a, b in itertools.pairwise(starts)]
                assert lists == table[f"{name}.{number}"].to_pylist()
        some = frozenset({0, 2})
        same(shard.read(group, some), block, some)


@pytest.mark.parametrize("options", [{"compression": "snappy"}, {"use_dictionary": True}, {"data_page_version": "2.0"}])
def test_shards_that_only_arrow_can_read(made: Made, tmp_path: Path, options: dict[str, Any]) -> None:
    """As other writers make them: the same."""
    pq.write_table(pq.read_table(made.path()), tmp_path / "other.parquet", row_group_size=SIZE, **options)
    shard = SubgraphShard(tmp_path / "other.parquet", made.layout, "here")
    for group, block in enumerate(made.blocks[0]):
        same(shard.read(group), block)


def test_lists_lie_in_the_memory_that_is_given(made: Made) -> None:
    arena = Arena(Memory())
    shard, blocks = SubgraphShard(made.path(), made.layout, "here"), made.blocks[0]
    read = [shard.read(group, new=arena.array) for group in range(GROUPS)]
    (piece,) = arena.pieces
    lists = [each for block in read for name in ("nodes", "sources", "targets") for each in getattr(block, name)]
    assert all(np.shares_memory(each, piece) for each in lists if len(each))
    for found, block in zip(read, blocks, strict=True):  # the second has not overwritten the first
        same(found, block)


def test_threads_that_go_from_shard_to_shard(made: Made) -> None:
    """Each has its shards open by itself; the memory that they share is never two's at a time."""
    subgraphs, memory = SplitSubgraphs(made.dataset, "train"), Memory()
    wanted = [block for blocks in made.blocks for block in blocks]

    def work(seed: int) -> None:
        order = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(wanted)), 4))
        for some in np.split(order, 6):
            arena = Arena(memory)
            read = [(number, subgraphs.read(subgraphs.groups[number], new=arena.array)) for number in some.tolist()]
            for number, block in read:
                same(block, wanted[number])
            memory.give_back(arena.pieces)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_a_window_keeps_its_memory_and_gives_it_back_at_its_end(made: Made) -> None:
    """Reads for later windows, while one is in use, take other memory; reads after its end take its memory again."""
    stored, count = Stored(made.dataset, "train", kept_bytes=0), SHARDS * GROUPS * SIZE
    numbers = [np.random.default_rng(seed).permutation(count) for seed in range(3)]
    plain = Stored(made.dataset, "train", kept_bytes=1 << 30)  # reads into memory of its own
    wanted = [plain.take(plain.window(each, frozenset()), 0, count) for each in numbers]
    first, second = (stored.window(each, frozenset()) for each in numbers[:2])
    assert not stored._memory._free
    same(stored.take(first, 0, count), wanted[0])
    taken = stored.take(second, 0, count)
    del first
    (free,) = stored._memory._free.values()
    given_back = {piece.ctypes.data for piece in free}
    assert given_back
    third = stored.window(numbers[2], frozenset())
    assert not free, "taken again"
    same(taken, wanted[1])
    same(stored.take(second, 0, count), wanted[1])
    same(stored.take(third, 0, count), wanted[2])
    del second, third
    assert {piece.ctypes.data for piece in free} > given_back


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def without_end(data: bytes) -> bytes:
    return data[:-1]


def without_pages(data: bytes) -> bytes:
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:4] + bytes(end - 4) + data[end:]


def emptied(data: bytes) -> bytes:
    return b""


def with_other_bytes(data: bytes) -> bytes:
    return hashlib.shake_256(data).digest(len(data))


@pytest.mark.parametrize("change", [cut, without_end, without_pages, with_other_bytes, emptied])
def test_a_damaged_shard_is_named(made: Made, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "damaged.parquet"
    path.write_bytes(change(made.path().read_bytes()))
    with pytest.raises(DatasetDamaged, match="not a whole shard") as raised:
        SubgraphShard(path, made.layout, "s3://bucket/sample/damaged.parquet").read(0)
    assert str(raised.value).startswith("s3://bucket/sample/damaged.parquet: ")
    assert "Delete the dataset's folder and run again" in str(raised.value)


def test_any_wrong_byte_is_reported_or_leaves_what_fits(made: Made, tmp_path: Path) -> None:
    """Shards have no sums of their own: a wrong byte is an error with the file's name, or another number."""
    data, errors, rng = made.path().read_bytes(), list[str](), np.random.default_rng(3)
    path = tmp_path / "damaged.parquet"
    for place in rng.integers(4, len(data), 60).tolist():
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :])
        try:
            block = SubgraphShard(path, made.layout, "the file").read(0)
        except DatasetDamaged as error:
            errors.append(str(error))
            continue
        for starts, values in zip(block.node_starts, block.nodes, strict=True):
            assert len(starts) == block.subgraphs + 1
            assert starts[-1] <= len(values)
    assert errors
    assert all(each.startswith("the file: ") for each in errors)


def changed(table: pa.Table, name: str, values: Any) -> pa.Table:
    field = table.schema.field(name)
    return table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.drop_columns(["target.1"]), "no column target.1 of lists"),
        (lambda table: table.drop_columns(["sample_id"]), "no column sample_id"),
        (lambda table: table.set_column(2, "nodes.0", table["seed"]), "no column nodes.0 of lists"),
        (lambda table: changed(table, "step.0", [[]] * len(table)), "positions of sampled edges do not fit"),
        (lambda table: changed(table, "first.0", [[5, 5]] * len(table)), "positions of sampled edges do not fit"),
    ],
)
def test_a_file_that_is_no_shard_of_the_dataset_is_named(made: Made, tmp_path: Path, change: Any, words: str) -> None:
    pq.write_table(change(pq.read_table(made.path())), tmp_path / "other.parquet")
    with pytest.raises(DatasetDamaged, match=words) as raised:
        SubgraphShard(tmp_path / "other.parquet", made.layout, "the file").read(0)
    assert str(raised.value).startswith("the file: ")


def test_a_shard_that_never_was_one(made: Made, tmp_path: Path) -> None:
    """In a store that others write to: its sum fits, its content does not."""
    output = DatasetWriter(tmp_path)
    with output.file(shard_name("train", 1)) as path:
        path.write_bytes(bytes(5000))
    output.json(DESCRIPTION, made.dataset.json(DESCRIPTION))
    written = commit(output, "sample", {"name": "sample-never"})
    with pytest.raises(DatasetDamaged, match="not a whole shard") as raised:
        SplitSubgraphs(written, "train")
    assert str(raised.value).startswith(f"{written.uri}/{shard_name('train', 1)}: ")
