"""Files and folders outside of datasets that are replaced as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from superworkflow.infra.storage.location import Location


@contextmanager
def replacing(target: Location) -> Iterator[Path]:
    """A path to write a file or folder to, which takes the place of `target` at the end; after an error nothing has.

    On this machine it is renamed, so no reader sees half of it. A folder in a bucket is there file by file.
    """
    final = target.local_path
    if final is not None:
        final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=final and final.parent) as scratch:
        path = Path(scratch) / target.name
        yield path
        if final is None:
            _send(path, target)
        else:
            if final.is_dir() or (path.is_dir() and final.exists()):
                final.rename(Path(scratch) / "before")  # what cannot be replaced at once goes with the scratch folder
            path.replace(final)


def _send(path: Path, target: Location) -> None:
    if not path.is_dir():
        target.upload(path)
        return
    files = [each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file()]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: target.join(name).upload(path / name), files))
    for name in set(target.walk_files()) - set(files):
        target.join(name).delete()  # of an earlier export
