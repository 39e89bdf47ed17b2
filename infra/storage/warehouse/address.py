"""Addresses of tables: `postgresql://host/database?table=NAME`, `delta://FOLDER`, `iceberg://CATALOG/NAME`, and others.

| address | table |
| --- | --- |
| `postgresql://user@host/database?table=schema.name` | a table or view of PostgreSQL |
| `postgresql://user@host/database?query=SELECT …` | rows of a query; it comes last, and is taken as it is |
| `sqlite:///graph.db?table=name`, `duckdb:////data/graph.duckdb?…` | the same of a file; four slashes if absolute |
| `dialect+driver://…?table=name` | any other database, by SQLAlchemy and its driver |
| `delta://folder`, `delta://bucket-uri`, a folder with `_delta_log` | a table of Delta Lake |
| `iceberg://catalog/namespace.name` | a table of Iceberg, by a catalog of pyiceberg's configuration |

Secrets come from the environment, by `${VARIABLE}` in the address or the driver's own variables; an address with a
password is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, unquote

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.masking import has_password, masked
from superworkflow.infra.storage.location import Location

DATABASES = ("postgresql", "postgres", "sqlite", "duckdb")
LAKES = ("delta", "iceberg")
TABLE, QUERY, WATERMARK, AS_OF, KEY, MODE = "table", "query", "watermark", "as_of", "key", "mode"
_SHOWN = (TABLE, WATERMARK, AS_OF, KEY, MODE)
_OWN = (*_SHOWN, QUERY)
SECRET_PREFIX = "SUPERWORKFLOW_SECRET_"
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_LOGIN = re.compile(r"[^/]*//[^/?@]*@")
_SECRET = re.compile(r":\$\{\w+\}@|[?&;]\w+=\$\{\w+\}")


@dataclass(frozen=True)
class TableAddress:
    """One table.

    Args:
        scheme: kind of database or lakehouse.
        base: the address of the database, or of the lakehouse's table, with `${VARIABLE}`s as they are.
        options: `table` or `query`; `watermark`, the column by which a change shows; `as_of`, an earlier version; `key`
            and `mode` where a result is written to it (`sinks`).
        deployed: it comes from the caller of a deployment, who may be another than the owner of its variables, and
            could have them sent anywhere: only those whose names begin with `SUPERWORKFLOW_SECRET_` are read.
    """

    scheme: str
    base: str
    options: Mapping[str, str]
    deployed: bool = False

    @classmethod
    def parse(cls, text: str) -> TableAddress | None:
        """The address in a text; None for a path or URI of files.

        Raises:
            UserError: it holds a password, or names no table.
        """
        scheme, mark, rest = text.partition("://")
        head, _, tail = text.partition("?")
        if not mark or "/" in scheme:
            return _delta(head, tail) if _names_delta(head, tail) else None
        if scheme not in (*DATABASES, *LAKES) and "+" not in scheme:
            return _delta(head, tail) if scheme in ("s3", "s3a", "gs", "abfs") and _names_delta(head, tail) else None
        if has_password(_SECRET.sub("@", text.partition("query=")[0])):
            raise UserError(
                "the address of data must not contain a password", where=masked(text),
                remedy="Write ${VARIABLE} in its place, or set the driver's own, such as PGPASSWORD",
            )  # fmt: skip
        options, others = _options(tail)
        base = head if scheme != "postgres" else f"postgresql{head.removeprefix('postgres')}"
        base += f"?{others}" if others else ""
        found = cls(scheme, rest.partition("?")[0] if scheme in LAKES else base, options)
        found._check(text)
        return found

    def _check(self, text: str) -> None:
        named = [name for name in (TABLE, QUERY) if self.options.get(name)]
        if self.scheme in LAKES:
            if named or WATERMARK in self.options:
                raise UserError("the address itself names the table", where=masked(text), value=", ".join(named),
                                remedy="Leave it out")  # fmt: skip
            return
        if len(named) != 1:
            raise UserError("names no table" if not named else "names a table and a query", where=masked(text),
                            remedy="End it with ?table=NAME or ?query=SELECT …")  # fmt: skip
        if AS_OF in self.options:
            raise _no_versions(self.shown)

    @property
    def is_lake(self) -> bool:
        return self.scheme in LAKES

    @property
    def text(self) -> str:
        """The address, which `parse` reads; relative paths of lakehouses' tables are absolute in it."""
        base = f"{self.scheme}://{self.base}" if self.is_lake else self.base
        listed = [f"{name}={self.options[name]}" for name in (*_SHOWN, QUERY) if name in self.options]
        return base + ("?" if "?" not in base else "&") * bool(listed) + "&".join(listed)

    @property
    def shown(self) -> str:
        """The address for people and records, without even the names of variables in the place of secrets."""
        return masked(self.text)

    @property
    def url(self) -> str:
        """The database's address with the values of its variables; never shown.

        Raises:
            UserError: a variable is not set.
        """
        login = _LOGIN.match(self.base)
        login_end = login.end() if login is not None else 0

        def value(match: re.Match[str]) -> str:
            if self.deployed and not match[1].startswith(SECRET_PREFIX):
                raise UserError("a deployed run reads no such variable", where=self.shown, value=match[1],
                                remedy=f"Begin its name with {SECRET_PREFIX}")  # fmt: skip
            if match[1] not in os.environ:
                raise UserError("the environment has no such variable", where=self.shown, value=match[1],
                                remedy=f"Run `export {match[1]}=…` first")  # fmt: skip
            text = os.environ[match[1]]
            return quote(text, safe="") if match.start() < login_end else text  # a password may hold any character

        return _VARIABLE.sub(value, self.base)

    @property
    def path(self) -> str:
        """Path of a database that is a file."""
        return self.url.partition("?")[0].partition("://")[2].removeprefix("/")

    def select(self, columns: str = "*") -> str:
        """The statement that reads columns of the table or query."""
        if TABLE in self.options:
            return f"SELECT {columns} FROM {quoted(self.options[TABLE])}"
        query = self.options[QUERY].strip().rstrip(";")
        return query if columns == "*" else f"SELECT {columns} FROM ({query}\n) AS given"  # it may end with a comment

    def with_as_of(self, as_of: str) -> TableAddress:
        """A lakehouse's table as it was at a time, unless its address names a version."""
        return replace(self, options={AS_OF: as_of, **self.options})

    def version(self) -> int | datetime | None:
        """The version or time that `as_of` names; a time without zone is in UTC."""
        text = self.options.get(AS_OF, "")
        return parse_as_of(text, self.shown) if text else None


def parse_as_of(text: str, where: str) -> int | datetime:
    """A version, or a time in ISO format.

    Raises:
        UserError: it is neither.
    """
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UserError("neither a version nor a time", where=where, value=text,
                        remedy="Give a number, or a time such as 2026-11-01T06:00:00Z") from None  # fmt: skip
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def quoted(name: str) -> str:
    """A table's name, with its schema if there is one, as an identifier of SQL."""
    return ".".join(identifier(part) for part in name.split("."))


def identifier(name: str) -> str:
    """A name, whatever characters it has, as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def _no_versions(where: str) -> UserError:
    return UserError("a database keeps no earlier versions", where=where,
                     remedy="Leave out as_of, or read a table of Delta Lake or Iceberg")  # fmt: skip


def _options(tail: str) -> tuple[dict[str, str], str]:
    """This project's options, and the driver's as they are written."""
    before, mark, query = tail.partition(f"{QUERY}=") if re.search(rf"(^|&){QUERY}=", tail) else (tail, "", "")
    pairs = parse_qsl(before, keep_blank_values=True)
    own = {name: value for name, value in pairs if name in _OWN}
    if mark:  # what programs have encoded has no blank
        own[QUERY] = query if re.search(r"\s", query) else unquote(query.replace("+", " "))
    others = [part for part in before.split("&") if part and part.partition("=")[0] not in _OWN]
    return own, "&".join(others)


def _names_delta(head: str, tail: str) -> bool:
    if tail and not tail.startswith(f"{AS_OF}="):
        return False
    place = Location.of(head)
    if (path := place.local_path) is not None:
        return (path / "_delta_log").is_dir()
    try:
        return "." not in place.name and bool(place.join("_delta_log").entries())
    except Exception:  # credentials, network, permissions: who reads the source has more to say
        return False


def _delta(head: str, tail: str) -> TableAddress:
    return TableAddress("delta", Location.of(head).uri, _options(tail)[0])
