"""Environment files in the format that shells source and Compose reads, such as the `.env` of docker-compose.yml."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from superworkflow.infra.base.errors import UserError

COMPOSE = "compose"
"""Stands for the `.env` in the folder of the nearest docker-compose.yml."""
_COMPOSE_FILES = ("docker-compose.yml", "compose.yaml", "compose.yml", "docker-compose.yaml")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def servers_file(name: str, folder: Path | None = None) -> Path:
    """The file that `--servers` names.

    Args:
        name: `compose`, or a path.
        folder: where the search for `compose` begins, upwards; the working folder by default.

    Raises:
        UserError: there is no such file.
    """
    if name != COMPOSE:
        return Path(name)
    start = (folder or Path.cwd()).absolute()
    for each in (start, *start.parents):
        if any((each / file).exists() for file in _COMPOSE_FILES):
            if not (each / ".env").exists():
                raise UserError("docker-compose.yml has no .env in its folder", where=str(each / ".env"),
                                remedy="Copy .env.example to .env and fill in the passwords")  # fmt: skip
            return each / ".env"
    raise UserError("no docker-compose.yml here or in a folder above", where=f"--servers {name}", value=str(start),
                    remedy="Name a file of environment variables: --servers FILE")  # fmt: skip


def read_environment(path: Path) -> Mapping[str, str]:
    """Variables of a file with lines `NAME=VALUE`, quoted as in a shell; nothing in values is expanded.

    A file of this user that others may read is made 0600.

    Raises:
        UserError: missing, unreadable, or with a malformed line, whose text is left out: it may hold a password.
    """
    try:
        if path.stat().st_mode & 0o077 and path.stat().st_uid == os.geteuid() and path.is_file():
            path.chmod(0o600)  # it holds passwords
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), remedy="Check --servers") from None
    except UnicodeDecodeError:
        raise UserError("not a text file in UTF-8", where=str(path), remedy="Check --servers") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            words = [""]
        words = words[1:] if words[:1] == ["export"] else words
        if not words:
            continue
        name, equals, value = words[0].partition("=")
        if len(words) > 1 or not equals or not _NAME.fullmatch(name):
            raise UserError("not of the form NAME='VALUE'", where=f"{path}:{number}",
                            remedy="Put values with special characters in single quotes")  # fmt: skip
        found[name] = value
    return found
