"""Labels to numbers, with blocks, tables and threads drawn small together with weights; see `tests.kernels.guarded`."""

import gzip

import numba as nb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.index import run
from superworkflow.tasks.lib.edge_list import encode, vertex_order
from superworkflow.tasks.lib.edge_list import text_rows as text
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.encode import Encoder, NeedsReader, encode_file
from superworkflow.tasks.lib.edge_list.text_rows import open_rows, text_rows

LENGTHS = [1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 23, 24, 25, 40, 64, 255, 256, 257, 1000]
WEIGHTS = ["1", "+2", "0.5", ".5", "5.", "1e3", "1E-3", "3.4028234e38", "1e-45", "16777217", "0001", "1e22"]
HARD_WEIGHTS = ["1.00000017881393432617187499", "123456789012345678901234567890", "7.0385307e-26"]


@pytest.fixture(autouse=True)
def _threads():
    before = nb.get_num_threads()
    yield
    nb.set_num_threads(before)


@st.composite
def label_pools(draw: st.DrawFn) -> list[str]:
    """Different labels: of all lengths around those that the table holds by itself, and with much in common."""
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    letters = draw(st.sampled_from(["0123456789", "ab", "ab\0~é日🙂"]))
    prefix = draw(st.sampled_from(["", "", "user", "http://example.org/node/", "\0" * 9]))
    count = draw(st.sampled_from([1, 2, 10, 200]))
    lengths = rng.choice(LENGTHS if draw(st.booleans()) else LENGTHS[:8], count)
    return sorted({prefix + "".join(letters[i] for i in rng.integers(0, len(letters), length)) for length in lengths})


def label_names(keys: np.ndarray, arena: np.ndarray) -> list[str]:
    names = vertex_order.label_array(np.arange(len(keys), dtype=np.int32), keys, arena).to_pylist()
    assert len(set(names)) == len(names)
    return names


@given(
    labels=label_pools(), rows=st.sampled_from([1, 2, 60, 300]), kind=st.sampled_from(["whitespace", "tsv", "csv"]),
    weights=st.sampled_from([[], WEIGHTS, WEIGHTS + HARD_WEIGHTS]), swapped=st.booleans(), more=st.booleans(),
    line_end=st.sampled_from(["\n", "\r\n"]), packed=st.booleans(), cut=st.booleans(), threads=st.integers(1, 8),
    block=st.sampled_from([128, 300, 1024, 4096]), quota=st.sampled_from([128, 129, 1024]),
    entries=st.sampled_from([16, 64, 4096]), arena=st.sampled_from([0, 1 << 12]), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=80, deadline=None, print_blob=True)
def test_rows_keep_their_labels_and_weights(
    tmp_path_factory, labels, rows, kind, weights, swapped, more, line_end, packed, cut, threads, block, quota, entries,
    arena, seed,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    separator = {"whitespace": " ", "tsv": "\t", "csv": ","}[kind]
    pairs = [(labels[u], labels[v]) for u, v in rng.integers(0, len(labels), (rows, 2))]
    given_weights = [weights[i] for i in rng.integers(0, len(weights), rows)] if weights else [""] * rows
    lines = []
    for (u, v), weight in zip(pairs, given_weights, strict=True):
        fields = [*((v, u) if swapped else (u, v)), *([weight] if weights else []), *(["more", "9"] if more else [])]
        lines.append(separator.join(fields))
        if rng.random() < 0.1:
            lines.append({"whitespace": "  # no row"}.get(kind, ""))
    data = (line_end.join(lines) + ("" if cut else line_end)).encode()
    path = tmp_path_factory.mktemp("rows") / "edges"
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    dialect = Dialect(kind, separator, packed, columns=(int(swapped), int(not swapped), 2 if weights else -1))
    expected = np.array(given_weights, np.float64).astype(np.float32) if weights else None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("BLOCK_BYTES", block), ("_LEAST_QUOTA", quota), ("_FIRST_ENTRIES", entries), ("_FIRST_ARENA", arena),
        ):  # fmt: skip
            patch.setattr(encode, name, value)
        patch.setattr(text, "_BLOCK_BYTES", block)
        nb.set_num_threads(min(threads, nb.config.NUMBA_NUM_THREADS))
        encoder = Encoder(threads, bool(weights))
        try:
            encode_file(encoder, str(path), dialect, "edges", path.stat().st_size, lambda read: None)
        except NeedsReader:
            assert set(given_weights) & set(HARD_WEIGHTS)
            encoder = Encoder(threads, True)
            with open_rows(str(path), dialect, "edges") as stream:
                for columns, numbers in text_rows(stream, dialect):
                    encoder.add_columns(columns, numbers, 0)
        ends, found_rows, found_weights, keys, names_arena = encoder.result()
        names = label_names(keys, names_arena)
        assert [(names[u], names[v]) for u, v in ends[: 2 * found_rows].reshape(-1, 2).tolist()] == pairs
        if weights:
            np.testing.assert_array_equal(found_weights, expected)

        with open_rows(str(path), dialect, "edges") as stream:
            read = list(text_rows(stream, dialect))
        sources, targets = ([label for columns, _ in read for label in columns[end].to_pylist()] for end in (0, 1))
        assert list(zip(sources, targets, strict=True)) == pairs
        if weights:
            np.testing.assert_array_equal(np.concatenate([numbers for _, numbers in read]), expected)


@given(
    labels=label_pools(), others=st.booleans(), degrees=st.sampled_from([1, 3, 2**31]), ties=st.sampled_from([1, 64]),
    parts=st.sampled_from([2, 64]), at_a_time=st.sampled_from([7, 50]), threads=st.integers(1, 8),
    entries=st.sampled_from([16, 4096]), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=80, deadline=None, print_blob=True)
def test_vertices_are_in_order_and_edges_follow_them(
    labels, others, degrees, ties, parts, at_a_time, threads, entries, seed
):
    rng = np.random.default_rng(seed)
    labels = [*labels, *(f"{'z' * 10}{i}" for i in range(70 * others))]
    labels = list(dict.fromkeys(labels[i] for i in rng.permutation(len(labels))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "_FIRST_ENTRIES", entries)
        patch.setattr(vertex_order, "_MOST_TIES", ties)
        patch.setattr(vertex_order, "_PARTS", parts)
        nb.set_num_threads(min(threads, nb.config.NUMBA_NUM_THREADS))
        encoder = Encoder(threads, False)
        for start in range(0, len(labels), at_a_time):
            encoder.add_columns([pa.array(labels[start : start + at_a_time], pa.string())] * 2, None, 0)
        _, _, _, keys, arena = encoder.result()
        names = label_names(keys, arena)
        assert sorted(names) == sorted(labels)
        degree = rng.integers(0, degrees, len(names))
        order = vertex_order.order_by_degree(degree, keys, arena)
        ranked = sorted(zip((-degree).tolist(), names, strict=True), key=lambda each: (each[0], each[1].encode()))
        assert [names[i] for i in order] == [name for _, name in ranked]

        number = np.zeros(len(names), np.uint32)
        number[order] = np.arange(len(order), dtype=np.uint32)
        ends = rng.integers(0, len(names), (300, 2))
        edges = run.csr.pack(*ends.T)
        run._renumber(edges, number)
        np.testing.assert_array_equal(run.csr.unpack(edges), number[ends])
