"""Check that a store honours conditional writes, which guarantee one writer per dataset on S3.

Some servers know no such conditions: they write regardless, and say nothing. Others look whether a condition holds and
write afterwards, so that of several at once more than one succeeds.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location

_RIVALS = 4
_NO_TAG = '"' + "0" * 32 + '"'

_heeding: set[str] = set()
"""Buckets that do, as far as this process has seen."""


def check_heeded(file: Location, text: str) -> None:
    """Make sure that conditions are heeded, once in a process for each bucket, by writes that are to be refused.

    Args:
        file: an object on S3 which exists and is one's own.
        text: anything but what it holds, so that no write of ours is taken for one that was done.

    Raises:
        UserError: they are ignored.
    """
    bucket = file.bucket
    if bucket is None or bucket in _heeding:
        return
    # Twice, since the object may have gone before the first.
    if file.create_exclusive(text) is not None and file.create_exclusive(text) is not None:
        raise _ignored(bucket, "ignores If-None-Match")
    if file.replace_tagged(text, _NO_TAG) is not None:
        raise _ignored(bucket, "ignores If-Match")
    _heeding.add(bucket)


def check_atomic(file: Location) -> None:
    """Make sure that of several who create an object at once one succeeds, and that conditions are heeded.

    Args:
        file: an object on S3 which does not exist, and does not afterwards.

    Raises:
        UserError: they are not. One that looks before it writes is not always found out.
    """
    texts = [f"probe {rival}" for rival in range(_RIVALS)]
    try:
        with ThreadPoolExecutor(_RIVALS) as pool:
            made = [tag for tag in pool.map(file.create_exclusive, texts) if tag is not None]
        if len(made) > 1:
            raise _ignored(file.bucket, f"let {len(made)} of {_RIVALS} create one object (If-None-Match)")
        tag = made[0] if made else file.create_exclusive("probe")  # all may get a conflict
        if tag is not None and file.replace_tagged("replaced", tag) is None:
            raise _ignored(file.bucket, "refuses a write whose condition holds (If-Match)")
        check_heeded(file, "created again")
    finally:
        file.delete()


def _ignored(bucket: str | None, what: str) -> UserError:
    return UserError(
        f"the S3 server {what}, so that two runs could write one dataset at once", where=bucket,
        remedy="Use a server with atomic conditional writes, such as Amazon S3 or Ceph, or a store on a disk",
    )  # fmt: skip
