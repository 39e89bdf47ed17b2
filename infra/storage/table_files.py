"""Files that a description names: a schema, a `metadata.json` or the like in the folder of a graph's tables."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote

import yaml

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import FileState, Location
from superworkflow.infra.storage.safe_names import fault_of

KEYS = ("file", "files")
"""Keys whose values are names of files, in descriptions that `named_files` reads."""

_SHARDS = re.compile(r"(.*[^/])@([1-9][0-9]{0,4})(\.[^/@]*)?")
MAGIC = re.compile(r"[*?[]")


def named_files(text: str, where: str) -> list[str]:
    """Names in a YAML or JSON description: every text under a key `file` or `files`, at any depth.

    Args:
        text: of the description.
        where: its name for people.

    Raises:
        UserError: it is not YAML, or something else than texts is there.
    """
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "not YAML"
        raise UserError(
            f"not valid YAML or JSON: {problem}", where=f"{where}:{mark.line + 1}" if mark else where,
            remedy="Correct the syntax",
        ) from None  # fmt: skip
    return list(_names(document, where))


def _names(document: Any, where: str) -> Iterator[str]:
    waiting, seen = [document], set[int]()  # aliases may name a part of the document many times, or its parent
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict | list) or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, list):
            waiting += part
            continue
        waiting += [value for key, value in part.items() if key not in KEYS]
        for key in KEYS:
            given = part.get(key, [])
            for name in given if isinstance(given, list) else [given]:
                if not isinstance(name, str):
                    raise UserError("not the name of a file", where=f"{where}, key {key}", value=name,
                                    remedy="Write a name, or a list of names")  # fmt: skip
                yield name


def is_elsewhere(name: str) -> bool:
    """True if this is an absolute path or a URI; see `infra.storage.table_access`."""
    return name.startswith("/") or "://" in name


def plain(name: str) -> str:
    """A name as members have it: what `file://…` names by its path."""
    return unquote(name.removeprefix("file://")) if name.startswith("file:///") else name


def find_files(folder: Location, names: Iterable[str], where: str) -> dict[str, FileState]:
    """The files that names stand for, by their path in the folder.

    A name is that of a file, of a folder (all files below it, hidden ones left out), a pattern such as `part-*`, or
    `name@8` for the shards `name-00000-of-00008` to `name-00007-of-00008` (`name@8.parquet` for such with an ending).

    Args:
        folder: in which the names are.
        names: with forward slashes.
        where: who names them, for errors.

    Raises:
        UserError: a name leads out of the folder, or there is nothing of that name.
    """

    @functools.cache
    def entries(place: Location) -> dict[str, FileState | None]:
        return place.entries()

    found: dict[str, FileState] = {}
    for given in names:
        name = given.removeprefix("./").rstrip("/")
        if (fault := fault_of(name)) is not None:
            raise UserError(f"the name of a table {fault}", where=where, value=given,
                            remedy="Give names below the folder in which the description is")  # fmt: skip
        for each in shards(name):
            files = matches(folder, "", each.split("/"), entries)
            if not files:
                raise UserError("there is no such table", where=where, value=each,
                                remedy=f"Names are those of files, folders or patterns below {folder.uri}")  # fmt: skip
            found |= files
    return found


def matching(paths: Iterable[str], name: str) -> list[str]:
    """Those of the paths that a name stands for, as in `find_files` and `table_access.find_tables`."""
    wanted = [each.split("/") for each in shards(plain(name).removeprefix("./").rstrip("/"))]
    return [path for path in paths if any(_begins(path.split("/"), parts) for parts in wanted)]


def _begins(path: list[str], parts: list[str]) -> bool:
    return len(path) >= len(parts) and all(
        here == part or fnmatchcase(here, part) for here, part in zip(path, parts, strict=False)
    )


def shards(name: str) -> list[str]:
    """The names that `name@8` stands for; of any other name that alone."""
    match = _SHARDS.fullmatch(name)
    if match is None:
        return [name]
    stem, count, ending = match[1], int(match[2]), match[3] or ""
    return [f"{stem}-{shard:05d}-of-{count:05d}{ending}" for shard in range(count)]


def matches(
    folder: Location, path: str, parts: list[str], entries: Callable[[Location], dict[str, FileState | None]]
) -> dict[str, FileState]:
    """Files below `path` in the folder whose further path matches `parts`."""
    place = folder.join(path) if path else folder
    if not parts:
        return visible_files(place, f"{path}/")
    first, rest = parts[0], parts[1:]
    here = entries(place)
    if MAGIC.search(first) and first not in here:
        names = [name for name in sorted(here) if fnmatchcase(name, first) and not is_hidden(name)]
    else:
        names = [first] if first in here else []
    found: dict[str, FileState] = {}
    for name in names:
        below, state = f"{path}/{name}" if path else name, here[name]
        if state is None:
            found |= matches(folder, below, rest, entries)
        elif not rest:
            found[below] = state
    return found


def visible_files(folder: Location, prefix: str = "") -> dict[str, FileState]:
    """All files below a folder by their path, hidden ones left out.

    Args:
        folder: where they are.
        prefix: put before each path.

    Raises:
        UserError: one is neither a file nor a folder of its own.
    """
    found: dict[str, FileState] = {}
    for name, state in folder.states_below().items():
        if any(is_hidden(part) for part in name.split("/")):
            continue
        if state is None:
            raise UserError(
                "neither a file nor a folder: a link to a folder, a broken link, or a device", where=folder.uri,
                value=name, remedy="Put the files themselves there",
            )  # fmt: skip
        found[f"{prefix}{name}"] = state
    return found


def is_hidden(name: str) -> bool:
    """True if readers of tables pass over a file of this name, as Arrow does."""
    return name.startswith((".", "_"))
