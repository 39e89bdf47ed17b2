"""Large files: written bytes arrive, directly or through the cache, and errors are raised."""

import contextlib
import errno
import fcntl
import os
import random
from pathlib import Path

import pytest

from superworkflow.infra.storage.direct_io import ALIGNED, PIECE, LargeFile


@pytest.fixture(params=["direct", "refused when opened", "refused when written"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems that take direct writes, if that of the test does, and those that do not."""
    opened, written = os.open, os.write

    def refused() -> OSError:
        return OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def no_open(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise refused()
        return opened(path, flags, mode)

    def no_write(descriptor: int, data: memoryview) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise refused()
        return written(descriptor, data[: 3 * ALIGNED // 2])  # and never all at once

    if request.param == "refused when opened":
        monkeypatch.setattr(os, "open", no_open)
    elif request.param == "refused when written":
        monkeypatch.setattr(os, "write", no_write)


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(
    "sizes",
    [[], [0], [1], [ALIGNED], [ALIGNED - 1, 1, ALIGNED + 1], [PIECE], [3 * PIECE + 5, 7], [PIECE - 1] * 3, [999] * 99],
)
def test_what_is_written_is_there(tmp_path: Path, sizes: list[int]) -> None:
    rng, path, expected = random.Random(sum(sizes)), tmp_path / "file", b""
    path.write_bytes(b"of another attempt, longer" * 9)
    with LargeFile(path) as file:
        for number, size in enumerate(sizes):
            expected += (piece := rng.randbytes(size))
            if number % 2:
                assert file.write(piece) == size
            else:
                file.room(size)[:] = piece
                file.filled(size)
    assert path.read_bytes() == expected


def opened_in(folder: Path) -> list[str]:
    """Files of a folder that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it is closed by now
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(str(folder))]


def test_full_disk_is_reported_and_the_file_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fill(path: Path, error: Exception | None) -> None:
        with LargeFile(path) as file:
            file.write(bytes(3 * PIECE))
            if error is not None:
                raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            fill(tmp_path / "full", None)
    with pytest.raises(ValueError, match="given up"):
        fill(tmp_path / "given-up", ValueError("given up"))
    assert opened_in(tmp_path) == []


def test_a_piece_larger_than_the_memory(tmp_path: Path) -> None:
    with LargeFile(tmp_path / "file") as file:
        file.write(b"y")
        file.room(5 * PIECE)[:] = b"x" * (5 * PIECE)
        file.filled(5 * PIECE)
    assert (tmp_path / "file").read_bytes() == b"y" + b"x" * (5 * PIECE)
