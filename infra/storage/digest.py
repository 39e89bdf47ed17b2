"""Content addresses: the digest that names a dataset before it is computed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

DIGEST_LENGTH = 32
"""Hexadecimal characters kept of the SHA-256: 128 bits, and short enough for a Kubernetes label (63)."""

_BLOCK = 1 << 22
_GIVE_BACK = 2 << 20
"""Bytes between two requests; with fewer of them more new memory was taken."""


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def dataset_digest(stage: str, version: str, params: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Name the dataset that `stage` makes.

    Args:
        stage: stage name.
        version: stage version; raised when the same parameters would give another result.
        params: the parameters that affect the result, as JSON values.
        inputs: digest of each input by its name.

    Returns:
        `DIGEST_LENGTH` hexadecimal characters.
    """
    identity = {"stage": stage, "version": version, "params": dict(params), "inputs": dict(inputs)}
    return hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:DIGEST_LENGTH]


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block


def stream_sha256(stream: BinaryIO) -> str:
    """SHA-256 of what is left in a binary stream, in hexadecimal."""
    state = hashlib.sha256()
    for block in _blocks(stream):
        state.update(block)
    return state.hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a local file, in hexadecimal."""
    with path.open("rb") as stream:
        return stream_sha256(stream)


class SummedStream:
    """A stream to write to that knows its length and SHA-256.

    Args:
        raw: what is written to.
        kept: False for a file that is large and that nobody reads soon. Its pages are given back while it is written,
            so that it neither pushes out of memory what is being read, nor takes new memory for each of its bytes.
    """

    closed = False

    def __init__(self, raw: BinaryIO, kept: bool = True):
        self._raw, self._sum, self._size = raw, hashlib.sha256(), 0
        self._given_back: int | None = None if kept or not hasattr(os, "posix_fadvise") else 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._sum.update(view)
        self._raw.write(view)
        self._size += len(view)
        if self._given_back is not None and self._size - self._given_back >= _GIVE_BACK:
            self._give_back()
        return len(view)

    def _give_back(self) -> None:
        """Starts writing the file's pages to the disk, and drops those that are there by now; waits for neither."""
        try:
            os.posix_fadvise(self._raw.fileno(), 0, self._size, os.POSIX_FADV_DONTNEED)
        except OSError:  # no file of this machine, or a file system that takes no advice
            self._given_back = None
        else:
            self._given_back = self._size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._raw.flush()

    def close(self) -> None:
        """Whoever opened the stream closes it."""

    @property
    def sha256(self) -> str:
        return self._sum.hexdigest()
