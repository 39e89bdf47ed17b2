"""Lists in Parquet files of any kind that our writer makes, against Arrow's reader, and in damaged ones; `guarded`."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.formats.parquet_lists import read_lists, read_page

ENCODINGS = {"DELTA_BINARY_PACKED": 5, "BYTE_STREAM_SPLIT": 9}


def written(sizes: list[int], values: np.ndarray, encoding: str = "DELTA_BINARY_PACKED", **options: Any) -> bytes:
    kind = pa.list_(pa.field("element", pa.from_numpy_dtype(values.dtype), nullable=False))
    starts = pa.array(np.cumsum([0, *sizes]).astype(np.int32))
    table = pa.table(
        [pa.ListArray.from_arrays(starts, pa.array(values), type=kind)],
        schema=pa.schema([pa.field("nodes.0", kind, nullable=False)]),
    )
    given = {
        "compression": "zstd", "use_dictionary": False, "write_statistics": False,
        "column_encoding": {"nodes.0.list.element": encoding},
    } | options  # fmt: skip
    sink = io.BytesIO()
    pq.write_table(table, sink, **given)
    return sink.getvalue()


def drawn(rng: np.random.Generator, size: int, dtype: Any, most: int) -> np.ndarray:
    """Values of little and of much variation, in stretches, so that blocks take all numbers of bits."""
    spread = np.repeat(rng.integers(0, most + 1, -(-size // 50)), 50)[:size]
    low = np.iinfo(dtype).min if most >= 30 else 0
    bits = np.left_shift(np.int64(1), np.minimum(spread, 62))
    return (rng.integers(0, bits, size) + (low if size % 2 else 0)).astype(dtype)


@given(
    sizes=st.lists(st.sampled_from([0, 0, 1, 2, 3, 31, 32, 33, 128, 129, 300]), min_size=1, max_size=40),
    wide=st.booleans(), encoding=st.sampled_from(sorted(ENCODINGS)), most=st.sampled_from([0, 1, 7, 13, 30, 55]),
    page=st.sampled_from([40, 700, 1 << 20]),
    seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=40, deadline=None, print_blob=True)
def test_lists_are_those_that_arrow_reads(sizes, wide, encoding, most, page, seed):
    rng = np.random.default_rng(seed)
    values = drawn(rng, sum(sizes), np.int64 if wide else np.int32, most if wide else min(most, 30))
    data = written(sizes, values, encoding, data_page_size=page, write_batch_size=7 if page < 100 else 1024)
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    found = read_lists(data, group.column(0), group.num_rows)
    assert found is not None
    assert found[0].tolist() == np.cumsum([0, *sizes]).tolist()
    assert found[1].dtype == values.dtype
    np.testing.assert_array_equal(found[1], values)


def test_other_files_are_left_to_arrow():
    sizes, values = [3, 0, 2], np.arange(5, dtype=np.int32)
    others = [
        {"compression": "none"}, {"compression": "snappy"}, {"data_page_version": "2.0"},
        {"column_encoding": {"nodes.0.list.element": "PLAIN"}}, {"use_dictionary": True, "column_encoding": None},
        {"write_statistics": True}, {"write_page_checksum": True},
    ]  # fmt: skip
    for options in ({}, *others):
        data = written(sizes, values, **options)
        group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
        found = read_lists(data, group.column(0), group.num_rows)
        if found is not None:  # what else there is in a header may be passed over
            assert not options or options == {"write_page_checksum": True}
            assert found[0].tolist() == [0, 3, 3, 5]
            assert found[1].tolist() == values.tolist()
        else:
            assert options
        assert read_lists(data, group.column(0), group.num_rows + 1) is None
        assert read_lists(data[:30], group.column(0), group.num_rows) is None


@given(changes=st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), max_size=4), cut=st.integers(0, 60),
       encoding=st.sampled_from(sorted(ENCODINGS)), seed=st.integers(0, 2**20))  # fmt: skip
@settings(max_examples=80, deadline=None, print_blob=True)
def test_damaged_pages_are_read_within_their_bounds(changes, cut, encoding, seed):
    """Whatever is read from them, it is the same in each of two guarded calls."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 5, 12).tolist()
    values = rng.integers(0, 2**20, sum(sizes), np.int32)
    data = written(sizes, values, encoding)
    column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0)
    page = page_of(data, column)
    for place, byte in changes:
        page[place % len(page)] = byte
    page = page[: len(page) - cut] if cut < len(page) else page[:1]
    found = []
    for _ in range(2):
        starts, out = np.zeros(13, np.int64), np.zeros(column.num_values, np.int32)
        state = np.zeros(3, np.int64)
        fault = read_page(page, column.num_values, ENCODINGS[encoding], starts, out, state)
        found.append((fault, state.tolist(), starts.tolist(), out.tolist()))
    assert found[0] == found[1]
    if not changes and not cut:
        assert found[0][3][: sum(sizes)] == values.tolist()


def page_of(data: bytes, column: Any) -> np.ndarray:
    """The content of the only page of a column, unpacked."""
    magic = data.index(b"\x28\xb5\x2f\xfd", column.data_page_offset)
    packed = data[magic : column.data_page_offset + column.total_compressed_size]
    header = magic - column.data_page_offset
    unpacked = pa.Codec("zstd").decompress(packed, column.total_uncompressed_size - header)
    return np.frombuffer(unpacked, np.uint8).copy()
