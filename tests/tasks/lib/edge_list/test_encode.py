"""The table of labels and the scanner of text, by themselves."""

import gzip

import numpy as np
import pyarrow as pa
import pytest

from superworkflow.tasks.lib.edge_list import encode
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.encode import Encoder, NeedsReader, encode_file
from superworkflow.tasks.lib.edge_list.vertex_order import label_array, order_by_degree


def _labels(count: int) -> list[str]:
    """Distinct labels of 1 to 40 bytes: all lengths around those that are kept in the table, some with zero bytes."""
    rng = np.random.default_rng(5)
    drawn = {"".join("ab\0é7"[i] for i in rng.integers(0, 5, rng.integers(1, 31))) for _ in range(count)}
    return sorted(drawn | {"\0" * n for n in range(1, 20)} | {"x" * n for n in range(1, 40)})


def _read(encoder: Encoder) -> list[tuple[str, str]]:
    ends, rows, _, keys, arena = encoder.result()
    names = label_array(np.arange(len(keys), dtype=np.int32), keys, arena).to_pylist()
    assert len(set(names)) == len(names)
    return [(names[u], names[v]) for u, v in ends[: 2 * rows].reshape(-1, 2).tolist()]


@pytest.mark.parametrize("threads", [1, 3])
def test_labels_of_any_length_keep_apart_while_the_table_grows(tmp_path, threads):
    labels = _labels(60_000)
    rng = np.random.default_rng(6)
    rows = [(labels[u], labels[v]) for u, v in rng.integers(0, len(labels), (150_000, 2))]
    path = tmp_path / "edges.tsv"
    path.write_text("".join(f"{u}\t{v}\n" for u, v in rows))
    encoder = Encoder(threads, False)
    encode_file(encoder, str(path), Dialect("tsv", "\t"), path.name, path.stat().st_size, lambda read: None)
    assert encoder.labels == len({label for row in rows for label in row})
    assert _read(encoder) == rows

    encoder = Encoder(threads, False)
    columns = [pa.array([row[end] for row in rows], pa.string()) for end in (0, 1)]
    encoder.add_columns(columns, None, len(rows))
    assert _read(encoder) == rows


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_quote_in_any_column_asks_for_a_reader_even_when_a_later_part_looks_wrong(tmp_path, place):
    path = tmp_path / "edges.csv.gz"
    fields = ["a", "b", "c"]
    fields[place] = '"' + "no comma\n" * 5000 + '"'
    path.write_bytes(gzip.compress(("u,v,w\n" * 20 + ",".join(fields) + "\n").encode()))
    dialect = Dialect("csv", ",", gzipped=True)
    with pytest.raises(NeedsReader):
        encode_file(Encoder(4, False), str(path), dialect, path.name, path.stat().st_size, lambda read: None)


def test_blanks_comments_and_line_ends_of_any_kind(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_bytes(b"  a \t b  \r\n\r\n# c d\n  % e\n\t\na\tb\r\n" + b"c" * 200 + b"  " * 70 + b"d e f\n \r\nx y")
    encoder = Encoder(2, False)
    encode_file(encoder, str(path), Dialect("whitespace"), path.name, path.stat().st_size, lambda read: None)
    assert _read(encoder) == [("a", "b"), ("a", "b"), ("c" * 200, "d"), ("x", "y")]


@pytest.mark.parametrize("shared", ["", "http://example.org/node/", "http://example.org/node/\0same for many "])
def test_vertices_are_ordered_by_degree_and_then_by_the_bytes_of_labels(shared):
    labels = [shared + label for label in _labels(3000)]
    if len(shared) > 30:
        labels += [f"other {i}" for i in range(3000)]  # no prefix in common any more: thousands of ties
    rng = np.random.default_rng(7)
    labels = [labels[i] for i in rng.permutation(len(labels))]
    encoder = Encoder(2, False)
    encoder.add_columns([pa.array(labels, pa.string())] * 2, None, len(labels))
    _, _, _, keys, arena = encoder.result()
    names = label_array(np.arange(len(keys), dtype=np.int32), keys, arena).to_pylist()
    degree = rng.integers(0, 5, len(names))
    order = order_by_degree(degree, keys, arena)
    assert [names[i] for i in order] == [
        name for _, name in sorted(zip(-degree, names, strict=True), key=lambda each: (each[0], each[1].encode()))
    ]


def _weighted(rows: int) -> tuple[bytes, np.ndarray]:
    """Text of this many rows of a graph of 77 vertices, and their weights, which say where a row belongs."""
    period = b"".join(b"%d %d %d\n" % (i % 70, i % 77, i % 1000 + 1) for i in range(77_000))
    copies = -(-rows // 77_000)
    lines = (period * copies).splitlines(keepends=True)[:rows]
    return b"".join(lines), (np.arange(rows) % 1000 + 1).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("block_bytes", [300, 1 << 14, encode.BLOCK_BYTES])
def test_weights_keep_their_rows_in_a_file_of_many_blocks(tmp_path, monkeypatch, block_bytes, threads):
    monkeypatch.setattr(encode, "BLOCK_BYTES", block_bytes)
    text, weights = _weighted(20_000 if block_bytes < 1 << 20 else 3_000_000)
    assert len(text) > 3 * block_bytes
    path = tmp_path / "edges.txt"
    path.write_bytes(text)
    encoder = Encoder(threads, True)
    encode_file(encoder, str(path), Dialect("whitespace", columns=(0, 1, 2)), path.name, len(text), lambda read: None)
    ends, rows, found, _, _ = encoder.result()
    assert len(ends) >= 2 * rows
    np.testing.assert_array_equal(found, weights)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("length", [127, 128, 129, 300])
def test_a_line_longer_than_the_buffer_of_a_file_that_grew_while_it_was_read(tmp_path, length):
    path, label = tmp_path / "edges.txt", "a" * length
    path.write_text(f"{label} b\n")
    encoder = Encoder(1, False)
    encode_file(encoder, str(path), Dialect("whitespace"), path.name, 0, lambda read: None)
    _, rows, _, keys, arena = encoder.result()
    assert (rows, label_array(np.arange(2, dtype=np.int32), keys, arena).to_pylist()) == (1, [label, "b"])
