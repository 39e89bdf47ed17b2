"""Snapshots: tables of databases and lakehouses as files of the store, named by their content.

A table is read once into `<store>/snapshots/<SHA-256>.parquet`, which stands for it from then on: stages read it, and
their datasets are named by it. Next to it is kept under which state of the table it was read, where a database or
lakehouse can say so, so that an unchanged table is not read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.storage import retry
from superworkflow.infra.storage.content_files import keep_content, plain_table, write_parquet
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.store import Store
from superworkflow.infra.storage.warehouse.address import TableAddress, parse_as_of
from superworkflow.infra.storage.warehouse.databases import Session, is_away, open_session, refusal
from superworkflow.infra.storage.warehouse.lakes import LakeTable

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "snapshots"
"""Folder of a store with what was read."""
PATIENCE_S = 60.0
"""Seconds for which a database that is away is waited for."""
_STATES, _READING = "states", 2
"""Folder of what was read under which state, and the number of the rules by which types of columns become Parquet's."""
_FILE = re.compile(r"[0-9a-f]{64}\.parquet")


class Snapshot(NamedTuple):
    """A table as it was read.

    Args:
        uri: of the file.
        origin: address of the table, and its version if it has some.
    """

    uri: str
    origin: str


class TableSnapshots:
    """Reads tables into a store; all tables of one database in one transaction.

    Args:
        store: URI of the store.
        rehash: read tables again that seem unchanged.
        as_of: version or time at which tables of lakehouses are read whose addresses name none.
    """

    def __init__(self, store: str, rehash: bool = False, as_of: str = ""):
        self._store, self._rehash, self._as_of = Store(store), rehash, as_of
        self._sessions: dict[str, Session] = {}

    def __enter__(self) -> TableSnapshots:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def take(self, addresses: dict[str, TableAddress]) -> dict[str, Snapshot]:
        """Read tables by name, unless they are known unchanged.

        Raises:
            UserError: one cannot be read, has no row or two columns of one name, or has no versions and `as_of` is set.
        """
        if self._as_of:
            parse_as_of(self._as_of, "--as-of")
            if not any(each.is_lake for each in addresses.values()):
                raise UserError("no source keeps earlier versions", where="--as-of", value=self._as_of,
                                remedy="Leave it out, or give a table of Delta Lake or Iceberg")  # fmt: skip
            addresses = {
                name: each.with_as_of(self._as_of) if each.is_lake else each for name, each in addresses.items()
            }
        patience, is_said = retry.RetryState(PATIENCE_S), False
        while True:
            try:
                return {name: self._one(name, address) for name, address in addresses.items()}
            except _Away as error:  # from the first table on: all are of one state
                self._close()
                pause = patience.pause()
                if pause is None:
                    raise error.said from None
                if not is_said:
                    retry.log(f"waiting for up to {PATIENCE_S:.0f} s: {error.said}")
                    is_said = True
                time.sleep(pause)

    def state(self, address: TableAddress) -> str:
        """State of a table that another follows when its rows change, found without reading it where that is possible.

        Raises:
            UserError: it cannot be read.
        """
        if address.is_lake:
            return LakeTable(address).fingerprint
        return self._fingerprint(address) or self._one("table", address).uri

    def _one(self, name: str, address: TableAddress) -> Snapshot:
        lake = LakeTable(address) if address.is_lake else None
        fingerprint = lake.fingerprint if lake is not None else self._fingerprint(address)
        origin = address.shown + (f" (version {lake.version})" if lake is not None else "")
        key = hashlib.sha256(f"{_READING}\n{address.shown}\n{fingerprint}".encode()).hexdigest()
        state = self._store.root.join(FOLDER, _STATES, f"{key}.json")
        if fingerprint and not self._rehash and (kept := self._kept(state)) is not None:
            return Snapshot(kept, origin)
        uri = self._read(name, address, lake)
        if fingerprint:
            self._store.root.join(FOLDER, _STATES).make()
            state.write_atomic(json.dumps({"file": uri.rpartition("/")[2], "table": origin}))
        return Snapshot(uri, origin)

    def _kept(self, state: Location) -> str | None:
        """The file that was read under a state, if it is still there."""
        try:
            name = str(json.loads(state.read_text())["file"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        if not _FILE.fullmatch(name):
            return None
        kept = self._store.root.join(FOLDER, name)
        return kept.uri if kept.size() else None

    def _read(self, name: str, address: TableAddress, lake: LakeTable | None) -> str:
        def write(path: Path) -> None:
            tables = lake.read() if lake is not None else self._session(address).read(address)
            if not write_parquet(_checked(name, address, tables), path):
                raise UserError("has no row", where=address.shown, remedy="Give a table with content")

        try:
            return keep_content(self._store, FOLDER, ".parquet", write)
        except SuperworkflowError:
            raise
        except Exception as error:  # of a driver
            raise _said(address, error) from None

    def _fingerprint(self, address: TableAddress) -> str:
        try:
            return self._session(address).fingerprint(address)
        except SuperworkflowError:
            raise
        except Exception as error:  # of a driver
            raise _said(address, error) from None

    def _session(self, address: TableAddress) -> Session:
        if address.base not in self._sessions:
            self._sessions[address.base] = open_session(address)
        return self._sessions[address.base]

    def _close(self) -> None:
        for session in self._sessions.values():
            with contextlib.suppress(Exception):  # the server may have gone
                session.close()
        self._sessions.clear()


class _Away(Exception):
    """A database did not answer.

    Args:
        said: the error if it stays away.
    """

    def __init__(self, said: UserError):
        super().__init__(str(said))
        self.said = said


def _said(address: TableAddress, error: Exception) -> Exception:
    said = refusal(address, error)
    return _Away(said) if is_away(error) else said


def _checked(name: str, address: TableAddress, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        names = table.column_names
        if twice := sorted({each for each in names if names.count(each) > 1}):
            raise UserError("two columns have one name", where=f"{name}: {address.shown}", value=", ".join(twice),
                            remedy="Rename one of them in a query: SELECT a AS b")  # fmt: skip
        yield plain_table(table)
