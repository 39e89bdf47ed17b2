"""Rows of text as Arrow columns, by array operations: the reader of files that the kernels are not worth, or leave.

Both take a line for what ends in a newline, drop one carriage return before it, and refuse any other that is not
quoted. Quoted fields are read here as RFC 4180 has them; where a block has quotes that it does not know, as in the
label `5" disk`, Python's reader takes over, which is slower by a factor of ten.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.storage.text_file import LINE_BYTES, open_unpacked, short_lines
from superworkflow.tasks.lib.edge_list.bipartite import prefixed
from superworkflow.tasks.lib.edge_list.dialect import NUMBER, Dialect
from superworkflow.tasks.lib.edge_list.edge_times import cut
from superworkflow.tasks.lib.edge_list.missing_ids import missing

ParsedRows = tuple[list[Any], NDArray[np.float32] | None]
"""Arrow strings of source, target and, of triples, relation, and times (int64) if they are kept; weights if any."""

_BLOCK_BYTES = 1 << 22
_BATCH_ROWS = 1 << 16
_CACHED_BYTES = 1 << 16
_NEWLINE, _RETURN, _BLANK, _TAB, _QUOTE, _COMMENTS = 10, 13, 32, 9, 34, (35, 37)


class BadRow(Exception):
    """A row that is wrong; where and how is found by reading the file again."""


@contextmanager
def open_rows(path: str, dialect: Dialect, where: str) -> Iterator[BinaryIO]:
    """The text of a local file from its first data row on."""
    with open_unpacked(path, where) as stream:
        skip_bytes(stream, dialect.data_offset)
        yield stream


def skip_bytes(stream: Any, count: int) -> None:
    """Read and forget bytes of a stream that cannot jump; it may end before."""
    while count and (passed := len(stream.read(min(count, 1 << 20)))):
        count -= passed


def text_rows(stream: BinaryIO, dialect: Dialect) -> Iterator[ParsedRows]:
    """Rows of a stream of text, in batches.

    Args:
        stream: at the beginning of a row.
        dialect: how it is written.

    Raises:
        BadRow: a row is bad.
    """
    text = b""
    while True:
        chunk = stream.read(_BLOCK_BYTES)
        text += chunk or (b"" if text.endswith(b"\n") else b"\n")
        if not short_lines(text, len(text)):
            raise BadRow
        fields = _blank_separated(text) if dialect.kind == "whitespace" else _separated(text, dialect)
        if fields is None or (fields.open_quote and (not chunk or len(text) > 2 * _BLOCK_BYTES)):
            yield from _rows_by_csv(text, stream, dialect)
            return
        rows = fields.rows(dialect)
        if rows is not None:
            yield rows
        text = text[fields.size :]
        if not chunk:
            return


def lone_return(text: NDArray[np.uint8]) -> bool:
    """True if text that ends in a newline has carriage returns before anything else."""
    for start in range(0, len(text), _CACHED_BYTES):
        part = text[start : start + _CACHED_BYTES + 1]
        if ((part[:-1] == _RETURN) > (part[1:] == _NEWLINE)).any():
            return True
    return False


class _Fields:
    """The fields of the whole rows at the beginning of a text.

    Args:
        text: bytes.
        size: of the whole rows.
        starts, ends: where each field is, with its quotes.
        firsts, counts: each row's first field, and how many it has.
        quoted: whether there are quotes.

    Attributes:
        size: as given.
        open_quote: a quoted field may extend beyond the text.
    """

    def __init__(
        self,
        text: bytes,
        size: int,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        firsts: NDArray[np.int64],
        counts: NDArray[np.int64],
        quoted: bool = False,
    ):
        self.open_quote = quoted and size < len(text)
        self.size, self._text, self._starts, self._ends = size, text, starts, ends
        self._firsts, self._counts, self._quoted = firsts, counts, quoted

    def rows(self, dialect: Dialect) -> ParsedRows | None:
        """The columns that are asked for; None where there are no rows.

        Raises:
            BadRow: a row has too few columns, an empty label or a bad weight.
        """
        if not len(self._firsts):
            return None
        if (self._counts < dialect.min_columns).any():
            raise BadRow
        return _checked([self._column(column) for column in dialect.chosen], dialect)

    def _column(self, number: int) -> Any:
        """One field of each row, as Arrow strings that may not be UTF-8."""
        chosen = self._firsts + number
        starts, ends = self._starts[chosen], self._ends[chosen]
        if self._quoted:
            quoted = (np.frombuffer(self._text, np.uint8)[starts] == _QUOTE) & (ends > starts)
            starts, ends = starts + quoted, ends - quoted
        bounds = np.empty(2 * len(chosen) + 1, np.int32)  # of each field, and of what is between it and the next
        bounds[:-1:2], bounds[1::2], bounds[-1] = starts, ends, ends[-1]
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._text)]
        both = pa.StringArray.from_buffers(len(bounds) - 1, buffers[1], buffers[2])
        column = both.take(pa.array(np.arange(0, len(bounds) - 1, 2)))
        return pc.replace_substring(column, '""', '"') if self._quoted else column


def _blank_separated(text: bytes) -> _Fields:
    """Fields between runs of blanks and tabs; lines whose first field begins with # or % are comments."""
    size = text.rfind(b"\n") + 1
    array = np.frombuffer(text, np.uint8, size)
    if lone_return(array):
        raise BadRow
    gap = np.ones(size + 1, np.bool_)
    gap[1:] = (array == _BLANK) | (array == _TAB) | (array == _NEWLINE) | (array == _RETURN)
    turns = np.flatnonzero(gap[1:] != gap[:-1])
    starts, ends = turns[::2], turns[1::2]
    after = np.searchsorted(starts, np.flatnonzero(array == _NEWLINE))
    firsts = np.concatenate([after[:0], [0], after])[: len(after)]
    full = after > firsts
    firsts, after = firsts[full], after[full]
    data = ~np.isin(array[starts[firsts]], _COMMENTS)
    return _Fields(text, size, starts, ends, firsts[data], (after - firsts)[data])


def _separated(text: bytes, dialect: Dialect) -> _Fields | None:
    """Fields of csv or tsv; None where quotes are not as RFC 4180 has them."""
    array = np.frombuffer(text, np.uint8)
    separator = ord(dialect.separator)
    newline = array == _NEWLINE
    stop = newline | (array == separator)
    quoted = dialect.kind == "csv" and b'"' in text
    if quoted:
        outside = np.bitwise_xor.accumulate((array == _QUOTE).view(np.uint8)) == 0
        newline &= outside
        stop &= outside
    lines = np.flatnonzero(newline)
    size = int(lines[-1]) + 1 if len(lines) else 0
    array, stop = array[:size], stop[:size]
    if quoted and not _regular(array, outside, separator):
        return None
    if lone_return(np.where(outside[:size], array, _BLANK) if quoted else array):
        raise BadRow
    stops = np.flatnonzero(stop)
    starts, ends = np.concatenate([stops[:0], [0], stops + 1])[: len(stops)], stops.copy()
    lasts = np.flatnonzero(array[stops] == _NEWLINE)
    ends[lasts] -= (ends[lasts] > starts[lasts]) & (array[ends[lasts] - 1] == _RETURN)
    firsts = np.concatenate([lasts[:0], [0], lasts + 1])[: len(lasts)]
    full = (lasts > firsts) | (ends[lasts] > starts[lasts])
    return _Fields(text, size, starts, ends, firsts[full], (lasts - firsts + 1)[full], quoted)


def _regular(text: NDArray[np.uint8], outside: NDArray[np.bool_], separator: int) -> bool:
    """True if quotes open and close whole fields or stand in pairs within them; the text is whole rows."""
    quotes = np.flatnonzero(text == _QUOTE)
    closing = outside[quotes]
    before = np.where(quotes > 0, text[quotes - 1], _NEWLINE)
    after = text[np.minimum(quotes + 1, len(text) - 1)]
    line_end = (after == _RETURN) & (text[np.minimum(quotes + 2, len(text) - 1)] == _NEWLINE)
    may_open = (before == separator) | (before == _NEWLINE) | (before == _QUOTE)
    may_close = (after == separator) | (after == _NEWLINE) | (after == _QUOTE) | line_end
    return bool(np.where(closing, may_close, may_open).all())


def _rows_by_csv(text: bytes, stream: BinaryIO, dialect: Dialect) -> Iterator[ParsedRows]:
    """Rows of what is read already and of what is left of a stream, by Python's own reader."""
    reader = csv.reader(_lines(text, stream), delimiter=dialect.separator, strict=True)
    try:
        while batch := list(islice(reader, _BATCH_ROWS)):
            rows = [row for row in batch if row]
            if any(len(row) < dialect.min_columns for row in rows):
                raise BadRow
            if rows:
                fields = [pa.array([row[column] for row in rows], pa.string()) for column in dialect.chosen]
                yield _checked(fields, dialect)
    except (csv.Error, UnicodeEncodeError):
        raise BadRow from None


def _lines(text: bytes, stream: BinaryIO) -> Iterator[str]:
    csv.field_size_limit(LINE_BYTES)
    before = io.BytesIO(text)
    while line := before.readline() or stream.readline(LINE_BYTES):
        if not line.endswith(b"\n"):
            line += stream.readline(LINE_BYTES)
        if len(line) > LINE_BYTES - (not line.endswith(b"\n")):
            raise BadRow
        yield line.decode("utf-8", "surrogateescape")


def _checked(columns: list[Any], dialect: Dialect) -> ParsedRows:
    """Labels that are not empty and UTF-8, and weights that are positive, or as the dialect says.

    Rows that are dropped for a missing id have two empty labels. What is wrong in rows of other times does not matter.

    Raises:
        BadRow: others.
    """
    cut_at = len(columns) - len(dialect.texts)
    columns, texts = columns[:cut_at], columns[cut_at:]
    columns, kept = cut_rows(columns, dialect)
    kept += texts
    if not len(columns[0]):
        return [*columns[: 3 if dialect.relation >= 0 else 2], *kept], np.empty(
            0, np.float32
        ) if dialect.weighted else None
    for column in columns if dialect.relation >= 0 else columns[:2]:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise BadRow from None
    if dialect.relation >= 0:
        if any(pc.min(pc.binary_length(column)).as_py() == 0 for column in columns):
            raise BadRow
        return [*columns, *kept], None
    if len(columns) > 2 and dialect.negative in ("drop", "absolute"):
        signed = pc.match_substring_regex(columns[2], r"^[ \t]*-")
        if dialect.negative == "drop":
            columns, kept = ([each.filter(pc.invert(signed)) for each in part] for part in (columns, kept))
        else:
            columns = [*columns[:2], pc.replace_substring_regex(columns[2], r"^([ \t]*)-", r"\1+")]
    if dialect.missing != "keep":
        gone = pc.or_(missing(columns[0]), missing(columns[1]))
        if dialect.missing == "error" and pc.any(gone).as_py():
            raise BadRow
        columns = [pc.if_else(gone, text, column) for text, column in zip(("", "", "1"), columns, strict=False)]
    elif any(pc.min(pc.binary_length(column)).as_py() == 0 for column in columns[:2]):
        raise BadRow
    weights = _numbers(columns[2], dialect.negative == "keep") if len(columns) > 2 else None
    labels = columns[:2]
    if dialect.sides is not None:
        labels = [prefixed(column, prefix) for column, prefix in zip(labels, dialect.sides, strict=True)]
    return [*labels, *kept], weights


def cut_rows(columns: list[Any], dialect: Dialect) -> tuple[list[Any], list[Any]]:
    """The rows whose times are asked for: the columns but times, and these as whole numbers if they are kept.

    Args:
        columns: of all rows; the last holds times if the dialect reads them.
        dialect: how rows are read.

    Raises:
        BadRow: a time is none.
    """
    if dialect.times is None or not dialect.times.read:
        return columns, []
    if (inside := cut(columns, dialect.times)) is None:
        raise BadRow
    return inside[0], [inside[1]] if dialect.times.kept else []


def _numbers(column: Any, any_sign: bool) -> NDArray[np.float32]:
    if not pc.all(pc.match_substring_regex(column, f"^{NUMBER}$"), min_count=0).as_py():
        raise BadRow
    plain = pc.ascii_ltrim(pc.ascii_trim(column, " \t"), "+")
    with np.errstate(over="ignore", under="ignore"):
        numbers: NDArray[np.float32] = pc.cast(plain, pa.float64()).to_numpy(zero_copy_only=False).astype(np.float32)
    if not (np.isfinite(numbers) & (any_sign | (numbers > 0))).all():
        raise BadRow
    return numbers
