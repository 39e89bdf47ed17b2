"""Why a process ended, from its exit status alone."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Stable names of the ways in which a stage can end without a dataset."""

    OUT_OF_MEMORY = "out-of-memory"
    KILLED = "killed"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    FAILED = "failed"
    IMAGE_MISSING = "image-missing"
    NOT_STARTED = "not-started"
    UNSCHEDULABLE = "unschedulable"
    REFUSED = "refused"
    EVICTED = "evicted"
    DEADLINE = "deadline"
    NODE_LOST = "node-lost"
    DELETED = "deleted"


@dataclass(frozen=True)
class Diagnosis:
    """Reason, one sentence for people, and what to do.

    Args:
        disrupted: the cluster ended the process, not the stage itself; it may succeed elsewhere with the same size.
    """

    reason: Reason
    summary: str
    resolution: str
    disrupted: bool = False


_SIGNALS: dict[int, Diagnosis] = {
    signal.SIGKILL: Diagnosis(
        Reason.KILLED,
        "the process was killed (SIGKILL), by the kernel for lack of memory or by someone",
        "Look at the machine's memory (`superworkflow plan` shows what the stage needs), then run again.",
    ),
    signal.SIGTERM: Diagnosis(Reason.CANCELLED, "the process was terminated (SIGTERM)", "Run again to resume."),
    signal.SIGINT: Diagnosis(Reason.CANCELLED, "the process was interrupted", "Run again to resume."),
    signal.SIGSEGV: Diagnosis(
        Reason.CRASHED, "the process crashed (SIGSEGV)", "Report this with the stage's parameters and the graph's size."
    ),
    signal.SIGBUS: Diagnosis(
        Reason.CRASHED, "a memory-mapped file could not be read or written (SIGBUS)", "Check the disk's free space."
    ),
}


def diagnose_exit(code: int) -> Diagnosis:
    """Diagnose an exit status as `subprocess` reports it (negative for a signal; 128 + n from a shell)."""
    number = -code if code < 0 else code - 128 if code > 128 else 0
    if number in _SIGNALS:
        return _SIGNALS[number]
    if number:
        return Diagnosis(Reason.CRASHED, f"the process ended on signal {number}", "See its log above.")
    return Diagnosis(Reason.FAILED, f"the process ended with exit status {code}", "See its log above.")
