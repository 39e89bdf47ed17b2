"""Files of environment variables, as a shell sources them and Compose reads them: `.env` beside docker-compose.yml."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from superworkflow.infra.base.errors import UserError

COMPOSE = "compose"
"""Name of the `.env` beside the nearest docker-compose.yml."""
_COMPOSE_FILES = ("docker-compose.yml", "compose.yaml", "compose.yml", "docker-compose.yaml")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def servers_file(name: str, folder: Path | None = None) -> Path:
    """The file that `--servers` names.

    Args:
        name: `compose`, or a path.
        folder: in which, or above which, `compose` is looked for; the working folder by default.

    Raises:
        UserError: there is none.
    """
    if name != COMPOSE:
        return Path(name)
    start = (folder or Path.cwd()).absolute()
    for each in (start, *start.parents):
        if any((each / file).exists() for file in _COMPOSE_FILES):
            if not (each / ".env").exists():
                raise UserError("no settings beside docker-compose.yml", where=str(each / ".env"),
                                remedy="Copy .env.example to .env and fill in the passwords")  # fmt: skip
            return each / ".env"
    raise UserError("no docker-compose.yml here or in a folder above", where=f"--servers {name}", value=str(start),
                    remedy="Name a file of environment variables: --servers FILE")  # fmt: skip


def read_environment(path: Path) -> Mapping[str, str]:
    """Variables of a file with lines `NAME=VALUE`, quoted as in a shell; nothing in values is expanded.

    Raises:
        UserError: missing, unreadable, or a line that is none; the line's text, which may hold a password, is not told.
    """
    try:
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
