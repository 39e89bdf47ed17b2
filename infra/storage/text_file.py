"""Text files that users give, gzipped or not, read within limits: a small file cannot fill memory or run for hours.

Gzip stores up to a thousand bytes in one. Lists of numbers and names pack 3 to 30 times smaller, so a file that goes
far beyond that is damaged or malicious, and is refused before it is unpacked. Nothing here holds more than a line.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, AnyStr, BinaryIO, cast

from superworkflow.infra.base.errors import UserError

GZIP = b"\x1f\x8b"
"""First bytes of gzip files."""
MOST_RATIO = 100
"""Times that a gzip file may grow when unpacked, …"""
ALWAYS_UNPACKED = 64 << 20
"""… beyond these bytes, to which any file may grow."""
LINE_BYTES = 1 << 20
"""Most bytes of a line with its end."""


class Gunzip(io.RawIOBase):
    """The content of a gzip stream; several members and zero bytes after the last are allowed, as by `gzip`.

    Args:
        raw: the compressed stream; stays open.
        packed_bytes: its length.
        where: its name for people.

    Raises:
        UserError: when read: it is damaged, ends early, or grows beyond the limits.
    """

    def __init__(self, raw: BinaryIO, packed_bytes: int, where: str):
        self._where = where
        self._file = gzip.GzipFile(fileobj=raw)
        self._left = self.most = max(ALWAYS_UNPACKED, MOST_RATIO * packed_bytes)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer).cast("B") as view:
            try:
                data = self._file.read(len(view))
            except (EOFError, OSError, zlib.error) as error:
                raise UserError(
                    f"the file cannot be decompressed: {error}", where=self._where,
                    remedy="Copy or download it again; gzip -t checks it",
                ) from None  # fmt: skip
            view[: len(data)] = data
        self._left -= len(data)
        if self._left < 0:
            raise UserError(
                f"the compressed file grows beyond {MOST_RATIO} times its size", where=self._where,
                value=f"more than {self.most} bytes", remedy="If this is intended, give the file uncompressed",
            )  # fmt: skip
        return len(data)


def unpacked(raw: BinaryIO, where: str) -> tuple[BinaryIO, bool]:
    """The content of a stream that may be gzipped, from its beginning, and whether it is.

    Args:
        raw: can go to any place.
        where: its name for people.
    """
    size = raw.seek(0, io.SEEK_END)
    raw.seek(0)
    gzipped = raw.read(len(GZIP)) == GZIP
    raw.seek(0)
    return cast(BinaryIO, io.BufferedReader(Gunzip(raw, size, where), 1 << 16)) if gzipped else raw, gzipped


@contextmanager
def open_unpacked(path: str | Path, where: str) -> Iterator[BinaryIO]:
    """The content of a local file that may be gzipped."""
    with open(path, "rb") as raw:
        yield unpacked(raw, where)[0]


def numbered_lines(stream: IO[AnyStr], where: str, first: int = 1) -> Iterator[tuple[int, AnyStr]]:
    """Lines of a stream by number, each with its end.

    Args:
        stream: text or bytes.
        where: its name for people.
        first: number of the line at which it stands.

    Raises:
        UserError: a line is longer than `LINE_BYTES`.
    """
    csv.field_size_limit(LINE_BYTES)  # Python's own limit would refuse a field of a line that is allowed
    number = first
    while line := stream.readline(LINE_BYTES):
        if len(line) == LINE_BYTES and not line.endswith("\n" if isinstance(line, str) else b"\n"):
            raise line_too_long(f"{where}, line {number}")
        yield number, line
        number += 1


def line_too_long(place: str) -> UserError:
    """The error for a line beyond `LINE_BYTES`."""
    return UserError(
        f"the line is longer than {LINE_BYTES} bytes", where=place,
        remedy="Check that this is a table of text with a line for each row, and that quotes are closed",
    )  # fmt: skip


def short_lines(text: bytes | bytearray, size: int) -> bool:
    """True if no line of text[:size] is longer than `LINE_BYTES`; it begins with a line, and may end within one."""
    start = 0
    while start < size:
        end = text.rfind(b"\n", start, min(start + LINE_BYTES, size))
        if end < 0:
            return size - start < LINE_BYTES
        start = end + 1
    return True
