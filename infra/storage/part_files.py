"""Part files of a source: a folder of files of one table, as engines and data frame libraries write them."""

from __future__ import annotations

from urllib.parse import unquote

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.source import Source

_OTHERS = {
    "_delta_log": ("a Delta table, whose log says which files count", "Write its rows to a folder of Parquet files"),
    ".hoodie": ("a Hudi table, whose timeline says which files count", "Write its rows to a folder of Parquet files"),
    "_temporary": ("written at this moment, or by a job that failed", "Wait for that job, or run it again"),
}
"""Hidden names that show that the other files are not the table."""

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def part_files(source: Source) -> list[str]:
    """Names of the members of a folder that hold something, in the order of their paths; of a file that alone."""
    if not source.is_folder:
        return [source.location.name]
    return [path for path in source.files() if source.members[path].state.size]


def check_parts(source: Source) -> None:
    """Refuse a folder that is not one of part files, before its content is read.

    Raises:
        UserError: it is another kind of table, or has folders that are no partitions as Hive names them.
    """
    hidden = source.location.entries()
    for name, (what, remedy) in _OTHERS.items():
        if name in hidden:
            raise UserError(f"the folder is {what}", where=source.uri, value=name, remedy=remedy)
    found = sorted(path for path, state in source.states().items() if state.size)
    for path in found:
        if any("=" not in part for part in path.split("/")[:-1]):
            raise UserError(
                "the folder has a folder that is no partition such as date=2024-01-01", where=source.uri, value=path,
                remedy="Give the folder that has the part files themselves",
            )  # fmt: skip
        if _keys(path) != _keys(found[0]):
            raise UserError(
                "part files lie in different partitions", where=source.uri, value=f"{found[0]} and {path}",
                remedy="Give a folder of one table",
            )  # fmt: skip


def partition(path: str) -> str:
    """Part of a member's path that names its partition, such as `date=2024-01-01`; empty where there is none."""
    return path.rpartition("/")[0]


def partition_values(path: str) -> dict[str, str]:
    """Columns that the names of a member's folders hold, as Hive writes them, with their values; empty for null."""
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {unquote(name): "" if value == _NULL_PARTITION else unquote(value) for name, mark, value in pairs if mark}


def part_uri(source: Source, name: str) -> str:
    """Path or URI of a member, for people; of a file its own."""
    return source.members[name].location.uri if source.is_folder else source.uri


def differ(one: str, other: str, how: str) -> UserError:
    """The error for two members of a folder that are no parts of one table."""
    return UserError(
        f"the file differs from {one}, and is in one folder with it: {how}", where=other,
        remedy="Give a folder of part files that have one format and the same header",
    )  # fmt: skip


def _keys(path: str) -> list[str]:
    return [part.partition("=")[0] for part in path.split("/")[:-1]]
