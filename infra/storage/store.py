"""The store: the root of all datasets, `<store>/<stage>/<digest>/`."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from superworkflow.infra.base.errors import DatasetDamaged, SuperworkflowError, UserError
from superworkflow.infra.storage.conditional_writes import check_atomic
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.digest import file_sha256
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.safe_names import is_digest
from superworkflow.infra.storage.source import Member, Source, changed
from superworkflow.infra.storage.table_access import SOURCES, inside
from superworkflow.infra.storage.table_files import is_elsewhere

CONTENT_CHECK_LIMIT = 64 << 20
"""Datasets up to this many bytes are held against their checksums whenever they are found; larger ones against
their file sizes then, and against their checksums when a stage reads them."""


class Place(NamedTuple):
    """Place of a dataset, made or not: `<store>/<stage>/<digest>`."""

    store: Location
    stage: str
    digest: str

    @classmethod
    def of(cls, output: str) -> Place:
        """The parts of a dataset's URI."""
        store, stage, digest = output.rsplit("/", 2)
        return cls(Location.of(store), stage, digest)


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
        """Location of the dataset of this stage and digest, made or not."""
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

    def keep(self, path: Path, folder: str) -> str:
        """Copy a file of this machine to where all that see the store can read it; the copy's URI.

        Args:
            path: the file.
            folder: of the store; below it, copies are named by their content.
        """
        before, digest = Location.of(path).state(), file_sha256(path)
        kept = self.root.join(folder, digest, _plain(path.name))
        self._copy(path, kept, digest, lambda: Location.of(path).state() == before)
        return kept.uri

    def keep_text(self, text: str, name: str) -> str:
        """Write a short text to where all that see the store can read it, below its SHA-256; its URI there."""
        folder = self.root.join(SOURCES, hashlib.sha256(text.encode()).hexdigest())
        kept = folder.join(_plain(name))
        try:
            is_kept = kept.read_text() == text
        except (FileNotFoundError, UnicodeDecodeError):
            is_kept = False
        if not is_kept:
            folder.make()
            kept.write_atomic(text)
        return kept.uri

    def keep_source(self, source: Source, *, elsewhere: bool = True) -> str:
        """Copy all members of a source that are on this machine there, in their folders; the URI of the copied source.

        What the source names on other machines stays there.

        Args:
            source: of which this machine has the description, if it is one.
            elsewhere: also copy what a description names by absolute paths.

        Raises:
            UserError: it was changed since it was summed.
        """
        place = self.root.join(SOURCES, source.digest)
        place = place.join(_plain(source.location.name)) if source.is_folder else place
        for path, member in source.members.items():
            local = member.location.local_path
            if local is not None and (elsewhere or not is_elsewhere(path)):
                kept = place.join(inside(path) if source.has_members else _plain(path))
                self._copy(local, kept, member.sha256, partial(_is_unchanged, member))
        return (place if source.is_folder else place.join(_plain(source.location.name))).uri

    def _copy(self, path: Path, kept: Location, sha256: str, unchanged: Callable[[], bool]) -> None:
        """Copy a file, unless its copy is there.

        Args:
            path: the file.
            kept: where the copy belongs.
            sha256: of the file's content.
            unchanged: whether it still is that.
        """
        if self._is_kept(kept, path, sha256):
            return
        if kept.local_path is None:
            kept.upload(path)
            copied = unchanged()
            if copied:
                _tag_of(kept).write_atomic(json.dumps({"fingerprint": kept.fingerprint()}))
        else:
            kept.local_path.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.local_path.with_name(f".{uuid.uuid4().hex}.partial")
            try:
                shutil.copyfile(path, partial)
                copied = file_sha256(partial) == sha256
                if copied:
                    partial.replace(kept.local_path)
            finally:
                partial.unlink(missing_ok=True)
        if not copied:
            raise changed(str(path), "while it was copied to the store")

    def _is_kept(self, kept: Location, path: Path, digest: str) -> bool:
        """True if the copy is there, with the content that its name says."""
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


def _is_unchanged(member: Member) -> bool:
    return member.is_unchanged(member.location.state())


def _plain(name: str) -> str:
    """A name that every store takes."""
    return re.sub(r"[\\\x00-\x1f\x7f]", "_", name)


def _tag_of(kept: Location) -> Location:
    """Object next to the copy of a source, with the tag that the source's object had when it was copied."""
    folder, _, name = kept.uri.rpartition("/")
    return Location(f"{folder}/.{name}.tag")
