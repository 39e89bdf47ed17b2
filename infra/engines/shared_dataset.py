"""Datasets on executors: one local copy for all processes of a machine."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import Manifest

MEMBER_FOLDER = "SUPERWORKFLOW_MEMBER_FOLDER"
"""Variable that names the folder in which tasks keep files on the disk of their machine."""


def member_folder() -> Path:
    """Folder of this machine for what its tasks keep; the system's for temporary files if none is set."""
    return Path(os.environ.get(MEMBER_FOLDER) or tempfile.gettempdir())


class SharedDataset(Dataset):
    """A dataset of which all processes of one machine share one local copy, fetched and checked by the first of them.

    Args:
        location, manifest: see `Dataset`.
        folder: where the copies of this machine are.
    """

    def __init__(self, location: Location, manifest: Manifest, folder: Path):
        super().__init__(location, manifest)
        name = hashlib.sha256(f"{location.uri} {manifest.digest}".encode()).hexdigest()[:16]
        self._folder = folder / f"superworkflow-copy-{os.getuid()}-{name}"

    @classmethod
    def at(cls, uri: str, folder: str | None) -> SharedDataset:
        """Open the dataset at `uri`; `folder` is `member_folder` when None."""
        found = Dataset.open(uri)
        return cls(found.location, found.manifest, Path(folder) if folder else member_folder())

    @classmethod
    def at_any(cls, uri: str) -> SharedDataset | None:
        """Open the dataset at `uri`, which `uri_of` made; None for an empty one."""
        return cls.at(uri, None) if uri else None

    def local(self, name: str) -> Path:
        if name not in self._entries:
            return super().local(name)
        checked = self._folder / f"{name}.checked"
        checked.parent.mkdir(parents=True, exist_ok=True)
        with checked.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if checked.exists():
                self._verified.add(name)
            else:
                (self._folder / name).unlink(missing_ok=True)  # a process that was killed may have left a part
            path = super().local(name)
            checked.touch()
        return path

    def _cached(self, name: str) -> Path:
        return self._folder / name

    def close(self) -> None:
        """Leave the copy to the other processes of this machine."""


def uri_of(dataset: Dataset | None) -> str:
    """URI of a dataset that may be absent, for the arguments of a member."""
    return "" if dataset is None else dataset.uri
