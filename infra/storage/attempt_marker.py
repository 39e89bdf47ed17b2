"""Marker of an attempt: the names of the files that it makes in a dataset's folder, recorded before it makes them.

A killed attempt leaves files without a manifest, and the next one must begin in an empty folder. It may remove
only what a marker names: `--output` may be any folder of the user's.

Stages that can resume from complete files record each with size and SHA-256 in a small file of its own; the next
attempt at the same dataset finds them in `DatasetAttempt.whole`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from pydantic import BaseModel

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import (
    ATTEMPT_NAME,
    CHECKPOINT_FOLDER,
    MANIFEST_NAME,
    PARTS_FOLDER,
    WHOLE_FOLDER,
    FileEntry,
    is_of_work,
    is_reserved,
)
from superworkflow.infra.storage.safe_names import FileName, fault_of, reason_of

_HALF_WRITTEN = re.compile(rf"\.({re.escape(MANIFEST_NAME)}|{re.escape(ATTEMPT_NAME)})\.\d+\.tmp")
"""Temporary names that a killed `Location.write_atomic` leaves of these two; of the marker it may be all."""


class _Marker(BaseModel, frozen=True):
    format: Literal[1] = 1
    digest: str = ""
    files: tuple[FileName, ...] = ()


class DatasetAttempt:
    """One attempt at a dataset, whose lock the caller holds.

    Args:
        location: the dataset's folder.
        digest: of the dataset; a checkpoint of another one is of no use to this attempt.
    """

    def __init__(self, location: Location, digest: str = ""):
        self._location, self._digest = location, digest
        self._place = location.join(ATTEMPT_NAME)
        self._names: set[str] = set()
        self._guard = threading.Lock()
        self.whole: dict[str, FileEntry] = {}
        """Files that an earlier attempt at this dataset has noted as whole, and that have that size."""

    def begin(self) -> None:
        """Remove what an earlier attempt left, its checkpoint and whole files excepted, and mark the folder.

        Raises:
            UserError: the folder holds something that no attempt has made; nothing is removed then.
        """
        left = self._read()
        found = [name for name in self._location.walk_files() if name != ATTEMPT_NAME]
        ours = None if left is None else frozenset(left.files)
        foreign = [name for name in found if self._is_link(name) or not _is_of(ours, name)]
        if foreign:
            raise UserError(
                "the folder has files that no attempt at a dataset made, such as this one; nothing was removed",
                where=self._location.uri, value=foreign[0],
                remedy="Choose an empty or a new folder; delete this one if it is a dataset that an earlier version"
                " of this program left unfinished",
            )  # fmt: skip
        if left is not None and left.digest == self._digest != "":
            self.whole = self._noted(found, left.files)
        kept = {*self.whole, *map(_note_of, self.whole)}
        for name in found:
            if name not in kept and not name.startswith(f"{CHECKPOINT_FOLDER}/"):
                self._location.join(name).delete()
        self._names.update(self.whole)
        if left is not None:
            if not kept:
                self._location.join(PARTS_FOLDER).delete(recursive=True)
            if left.digest != self._digest:
                self._location.join(CHECKPOINT_FOLDER).delete(recursive=True)
        self._write()

    def claim(self, names: Iterable[str]) -> None:
        """Record the names of files that this attempt will write, before it writes any.

        Raises:
            ValueError: a name leads out of the folder, or is reserved.
        """
        with self._guard:
            new = [name for name in names if name not in self._names]
            for name in new:
                if (fault := fault_of(name)) or is_reserved(name):
                    raise ValueError(f"no name for a data file: {name!r} {fault or 'is the platform’s own'}")
            if new:
                self._names.update(new)
                self._write()

    def note(self, entry: FileEntry) -> None:
        """Write down that a file is whole."""
        note_whole(self._location, entry)

    def forget(self, name: str) -> None:
        """Remove a file that an earlier attempt has left whole, or that is not what it was noted as."""
        self.whole.pop(name, None)
        self._location.join(_note_of(name)).delete()
        self._location.join(name).delete()

    def _noted(self, found: Sequence[str], ours: Collection[str]) -> dict[str, FileEntry]:
        """Files that are noted as whole, of those that the marker names."""
        noted = set(found)
        names = [name for name in ours if name in noted and _note_of(name) in noted and not is_reserved(name)]
        with ThreadPoolExecutor(8) as pool:
            entries = pool.map(self._noted_entry, names)
        return {entry.path: entry for entry in entries if entry is not None}

    def _noted_entry(self, name: str) -> FileEntry | None:
        try:
            entry = FileEntry.model_validate_json(self._location.join(_note_of(name)).read_text())
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        return entry if entry.path == name and entry.bytes == self._location.join(name).size() else None

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def end(self) -> None:
        """The dataset is complete: remove the checkpoint, what tasks left, and at last the marker."""
        for folder in (CHECKPOINT_FOLDER, PARTS_FOLDER):
            self._location.join(folder).delete(recursive=True)
        self._place.delete()

    def _write(self) -> None:
        marker = _Marker(digest=self._digest, files=tuple(sorted(self._names)))
        self._place.write_atomic(marker.model_dump_json(indent=1))

    def _read(self) -> _Marker | None:
        try:
            return _Marker.model_validate(json.loads(self._place.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise UserError(
                "the marker of an earlier attempt cannot be used; nothing was removed",
                where=self._place.uri, value=reason_of(error),
                remedy="Check what is in the folder, delete it, and run again",
            ) from None  # fmt: skip

    def _is_link(self, name: str) -> bool:
        folder = self._location.local_path
        return folder is not None and (folder / name).is_symlink()


def note_whole(location: Location, entry: FileEntry) -> None:
    """Write down that a file in the folder of a dataset is whole; a task of an engine may do that as well."""
    place = location.join(_note_of(entry.path))
    if (path := place.local_path) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    place.write_atomic(entry.model_dump_json())


def _note_of(name: str) -> str:
    return f"{WHOLE_FOLDER}/{name}.json"


def reopen(location: Location, digest: str, names: Iterable[str]) -> None:
    """Turn a complete dataset into an unfinished attempt with these files, which the next attempt removes."""
    DatasetAttempt(location, digest).claim(names)
    location.join(MANIFEST_NAME).delete()


def remove_marker(location: Location) -> None:
    """Remove what an attempt that was killed between manifest and end has left in a complete dataset."""
    if location.join(ATTEMPT_NAME).size() is not None:
        DatasetAttempt(location).end()


def is_half_written(name: str) -> bool:
    """True if a process that was killed while it wrote a manifest or a marker has left this file."""
    return bool(_HALF_WRITTEN.fullmatch(name))


def _is_of(ours: frozenset[str] | None, name: str) -> bool:
    """True if an earlier attempt, whose marker names these files, has made this one; None where there is no marker."""
    return is_half_written(name) or (ours is not None and (name in ours or is_of_work(name)))
