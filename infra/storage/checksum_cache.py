"""SHA-256 sums of source files that were read before, kept so that what has not changed is not read again.

They are kept in a folder of the user's own, `~/.cache/superworkflow/sums` (below `XDG_CACHE_HOME`, or `sums` below
`SUPERWORKFLOW_CACHE`), not in the store: a sum goes into digests, and so decides which datasets are reused, while
others may write to a store. Where there is no such folder, as in pods, or others may write to it, all is read.

A sum is kept under what its file system says of the file (`FileState.exact`). Of a local file it is kept only once the
file has not changed for `SETTLED_S`: clocks tick, a page that is written through a memory map gets its time when the
page is first dirtied and stays dirty for up to half a minute, and a file server's clock may differ from ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from superworkflow.infra.storage.location import FileState

FOLDER_VARIABLE = "SUPERWORKFLOW_CACHE"
SETTLED_S = 60.0
"""Seconds for which a local file must not have changed before its sum is kept."""
KEPT_S = 180 * 86_400.0
"""Seconds without use after which sums are removed."""
KEPT_BYTES = 256 << 20
"""Bytes of all sums beyond which the least recently used ones are removed."""
_FILE = re.compile(r"[0-9a-f]{32}\.json|\.[0-9a-f]{32}\.partial")
"""Names of the files that are ours, and of those that a killed process has left."""
_MOST_BYTES = 1 << 30
_SUM = re.compile(r"[0-9a-f]{64}")


class ChecksumCache:
    """Sums of the files of one source.

    Args:
        uri: of the source.
    """

    def __init__(self, uri: str):
        name = hashlib.sha256(uri.encode(errors="surrogateescape")).hexdigest()[:32]
        folder = _folder()
        self._path = None if folder is None else folder / f"{name}.json"

    def read(self) -> dict[str, tuple[str, str]]:
        """`FileState.exact` and SHA-256 by path; empty where nothing was kept, or where others may have written it."""
        if self._path is None:
            return {}
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
            with open(descriptor, encoding="utf-8") as stream:
                if not (is_ours(os.fstat(descriptor)) and is_ours(self._path.parent.stat())):
                    return {}
                found = json.loads(stream.read(_MOST_BYTES))["sums"]
            return {path: (exact, sha256) for path, (exact, sha256) in found.items() if _is_valid(exact, sha256)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def write(self, sums: Mapping[str, tuple[str, str]]) -> None:
        """Keep these, instead of those that were; where that cannot be done, all is read again next time."""
        if self._path is None:
            return
        partial = self._path.with_name(f".{uuid.uuid4().hex}.partial")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(descriptor, "w", encoding="utf-8") as stream:
                    json.dump({"format": 1, "sums": dict(sums)}, stream)
                partial.replace(self._path)
            finally:
                partial.unlink(missing_ok=True)

        self._prune()

    def _prune(self) -> None:
        """Remove sums unused for long, and the least recently used ones beyond `KEPT_BYTES`; foreign files stay."""
        assert self._path is not None
        found: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError):
            if not is_ours(self._path.parent.stat()):
                return
            for path in self._path.parent.iterdir():
                with contextlib.suppress(OSError):  # another process has removed it
                    status = path.lstat()
                    if _FILE.fullmatch(path.name) and stat.S_ISREG(status.st_mode) and is_ours(status):
                        found.append((max(status.st_mtime, status.st_atime), status.st_size, path))
        kept = 0
        for used, size, path in sorted(found, reverse=True):
            kept += size
            if path != self._path and (kept > KEPT_BYTES or used < time.time() - KEPT_S):
                with contextlib.suppress(OSError):
                    path.unlink()


def may_be_kept(state: FileState, began_ns: int) -> bool:
    """True if the sum of a file that was in this state when summing began may be trusted for as long as it is.

    Args:
        state: of the file.
        began_ns: when summing began, by this machine's clock.
    """
    return bool(state.exact) and state.changed_ns < began_ns - int(SETTLED_S * 1e9)


def _is_valid(exact: object, sha256: object) -> bool:
    return isinstance(exact, str) and isinstance(sha256, str) and _SUM.fullmatch(sha256) is not None


def cache_folder() -> Path | None:
    """The user's folder for what can be made again; None for a user without a home."""
    if given := os.environ.get(FOLDER_VARIABLE):
        return Path(given)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "superworkflow"
    except RuntimeError:
        return None


def _folder() -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / "sums"


def is_ours(status: os.stat_result) -> bool:
    """True for a file or folder that only this user can have written."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
