"""A table of PostgreSQL in ranges of its blocks, read by several connections in the order of one stream."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from superworkflow.infra.process.threads import available_cpus

if TYPE_CHECKING:
    import pyarrow as pa

BLOCKS = 4096
"""Blocks of a range, 32 MiB."""
CONNECTIONS = 4
"""Most of one table."""
_AHEAD = 2  # tables of 16 MiB, for each connection


class Reader(Protocol):
    """A connection; only one thread uses it."""

    def rows(self, statement: str) -> Iterator[pa.Table]:
        """The rows of a statement, in tables of one schema."""

    def close(self) -> None:
        """Disconnect."""


def connections(count: int) -> int:
    """Number of connections for a number of ranges."""
    return min(available_cpus(), count, CONNECTIONS)


def split_blocks(select: str, blocks: int) -> list[str]:
    """Statements that together read a table in the order of its blocks; none if it has fewer than two ranges.

    Args:
        select: reads the whole table.
        blocks: that the table had; rows in later ones are in the last range.
    """
    starts = [f"'({first},0)'::tid" for first in range(0, blocks - BLOCKS + 1, BLOCKS)]
    if len(starts) < 2:
        return []
    ends = [f" AND ctid < {start}" for start in starts[1:]] + [""]
    return [f"{select} WHERE ctid >= {start}{end}" for start, end in zip(starts, ends, strict=True)]


def read_ahead(readers: Sequence[Reader], statements: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of statements in their order; reader i reads number i, i + n, i + 2n, … ahead, and is closed at the end.

    Raises:
        Exception: that of a reader.
    """
    over, number = threading.Event(), len(readers)
    waiting: list[_Waiting] = [queue.Queue(_AHEAD) for _ in readers]
    for i, reader in enumerate(readers):
        arguments = (reader, statements[i::number], waiting[i], over)
        threading.Thread(target=_read, args=arguments, name="table-range", daemon=True).start()
    try:
        for i in range(len(statements)):
            while (found := waiting[i % number].get()) is not None:
                if isinstance(found, BaseException):
                    raise found
                yield found
    finally:
        over.set()
        for each in waiting:  # a reader that waits for room ends
            while not each.empty():
                each.get()


def _read(reader: Reader, statements: Iterable[str], found: _Waiting, over: threading.Event) -> None:
    try:
        for statement in statements:
            for table in reader.rows(statement):
                found.put(table)
                if over.is_set():
                    return
            found.put(None)
    except BaseException as error:
        found.put(error)
    finally:
        reader.close()


_Waiting = queue.Queue["pa.Table | BaseException | None"]
