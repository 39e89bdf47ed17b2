"""The reader of text by arrays against Python's own of csv, in blocks of a few bytes."""

import csv
import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.edge_list import text_rows as text
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.text_rows import BadRow, text_rows

Pairs = list[tuple[str, str]]


def by_arrays(data: str, dialect: Dialect) -> Pairs | None:
    try:
        read = list(text_rows(io.BytesIO(data.encode()), dialect))
    except BadRow:
        return None
    return [pair for columns, _ in read for pair in zip(*(column.to_pylist() for column in columns), strict=True)]


def by_csv(data: str, dialect: Dialect) -> Pairs | None:
    lines = data + ("" if data.endswith("\n") else "\n")
    try:
        rows = [row for row in csv.reader(io.StringIO(lines, newline="\n"), delimiter=",", strict=True) if row]
    except csv.Error:
        return None
    if any(len(row) < dialect.min_columns for row in rows):
        return None
    source, target, _ = dialect.columns
    pairs = [(row[source], row[target]) for row in rows]
    return None if any("" in pair for pair in pairs) else pairs


@given(
    data=st.lists(st.sampled_from(["a", "b", ",", '"', '"', '""', "\n", "\r\n", '"a",', 'b"\n', "a,b\n"])).map("".join),
    block=st.sampled_from([1, 2, 3, 7, 16, 1 << 20]), columns=st.sampled_from([(0, 1, -1), (1, 0, -1), (0, 2, -1)]),
)  # fmt: skip
@example('"a\n', 1, (0, 1, -1))
@example('a,b\n"",b\n', 1 << 20, (0, 1, -1))
@example('a,"b""\n"\n', 3, (0, 1, -1))
@settings(max_examples=600, deadline=None, print_blob=True)
def test_csv_is_read_as_python_reads_it(data, block, columns):
    dialect = Dialect("csv", ",", columns=columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK_BYTES", block)
        assert by_arrays(data, dialect) == by_csv(data, dialect)


@given(
    data=st.lists(st.sampled_from(["a", "b", " ", "\t", "#", "%", "\n", "\r\n", "\x0b", "a b\n"])).map("".join),
    block=st.sampled_from([1, 3, 16, 1 << 20]),
)  # fmt: skip
@settings(max_examples=300, deadline=None, print_blob=True)
def test_blanks_are_read_as_fields_of_a_line_are_split(data, block):
    dialect = Dialect("whitespace")
    rows = [dialect.fields(line.removesuffix("\r")) for line in data.split("\n")]
    rows = [row for row in rows if row and row[0][0] not in "#%"]
    expected = None if any(len(row) < 2 for row in rows) else [(row[0], row[1]) for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK_BYTES", block)
        assert by_arrays(data, dialect) == expected


def test_a_field_beyond_a_block_of_many_lines_is_one_row(monkeypatch):
    monkeypatch.setattr(text, "_BLOCK_BYTES", 64)
    data = 'a,"' + "b\n" * 1000 + '"\nc,d\n'
    assert by_arrays(data, Dialect("csv", ",")) == [("a", "b\n" * 1000), ("c", "d")]
