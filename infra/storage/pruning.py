"""The content of a store by dataset, and the removal of datasets, which may be killed at any point.

Only what this project has made is removed: a folder whose manifest, or marker of an attempt, names all files in it.
A complete dataset first becomes an unfinished attempt, so that there is never half of one.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.storage.attempt_marker import DatasetAttempt, is_half_written, reopen
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import FileState, Location
from superworkflow.infra.storage.lock import exclusive
from superworkflow.infra.storage.manifest import ATTEMPT_NAME, MANIFEST_NAME, is_reserved
from superworkflow.infra.storage.safe_names import is_digest
from superworkflow.infra.storage.store import Store
from superworkflow.infra.storage.table_access import SOURCES

STALE_LEASE_S = 3600.0
"""Age of a lease beyond which its holder is presumed dead, and its end is waited for."""


@dataclass
class Kept:
    """One dataset, unfinished dataset or copied source as it lies in a store.

    Args:
        name: `<stage>/<digest>`; of a source its digest.
        bytes: of all its files.
        written_s: when the last of them was written, in seconds since 1970.
        complete: it has a manifest.
    """

    name: str
    bytes: int = 0
    written_s: float = 0.0
    complete: bool = False
    files: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        return self.name.rsplit("/", 1)[-1]

    def add(self, path: str, state: FileState | None) -> None:
        """Count one of its files."""
        self.files.append(path)
        self.complete |= path == MANIFEST_NAME
        if state is not None:
            self.bytes += state.size
            self.written_s = max(self.written_s, state.written_s)


@dataclass
class Inventory:
    """Everything in a store.

    Args:
        datasets: by `<stage>/<digest>`, unfinished ones too.
        sources: copies of sources, by digest.
        folders: bytes by the first folder.
    """

    datasets: dict[str, Kept] = field(default_factory=dict)
    sources: dict[str, Kept] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(self.folders.values())


def inventory(store: Store) -> Inventory:
    """List a store once. Links to the same file, as MLflow's copies of models in a local store, count once."""
    found, seen = Inventory(), set[str]()
    for path, state in store.root.states_below().items():
        first, *rest = path.split("/")
        linked = state.exact if state is not None and store.root.local_path is not None else ""
        if state is not None and not (linked and linked in seen):
            found.folders[first] = found.folders.get(first, 0) + state.size
        seen.add(linked)
        if len(rest) < 2:
            continue
        name, inner = rest[0], "/".join(rest[1:])
        if first == SOURCES:
            found.sources.setdefault(name, Kept(name)).add(inner, state)
        elif is_digest(name) and not first.startswith("."):
            found.datasets.setdefault(f"{first}/{name}", Kept(f"{first}/{name}")).add(inner, state)
    return found


class NotRemoved(SuperworkflowError):
    """The reason for which something stays."""


def remove_dataset(store: Store, name: str) -> None:
    """Remove one dataset, complete or not. What is gone already is no error.

    Raises:
        NotRemoved: a stage writes it, or its folder holds what no stage has made.
    """
    stage, digest = name.split("/")
    location = store.location(stage, digest)
    with exclusive(location, on_wait=_unless_stale(location)):
        try:
            dataset = Dataset.find(location)
            if dataset is not None:
                files = set(dataset.files())
                for found in location.walk_files():
                    if found not in files and not is_reserved(found) and not is_half_written(found):
                        raise NotRemoved(f"{location.uri}: holds a file that no stage has made: {found}")
                reopen(location, digest, files)
            elif location.join(ATTEMPT_NAME).size() is None and location.walk_files():
                raise NotRemoved(f"{location.uri}: has neither a manifest nor a marker of ours")
            attempt = DatasetAttempt(location)
            location.make()
            attempt.begin()
            attempt.end()
        except UserError as error:
            raise NotRemoved(str(error)) from None
        _remove_empty(location)


def remove_source(store: Store, name: str) -> None:
    """Remove the copies of one source."""
    location = store.root.join(SOURCES, name)
    location.delete(recursive=True)


def _unless_stale(location: Location) -> Callable[[], None]:
    """Raise rather than wait for the writer of a dataset, unless that is long dead."""

    def wait() -> None:
        folder, _, digest = location.uri.rpartition("/")
        state = Location(f"{folder}/.{digest}.lease").state() if location.local_path is None else None
        if state is None or time.time() - state.written_s < STALE_LEASE_S:
            raise NotRemoved(f"{location.uri}: a stage writes it")

    return wait


def _remove_empty(location: Location) -> None:
    """Remove a local folder and those in it, as far as they are empty."""
    if (path := location.local_path) is not None:
        for folder, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def total(found: Iterable[Kept]) -> int:
    """Bytes of all of these."""
    return sum(each.bytes for each in found)
