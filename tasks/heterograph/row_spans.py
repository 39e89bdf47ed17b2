"""Ranges of bytes of large tables in CSV and TFRecord, each of whole rows, so that several tasks read a table.

Row starts are found by reading. Each piece of a CSV file is scanned by a task of its own; a TFRecord file, whose
records hold the lengths that lead to the next ones, by one task. A CSV file with quotes is not split: its lines may be
parts of rows. Nor is one with empty lines, lone carriage returns or two kinds of line ends, or a file that cannot be
read: the task that reads it as a whole reports the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.text_file import GZIP, LINE_BYTES
from superworkflow.tasks.heterograph.tables import PARQUET, format_of
from superworkflow.tasks.index.row_parts import whole_lines
from superworkflow.tasks.lib.edge_list.text_rows import BadRow

_BLOCK = 1 << 20
_BOM = b"\xef\xbb\xbf"


class RowSpan(NamedTuple):
    """Whole rows of a file.

    Args:
        begin, end: bytes of the file.
        row: number in the file of the row before the first.
        header: line of a CSV file's header, if the rows come after it and without it.
    """

    begin: int
    end: int
    row: int
    header: bytes = b""


class FileChunk(NamedTuple):
    """Bytes of a file, for a task that looks at what begins there.

    Args:
        uri, format: of the file.
        first, last: first byte, and the one after the last.
        most: bytes of a span, about.
    """

    uri: str
    format: str
    first: int
    last: int
    most: int


class ChunkStarts(NamedTuple):
    """Starts of chunks in a piece.

    Args:
        spans: (bytes, rows) of each, one behind the other; a CSV file's header counts as a row.
        ending: of lines, `\\n` or `\\r\\n`; empty where there is none.
    """

    spans: list[tuple[int, int]]
    ending: bytes = b""


def pieces_of(location: Location, size: int, most: int) -> list[FileChunk]:
    """Pieces of a file to inspect; none if it is one span, or cannot be split.

    Args:
        location: of the file.
        size: its bytes.
        most: bytes of a span, about.
    """
    if size <= most:
        return []
    with location.open() as stream:
        magic = stream.read(len(PARQUET))
    if magic == PARQUET or magic.startswith(GZIP):
        return []
    try:
        kind = format_of(magic, location.uri)
    except UserError:
        return []
    if kind == "tfrecord":
        return [FileChunk(location.uri, kind, 0, size, most)]
    return [FileChunk(location.uri, kind, start, min(start + most, size), most) for start in range(0, size, most)]


def look(piece: FileChunk) -> ChunkStarts | None:
    """Find the starts of chunks in a piece; None if its file is not to be split."""
    with Location.of(piece.uri).open() as stream:
        try:
            return _records(stream, piece.most) if piece.format == "tfrecord" else _lines(stream, piece)
        except (UserError, BadRow):
            return None


def spans_of(pieces: Sequence[FileChunk], looked: Sequence[ChunkStarts | None]) -> dict[str, list[RowSpan]]:
    """The spans of files by URI, from what begins in all their pieces; nothing of one that is not to be split."""
    files: dict[str, list[ChunkStarts | None]] = {}
    for piece, found in zip(pieces, looked, strict=True):
        files.setdefault(piece.uri, []).append(found)
    is_csv = {piece.uri: piece.format == "csv" for piece in pieces}
    return {uri: _spans(uri, is_csv[uri], found) for uri, found in files.items()}


def _spans(uri: str, is_csv: bool, looked: Sequence[ChunkStarts | None]) -> list[RowSpan]:
    found = [each for each in looked if each is not None]
    if len(found) < len(looked) or len({each.ending for each in found if each.ending}) > 1:
        return []
    spans: list[RowSpan] = []
    start = row = 0
    for size, rows in (span for each in found for span in each.spans):
        if size:
            spans.append(RowSpan(start, start + size, row))
        start, row = start + size, row + rows
    if is_csv:
        header = _header(Location.of(uri))
        spans[1:] = [span._replace(row=span.row - 1, header=header) for span in spans[1:]]
    return spans


def copy_span(location: Location, span: RowSpan, path: Path) -> None:
    """Write the rows of a span to a local file of the same format.

    Raises:
        EOFError: the file is shorter than it was.
    """
    left = span.end - span.begin
    with location.open() as stream, path.open("wb") as out:
        out.write(span.header)
        stream.seek(span.begin)
        while left and (data := stream.read(min(left, _BLOCK))):
            out.write(data)
            left -= len(data)
    if left:
        raise EOFError(f"{location.uri} is shorter than it was")


def _lines(stream: BinaryIO, piece: FileChunk) -> ChunkStarts | None:
    text = whole_lines(stream, piece.first, piece.last, 0)
    ends, pairs = text.count(b"\n"), text.count(b"\r\n")
    if b'"' in text or text.count(b"\r") != pairs or pairs not in (0, ends):
        return None
    if text.startswith((b"\n", b"\r")) or b"\n\n" in text or b"\n\r" in text:
        return None
    rows = ends + (not text.endswith(b"\n") and bool(text))
    return ChunkStarts([(len(text), rows)], b"\r\n" if pairs else b"\n" if ends else b"")


def _records(stream: BinaryIO, most: int) -> ChunkStarts:
    from superworkflow.tasks.lib.formats.tfrecord import FRAME_BYTES, read_records  # its kernels take time to load

    spans = [(0, 0)]
    for records in read_records(stream, "", min(most, 16 * _BLOCK)):
        size = int(records.bounds[-1, 1] - records.bounds[0, 0]) + FRAME_BYTES
        if spans[-1][0] + size > most:
            spans.append((0, 0))
        spans[-1] = (spans[-1][0] + size, spans[-1][1] + len(records.bounds))
    return ChunkStarts(spans)


def _header(location: Location) -> bytes:
    with location.open() as stream:
        line = stream.read(LINE_BYTES).partition(b"\n")
    return line[0].removeprefix(_BOM) + line[1]
