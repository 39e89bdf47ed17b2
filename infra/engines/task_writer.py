"""Writer of dataset files from tasks on executors, straight to the store."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.digest import SummedStream, file_sha256, open_stream
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import PARTS_FOLDER, FileEntry
from superworkflow.infra.storage.scratch import Scratch


@contextmanager
def _part(dataset: Path) -> Iterator[Path]:
    """A working folder inside a dataset's, for one file that is not complete yet."""
    folder = dataset / PARTS_FOLDER / uuid.uuid4().hex
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class TaskWriter(FileWriter):
    """Writes files of a dataset from a task: each is there whole or not at all, and may be written twice.

    The driver takes them in by `DatasetWriter.adopt(entries)`.
    """

    @contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """See `FileWriter`. Of a remote dataset the file needs room on the executor's disk."""
        local = self.location.local_path
        with Scratch("output") if local is None else _part(local) as folder:
            path = folder / Path(name).name
            yield path
            self._files[name] = FileEntry(path=name, bytes=path.stat().st_size, sha256=file_sha256(path))
            if local is None:
                self.location.join(name).upload(path)
            else:
                (local / name).parent.mkdir(parents=True, exist_ok=True)
                path.replace(local / name)

    @contextmanager
    def stream(self, name: str, *, kept: bool = True) -> Iterator[SummedStream]:
        """A file to write from its beginning to its end; a remote one goes there piece by piece, through memory.

        Args:
            name: of the file.
            kept: see `open_stream`.
        """
        local = self.location.local_path
        if local is None:
            with self.location.join(name).open("wb") as raw:  # of a task that is made again
                stream = SummedStream(raw, "sha256" if kept else "blake3")
                yield stream
        else:
            with _part(local) as folder:
                path = folder / Path(name).name
                with open_stream(Location.of(path), kept) as stream:
                    yield stream
                (local / name).parent.mkdir(parents=True, exist_ok=True)
                path.replace(local / name)
        self._files[name] = FileEntry.summed(name, stream.tell(), stream.sum)
