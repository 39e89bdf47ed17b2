"""One place in a file system, local or remote, through fsspec."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, cast

from infra.errors import UserError
from infra.extras import EXTRAS, needs_package


@dataclass(frozen=True)
class Location:
    """A file or folder by its URI: a local path, `file://…`, `s3://bucket/key` or any fsspec URL.

    Credentials and endpoints come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …), never the URI.
    """

    uri: str

    @classmethod
    def of(cls, uri: str | Path) -> Location:
        """Normalise: local paths become absolute, trailing slashes go.

        Raises:
            UserError: unknown protocol.
        """
        text = str(uri)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        if "://" not in text:
            # Not resolve(): a store behind a link keeps the name that the user gave it.
            return cls(str(Path(text).expanduser().absolute()).rstrip("/") or "/")
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

    @cached_property
    def _fs(self) -> tuple[Any, str]:
        import fsspec

        return cast("tuple[Any, str]", fsspec.core.url_to_fs(self.uri, use_listings_cache=False))

    def join(self, *parts: str) -> Location:
        return Location("/".join([self.uri, *parts]))

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
        if (path := self.local_path) is not None:
            return path.stat().st_size if path.is_file() else None
        fs, path_in_fs = self._fs
        try:
            return int(fs.info(path_in_fs)["size"])
        except FileNotFoundError:
            return None

    def fingerprint(self) -> str:
        """Changes when the file does, without reading it: size and time, or the object's tag."""
        if (path := self.local_path) is not None:
            status = path.stat()
            return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
        fs, path_in_fs = self._fs
        info = fs.info(path_in_fs)
        return f"{info['size']}-{info.get('ETag') or info.get('LastModified') or info.get('mtime')}"

    def make(self) -> None:
        """Make a folder; object stores need none."""
        if (path := self.local_path) is not None:
            path.mkdir(parents=True, exist_ok=True)

    def folders(self) -> list[str]:
        """Names of the folders directly below, sorted; empty when this is no folder."""
        if (path := self.local_path) is not None:
            return sorted(entry.name for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []
        fs, path_in_fs = self._fs
        try:
            found = fs.ls(path_in_fs, detail=True)
        except FileNotFoundError:
            return []
        return sorted(entry["name"].rstrip("/").rsplit("/", 1)[-1] for entry in found if entry["type"] == "directory")

    def walk_files(self) -> list[str]:
        """Paths of all files below, relative to this folder, with forward slashes."""
        if (path := self.local_path) is not None:
            return sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
        fs, path_in_fs = self._fs
        prefix = path_in_fs.rstrip("/") + "/"
        return sorted(name.removeprefix(prefix) for name in fs.find(path_in_fs) if name.startswith(prefix))

    def delete(self, *, recursive: bool = False) -> None:
        """Remove a file, or a folder with all below it; nothing there is no error."""
        if (path := self.local_path) is not None:
            if recursive and path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            return
        fs, path_in_fs = self._fs
        with contextlib.suppress(FileNotFoundError):
            fs.rm(path_in_fs, recursive=recursive)

    def download(self, path: Path) -> None:
        fs, path_in_fs = self._fs
        fs.get_file(path_in_fs, str(path))

    def upload(self, path: Path) -> None:
        fs, path_in_fs = self._fs
        fs.put_file(str(path), path_in_fs)

    def create_exclusive(self, text: str) -> bool:
        """Create a remote object only if there is none; False when there is one (S3 conditional put)."""
        fs, path_in_fs = self._fs
        try:
            fs.pipe_file(path_in_fs, text.encode(), mode="create")
        except OSError as error:
            if _refused(error):
                return False
            raise
        return True

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


def _refused(error: OSError) -> bool:
    """Whether the server refused a conditional put; not every server's answer becomes a FileExistsError."""
    response = getattr(error.__cause__, "response", None) or {}
    code = response.get("Error", {}).get("Code")
    return isinstance(error, FileExistsError) or code in (
        "PreconditionFailed",
        "ConditionalRequestConflict",
        "412",
        "409",
    )
