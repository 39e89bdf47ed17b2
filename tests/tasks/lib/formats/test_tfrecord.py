"""TFRecord files are read as protobuf would, and damaged ones are refused by file and record."""

import contextlib
import gzip
import io
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.tasks.lib.formats.crc32c import crc32c
from superworkflow.tasks.lib.formats.tfrecord import read_examples, read_records
from tests.tasks import examples

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300)
FEATURE = (
    st.tuples(st.just("int64_list"), st.lists(INTEGERS, max_size=5))
    | st.tuples(st.just("float_list"), st.lists(st.floats(width=32, allow_nan=False), max_size=5))
    | st.tuples(st.just("bytes_list"), st.lists(st.binary(max_size=200), max_size=5))
)


def _sum(data: bytes) -> int:
    return int(crc32c(np.frombuffer(data, np.uint8), 0, len(data)))


def test_crc32c_is_that_of_rfc_3720_at_all_lengths():
    assert _sum(b"123456789") == 0xE3069283
    assert _sum(bytes(32)) == 0x8A9136AA
    assert _sum(b"\xff" * 32) == 0x62A8AB43
    data = np.random.default_rng(1).bytes(7000)
    for length in [*range(18), 3071, 3072, 3073, 6144, 7000]:
        assert _sum(data[:length]) == examples.crc32c(data[:length]), length


@given(
    rows=st.lists(st.dictionaries(st.sampled_from("abc"), FEATURE), max_size=6), block=st.sampled_from([16, 50, 4096])
)
@settings(max_examples=60, deadline=None, print_blob=True)
def test_reads_what_protobuf_wrote(tmp_path_factory, rows, block):
    kinds = {}
    rows = [{n: f for n, f in row.items() if kinds.setdefault(n, f[0]) == f[0]} for row in rows]
    messages = [examples.serialized(row) for row in rows]
    whole = b"".join(map(examples.framed, messages))
    found = []
    for records in read_records(io.BytesIO(whole), "test", block):
        assert records.first == len(found)
        found += [records.data[first:stop].tobytes() for first, stop in records.bounds]
    assert found == messages

    path = tmp_path_factory.mktemp("records") / "some.tfrecord"
    path.write_bytes(whole)
    table = read_examples(path, ["b", "a", "none", "c"])
    assert table.column_names == ["b", "a", "none", "c"]
    assert table.num_rows == len(rows)
    assert pa.types.is_null(table["none"].type)
    for name in "abc":
        column = table[name].to_pylist()
        assert column == [None if name not in row else list(row[name][1]) for row in rows]


def test_a_gzipped_file_and_unpacked_repeated_values(tmp_path):
    # Field 1 of FloatList and Int64List, each value with a key of its own; an unknown field before them.
    integers = b"\x10\x07\x08\x05\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    floats = b"\x0d" + struct.pack("<f", 1.5) + b"\x0d" + struct.pack("<f", -2)

    def entry(name: bytes, field: int, values: bytes) -> bytes:
        feature = bytes([field << 3 | 2, len(values)]) + values
        return b"\x0a" + bytes([len(feature) + 5]) + b"\x0a\x01" + name + b"\x12" + bytes([len(feature)]) + feature

    features = entry(b"i", 3, integers) + entry(b"f", 2, floats)
    path = tmp_path / "some.tfrecord.gz"
    path.write_bytes(gzip.compress(examples.framed(b"\x0a" + bytes([len(features)]) + features)))
    table = read_examples(Location.of(path), ["i", "f"])
    assert table.to_pylist() == [{"i": [5, -1], "f": [1.5, -2.0]}]
    assert table.schema.types == [pa.large_list(pa.int64()), pa.large_list(pa.float32())]


def _damaged(change) -> bytes:
    records = [examples.framed(examples.serialized({"a": ("int64_list", [i])})) for i in range(3)]
    third = bytearray(records[2])
    change(third)
    return b"".join(records[:2]) + bytes(third)


def _flip(position):
    def change(record: bytearray) -> None:
        record[position] ^= 1

    return change


def _cut(record: bytearray) -> None:
    del record[-1:]


def _cut_in_the_length(record: bytearray) -> None:
    del record[7:]


def _endless(record: bytearray) -> None:
    record[:] = examples.framed(b"")
    length = struct.pack("<Q", 2**63)
    record[:12] = length + examples.framed(length)[-4:]


def _long(record: bytearray) -> None:
    length = struct.pack("<Q", 2**31 - 1)
    record[:12] = length + examples.framed(length)[-4:]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (_flip(0), "CRC of a record's length is wrong"), (_flip(9), "CRC of a record's length is wrong"),
        (_flip(14), "CRC of a record is wrong"), (_flip(-1), "CRC of a record is wrong"),
        (_cut, "ends within a record"), (_cut_in_the_length, "ends within a record"), (_long, "ends within a record"),
        (_endless, "longer than 2147483647 bytes"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_files_are_refused_by_name_and_record(tmp_path, change, what, packed):
    path = tmp_path / "bad.tfrecord"
    path.write_bytes(gzip.compress(_damaged(change)) if packed else _damaged(change))
    with pytest.raises(UserError, match=rf"bad\.tfrecord, record 2: .*{what}"):
        read_examples(path, ["a"])


def test_records_that_are_no_examples_and_features_of_two_types_are_refused(tmp_path):
    path = tmp_path / "bad.tfrecord"
    good = examples.serialized({"a": ("int64_list", [1])})
    twice = good[:2] + good[2:] * 2
    twice = twice[:1] + bytes([len(twice) - 2]) + twice[2:]
    for bad in (b"\x0a\x50" + good[2:], good[:-1], b"\xff" * 12, twice):
        path.write_bytes(b"".join(map(examples.framed, [good, bad])))
        with pytest.raises(UserError, match=r"bad\.tfrecord, record 1: not a tf\.train\.Example"):
            read_examples(path, ["a"])
    path.write_bytes(b"".join(map(examples.framed, [good, examples.serialized({"a": ("bytes_list", [b""])})])))
    with pytest.raises(UserError, match=r"bad\.tfrecord, record 1: feature a is int64 before and large_binary here"):
        read_examples(path, ["a"])


@given(data=st.binary(max_size=120), position=st.integers(0, 200), byte=st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_refused(tmp_path_factory, data, position, byte):
    """The kernels lead nowhere, whatever the message: what follows must not raise anything else, nor crash."""
    good = bytearray(examples.serialized({"a": ("int64_list", [1, 300]), "b": ("bytes_list", [b"xy"] * 3)}))
    good[position % len(good)] = byte
    path = tmp_path_factory.mktemp("any") / "any.tfrecord"
    for message in (data, bytes(good)):
        path.write_bytes(examples.framed(message))
        with contextlib.suppress(UserError):
            read_examples(path, ["a", "b"])
