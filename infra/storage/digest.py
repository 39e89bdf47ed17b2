"""Content addresses: the digest that names a dataset before it is computed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

DIGEST_LENGTH = 32
"""Hexadecimal characters kept of the SHA-256: 128 bits, and short enough for a Kubernetes label (63)."""

_BLOCK = 1 << 22


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
    """A stream to write to that knows its length and SHA-256."""

    closed = False

    def __init__(self, raw: BinaryIO):
        self._raw, self._sum, self._size = raw, hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._sum.update(view)
        self._raw.write(view)
        self._size += len(view)
        return len(view)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._raw.flush()

    def close(self) -> None:
        """Whoever opened the stream closes it."""

    @property
    def sha256(self) -> str:
        return self._sum.hexdigest()
