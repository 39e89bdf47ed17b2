"""Files of an edge list: the one, or the part files of a folder, each with the dialect in which it is read."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from superworkflow.infra.storage.part_files import differ, part_files, part_uri, partition
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.text_file import unpacked
from superworkflow.tasks.lib.edge_list.detect import detect
from superworkflow.tasks.lib.edge_list.dialect import Dialect, NoRows, ReadParams
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.edge_list.parquet_head import MAGIC
from superworkflow.tasks.lib.edge_list.text_rows import ParsedRows, open_rows, text_rows

_ROWS = 20
"""Rows of the other members that show whether they are like the largest."""


class EdgeFile(NamedTuple):
    """A file of an edge list.

    Args:
        path: local file.
        dialect: how it is written.
        where: its name for people.
    """

    path: Path
    dialect: Dialect
    where: str


@dataclass(frozen=True)
class _Settled:
    """Parameters by which a member is read as another one was."""

    format: str
    delimiter: str | None
    header: bool | str
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    weighted: bool | str = False
    negative: str = "error"
    missing: str = "keep"
    bipartite: bool | str = False
    source_prefix: str | None = None
    target_prefix: str | None = None
    time: str | None = None
    from_time: str | None = None
    until: str | None = None


def edge_files(source: Source, params: ReadParams, scratch: Path) -> list[EdgeFile]:
    """The files of an edge list on this machine; see `detect_files`."""
    return [
        EdgeFile(source.local(scratch, name), dialect, part_uri(source, name))
        for name, dialect in detect_files(source, params, lambda name: source.local(scratch, name).open("rb"))
    ]


def detected_warnings(source: Source, params: ReadParams) -> tuple[InputWarning, ...]:
    """Warnings that reading an edge list will give, by its first rows alone; see `detect_files`."""
    return detect_files(source, params, partial(opened, source))[0][1].warnings


@contextmanager
def opened(source: Source, name: str) -> Iterator[BinaryIO]:
    """A member where it is, of which only the beginning may be read."""
    # The lines of an object in a bucket cannot be read with a limit, and are where they come through a buffer.
    raw = source.members[name].location.open()
    with raw, io.BufferedReader(cast(io.RawIOBase, raw)) as stream:
        yield cast(BinaryIO, stream)


def detect_files(
    source: Source, params: ReadParams, opened: Callable[[str], AbstractContextManager[Any]]
) -> list[tuple[str, Dialect]]:
    """The members with rows, in the order of their paths, and their dialects.

    Of a folder the largest member settles how all are read. Each may have its own header, and may be gzipped or not.

    Args:
        source: a file or a folder.
        params: what the user said of it.
        opened: opens the member of a name.

    Returns:
        Names and dialects, each with the same warnings.

    Raises:
        UserError: as `detect`; or members differ, both are named.
    """
    names = part_files(source)
    sizes = {name: source.members[name].state.size for name in names}
    largest = max(names, key=lambda name: sizes[name])  # the first of these
    with opened(largest) as stream:
        lead = detect(stream, params, part_uri(source, largest))
    found: list[tuple[str, Dialect]] = []
    lead = replace(lead, warnings=(*lead.warnings, *partition_warnings(source, names)))
    for name in names:
        if name == largest:
            found.append((name, lead))
            continue
        try:
            with opened(name) as stream:
                dialect = _like(lead, part_uri(source, largest), stream, params, part_uri(source, name))
        except NoRows:
            continue  # Spark writes such for its empty partitions
        found.append((name, dialect))
    return [(name, replace(dialect, warnings=lead.warnings)) for name, dialect in found]


def text_rows_of(files: Sequence[EdgeFile]) -> Iterator[ParsedRows]:
    """The rows of files of text, one file after the other; see `text_rows`."""
    for path, dialect, where in files:
        with open_rows(str(path), dialect, where) as stream:
            yield from text_rows(stream, dialect)


def partition_warnings(source: Source, names: Sequence[str]) -> list[InputWarning]:
    """A warning that names columns that only the folders' names hold; none where there are none."""
    if not (folders := partition(names[0])):
        return []
    keys = ", ".join(part.partition("=")[0] for part in folders.split("/"))
    return [InputWarning(f"the columns of the folder's partitions are not read: {keys}", source.uri, folders,
                         "Write the files with these columns in them if they matter")]  # fmt: skip


def _like(lead: Dialect, lead_where: str, stream: BinaryIO, params: ReadParams, where: str) -> Dialect:
    """The dialect of a member that is to be like the leading one.

    Raises:
        NoRows: there are none.
        UserError: it is not like it.
    """
    is_parquet = unpacked(stream, where)[0].read(len(MAGIC)) == MAGIC
    if is_parquet != (lead.kind == "parquet"):
        raise differ(lead_where, where, f"the one is {lead.kind}, the other {'parquet' if is_parquet else 'text'}")
    settled = _Settled(lead.kind, lead.separator if lead.kind == "csv" else None, True if lead.names else params.header)
    found = detect(stream, settled, where, _ROWS)
    if found.names != lead.names:
        shown = [", ".join(each.names) or "no header" for each in (lead, found)]
        raise differ(lead_where, where, f"the one has {shown[0]}, the other {shown[1]}"[:1000])
    return replace(
        lead, gzipped=found.gzipped, data_offset=found.data_offset, skipped_lines=found.skipped_lines, warnings=()
    )
