"""Labels to numbers: blocks of a text file, or columns of labels, into pairs of vertex numbers."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.text_file import short_lines, unpacked
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.kernels import (
    AT,
    FAULT,
    HARD_WEIGHT,
    NEW,
    QUOTE,
    QUOTED,
    ROWS,
    TAB,
    LabelTable,
    RowLayout,
    encode_column,
    encode_text,
)
from superworkflow.tasks.lib.edge_list.label_table import (
    ARENA_USED,
    COUNT,
    ENTRY_WORDS,
    PADDING,
    labels_by_number,
    refill,
)
from superworkflow.tasks.lib.edge_list.missing_ids import drop_missing
from superworkflow.tasks.lib.edge_list.text_rows import BadRow, lone_return, skip_bytes

BLOCK_BYTES = 1 << 23
_LOAD = 0.6  # of the table, at most
_LEAST_QUOTA = 1024
_FIRST_ENTRIES = 1 << 16
_FIRST_ARENA = 1 << 16
_HUGE_PAGE = 1 << 21
_SHORTEST_ROW = 4  # bytes: `a b` and its line end
MOST_LABELS = 2**31 - 1


class NeedsReader(Exception):
    """The text has what only a full CSV reader reads: quotes, or weights whose rounding is undecided here."""


class Encoder:
    """Numbers labels in any order, keeps the rows as pairs of numbers.

    Args:
        threads: workers.
        weighted: rows have weights.

    Attributes:
        rows: that are kept.
        dropped: rows that were left out, since they lack an id.
    """

    def __init__(self, threads: int, weighted: bool):
        self.threads, self.weighted = threads, weighted
        self.rows = self.dropped = 0
        self._ends = np.empty(0, np.int32)
        self._weights = np.empty(0, np.float32)
        self._slots = _empty_slots(_FIRST_ENTRIES)
        self._counters = np.zeros(2, np.int64)
        self._arena = np.zeros(_FIRST_ARENA, np.uint8)

    @property
    def labels(self) -> int:
        """Distinct labels so far."""
        return int(self._counters[COUNT])

    def result(
        self,
    ) -> tuple[NDArray[np.int32], int, NDArray[np.float32] | None, NDArray[np.uint64], NDArray[np.uint8]]:
        """Rows and labels; the encoder is spent.

        Returns:
            Ends of row after row, with more room behind them than they take; the number of rows; weights [rows] or
            None; and the labels by number: their keys [labels, 2] and the arena (see `label_table.py`).
        """
        keys, _ = self.keys()
        self._slots = self._slots[:0]
        self._weights.resize(self.rows if self.weighted else 0, refcheck=False)
        return (
            self._ends,
            self.rows,
            self._weights if self.weighted else None,
            keys,
            self._arena,
        )

    def add_text(self, text: NDArray[np.uint8], size: int, dialect: Dialect, expected_rows: int) -> None:
        """Add whole lines text[:size]; `PADDING` bytes follow them.

        Raises:
            BadRow: a row is bad.
            NeedsReader: only a full CSV reader can read the text.
        """
        bounds = _line_bounds(text, size, self.threads)
        parts = len(bounds) - 1
        room = np.concatenate([[0], np.cumsum(np.diff(bounds) // _SHORTEST_ROW + 1)])
        self._reserve_rows(int(room[-1]), expected_rows)
        self._reserve_arena(2 * size)
        states = np.zeros((parts, 4), np.int64)
        separator, blanks = ord(dialect.separator), dialect.kind == "whitespace"
        third = TAB if blanks else QUOTE if dialect.kind == "csv" else separator
        layout = RowLayout(separator, third, blanks, *dialect.columns)
        ends, weights = self._ends[2 * self.rows :], self._weights[self.rows :]
        while True:
            quota = self._quota(parts)
            states[:, NEW] = 0
            table = LabelTable(self._slots, self._counters, self._arena)
            encode_text(text, bounds, states, layout, table, quota, ends, weights, room)
            faults = states[:, FAULT]
            if faults.any():
                # A quote in an earlier part may explain what looks wrong in a later one.
                quoted = third == QUOTE and (text[:size] == QUOTE).any()
                unsure = quoted or dialect.missing == "drop"  # the row may lack an id
                raise NeedsReader if unsure or np.isin(faults, (HARD_WEIGHT, QUOTED)).any() else BadRow
            if (states[:, AT] >= np.diff(bounds)).all():
                break
        filled = 0
        for part in range(parts):
            rows = int(states[part, ROWS])
            start = int(room[part])
            if filled != start:
                ends[2 * filled : 2 * (filled + rows)] = ends[2 * start : 2 * (start + rows)]
                if self.weighted:
                    weights[filled : filled + rows] = weights[start : start + rows]
            filled += rows
        self.rows += filled

    def add_columns(
        self, columns: list[Any], weights: NDArray[np.float32] | None, expected_rows: int, drop: bool = False
    ) -> None:
        """Add rows from two Arrow columns of strings (source, target) and their weights.

        Args:
            columns: source and target.
            weights: [rows] or None.
            expected_rows: of the whole input.
            drop: rows with two empty labels lack an id and are left out.

        Raises:
            BadRow: a label is empty.
        """
        if drop:
            columns, named, dropped = drop_missing(columns)
            self.dropped += dropped
            weights = weights[named] if weights is not None else None
            if not len(columns[0]):
                return
        rows = len(columns[0])
        self._reserve_rows(rows, expected_rows)
        for end, column in enumerate(columns):
            self._ends[2 * self.rows + end : 2 * (self.rows + rows) : 2] = self.numbers(column)
        if self.weighted and weights is not None:
            self._weights[self.rows : self.rows + rows] = weights
        self.rows += rows

    def adopt(self, ends: NDArray[np.int32], rows: int, weights: NDArray[np.float32] | None, dropped: int) -> None:
        """Take rows whose labels `numbers` has numbered.

        Args:
            ends: of row after row, perhaps with more room behind them.
            rows: their number.
            weights: [rows] or None.
            dropped: rows that were left out.
        """
        self._ends, self.rows, self.dropped = ends, rows, dropped
        if weights is not None:
            self._weights = weights

    def numbers(self, column: Any) -> NDArray[np.int32]:
        """Number of each label in an Arrow column of strings, given one where it is new.

        Raises:
            BadRow: a label is empty.
        """
        rows = len(column)
        _, offsets, data = column.buffers()
        bounds = np.frombuffer(offsets, np.int32, rows + 1, 4 * column.offset)
        if (bounds[1:] == bounds[:-1]).any():
            raise BadRow
        text = np.zeros(int(bounds[-1]) + PADDING, np.uint8)
        if data is not None:
            text[: bounds[-1]] = np.frombuffer(data, np.uint8, bounds[-1])
        self._reserve_arena(len(text) + 16 * rows)
        while self._quota(1) < rows:
            self._grow()
        numbers = np.empty(rows, np.int32)
        encode_column(text, bounds, self._slots, self._counters, self._arena, self.threads, numbers)
        return numbers

    def keys(self) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """The labels by number: their keys [labels, 2] and the arena (see `label_table.py`)."""
        keys = np.empty((self.labels, 2), np.uint64)
        labels_by_number(self._slots, keys)
        return keys, self._arena

    def _quota(self, parts: int) -> int:
        """New labels that each of `parts` may make before the table is grown."""
        if self.labels >= MOST_LABELS - BLOCK_BYTES:
            raise UserError(
                "more vertices than 2147483647, the most that this stage indexes", where="index", value=self.labels,
                remedy="Split the graph, or reduce it to its largest component",
            )  # fmt: skip
        while True:
            quota = int(len(self._slots) // ENTRY_WORDS * _LOAD - self.labels) // parts
            if quota >= _LEAST_QUOTA:
                return quota
            self._grow()

    def _grow(self) -> None:
        larger = _empty_slots(len(self._slots) // ENTRY_WORDS * 2)
        refill(self._slots, larger, self._arena)
        self._slots = larger

    def _reserve_rows(self, more: int, expected: int) -> None:
        need = self.rows + more
        if 2 * need > len(self._ends):
            size = 2 * max(need, min(expected + expected // 50 + more, 64 * need))  # also room for the graph's arcs
            self._ends = _larger(self._ends, 2 * size, 2 * self.rows)  # what is not used takes no memory
            if self.weighted:
                self._weights = _larger(self._weights, size, self.rows)  # as many rows: one check serves both

    def _reserve_arena(self, more: int) -> None:
        need = int(self._counters[ARENA_USED]) + more + PADDING
        if need > len(self._arena):
            self._arena = _larger(self._arena, need + need // 2, int(self._counters[ARENA_USED]))


def encode_file(
    encoder: Encoder,
    path: str,
    dialect: Dialect,
    where: str,
    all_bytes: int,
    progress: Callable[[int], None],
    before: int = 0,
) -> None:
    """Add all rows of a text file, compressed or not.

    Args:
        encoder: takes the rows.
        path: local file.
        dialect: how it is written.
        where: its name for people.
        all_bytes: size of the file, or of all files of which this is one.
        progress: called with bytes of them read.
        before: bytes of the files read before this one.

    Raises:
        BadRow: a row is bad.
        NeedsReader: only a full CSV reader can read the text.
        UserError: it cannot be decompressed.
    """
    with open(path, "rb") as raw:
        stream, gzipped = unpacked(raw, where)
        for block, size in _blocks(
            stream, dialect.data_offset, BLOCK_BYTES if gzipped else os.fstat(raw.fileno()).st_size
        ):
            read = before + raw.tell()
            rows = int(encoder.rows * all_bytes / max(1, read - size)) if encoder.rows else 0
            text = np.frombuffer(block, np.uint8)
            if block.find(b"\r", 0, size) >= 0 and lone_return(text[:size]):
                raise NeedsReader if dialect.kind == "csv" and block.find(b'"', 0, size) >= 0 else BadRow
            encoder.add_text(text, size, dialect, rows)
            progress(min(read, all_bytes))


def _blocks(stream: IO[bytes], skip: int, most: int) -> Iterator[tuple[bytearray, int]]:
    """Whole lines of a stream in blocks of about BLOCK_BYTES with PADDING after them; the next is read ahead.

    Args:
        stream: text.
        skip: bytes at its beginning that are left out.
        most: bytes that it has, at most, or BLOCK_BYTES.

    Raises:
        BadRow: a line is too long.
    """
    skip_bytes(stream, skip)
    buffers = [bytearray(min(most + 1, BLOCK_BYTES) + PADDING) for _ in range(2)]

    def fill(turn: int, rest: bytes) -> tuple[int, bool]:
        """Read until the buffer is full or the stream ends: (bytes in the buffer, whether it ended)."""
        if 2 * len(rest) > len(buffers[turn]) - PADDING:
            buffers[turn] = bytearray(4 * len(rest) + PADDING)
        buffer = buffers[turn]
        size = len(rest)
        buffer[:size] = rest
        with memoryview(buffer) as view:
            while size < len(buffer) - PADDING:
                count = stream.readinto(view[size : len(buffer) - PADDING])  # type: ignore[attr-defined]
                if not count:
                    break
                size += count
        if not short_lines(buffer, size):
            raise BadRow
        return size, size < len(buffer) - PADDING

    with ThreadPoolExecutor(1) as reader:
        turn, (size, ended) = 0, fill(0, b"")
        while size:
            buffer = buffers[turn]
            if ended:
                if buffer[size - 1] != 10:
                    buffer[size] = 10
                    size += 1
                yield buffer, size
                return
            whole = buffer.rfind(b"\n", 0, size) + 1
            waiting = reader.submit(fill, 1 - turn, bytes(memoryview(buffer)[whole:size]))
            if whole:
                yield buffer, whole
            turn, (size, ended) = 1 - turn, waiting.result()


def _line_bounds(text: NDArray[np.uint8], size: int, parts: int) -> NDArray[np.int64]:
    """Cut text[:size] into up to `parts` parts of whole lines."""
    bounds = [0]
    for part in range(1, parts):
        cut = max(bounds[-1], size * part // parts)
        end = cut
        while end < size and text[end] != 10:
            chunk = text[end : min(size, end + 4096)].tobytes().find(b"\n")
            end = end + chunk if chunk >= 0 else min(size, end + 4096)
        if end + 1 < size and end + 1 > bounds[-1]:
            bounds.append(end + 1)
    return np.array([*bounds, size], np.int64)


def _larger(array: NDArray[Any], size: int, used: int) -> NDArray[Any]:
    """`array` with room for `size`, its first `used` items kept; memory that is not written to is not taken."""
    larger = np.empty(size, array.dtype)
    larger[:used] = array[:used]
    return larger


def _empty_slots(entries: int) -> NDArray[np.uint64]:
    """A free table, in large pages where the system has them: look-ups would miss small ones' translation."""
    size = 8 * ENTRY_WORDS * entries
    memory = mmap.mmap(-1, size + _HUGE_PAGE)
    if size >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    words = np.frombuffer(memory, np.uint64)
    shift = -words.ctypes.data % _HUGE_PAGE // 8
    return words[shift : shift + size // 8]
