"""Datasets as stages see them: read one by its manifest, or write one whose manifest comes last.

Local stores are read and written in place (files can be memory-mapped). For a remote store each file passes
through a scratch folder: uploaded and dropped as soon as it is complete, fetched when it is first read.
"""

from __future__ import annotations

import json
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from superworkflow.infra.base.errors import DataFileGone, DatasetDamaged, UserError
from superworkflow.infra.storage.attempt_marker import DatasetAttempt
from superworkflow.infra.storage.digest import SummedStream, dataset_digest, file_sha256, open_stream
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import Right
from superworkflow.infra.storage.manifest import (
    MANIFEST_NAME,
    METRIC_PREFIX,
    FileEntry,
    InputEntry,
    Manifest,
    Measurement,
    NewerFormat,
    Stat,
    format_of,
    prefixed,
)
from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.infra.storage.scratch import Scratch
from superworkflow.infra.storage.upload import complete, upload

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

T = TypeVar("T")
_FEW, _SMALL = 64, 16 << 20
"""Files, and bytes of them all, that one thread looks at."""
_ONE_HEADER = threading.Lock()
"""Headers of arrays are literals of Python; two threads that parse some at a time may fail, as CPython 3.11 counts the
depth of both in one place (https://github.com/python/cpython/issues/106905). Threads may read arrays of
datasets; other `.npy` files are read by one thread of a process only, that of a stage or of a task."""


class Dataset:
    """A complete dataset, opened by its manifest.

    Args:
        location: the dataset's folder.
        manifest: its parsed manifest.
    """

    def __init__(self, location: Location, manifest: Manifest):
        self.location, self.manifest = location, manifest
        self._entries = {entry.path: entry for entry in manifest.files}
        self._verified: set[str] = set()
        self._cache: Scratch | None = None
        self._guard = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}

    @classmethod
    def find(cls, address: Location | str | Path) -> Dataset | None:
        """The dataset at a location or address, or None when there is no manifest.

        Raises:
            DatasetDamaged: the manifest cannot be read, was altered, or is of a later version.
        """
        location = Location.of(address)
        place = location.join(MANIFEST_NAME)
        try:
            return cls(location, Manifest.parse(place.read_text()))
        except FileNotFoundError:
            return None
        except NewerFormat as error:
            raise DatasetDamaged(
                "the dataset was made by a newer version of this program", where=place.uri, value=str(error),
                remedy="Use that version, or another store",
            ) from None  # fmt: skip
        except (ValueError, RecursionError) as error:
            raise DatasetDamaged(
                "the manifest cannot be read", where=place.uri, value=reason_of(error),
                remedy=f"Delete the folder {location.uri} and run again; it will be computed anew",
            ) from None  # fmt: skip

    @classmethod
    def open(cls, address: Location | str | Path) -> Dataset:
        """Like `find`, for a dataset that must be there.

        Raises:
            UserError: there is no manifest.
        """
        dataset = cls.find(address)
        if dataset is None:
            raise UserError(
                "no complete dataset here (no manifest.json)", where=Location.of(address).uri,
                remedy="Check the URI, or run the stage that makes this dataset",
            )  # fmt: skip
        return dataset

    @property
    def uri(self) -> str:
        return self.location.uri

    @property
    def digest(self) -> str:
        return self.manifest.digest

    @property
    def stats(self) -> Mapping[str, Stat]:
        return self.manifest.stats

    @property
    def metrics(self) -> dict[str, float]:
        """Quality that the stage reported, by name."""
        return prefixed(self.stats, METRIC_PREFIX)

    def files(self, pattern: str = "*") -> list[str]:
        """Names of the data files that match a shell pattern, sorted."""
        return sorted(name for name in self._entries if fnmatch(name, pattern))

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def verify(self, level: Literal["size", "content"] = "content") -> None:
        """Hold the files against the manifest.

        Args:
            level: `size` compares lengths only; `content` also compares sums.

        Raises:
            DatasetDamaged: names the first file that is truncated or altered.
            DataFileGone: names the first file that is missing, when no other is altered.
        """
        sizes = self._sizes()
        for path, size in sizes.items():
            entry = self._entries[path]
            if size not in (None, entry.bytes):
                raise self._damaged(entry, f"file is truncated or altered: {entry.bytes} bytes expected", size)
        if level == "content":
            self._each(self.local, [path for path, size in sizes.items() if size is not None], 4, self.manifest.bytes)
        for path, size in sizes.items():
            if size is None:
                raise self._gone(self._entries[path])

    def has_all_files(self) -> bool:
        """True if every data file exists, whatever its content."""
        return None not in self._sizes().values()

    def _sizes(self) -> dict[str, int | None]:
        found = self._each(lambda path: self.location.join(path).size(), list(self._entries), 8)
        return dict(zip(self._entries, found, strict=True))

    def _each(self, work: Callable[[str], T], names: Sequence[str], threads: int, size: int = 0) -> list[T]:
        """Results of `work` by file; of few small ones that are here without threads, whose start would take longer."""
        if self.location.local_path is not None and len(names) <= _FEW and size <= _SMALL:
            return list(map(work, names))
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, names))

    def local(self, name: str) -> Path:
        """A local file with the verified content of one data file.

        Raises:
            DatasetDamaged: the file is missing or its content is not what the manifest says.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise UserError(
                f"the dataset has no file {name}", where=self.uri, remedy=f"It has: {', '.join(self.files()) or 'none'}"
            )
        with self._guard:
            turn = self._turns.setdefault(name, threading.Lock())
        with turn:  # threads of one stage may ask for the same file at once
            return self._fetched(entry)

    def _fetched(self, entry: FileEntry) -> Path:
        name = entry.path
        remote = self.location.join(name)
        path = remote.local_path or self._cached(name)
        if name not in self._verified:
            if remote.local_path is None and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    remote.download(path)
                except FileNotFoundError:
                    raise self._gone(entry) from None
            if not path.exists():
                raise self._gone(entry)
            size = path.stat().st_size
            if size != entry.bytes:
                raise self._damaged(entry, f"file is truncated or altered: {entry.bytes} bytes expected", size)
            if not entry.holds(path):
                algorithm, made = entry.sum
                name_of_it = {"sha256": "SHA-256", "blake3": "BLAKE3"}[algorithm]
                raise self._damaged(entry, f"file is altered: its {name_of_it} differs from the manifest's", made[:12])
            self._verified.add(name)
        return path

    def release(self, name: str) -> None:
        """Drop the scratch copy of a file of a remote dataset, so that streaming takes bounded disk."""
        if self._cache is not None:
            (self._cache.path / name).unlink(missing_ok=True)
            self._verified.discard(name)

    def array(self, name: str, *, mmap: bool = True) -> NDArray[Any]:
        """One `.npy` file, memory-mapped read-only unless `mmap` is false."""
        import numpy as np  # a third of the start of commands that read no array

        path = self.local(name)
        with _ONE_HEADER:
            result: NDArray[Any] = np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
        return result

    def parquet(self, name: str) -> pq.ParquetFile:
        """One Parquet file, opened for streaming or reading."""
        import pyarrow.parquet as pq  # not every stage reads Parquet

        return pq.ParquetFile(self.local(name), memory_map=True)

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """One Parquet file, or these columns of it, in memory."""
        with self.parquet(name) as file:
            return file.read(columns)

    def json(self, name: str) -> Any:
        """One JSON file, parsed."""
        return json.loads(self.local(name).read_text())

    def _cached(self, name: str) -> Path:
        with self._guard:
            if self._cache is None:
                self._cache = Scratch(f"input-{self.digest[:8]}")
            return self._cache.path / name

    def close(self) -> None:
        """Remove scratch copies."""
        if self._cache is not None:
            self._cache.remove()
            self._cache = None
            self._verified.clear()

    def _gone(self, entry: FileEntry) -> DataFileGone:
        return DataFileGone("file is missing", where=self.location.join(entry.path).uri,
                            remedy="Run again; the dataset will be computed anew")  # fmt: skip

    def _damaged(self, entry: FileEntry, what: str, value: Any) -> DatasetDamaged:
        return DatasetDamaged(
            what, where=self.location.join(entry.path).uri, value=value,
            remedy=f"Delete the folder {self.uri} and run again; it will be computed anew",
        )  # fmt: skip


class FileWriter(ABC):
    """Writes data files into the folder of a dataset.

    Args:
        place: location or address of the dataset's folder.
    """

    def __init__(self, place: Location | str | Path):
        self.location = Location.of(place)
        self._files: dict[str, FileEntry] = {}

    @abstractmethod
    def file(self, name: str) -> AbstractContextManager[Path]:
        """A local path to write one data file to; on leaving the block it is summed and in its place."""

    def array(self, name: str, values: NDArray[Any]) -> None:
        """Write one array as `.npy` (no pickle)."""
        import numpy as np

        with self.file(name) as path, path.open("wb") as stream:
            np.save(stream, values, allow_pickle=False)

    def table(self, name: str, table: pa.Table, row_group_size: int | None = None) -> None:
        """Write one table as Parquet, in groups of `row_group_size` rows; of Arrow's choice by default."""
        import pyarrow.parquet as pq

        with self.file(name) as path:
            pq.write_table(table, path, compression="zstd", row_group_size=row_group_size)

    def copy(self, name: str, source: Path) -> None:
        """Write a copy of a local file."""
        with self.file(name) as path:
            shutil.copyfile(source, path)

    def json(self, name: str, value: Any) -> None:
        """Write one JSON file."""
        with self.file(name) as path:
            path.write_text(json.dumps(value, indent=1, sort_keys=True, allow_nan=False))

    @property
    def bytes_written(self) -> int:
        return sum(entry.bytes for entry in self._files.values())

    @property
    def entries(self) -> tuple[FileEntry, ...]:
        """Files written so far, by name."""
        return tuple(sorted(self._files.values(), key=lambda entry: entry.path))


class DatasetWriter(FileWriter):
    """Writes one dataset: data files first, the manifest last.

    Args:
        place: location or address of the dataset's folder; what an earlier attempt of ours left there is removed, apart
            from its checkpoint and the files that it noted as whole.
        digest: of the dataset; what was left of another one is removed as well.
        right: to write there; it is checked before each file of a remote dataset.

    Raises:
        UserError: the folder holds something else, which is left alone.
    """

    def __init__(self, place: Location | str | Path, digest: str = "", right: Right = Right()):  # noqa: B008
        super().__init__(place)
        self._right = right
        self._sums: dict[str, tuple[int, Future[str]]] = {}
        """Bytes of files that are written and not yet in `_files`, and what will be their sums."""
        self.location.make()
        self._attempt = DatasetAttempt(self.location, digest)
        self._attempt.begin()
        self._resumable = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sums")
        self._scratch = Scratch("output") if self.location.local_path is None else None

    def claim(self, names: Iterable[str], *, resumable: bool = False) -> None:
        """Say which files will be written, before any of them is: of an attempt that is killed they can be removed.

        Tasks of an engine may write no others. Names that this writer meets by itself it claims one by one, which in
        a bucket is a request for each.

        Args:
            names: of the files.
            resumable: those that an earlier attempt has left whole are taken over by `left_whole`, and those that this
                one writes may be by the next.
        """
        self._right.check()
        self._resumable = self._resumable or resumable
        if not self._resumable:
            self._drop_left(())
        self._attempt.claim(names)

    @contextmanager
    def left_whole(self, name: str) -> Iterator[Path | None]:
        """A file of this name that an earlier attempt has left whole, now one of this dataset's; None for none.

        Its bytes are held against the sum that was noted then. A remote one is fetched, and its copy removed on
        leaving the block.
        """
        entry = self._attempt.whole.pop(name, None)
        if entry is None:
            yield None
            return
        self._right.check()
        target = self.location.join(name)
        with nullcontext() if self._scratch is None else Scratch("whole") as folder:
            path = target.local_path if folder is None else folder / "file"
            assert path is not None
            if folder is not None:
                target.download(path)
            if entry.holds(path):
                self._files[name] = entry
                yield path
            else:
                self._attempt.forget(name)
                yield None

    def _drop_left(self, kept: Collection[str]) -> None:
        """Remove what an earlier attempt has left whole and this one has not taken over."""
        for name in [name for name in self._attempt.whole if name not in kept]:
            self._attempt.forget(name)

    @contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """A local path to write one data file to; after the block it is summed, and uploaded if need be.

        Local files are summed in the background, while the stage continues.
        """
        self.claim([name])
        folder = self._scratch.path if self._scratch is not None else self.location.local_path
        assert folder is not None
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
        self._sums[name] = path.stat().st_size, self._pool.submit(self._summed, name, path)
        if self._scratch is not None:
            self.wait_for_checksums()
            upload(path, self.location.join(name), self._right)
            path.unlink()
            self._note(self._files[name])

    def _summed(self, name: str, path: Path) -> str:
        sha256 = file_sha256(path)
        if self._scratch is None:
            self._note(FileEntry(path=name, bytes=path.stat().st_size, sha256=sha256))
        return sha256

    def _note(self, entry: FileEntry) -> None:
        if self._resumable:
            self._attempt.note(entry)

    @contextmanager
    def stream(self, name: str, *, kept: bool = True) -> Iterator[SummedStream]:
        """A file to write from its beginning to its end; a remote one goes there piece by piece, through memory.

        Args:
            name: of the file.
            kept: False for a file that is large and that nobody reads soon; see `open_stream`.
        """
        self.claim([name])
        target = self.location.join(name)
        if (path := target.local_path) is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._right.check()
        with open_stream(target, kept) as stream:
            yield stream
        self._files[name] = FileEntry.summed(name, stream.tell(), stream.sum)
        self._note(self._files[name])

    @property
    def bytes_written(self) -> int:
        return super().bytes_written + sum(size for size, _ in self._sums.values())

    def wait_for_checksums(self) -> None:
        """Wait until all files are summed."""
        while self._sums:
            name, (size, summed) = self._sums.popitem()
            self._files[name] = FileEntry(path=name, bytes=size, sha256=summed.result())

    def adopt(self, entries: Iterable[FileEntry | Mapping[str, Any]]) -> None:
        """Take in files that others, such as the tasks of an engine, have put into the dataset's folder.

        Raises:
            DatasetDamaged: one of them is not there, or not of that size.
            ValueError: one was not claimed.
        """
        for given in entries:  # from another process, as a pickle or as JSON
            entry = FileEntry.model_validate(given.model_dump() if isinstance(given, FileEntry) else given)
            if entry.path not in self._attempt:
                raise ValueError(f"a task has written {entry.path!r}, which was not claimed")
            if (size := self.location.join(entry.path).size()) != entry.bytes:
                raise DatasetDamaged(
                    f"the file is not as it was written: {entry.bytes} bytes expected", value=size,
                    where=self.location.join(entry.path).uri, remedy="Run again; check the store if this persists",
                )  # fmt: skip
            self._files[entry.path] = entry

    def commit(
        self,
        *,
        stage: str,
        version: str,
        params: Mapping[str, Any],
        inputs: Mapping[str, InputEntry],
        stats: Mapping[str, Stat],
        measured: Measurement,
        software: Mapping[str, str],
        engine: str = "in-process",
    ) -> Dataset:
        """Write the manifest, which makes the dataset exist, and drop the checkpoint and what tasks left."""
        self.wait_for_checksums()
        self._drop_left(self._files)
        manifest = Manifest(
            format=format_of(self._files.values()),
            stage=stage, version=version, params=dict(params), inputs=dict(inputs),
            digest=dataset_digest(stage, version, params, {name: entry.digest for name, entry in inputs.items()}),
            files=self.entries, stats=dict(stats),
            measured=measured, software=dict(software), engine=engine,
        )  # fmt: skip
        self._right.confirm()
        complete(self.location.join(MANIFEST_NAME), manifest.text(), self._right)
        self._attempt.end()
        self.close()
        return Dataset(self.location, manifest)

    def close(self) -> None:
        """Stop summing, and remove the scratch folder."""
        self._pool.shutdown(cancel_futures=True)
        if self._scratch is not None:
            self._scratch.remove()
