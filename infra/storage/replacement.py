"""Files and folders outside of datasets that are replaced as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location


def check_replaceable(target: Location, earlier: Collection[str]) -> None:
    """Refuse a folder that has files of others.

    Args:
        target: what is to be replaced.
        earlier: names of all files that a folder there may have.

    Raises:
        UserError: it has others.
    """
    if others := set(target.walk_files()) - set(earlier):
        raise UserError("a folder with other files is not replaced", where=target.uri, value=min(others),
                        remedy="Give a path where nothing is")  # fmt: skip


@contextmanager
def replacing(target: Location, earlier: Collection[str] | None = None) -> Iterator[Path]:
    """A path to write a file or folder to, which takes the place of `target` at the end; after an error nothing has.

    On this machine it is renamed, so no reader sees half of it. A folder in a bucket is there file by file.

    Args:
        target: what is replaced.
        earlier: names of all files that a folder there may have; None where it is ours, whatever it has.

    Raises:
        UserError: it is a folder with other files.
    """
    if earlier is not None:
        check_replaceable(target, earlier)
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
