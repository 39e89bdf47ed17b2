"""Sources: inputs of a run that no stage has made.

A source is a file, a folder, or a description that names tables in or below its own folder, or elsewhere where that is
allowed (`infra.storage.table_access`). A stage's `Input` declares which of these it reads. The digest of a file is the
SHA-256 of its content. That of a folder or a description covers every member: path, size and SHA-256. Files of a
folder whose names begin with `.` or `_` are not members.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.storage.checksum_cache import ChecksumCache, may_be_kept
from superworkflow.infra.storage.digest import file_sha256, json_sha256, stream_sha256
from superworkflow.infra.storage.location import FileState, Location
from superworkflow.infra.storage.table_access import NamedFile, TableAccess, find_tables, inside
from superworkflow.infra.storage.table_files import matching, visible_files

FRESH_S = 2.0
"""A file written as shortly ago may be written once more within one tick of a coarse clock."""
DESCRIPTION_BYTES = 64 << 20
"""Most bytes of a description."""
_AT_ONCE = 4
_REMEDY = "Give the path or URI of a file with content"


@dataclass(frozen=True)
class Member:
    """One file of a source, as it was when it was summed.

    Args:
        location: where it is.
        state: before its content was summed.
        sha256: of its content.
        fresh: it had been written so shortly before that another write might leave the same time.
    """

    location: Location
    state: FileState
    sha256: str
    fresh: bool = False

    def is_unchanged(self, state: FileState | None) -> bool:
        """True if the content is what was summed; it is read again only where its state leaves doubt.

        Args:
            state: in which the file is now; None where it is gone.
        """
        if state is None or state.fingerprint != self.state.fingerprint:
            return False
        path = self.location.local_path
        if path is None or (state == self.state and not self.fresh):
            return True
        try:
            return file_sha256(path) == self.sha256
        except FileNotFoundError:
            return False


class Source:
    """A file, a folder, or a description that names tables.

    What it is, where it is a file, is settled by the first stage that reads it (`read_as`). Content is read when the
    digest is first asked for, unless its sum was kept (see `infra.storage.checksum_cache`).

    Args:
        location: the file or folder.
        is_folder: which of both.
        rehash: read all of it, whatever sums were kept.
        reach: access of a description to tables outside its folder.
    """

    def __init__(self, location: Location, is_folder: bool, rehash: bool = False, reach: TableAccess = TableAccess()):  # noqa: B008
        self.location, self.is_folder, self._rehash, self._reach = location, is_folder, rehash, reach
        self._tables: str | None = None
        self._members: dict[str, Member] | None = None
        self._digest = ""
        self._copies: dict[str, Path] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._guard = threading.RLock()

    @classmethod
    def of(cls, uri: str | Path, *, rehash: bool = False, reach: TableAccess = TableAccess()) -> Source:  # noqa: B008
        """Open the source at a path or URI; the class describes the other arguments.

        Raises:
            UserError: nothing, or an empty file or folder.
        """
        location = Location.of(uri)
        try:
            state = location.state()
            is_folder = state is None and bool(location.entries())
        except Exception as error:  # credentials, network, permissions: the client's own words say which
            raise _unreadable(location, error) from None
        if state is None and not is_folder:
            local = location.local_path
            what = "the folder is empty" if local is not None and local.is_dir() else "no such file"
            raise UserError(what, where=location.uri, remedy=_REMEDY)
        if state is not None and state.size == 0:
            raise UserError("the file is empty", where=location.uri, remedy=_REMEDY)
        return cls(location, is_folder, rehash, reach)

    def read_as(self, *, file: bool = True, folder: bool = False, tables: str = "", inside: str = "") -> None:
        """Settle what this is, as the stage that reads it declares.

        Args:
            file: it may be one file.
            folder: it may be a folder.
            tables: import string of the function that finds the names of tables in it, where it may be a description;
                see `Input`.
            inside: name of the description in a folder, which then stands for it.

        Raises:
            UserError: it is not what the stage reads.
            ValueError: another stage has declared it otherwise.
        """
        if self.is_folder and inside and not folder:
            self._enter(inside)
        if self.is_folder and not folder:
            raise UserError("is a folder, not a file", where=self.uri, remedy=_REMEDY)
        if self.is_folder:
            return
        if not (file or tables):
            raise UserError("is a file, not a folder", where=self.uri, remedy="Give the path or URI of a folder")
        with self._guard:
            settled = self._tables if self._members is None else self._tables or ""
            if settled not in (None, tables):
                raise ValueError(f"{self.uri} is a description to one stage and something else to another")
            self._tables = tables

    def _enter(self, name: str) -> None:
        """Become the description in this folder, so that other files there are none of the source's."""
        description = self.location.join(name)
        try:
            state = description.state()
        except Exception as error:
            raise _unreadable(description, error) from None
        if state is None:
            raise UserError(f"the folder has no {name}", where=self.uri,
                            remedy="Give a folder that has one, or the path of a description")  # fmt: skip
        with self._guard:
            self.location, self.is_folder = description, False

    @property
    def digest(self) -> str:
        """SHA-256 of a file's content, or of the members of a folder or description.

        Raises:
            UserError: it cannot be read, a table that it names is not there, or it changed while it was read.
        """
        with self._guard:
            self._digest = self._digest or self._digest_of(self.members)
            return self._digest

    def _digest_of(self, members: Mapping[str, Member]) -> str:
        if not self.has_members:
            return members[self.location.name].sha256
        listed = [
            {"path": path, "bytes": member.state.size, "sha256": member.sha256}
            for path, member in sorted(members.items())
            if path != self._own_name
        ]
        identity: dict[str, Any] = {"members": listed}
        if self._own_name:
            identity["description"] = members[self._own_name].sha256
        return json_sha256(identity)

    @property
    def members(self) -> Mapping[str, Member]:
        """The files by their path in the source's folder, or absolute path or URI of those that a description names
        elsewhere; a file or description itself is among them."""
        with self._guard:
            if self._members is None:
                try:
                    self._members = self._summed()
                except UserError:
                    raise
                except Exception as error:  # of a file system's client; its own words say what
                    raise _unreadable(self.location, error) from None
            return self._members

    def states(self) -> Mapping[str, FileState]:
        """States of the files by their path, as they are now; of content only a description's is read.

        Raises:
            UserError: it cannot be read, or a table that it names is not there.
        """
        try:
            return {path: found.state for path, found in self._states()[0].items()}
        except UserError:
            raise
        except Exception as error:  # of a file system's client; its own words say what
            raise _unreadable(self.location, error) from None

    def files(self, name: str = "*") -> list[str]:
        """Paths of the members that a name stands for (see `table_files`), sorted, without the description's own."""
        return sorted(path for path in matching(self.members, name) if path != self._own_name)

    @property
    def uri(self) -> str:
        return self.location.uri

    @property
    def has_members(self) -> bool:
        """True if this is more than a file."""
        return self.is_folder or bool(self._tables)

    @property
    def total_bytes(self) -> int:
        return sum(member.state.size for member in self.members.values())

    @property
    def folder(self) -> Location:
        """In which the members are, but for those elsewhere."""
        return self.location if self.is_folder else Location(self.uri.rpartition("/")[0] or "/")

    def check_unchanged(self) -> None:
        """Hold all members against what they were when they were summed; a digest names what was read.

        Raises:
            UserError: one has been written since, so that what was read of it may be something else, or there is
                another set of members.
        """
        members = self.members
        try:
            now = self._states()[0]
        except (UserError, FileNotFoundError):
            now = {}
        if self.has_members and now.keys() != members.keys():
            raise changed(self.uri, "while the stage read it", "other files belong to it now")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            same = pool.map(lambda path: members[path].is_unchanged(now[path].state if path in now else None), members)
            for member, is_same in zip(members.values(), same, strict=True):
                if not is_same:
                    raise changed(member.location.uri, "while the stage read it")

    def local(self, scratch: Path, path: str = "") -> Path:
        """A local copy of one member, fetched to `scratch` when it is remote.

        Args:
            scratch: folder for what is fetched.
            path: of the member; empty for the file itself.

        Raises:
            KeyError: it is no member.
            UserError: what was fetched is not what was summed.
        """
        name = path or self.location.name
        if not path and self.is_folder:
            raise KeyError(f"{self.uri} is a folder; name one of its files")
        member = self.members[name]
        if (there := member.location.local_path) is not None:
            return there
        with self._guard:
            turn = self._turns.setdefault(name, threading.Lock())
        with turn:
            if name not in self._copies:
                copy = scratch / f"source-{self.digest[:12]}" / inside(name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                member.location.download(copy)
                if file_sha256(copy) != member.sha256:
                    raise changed(member.location.uri, "while the stage read it")
                self._copies[name] = copy
            return self._copies[name]

    @property
    def _own_name(self) -> str:
        """The description's name among the members; empty where there is none."""
        return self.location.name if self._tables and not self.is_folder else ""

    def _states(self) -> tuple[dict[str, NamedFile], str]:
        """Each member as it is now, and the SHA-256 of a description."""
        if self.is_folder:
            found = visible_files(self.location)
            if not any(state.size for state in found.values()):
                raise UserError("the folder holds no file with content", where=self.uri,
                                remedy="Give a folder of files; names that begin with . or _ do not count")  # fmt: skip
            return {path: NamedFile(self.location.join(path), state) for path, state in found.items()}, ""
        own = self.location.state()
        if own is None:
            raise FileNotFoundError(self.uri)
        if not self._tables:
            return {self.location.name: NamedFile(self.location, own)}, ""
        content = self._description(own)
        try:
            names: Iterable[str] = imported(self._tables)(content.decode(), self.uri)
        except UnicodeDecodeError:
            raise UserError("not a text in UTF-8", where=self.uri, remedy="Give a description of tables") from None
        tables = find_tables(self.folder, names, self.uri, self._reach)
        if not tables.keys() - {self.location.name}:
            raise UserError("the description names no tables", where=self.uri, remedy="Name the files of each table")
        return tables | {self.location.name: NamedFile(self.location, own)}, hashlib.sha256(content).hexdigest()

    def _description(self, state: FileState) -> bytes:
        if state.size > DESCRIPTION_BYTES:
            raise UserError(f"a description has at most {DESCRIPTION_BYTES} bytes", where=self.uri, value=state.size,
                            remedy="Give the description, not a table")  # fmt: skip
        with self.location.open() as stream:
            return stream.read(DESCRIPTION_BYTES + 1)

    def _summed(self) -> dict[str, Member]:
        kept = ChecksumCache(self.uri)
        trusted = {} if self._rehash else kept.read()
        began_ns = time.time_ns()  # before the states: what is written while content is summed must show
        states, own_sum = self._states()

        def member(path: str) -> Member:
            location, state = states[path]
            fresh = state.changed_ns > began_ns - int(FRESH_S * 1e9)
            exact, sha256 = trusted.get(path, ("", ""))
            if path == self._own_name:
                sha256 = own_sum
            elif not exact or exact != _exact(location, state):
                sha256 = _sum(location, state)
            return Member(location, state, sha256, fresh)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            members = dict(zip(states, pool.map(member, states), strict=True))
        sums = {
            path: (each.state.exact, each.sha256)
            for path, each in members.items()
            if path != self._own_name and may_be_kept(each.state, began_ns)
        }
        if sums != trusted:
            # What was written while it was summed has another state by now, and is not looked up under the old one.
            kept.write(sums)
        return members


def _exact(location: Location, state: FileState) -> str:
    """`FileState.exact` of a file that is in this state; of a local file what its server vouches for; empty if gone."""
    now = state if location.local_path is None else location.opened_state()
    return "" if now is None else now.exact


def _sum(location: Location, state: FileState) -> str:
    """SHA-256 of the content of a file that is in this state.

    Raises:
        UserError: it is in another one by now.
    """
    if (path := location.local_path) is not None:
        return file_sha256(path)
    stream, read = location.open_with_state()
    with closing(stream):
        if read is not None and state.exact and read.exact != state.exact:
            raise changed(location.uri, "while it was summed")
        return stream_sha256(stream)


def changed(where: str, when: str, how: str = "") -> UserError:
    """The error for a source that is not what it was when it was summed."""
    return UserError(
        f"the file was changed {when}" if not how else f"the source was changed {when}: {how}",
        where=where, remedy="Run again when nobody writes it, so that it is read anew",
    )  # fmt: skip


def _unreadable(location: Location, error: Exception) -> UserError:
    return UserError(
        f"the file cannot be read: {type(error).__name__}: {error}", where=location.uri,
        remedy="Check the URI and the credentials",
    )  # fmt: skip
