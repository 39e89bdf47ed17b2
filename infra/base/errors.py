"""Errors that people read: what was wrong, where, the value, and what to do about it."""

from __future__ import annotations

import errno
from typing import Any

from superworkflow.infra.base.masking import masked

_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def rendered(error: BaseException) -> list[str]:
    """Lines that IPython shows instead of a traceback."""
    return [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])]


class SuperworkflowError(Exception):
    """Base of all errors that this project raises on purpose.

    Set by the launcher and the flow where it ended a stage that had been launched; their types belong to layers above
    this one:

        attempts: every `Attempt` at that stage, for its cost.
        record: the `StageRecord` to write, with state `failed`.
    """

    exit_code = 1
    attempts: tuple[Any, ...] = ()
    record: Any = None

    def __init__(self, *words: str):
        super().__init__(*map(masked, words))  # many name a URL

    def _render_traceback_(self) -> list[str]:
        return rendered(self)


class UserError(SuperworkflowError):
    """Bad input or a bad setting. Shown as one message, without a traceback.

    Args:
        what: the fault, as a sentence without a full stop.
        where: file and line, dotted parameter, or URI at which it was found.
        value: the offending value as it was given; omitted from the message when not passed.
        remedy: what to do, as an imperative sentence.
    """

    exit_code = 2
    _absent = object()

    def __init__(self, what: str, *, where: str | None = None, value: Any = _absent, remedy: str | None = None):
        self.what, self.where, self.remedy = what, where, remedy
        self.value = None if value is self._absent else value
        message = f"{where}: {what}" if where else what
        if value is not self._absent:
            message += f" (got {value!r})"
        message = message.rstrip(".") + "."
        if remedy:
            message += f" {remedy}" if remedy.endswith("?") else f" {remedy.rstrip('.')}."
        super().__init__(message)


def unwritable(error: BaseException, where: str | None = None) -> UserError | None:
    """Error for a file, or a database of MLflow, that may not be written or has no space left; None for any other.

    Args:
        error: of the attempt.
        where: named unless the error names a file.
    """
    remedy = "Check its permissions and free space"
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        return UserError(f"cannot be opened or written: {error.strerror}", where=error.filename or where, remedy=remedy)
    if type(error).__module__.startswith("mlflow.") and "OperationalError" in str(error):
        return UserError(f"MLflow cannot write its database: {str(error).splitlines()[0]}", remedy=remedy)
    return None


class StagedUserError(UserError):
    """A `UserError` that another process raised, passed on with its text as it was."""

    def __init__(self, message: str):
        super().__init__(message)
        self.args = (masked(message),)


class Stopped(SuperworkflowError):
    """A run was stopped early on purpose, such as a pruned trial; it did not fail."""


class DatasetDamaged(UserError):
    """A dataset whose files do not match its manifest."""


class DataFileGone(DatasetDamaged):
    """A dataset of which a data file no longer exists, such as by a bucket's lifecycle rule; it can be made again."""


class StageFailed(SuperworkflowError):
    """A stage ended without its dataset.

    Args:
        stage: name of the stage.
        summary: one sentence that says why.
        resolution: what to do.
        exit_code: exit status of the stage's process, negative for a signal; None when it never started.
    """

    def __init__(self, stage: str, summary: str, resolution: str = "", exit_code: int | None = None):
        self.stage, self.summary, self.resolution, self.status = stage, summary, resolution, exit_code
        sentence = summary if summary.endswith((".", "?", "!")) or not resolution else f"{summary}."
        super().__init__(f"stage {stage} failed: {sentence}" + (f" {resolution}" if resolution else ""))
