"""The store: the root of all datasets, `<store>/<stage>/<digest>/`."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from superworkflow.infra.conditions import check_atomic
from superworkflow.infra.dataset import Dataset
from superworkflow.infra.digest import file_sha256, stream_sha256
from superworkflow.infra.errors import DatasetDamaged, SuperworkflowError, UserError
from superworkflow.infra.filesystem import Location
from superworkflow.infra.names import is_digest

SOURCES = ".sources"
"""Folder of copies of source files."""

FRESH_SECONDS = 2.0
"""A file written as shortly ago may be written once more within one tick of a coarse clock."""

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
            DatasetDamaged: it exists and its files do not match its manifest, or it is another one.
            UserError: the store cannot be read.
        """
        try:
            dataset = self._manifest_of(stage, digest)
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

    def open(self, stage: str, digest: str) -> Dataset:
        """The complete dataset, of which the manifest alone is read.

        Raises:
            UserError: there is none.
            DatasetDamaged: the folder holds another one.
        """
        return self._manifest_of(stage, digest) or Dataset.open(self.location(stage, digest))

    def datasets(self, stage: str) -> Iterator[Dataset]:
        """All complete datasets of one stage; ones with an unreadable manifest, or another's, are passed over."""
        for digest in filter(is_digest, self.root.join(stage).folders()):
            try:
                dataset = self._manifest_of(stage, digest)
            except DatasetDamaged:
                continue
            if dataset is not None:
                yield dataset

    def _manifest_of(self, stage: str, digest: str) -> Dataset | None:
        dataset = Dataset.find(self.location(stage, digest))
        if dataset is not None and (dataset.manifest.stage, dataset.digest) != (stage, digest):
            raise DatasetDamaged(
                "the folder holds another dataset than its name says", where=dataset.uri,
                value=f"{dataset.manifest.stage}/{dataset.digest}",
                remedy="Delete the folder and run again; it will be computed anew",
            )  # fmt: skip
        return dataset

    def keep(self, path: Path, folder: str = SOURCES) -> str:
        """Copy a file of this machine to where all that see the store can read it; the copy's URI.

        Args:
            path: the file.
            folder: of the store; below it, copies are named by their content.
        """
        before, digest = path.stat(), file_sha256(path)
        kept = self.root.join(folder, digest, re.sub(r"[\\\x00-\x1f\x7f]", "_", path.name))
        if self._is_kept(kept, path, digest):
            return kept.uri
        if kept.local_path is None:
            kept.upload(path)
            copied = _stamp(path.stat()) == _stamp(before)
            if copied:
                _tag_of(kept).write_atomic(json.dumps({"fingerprint": kept.fingerprint()}))
        else:
            kept.local_path.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.local_path.with_name(f".{uuid.uuid4().hex}.partial")
            try:
                shutil.copyfile(path, partial)
                copied = file_sha256(partial) == digest
                if copied:
                    partial.replace(kept.local_path)
            finally:
                partial.unlink(missing_ok=True)
        if not copied:
            raise changed(str(path), "while it was copied to the store")
        return kept.uri

    def _is_kept(self, kept: Location, path: Path, digest: str) -> bool:
        """Whether the copy is there, with the content that its name says."""
        if kept.size() != path.stat().st_size:
            return False
        if kept.local_path is not None:
            return file_sha256(kept.local_path) == digest
        # To read it would take as long as to send it again: its tag has changed if anybody wrote it since we did.
        try:
            return bool(json.loads(_tag_of(kept).read_text())["fingerprint"] == kept.fingerprint())
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return False

    def check_writable(self) -> None:
        """Write and remove a small file; on S3, see that the server keeps two runs from writing one dataset.

        Raises:
            UserError: the store cannot be written; the message holds the file system's reason. Or it does not heed
                the conditions of writes.
        """
        probe = self.root.join(f".probe-{uuid.uuid4().hex}")
        try:
            self.root.make()
            if probe.bucket is not None:
                check_atomic(probe)
            else:
                probe.write_atomic("probe")
                probe.delete()
        except UserError:
            raise
        except Exception as error:  # whatever the file system's client raises, the answer is the same
            raise UserError(
                f"the store cannot be written: {type(error).__name__}: {error}",
                where=self.uri,
                remedy="Check its permissions, free space or credentials, or choose another with --store",
            ) from None


def _tag_of(kept: Location) -> Location:
    """Beside the copy of a source on an object store: the object's tag when it was written."""
    folder, _, name = kept.uri.rpartition("/")
    return Location(f"{folder}/.{name}.tag")


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ino


def changed(where: str, when: str) -> UserError:
    """The error for a source that is not what it was when it was summed."""
    return UserError(
        f"the file was changed {when}", where=where, remedy="Run again when nobody writes it, so that it is read anew"
    )


class Source:
    """An input file that no stage made, such as an edge list.

    Args:
        location: the file.
        digest: SHA-256 of its content.
        fingerprint: of the file before its content was summed.
        ctime_ns: of a local file, when the system last changed it, then.
        fresh: it had been written so shortly before that another write might leave the same time.
    """

    def __init__(self, location: Location, digest: str, fingerprint: str, ctime_ns: int = 0, fresh: bool = False):
        self.location, self.digest = location, digest
        self._fingerprint, self._ctime_ns, self._fresh = fingerprint, ctime_ns, fresh
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
        fingerprint = location.fingerprint()  # first: what is written while the content is summed must show
        if path is not None:
            status = path.stat()
            fresh = status.st_mtime > time.time() - FRESH_SECONDS
            return cls(location, file_sha256(path), fingerprint, status.st_ctime_ns, fresh)
        with location.open("rb") as stream:
            return cls(location, stream_sha256(stream), fingerprint)

    def check_unchanged(self) -> None:
        """Hold the file against what it was when it was summed; a digest names what was read.

        Raises:
            UserError: it has been written since, so that what was read of it may be something else.
        """
        path = self.location.local_path
        try:
            same = self.location.fingerprint() == self._fingerprint
            if same and path is not None and (self._fresh or path.stat().st_ctime_ns != self._ctime_ns):
                same = file_sha256(path) == self.digest
        except FileNotFoundError:
            same = False
        if not same:
            raise changed(self.uri, "while the stage read it")

    @property
    def uri(self) -> str:
        return self.location.uri

    @property
    def stats(self) -> dict[str, Any]:
        """Facts for plans: `bytes`, and for a local file what `sample_table` finds."""
        from superworkflow.infra.sample import sample_table  # Arrow's functions, which stages do without

        path = self.location.local_path
        return {"bytes": self.location.size()} if path is None else dict(sample_table(path))

    def local(self, scratch: Path) -> Path:
        """A local copy of the file, fetched to `scratch` when it is remote.

        Raises:
            UserError: what was fetched is not what was summed.
        """
        if self._local is None:
            copy = scratch / self.location.name
            self.location.download(copy)
            if file_sha256(copy) != self.digest:
                raise changed(self.uri, "while the stage read it")
            self._local = copy
        return self._local
