"""The store: the root of all datasets, `<store>/<stage>/<digest>/`."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.dataset import Dataset
from infra.digest import file_sha256, stream_sha256
from infra.errors import DatasetDamaged, SuperworkflowError, UserError
from infra.filesystem import Location

SOURCES = ".sources"
"""Folder of copies of source files."""

CONTENT_CHECK_LIMIT = 64 << 20
"""Datasets up to this many bytes are held against their checksums whenever they are found; larger ones against
their file sizes then, and against their checksums when a stage reads them."""


class Store:
    """All datasets below one root.

    Args:
        uri: local folder or any fsspec URL.
    """

    def __init__(self, uri: str | Path):
        self.root = Location.of(uri)

    @property
    def uri(self) -> str:
        return self.root.uri

    def location(self, stage: str, digest: str) -> Location:
        """Where the dataset of this stage and digest is or will be."""
        return self.root.join(stage, digest)

    def find(self, stage: str, digest: str) -> Dataset | None:
        """The complete, undamaged dataset, or None when it does not exist.

        Raises:
            DatasetDamaged: it exists and its files do not match its manifest.
            UserError: the store cannot be read.
        """
        try:
            dataset = Dataset.find(self.location(stage, digest))
            if dataset is not None:
                try:
                    dataset.verify("content" if dataset.manifest.bytes <= CONTENT_CHECK_LIMIT else "size")
                finally:
                    dataset.close()  # most who ask want the manifest only; of a remote dataset this drops the copies
        except SuperworkflowError:
            raise
        except Exception as error:  # credentials, network, permissions: the client's own words say which
            raise UserError(
                f"the store cannot be read: {type(error).__name__}: {error}", where=self.uri,
                remedy="Check its URI, permissions or credentials, or choose another with --store",
            ) from None  # fmt: skip
        return dataset

    def datasets(self, stage: str) -> Iterator[Dataset]:
        """All complete datasets of one stage; ones with an unreadable manifest are passed over."""
        for digest in self.root.join(stage).folders():
            try:
                dataset = Dataset.find(self.location(stage, digest))
            except DatasetDamaged:
                continue
            if dataset is not None:
                yield dataset

    def keep(self, path: Path, folder: str = SOURCES) -> str:
        """Copy a file of this machine to where all that see the store can read it; the copy's URI.

        Args:
            path: the file.
            folder: of the store; below it, copies are named by their content.
        """
        kept = self.root.join(folder, file_sha256(path), path.name)
        if kept.size() == path.stat().st_size:
            return kept.uri
        if kept.local_path is None:
            kept.upload(path)
        else:
            kept.local_path.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.local_path.with_name(f".{path.name}.partial")
            shutil.copyfile(path, partial)
            partial.replace(kept.local_path)
        return kept.uri

    def check_writable(self) -> None:
        """Write and remove a small file.

        Raises:
            UserError: the store cannot be written; the message holds the file system's reason.
        """
        probe = self.root.join(f".probe-{uuid.uuid4().hex}")
        try:
            self.root.make()
            probe.write_atomic("probe")
            probe.delete()
        except Exception as error:  # whatever the file system's client raises, the answer is the same
            raise UserError(
                f"the store cannot be written: {type(error).__name__}: {error}",
                where=self.uri,
                remedy="Check its permissions, free space or credentials, or choose another with --store",
            ) from None


class Source:
    """An input file that no stage made, such as an edge list.

    Args:
        location: the file.
        digest: SHA-256 of its content.
    """

    def __init__(self, location: Location, digest: str):
        self.location, self.digest = location, digest
        self._local: Path | None = location.local_path

    @classmethod
    def of(cls, uri: str | Path) -> Source:
        """Open a file and sum its content.

        Raises:
            UserError: there is no such file, it is a folder, or it is empty.
        """
        location = Location.of(uri)
        remedy = "Give the path or URI of a file with content"
        path = location.local_path
        if path is not None and path.is_dir():
            raise UserError("is a folder, not a file", where=location.uri, remedy=remedy)
        try:
            size = location.size()
        except Exception as error:  # credentials, network, permissions: the client's own words say which
            raise UserError(
                f"the file cannot be read: {type(error).__name__}: {error}", where=location.uri,
                remedy="Check the URI and the credentials",
            ) from None  # fmt: skip
        if size is None:
            raise UserError("no such file", where=location.uri, remedy=remedy)
        if size == 0:
            raise UserError("the file is empty", where=location.uri, remedy=remedy)
        if path is not None:
            return cls(location, file_sha256(path))
        with location.open("rb") as stream:
            return cls(location, stream_sha256(stream))

    @property
    def uri(self) -> str:
        return self.location.uri

    @property
    def stats(self) -> dict[str, Any]:
        """Facts for plans: `bytes`, and for a local file what `sample_table` finds."""
        from infra.sample import sample_table  # Arrow's functions, which stages do without

        path = self.location.local_path
        return {"bytes": self.location.size()} if path is None else dict(sample_table(path))

    def local(self, scratch: Path) -> Path:
        """A local copy of the file, fetched to `scratch` when it is remote."""
        if self._local is None:
            self._local = scratch / self.location.name
            self.location.download(self._local)
        return self._local
