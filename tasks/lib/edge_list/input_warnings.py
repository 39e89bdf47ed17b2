"""Warnings about input that is read but doubtful: one value object, shown in the log and kept in the stage's stats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.storage.manifest import WARNING_PREFIX


@dataclass(frozen=True)
class InputWarning:
    """One doubt about an input.

    Args:
        what: the doubt and how the input was read, as a sentence without a full stop.
        where: file and column or line.
        value: an example or a range from the file.
        settle: parameter or command that settles it, as an imperative sentence without a full stop.
    """

    what: str
    where: str
    value: str
    settle: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} (got {self.value}). {self.settle}."


def log_warnings(progress: Progress, warnings: Sequence[InputWarning]) -> None:
    """Write each warning to the log of a stage."""
    for warning in warnings:
        progress.log(f"warning: {warning}")


def warning_stats(warnings: Sequence[InputWarning]) -> dict[str, str]:
    """Stats that keep the warnings in the manifest; none if there are no warnings."""
    return {f"{WARNING_PREFIX}{number}": str(warning) for number, warning in enumerate(warnings, 1)}
