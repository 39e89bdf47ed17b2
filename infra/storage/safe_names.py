"""Names that come from a store, which may be shared: held against what they may be before anything is done with them.

A manifest, a listing or a checkpoint may hold any text. As part of a path it could lead out of the folder that it is
joined to, or, as a digest, name what was never computed.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, StringConstraints, ValidationError

from superworkflow.infra.base.errors import UserError

NAME_BYTES = 1024
"""Longest path inside a folder: what S3 takes for a whole key."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WORD = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DIGEST = re.compile(r"[0-9a-f]{32}")


def fault_of(name: str) -> str | None:
    """Reason why `name` is no path inside a folder, with forward slashes; None where it is one."""
    if not name:
        return "is empty"
    if name.startswith("/"):
        return "is absolute"
    if _CONTROL.search(name):
        return "holds a control character"
    if "\\" in name:
        return "holds a backslash"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "has an empty part, '.' or '..'"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "is not Unicode text"
    return f"is longer than {NAME_BYTES} bytes" if size > NAME_BYTES else None


def checked_name(name: str, where: str) -> str:
    """`name`, if it stays inside the folder that it is joined to.

    Args:
        name: relative path with forward slashes.
        where: URI of the folder, for the error.

    Raises:
        UserError: it is absolute, or has parts such as `..`.
    """
    if (fault := fault_of(name)) is not None:
        raise UserError(
            f"a file's name {fault}, so it may lie outside this folder; it was not touched",
            where=where, value=name, remedy="Find out who wrote it there, and remove it",
        )  # fmt: skip
    return name


def is_word(text: str) -> bool:
    """True if this may name a prefix of parameters, or a superworkflow or stage of a user."""
    return _WORD.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    """True if this may name a dataset."""
    return _DIGEST.fullmatch(text) is not None


def reason_of(error: Exception) -> str:
    """Why something that was read is not what it should be, in a few words."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place}: {first['msg'].removeprefix('Value error, ')}".removeprefix(": ")
    return (str(error) or type(error).__name__)[:300]


def _name(text: str) -> str:
    if (fault := fault_of(text)) is not None:
        raise ValueError(f"the name {text[:100]!r} {fault}")
    return text


FileName = Annotated[str, AfterValidator(_name)]
"""Field of a model: path of a file inside a folder."""
StageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
"""Field of a model: a stage, which is also a folder in the store."""
Sum = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""Field of a model: SHA-256 or BLAKE3 of something, in hexadecimal."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
"""Field of a model: digest of a dataset."""
InputDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}([0-9a-f]{32})?$")]
"""Field of a model: digest of a dataset, or SHA-256 of a source file."""
