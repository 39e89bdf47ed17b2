"""Uploads guarded by the dataset's lease."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import Right


def upload(path: Path, target: Location, right: Right, *, patient: bool = True) -> None:
    """Send a file to a remote dataset, for the holder of its lease.

    It is a conditional create, so that a writer that slept through the end of its lease cannot replace a file of the
    next one: its upload is refused.

    Raises:
        LeaseLost: another writes the dataset now.
    """
    right.check(patient=patient)
    if not target.upload(path, create=True):
        right.confirm(patient=patient)
        target.upload(path)


def complete(manifest: Location, text: str, right: Right) -> None:
    """Put the manifest; it replaces only one that a writer put late, after it had lost the lease."""
    if manifest.local_path is not None:
        manifest.write_atomic(text)
        return
    while manifest.create_exclusive(text) is None:
        right.confirm()
        with suppress(FileNotFoundError):
            if manifest.replace_tagged(text, manifest.tag()) is not None:
                break
    right.confirm()
