"""One place in a file system, local or remote, through fsspec."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.parse import unquote

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import EXTRAS, needs_package
from superworkflow.infra.base.masking import has_password
from superworkflow.infra.storage.safe_names import checked_name, fault_of


class FileState(NamedTuple):
    """State of a file that changes when it is written, known without reading it.

    Args:
        size: bytes.
        fingerprint: changes when the file is written: its size and time, and the inode of a local file or the tag of an
            object. A local file that is written twice within a tick of the file system's clock may keep its own.
        exact: changes whenever the content does, apart from such ticks, also where somebody sets times back; empty
            where the file system provides no such mark.
        changed_ns: of a local file, when it was last written or its inode changed, by the file system's clock.
        written_s: when it was last written, in seconds since 1970 by the clock of the file system or server; 0 where
            that is not known.
    """

    size: int
    fingerprint: str
    exact: str = ""
    changed_ns: int = 0
    written_s: float = 0.0


@dataclass(frozen=True)
class Location:
    """A file or folder by its URI: a local path, `file://…`, `s3://bucket/key` or any fsspec URL.

    Credentials and endpoints come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …), never the URI.
    What is on S3 is waited for while its server does not answer (see `infra.storage.s3`).
    """

    uri: str
    _patient: bool = field(default=True, kw_only=True, repr=False, compare=False)

    @classmethod
    def of(cls, uri: str | Path | Location) -> Location:
        """Normalise: local paths become absolute, trailing slashes go; a location stays as it is.

        Raises:
            UserError: unknown protocol, a NUL, which no path may hold, or a password.
        """
        if isinstance(uri, Location):
            return uri
        text = str(uri)
        if "\0" in text:
            raise UserError("not a path or URI", value=text, remedy="Remove the NUL character")
        if text.startswith("file://"):
            text = unquote(text.removeprefix("file://"))
        if "://" not in text:
            # Not resolve(): a store behind a link keeps the name that the user gave it.
            return cls(str(Path(text).expanduser().absolute()).rstrip("/") or "/")
        if has_password(text):  # it would be in manifests, records and the command lines of stages
            raise UserError(
                "the address of data must not contain a password", where=text,
                remedy="Give credentials in the environment (AWS_ACCESS_KEY_ID, …) or ~/.netrc",
            )  # fmt: skip
        import fsspec  # only for what is not local: its import takes as long as a small stage's work
        from fsspec.registry import known_implementations

        protocol = text.split("://", 1)[0]
        if protocol not in fsspec.available_protocols():
            raise UserError(
                "unknown protocol", where=text, value=protocol, remedy="Use a local folder or s3://bucket/prefix"
            )
        client = known_implementations.get(protocol, {}).get("class", "").partition(".")[0]
        if client in EXTRAS and importlib.util.find_spec(client) is None:
            raise needs_package(client, where=text)
        return cls(text.rstrip("/"))

    @property
    def local_path(self) -> Path | None:
        """The path when this is on the local file system, else None."""
        return None if "://" in self.uri else Path(self.uri)

    @property
    def name(self) -> str:
        return self.uri.rsplit("/", 1)[-1]

    def hurried(self) -> Location:
        """The same location, whose requests fail within seconds if the server does not answer."""
        return replace(self, _patient=False)

    @cached_property
    def _fs(self) -> tuple[Any, str]:
        if self._on_s3:
            from superworkflow.infra.storage.s3 import PatientS3  # its client takes long to import

            return PatientS3(patient=self._patient), PatientS3._strip_protocol(self.uri)
        import fsspec

        # Not `url_to_fs`, for which a `::` in a path begins another URL.
        kind = fsspec.get_filesystem_class(self.uri.split("://", 1)[0])
        options = {**kind._get_kwargs_from_urls(self.uri), "use_listings_cache": False}
        return kind(**options), str(kind._strip_protocol(self.uri))

    @property
    def bucket(self) -> str | None:
        """Server and bucket of what is on S3, else None."""
        if not self._on_s3:
            return None
        self.connect()
        fs, path_in_fs = self._fs
        return str(fs.bucket_url(fs.split_path(path_in_fs)[0]))

    def connect(self) -> None:
        """Make the client of what is on S3, which takes a second, before it is needed in a hurry."""
        if self._on_s3:
            self._fs[0].connect()

    @property
    def _on_s3(self) -> bool:
        return self.uri.startswith(("s3://", "s3a://"))

    def join(self, *parts: str) -> Location:
        """Location of this name inside this folder.

        Raises:
            UserError: a part is absolute, empty or has `..`: it may lead out of the folder.
        """
        names = [checked_name(part, self.uri) for part in parts]
        return replace(self, uri="/".join([self.uri.rstrip("/"), *names]))

    def open(self, mode: str = "rb") -> BinaryIO:
        if (path := self.local_path) is not None:
            return cast(BinaryIO, path.open(mode))
        fs, path_in_fs = self._fs
        return cast(BinaryIO, fs.open(path_in_fs, mode))

    def read_text(self) -> str:
        """Raises FileNotFoundError when there is no such file."""
        if (path := self.local_path) is not None:
            try:
                return path.read_text(encoding="utf-8")
            except NotADirectoryError:
                raise FileNotFoundError(self.uri) from None
        fs, path_in_fs = self._fs
        return cast(bytes, fs.cat_file(path_in_fs)).decode()

    def write_atomic(self, text: str) -> None:
        """Write so that readers see nothing or the whole text, also after a crash."""
        if (path := self.local_path) is not None:
            temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            with temporary.open("w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        else:
            fs, path_in_fs = self._fs
            fs.pipe_file(path_in_fs, text.encode())

    def size(self) -> int | None:
        """Bytes of a file, or None when there is none."""
        state = self.state()
        return None if state is None else state.size

    def fingerprint(self) -> str:
        """See `FileState`. Raises FileNotFoundError when there is no such file."""
        state = self.state()
        if state is None:
            raise FileNotFoundError(self.uri)
        return state.fingerprint

    def state(self) -> FileState | None:
        """State of a file, or None when there is none."""
        if (path := self.local_path) is not None:
            return _state_of(path.stat()) if path.is_file() else None
        fs, path_in_fs = self._fs
        try:
            info = fs.info(path_in_fs)
        except FileNotFoundError:
            return None
        return _state_of_object(info) if info["type"] == "file" else None

    def opened_state(self) -> FileState | None:
        """State of a local file once it is open: a network's file systems look at the server then."""
        path = self.local_path
        assert path is not None
        try:
            with path.open("rb") as stream:
                return _state_of(os.fstat(stream.fileno()))
        except FileNotFoundError:
            return None

    def states_below(self) -> dict[str, FileState | None]:
        """State of each file below by its path, relative to this folder; of a link to a folder, or a device, None.

        Raises:
            UserError: as `walk_files`.
        """
        if self.local_path is not None:
            return {name: self.join(name).state() for name in self.walk_files()}
        found = {checked_name(name, self.uri): info for name, info in self._objects_below().items()}
        return {name: _state_of_object(found[name]) for name in sorted(found)}

    def entries(self) -> dict[str, FileState | None]:
        """Entries of this folder, by name: the state of a file, None for a folder. Those that no name may be go."""
        found: dict[str, FileState | None] = {}
        if (path := self.local_path) is not None:
            for each in path.iterdir() if path.is_dir() else ():
                if fault_of(each.name) is None and (each.is_dir() or each.is_file()):
                    found[each.name] = None if each.is_dir() else _state_of(each.stat())
            return found
        fs, path_in_fs = self._fs
        try:
            listed = fs.ls(path_in_fs, detail=True)
        except FileNotFoundError:
            return found
        prefix = path_in_fs.rstrip("/") + "/"
        for info in listed:
            name = info["name"].removeprefix(prefix).rstrip("/")
            if info["name"].startswith(prefix) and fault_of(name) is None:
                found[name] = None if info["type"] == "directory" else _state_of_object(info)
        return found

    def open_with_state(self) -> tuple[BinaryIO, FileState | None]:
        """Open a remote file, with the state of the content that will be read; None where the client lacks it."""
        stream = self.open()
        info = getattr(stream, "details", None)
        return stream, _state_of_object(info) if isinstance(info, dict) else None

    def make(self) -> None:
        """Make a folder; object stores need none."""
        if (path := self.local_path) is not None:
            path.mkdir(parents=True, exist_ok=True)

    def folders(self) -> list[str]:
        """Names of the folders directly below, sorted; empty when this is no folder. Those that no name may be go."""
        return sorted(name for name, state in self.entries().items() if state is None)

    def walk_files(self) -> list[str]:
        """Paths of all files below, relative to this folder, with forward slashes; links to folders count as files.

        Raises:
            UserError: the name of one, as joined to a folder, may lead out of it.
        """
        if (path := self.local_path) is not None:
            found = [each for each in path.rglob("*") if each.is_symlink() or not each.is_dir()]
            names = [each.relative_to(path).as_posix() for each in found]
        else:
            names = list(self._objects_below())
        return sorted(checked_name(name, self.uri) for name in names)

    def _objects_below(self) -> dict[str, dict[str, Any]]:
        """All objects below by their keys, relative to this folder, as they are; without those that mark folders."""
        fs, path_in_fs = self._fs
        prefix = path_in_fs.rstrip("/") + "/"
        found = fs.find(path_in_fs, detail=True)
        keys = {name.removeprefix(prefix): info for name, info in found.items() if name.startswith(prefix)}
        return {key: info for key, info in keys.items() if key and not key.endswith("/")}

    def delete(self, *, recursive: bool = False) -> None:
        """Remove a file, or a folder with all below it; of a link the link. Nothing there is no error."""
        if (path := self.local_path) is not None:
            if recursive and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            return
        fs, path_in_fs = self._fs

        def remove(key: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(key)  # not `rm`, for which a `?` or `*` in a key stands for other letters

        keys = [f"{path_in_fs}/{key}" for key in self._objects_below()] if recursive else [path_in_fs]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(remove, keys))

    def download(self, path: Path) -> None:
        fs, path_in_fs = self._fs
        fs.get_file(path_in_fs, str(path))

    def upload(self, path: Path, *, create: bool = False) -> bool:
        """Send a file there.

        Args:
            path: the file.
            create: only if there is none yet (S3 conditional put).

        Returns:
            False when it was to be created and there is one.
        """
        fs, path_in_fs = self._fs
        try:
            fs.put_file(str(path), path_in_fs, mode="create" if create else "overwrite")
        except OSError as error:
            if create and _refused(error):
                return False
            raise
        return True

    def create_exclusive(self, text: str) -> str | None:
        """Create a remote object only if there is none; its tag, or None when there is one (S3 conditional put)."""
        fs, path_in_fs = self._fs
        try:
            answer = fs.pipe_file(path_in_fs, text.encode(), mode="create")
        except OSError as error:
            if _refused(error):
                return None
            raise
        return str(answer["ETag"])

    def tag(self) -> str:
        """Tag of a remote object, another after each write. Raises FileNotFoundError when there is none."""
        fs, path_in_fs = self._fs
        return str(fs.info(path_in_fs)["ETag"])

    def replace_tagged(self, text: str, tag: str) -> str | None:
        """Overwrite a remote object only if it still has this tag; its new tag, or None if it changed (S3 If-Match)."""
        fs, path_in_fs = self._fs
        try:
            answer = fs.pipe_file(path_in_fs, text.encode(), IfMatch=tag)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or _refused(error):
                return None
            raise
        return str(answer["ETag"])

    def delete_tagged(self, tag: str) -> None:
        """Delete a remote object if it still has this tag; leave it when in doubt.

        The tag is read first, and deletion is requested once: servers without the condition, such as Ceph, would
        otherwise delete an object that another process has put there since.
        """
        fs, path_in_fs = self._fs
        bucket, key, _ = fs.split_path(path_in_fs)
        with contextlib.suppress(OSError):
            if self.tag() == tag:
                fs.call_s3("delete_object", Bucket=bucket, Key=key, IfMatch=tag)


def _state_of(status: os.stat_result) -> FileState:
    written = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
    exact = f"{written}-{status.st_ctime_ns}-{status.st_dev}"
    return FileState(status.st_size, written, exact, changed_ns, status.st_mtime)


def _state_of_object(info: dict[str, Any]) -> FileState:
    modified = info.get("LastModified")
    written_s = modified.timestamp() if isinstance(modified, datetime) else 0.0
    if isinstance(modified, datetime):  # some servers give fractions of a second in listings only
        modified = modified.replace(microsecond=0)
    tag = str(info.get("ETag") or "")
    parts = (info.get("size"), tag, modified, info.get("mtime"))
    fingerprint = "-".join(str(part) for part in parts if part)
    weak = not tag or tag.startswith("W/")  # a weak tag may stay when bytes change
    exact = "" if weak else fingerprint
    return FileState(int(info.get("size") or 0), fingerprint, exact, written_s=written_s)


def _refused(error: OSError) -> bool:
    from superworkflow.infra.storage.s3 import refused

    return refused(error)


def import_client(protocol: str) -> None:
    """Import what speaks this protocol, for processes that are started from this one."""
    if protocol in ("s3", "s3a"):
        import superworkflow.infra.storage.s3  # noqa: F401
    else:
        import fsspec

        fsspec.get_filesystem_class(protocol)
