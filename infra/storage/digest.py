"""Content addresses: the digest that names a dataset before it is computed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from superworkflow.infra.storage.direct_io import LargeFile
from superworkflow.infra.storage.location import Location

DIGEST_LENGTH = 32
"""Hexadecimal characters kept of the SHA-256: 128 bits, and short enough for a Kubernetes label (63)."""

Algorithm = Literal["sha256", "blake3"]
"""By which a file is summed: SHA-256, or BLAKE3 where files are large (7 GB a CPU second where SHA-256 makes 2)."""

_BLOCK = 1 << 22
_READ = 1 << 18


class Hash(Protocol):
    """The part of hashlib's objects that is used."""

    def update(self, data: Any, /) -> Any: ...

    def hexdigest(self) -> str: ...


def new_hash(algorithm: Algorithm) -> Hash:
    """A hash of nothing yet; its sums have 256 bits."""
    if algorithm == "sha256":
        return hashlib.sha256()
    from blake3 import blake3  # not every stage meets such files

    return blake3()


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def json_sha256(value: Any) -> str:
    """SHA-256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


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
    return json_sha256(identity)[:DIGEST_LENGTH]


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block


def stream_sum(stream: BinaryIO, algorithm: Algorithm) -> str:
    """Sum of what is left in a binary stream, in hexadecimal."""
    state = new_hash(algorithm)
    for block in _blocks(stream):
        state.update(block)
    return state.hexdigest()


def file_sum(path: Path, algorithm: Algorithm) -> str:
    """Sum of a local file, in hexadecimal."""
    # One buffer for all blocks: fresh zeroed pages for each took as long as the sum itself.
    state, memory = new_hash(algorithm), memoryview(bytearray(_READ))
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(memory):
            state.update(memory[:count])
    return state.hexdigest()


def stream_sha256(stream: BinaryIO) -> str:
    """SHA-256 of what is left in a binary stream, in hexadecimal."""
    return stream_sum(stream, "sha256")


def file_sha256(path: Path) -> str:
    """SHA-256 of a local file, in hexadecimal."""
    return file_sum(path, "sha256")


class SummedStream:
    """A stream to write to that knows its length and its sum.

    What is written is given to `write`, or put into memory that the stream lends: `room` and then `filled`, which a
    `LargeFile` takes from there without a copy.

    Args:
        raw: what is written to.
        algorithm: of the sum.
    """

    closed = False

    def __init__(self, raw: BinaryIO | LargeFile, algorithm: Algorithm = "sha256"):
        self._raw, self._algorithm, self._sum, self._size = raw, algorithm, new_hash(algorithm), 0
        self._memory, self._room = bytearray(), memoryview(b"")

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._sum.update(view)
        self._raw.write(view)
        self._size += len(view)
        return len(view)

    def room(self, size: int) -> memoryview:
        """Memory for the next `size` bytes; valid until anything else is done with the stream."""
        if isinstance(self._raw, LargeFile):
            self._room = self._raw.room(size)
        else:
            if len(self._memory) < size:
                self._memory = bytearray(size)
            self._room = memoryview(self._memory)[:size]
        return self._room

    def filled(self) -> None:
        """Write what was put into all of the `room`."""
        room, self._room = self._room, memoryview(b"")
        if not isinstance(self._raw, LargeFile):
            self.write(room)
            return
        self._sum.update(room)
        self._size += len(room)
        self._raw.filled(len(room))

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._raw.flush()

    def close(self) -> None:
        """Leaves the stream open: its owner closes it."""

    @property
    def sum(self) -> tuple[Algorithm, str]:
        """Checksum of everything written: the algorithm, and the sum in hexadecimal."""
        return self._algorithm, self._sum.hexdigest()


@contextmanager
def open_stream(target: Location, kept: bool = True) -> Iterator[SummedStream]:
    """A new file to write to.

    Args:
        target: local, or remote, where a late writer of it is refused by the store.
        kept: False for a file that is large and that nobody reads soon: it is summed by BLAKE3, and a local one is
            written past the kernel's cache.
    """
    algorithm: Algorithm = "sha256" if kept else "blake3"
    path = target.local_path
    with target.open("wb" if path else "xb") if kept or path is None else LargeFile(path) as raw:
        yield SummedStream(raw, algorithm)
