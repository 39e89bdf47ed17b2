"""Access control for tables that a description references by absolute path or URI.

A malicious description could have any file that the run can read copied into datasets. So the tables that it may name
depend on where it comes from (`TableAccess`):

| description | may name |
| --- | --- |
| a file of this machine that a user gives to a command | anything |
| in a bucket, or on another server | what is in the same bucket, or on that server |
| in a local store, or given to a deployment's run | what lies in its folder |
| any | what lies below a prefix that the user trusts: `--tables-from`, or a line of `SUPERWORKFLOW_TABLES_FROM` |

A process that receives the planned digest reads all that the description names: the digest covers the description and
the content of every table, so that these are the ones that the planning process was allowed to read.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import FileState, Location
from superworkflow.infra.storage.safe_names import fault_of
from superworkflow.infra.storage.table_files import (
    MAGIC,
    find_files,
    is_elsewhere,
    matches,
    plain,
    shards,
    visible_files,
)

VARIABLE = "SUPERWORKFLOW_TABLES_FROM"
"""Environment variable with trusted prefixes, one a line."""
SOURCES = ".sources"
"""Folder of a store with copies of sources."""
ELSEWHERE = ".elsewhere"
"""Folder, in that of a copied description, of the tables that it names by absolute paths."""

_COPIED = re.compile(rf".*/{re.escape(SOURCES)}/[0-9a-f]{{64}}", re.DOTALL)


class NamedFile(NamedTuple):
    """A file that a description names."""

    location: Location
    state: FileState


@dataclass(frozen=True)
class TableAccess:
    """Access of a description to tables outside its own folder.

    Args:
        anywhere: all that can be read.
        prefixes: paths and URIs, with all that is below them.
    """

    anywhere: bool = False
    prefixes: tuple[str, ...] = ()

    def check(self, name: str, folder: Location, where: str) -> None:
        """Refuse what is out of reach.

        Args:
            name: absolute path or URI.
            folder: of the description.
            where: the description, for people.

        Raises:
            UserError: names the description, the table, and what to do.
        """
        scheme, remote, rest = folder.uri.partition("://")
        own = f"{scheme}://{rest.partition('/')[0]}" if remote else folder.uri
        if not self.anywhere and not any(is_below(name, prefix) for prefix in (own, *self.prefixes)):
            raise UserError(
                f"a table lies elsewhere than this description, which may name only tables "
                f"{'in the same bucket or server' if remote else 'in its own folder'}",
                where=where, value=name,
                remedy="Put the table there, or if you trust the description, allow the table's place with "
                f"--tables-from PREFIX or {VARIABLE}",
            )  # fmt: skip


def reach_of(uri: str, tables_from: Iterable[str] = (), *, chosen: bool = True, store: str = "") -> TableAccess:
    """Tables that a source may name, if it is a description.

    Args:
        uri: of the source.
        tables_from: prefixes that the user trusts.
        chosen: a user of this machine gives it to a command; False where it comes with the request of a run.
        store: in which others may write.
    """
    place = Location.of(uri)
    is_own = chosen and place.local_path is not None and not (store and is_below(place.uri, Location.of(store).uri))
    lines = os.environ.get(VARIABLE, "").splitlines()
    return TableAccess(is_own, tuple(Location.of(prefix).uri for prefix in (*tables_from, *lines) if prefix.strip()))


def is_below(uri: str, prefix: str) -> bool:
    """True if a path or URI is this one, or of something in it."""
    return uri == prefix or uri.startswith(prefix.rstrip("/") + "/")


def inside(path: str) -> str:
    """Path of a member's copy in the folder of a copied source; members elsewhere have a folder of their own."""
    return f"{ELSEWHERE}/{path.replace('://', '/', 1).removeprefix('/')}" if is_elsewhere(path) else path


def find_tables(folder: Location, names: Iterable[str], where: str, reach: TableAccess) -> dict[str, NamedFile]:
    """The files that names stand for, by their path in the folder, or by their absolute path or URI.

    Args:
        folder: the description's own.
        names: as `table_files.find_files` takes them, or such names after an absolute path or URI of a folder.
        where: the description, for people.
        reach: what it may name.

    Raises:
        UserError: there is nothing of a name, it cannot be read, or it is out of reach.
    """
    given = [plain(name) for name in names]
    beside = find_files(folder, [name for name in given if not is_elsewhere(name)], where)
    found = {path: NamedFile(folder.join(path), state) for path, state in beside.items()}
    for name in filter(is_elsewhere, given):
        rest = name.rstrip("/").removeprefix("/") if name.startswith("/") else name.rstrip("/").partition("://")[2]
        if (fault := fault_of(rest)) is not None:
            raise UserError(f"the name of a table {fault}", where=where, value=name,
                            remedy="Write the path without such parts")  # fmt: skip
        for each in shards(name.rstrip("/")):
            files = _copies(folder, each)
            if not files:
                reach.check(each, folder, where)
                files = _there(each, where)
            if not files:
                raise UserError("there is no such table", where=where, value=each,
                                remedy="Names are those of files, folders or patterns")  # fmt: skip
            found |= files
    return found


def _copies(folder: Location, name: str) -> dict[str, NamedFile]:
    """Files that were copied with their description to a store."""
    if not name.startswith("/") or not _COPIED.fullmatch(folder.uri):
        return {}
    copies = folder.join(ELSEWHERE)
    files = matches(copies, "", name[1:].split("/"), functools.cache(Location.entries))
    return {f"/{path}": NamedFile(copies.join(path), state) for path, state in files.items()}


def _there(name: str, where: str) -> dict[str, NamedFile]:
    """Files at an absolute path or URI; folders above the first pattern are not listed."""
    place = Location.of(name)
    try:
        if (state := place.state()) is not None:
            return {name: NamedFile(place, state)}
        parts = name.split("/")
        first = 0 if name.startswith("/") else 3  # no pattern stands for a bucket
        pattern = next((index for index in range(first, len(parts)) if MAGIC.search(parts[index])), len(parts))
        root = Location.of("/".join(parts[:pattern]) or "/")
        if pattern == len(parts):
            files = visible_files(root)
        else:
            files = matches(root, "", parts[pattern:], functools.cache(Location.entries))
    except UserError:
        raise
    except Exception as error:  # credentials, network, permissions: the client's own words say which
        raise UserError(f"a table cannot be read: {type(error).__name__}: {error}", where=where, value=name,
                        remedy="Check its path or URI, permissions and credentials") from None  # fmt: skip
    return {f"{root.uri.rstrip('/')}/{path}": NamedFile(root.join(path), state) for path, state in files.items()}
