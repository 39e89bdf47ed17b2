"""Records with blocks, tables, lists and strings drawn small together, against protobuf; see `guarded`."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.loader import merge
from superworkflow.tasks.lib.formats import tf_example
from superworkflow.tasks.lib.formats.crc32c import crc32c
from superworkflow.tasks.lib.formats.tfrecord import read_records
from superworkflow.tasks.lib.kernels.buffer_pool import Memory
from superworkflow.tasks.lib.kernels.copy_bytes import STREAMED
from superworkflow.tasks.lib.kernels.gather import gather_words
from superworkflow.tasks.records.columns import BlockRecords, FloatRows, Floats, Integers, Strings
from superworkflow.tasks.records.features import strings_of
from tests.tasks import examples

NAMES = ["a", "ab", "nodes/paper.#size", "é", "x" * 127, "x" * 128]
LENGTHS = [0, 0, 1, 2, 3, 40, 126, 127, 128, 300]


@given(
    counts=st.lists(st.sampled_from([0, 0, 1, 2, 3, 9, 40]), max_size=5), items=st.sampled_from([1, 2, 7]),
    width=st.sampled_from([0, 1, 2, 5, 33]), kinds=st.lists(st.integers(0, 6), min_size=1, max_size=len(NAMES)),
    cut=st.integers(0, 5), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=60, deadline=None, print_blob=True)
def test_records_are_what_protobuf_makes_of_the_arrays(counts, items, width, kinds, cut, seed):
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    rows, present = rng.integers(0, items, starts[-1]), rng.random(len(counts)) < 0.7
    each = Integers("context", np.arange(len(counts) + 1), np.arange(len(counts)))
    columns, lists = [(each, np.ones(len(counts), np.bool_))], []
    for name, kind in zip(NAMES, kinds, strict=False):
        column, found = _column(rng, name, kind, starts, rows, items, width)
        columns.append((column, present))
        lists.append((name, found))
    records = BlockRecords(columns)
    wanted = [
        examples.serialized(
            {name: (kind, values[r]) for name, (kind, values) in lists if present[r]} | {"context": ("int64_list", [r])}
        )
        for r in range(len(counts))
    ]
    cut = min(cut, len(counts))
    out = []
    for first, last in ((0, cut), (cut, len(counts))):
        sizes = records.sizes(first, last)
        room = np.empty(int(sizes.sum()), np.uint8)
        records.encode(first, last, room)
        assert sizes.tolist() == [len(record) + 16 for record in wanted[first:last]]
        out.append(room.tobytes())
    found = [
        block.data[first:stop].tobytes()
        for block in read_records(io.BytesIO(b"".join(out)), "test", 64)
        for first, stop in block.bounds
    ]
    assert found == wanted


def _column(rng: Any, name: str, kind: int, starts: Any, rows: Any, items: int, width: int) -> Any:
    """A column, and the field and values of each record."""
    spans = list(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))
    if kind < 3:
        dtype = (np.int32, np.int64, np.int64)[kind]
        most = (2**31, 2**63, 300)[kind]
        values = rng.integers(-most if kind < 2 else 0, most, starts[-1], dtype)
        return Integers(name, starts, values), ("int64_list", [values[a:b].tolist() for a, b in spans])
    if kind == 3:
        table = rng.normal(size=(items, width)).astype(np.float32)
        found = [table[rows[a:b]].reshape(-1).tolist() for a, b in spans]
        return FloatRows(name, starts, rows, table), ("float_list", found)
    if kind == 4:
        values = rng.normal(size=starts[-1]).astype(np.float32)
        return Floats(name, starts, values), ("float_list", [values[a:b].tolist() for a, b in spans])
    words = [rng.bytes(int(rng.choice(LENGTHS))) for _ in range(items)]
    if kind == 5:
        strings = strings_of(pa.array(words, pa.large_binary()))
        return Strings(name, starts, rows, strings), ("bytes_list", [[words[r] for r in rows[a:b]] for a, b in spans])
    several = [words[: int(rng.integers(0, items + 1))] for _ in range(items)]
    strings = strings_of(pa.array(several, pa.large_list(pa.large_binary())))
    found = [[word for r in rows[a:b] for word in several[r]] for a, b in spans]
    return Strings(name, starts, rows, strings), ("bytes_list", found)


@given(
    counts=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=5), width=st.sampled_from([1, 4, 33]),
    wrong=st.sampled_from([0, 0, -1, 1]), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=60, deadline=None, print_blob=True)
def test_lists_rows_and_places_of_batches(counts, width, wrong, seed):
    rng = np.random.default_rng(seed)
    counts = [(nodes, edges if nodes else 0) for nodes, edges in counts]
    nodes, edges = (np.concatenate([[0], np.cumsum([each[k] for each in counts])]).astype(np.int64) for k in (0, 1))
    places = np.array([rng.integers(n) for n, e in counts for _ in range(e)], np.int32)
    expected = places + np.repeat(nodes[:-1], np.diff(edges))
    if wrong and len(places):
        wrong_place = int(rng.integers(len(places)))
        size = np.repeat(np.diff(nodes), np.diff(edges))[wrong_place]
        places[wrong_place] = -1 if wrong < 0 else size
    out = np.empty(len(places), np.int64)
    assert merge.place_ends(places, edges, nodes, out) == (not wrong or not len(places))
    if not wrong:
        np.testing.assert_array_equal(out, expected)

    table, rows = rng.integers(0, 256, (6, width), np.uint8), rng.integers(0, 6, 9)
    gathered = np.empty((9, width), np.uint8)
    merge.gather_rows(table.reshape(-1), width, rows, gathered.reshape(-1), False)
    np.testing.assert_array_equal(gathered, table[rows])

    table, past = rng.integers(0, 256, (20, width * STREAMED), np.uint8), Memory().take(9 * width * STREAMED)
    past = past[: 9 * width * STREAMED]
    merge.gather_rows(table.reshape(-1), width * STREAMED, rows, past, True)
    np.testing.assert_array_equal(past.reshape(9, -1), table[rows])

    words, found = rng.integers(0, 2**32, 6, np.uint32), np.empty(9, np.uint32)
    gather_words(words, rows, found)
    np.testing.assert_array_equal(found, words[rows])

    picks = rng.permutation(len(counts))
    values = rng.integers(0, 2**31, edges[-1], np.int32)
    ends = np.concatenate([[0], np.cumsum(np.diff(edges)[picks])]).astype(np.int64)
    lists = np.empty(ends[-1], np.int32)
    merge.gather_lists(values.ctypes.data + 4 * edges[picks], 4, ends, lists.view(np.uint8))
    assert lists.tolist() == [value for pick in picks for value in values[edges[pick] : edges[pick + 1]].tolist()]


@given(length=st.integers(0, 40) | st.sampled_from([3071, 3072, 3079, 6143, 6144, 6200]), first=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_sums_of_bytes_at_any_address(length, first):
    data = np.random.default_rng(length).integers(0, 256, length + first, np.uint8)
    assert int(crc32c(data, first, first + length)) == examples.crc32c(data[first:].tobytes())


@given(data=st.binary(max_size=200), position=st.integers(0, 300), byte=st.integers(0, 255))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_scanned_within_their_bounds(data, position, byte):
    """Bytes behind a message are neither read nor written: they differ from one guarded call to the next."""
    features = {"a": ("int64_list", [1, 300]), "b": ("bytes_list", [b"xy"] * 3), "c": ("float_list", [1.0, 2.0])}
    good = bytearray(examples.serialized(features))
    good[position % len(good)] = byte
    names = np.frombuffer(b"abc", np.uint8)
    for message in (data, bytes(good), bytes(good[: position % len(good)])):
        array, bounds = np.array(list(message or b"\0"), np.uint8), np.array([[0, len(message)]])
        found = []
        for _ in range(2):
            kinds, spans = np.empty((1, 3), np.uint8), np.empty((1, 3, 2), np.int64)
            counts, sizes = np.empty((1, 3), np.int64), np.empty((1, 3), np.int64)
            wanted = tf_example.FeatureNames(names, np.arange(4))
            fault = tf_example.scan_examples(array, bounds, wanted, tf_example.FoundLists(kinds, spans, counts, sizes))
            if fault >= 0:
                found.append(fault)
                continue
            integers, floats = np.empty(counts[0, 0], np.int64), np.empty(counts[0, 2], np.uint32)
            starts, values = np.empty(counts[0, 1] + 1, np.int64), np.empty(sizes[0, 1], np.uint8)
            if kinds[0, 0] in (tf_example.ABSENT, tf_example.INTEGERS):
                tf_example.read_integers(array, np.ascontiguousarray(spans[:, 0]), integers)
            if kinds[0, 1] in (tf_example.ABSENT, tf_example.BYTES):
                tf_example.read_bytes(array, np.ascontiguousarray(spans[:, 1]), starts, values)
            if kinds[0, 2] in (tf_example.ABSENT, tf_example.FLOATS):
                tf_example.read_floats(array, np.ascontiguousarray(spans[:, 2]), floats)
            found.append(kinds.tolist())
        assert found[0] == found[1]
