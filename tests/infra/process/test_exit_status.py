"""Why a process ended, from its exit status."""

import signal

import pytest

from superworkflow.infra.process.exit_status import Reason, diagnose_exit


@pytest.mark.parametrize(
    ("number", "reason", "words"),
    [
        (signal.SIGKILL, Reason.KILLED, "SIGKILL"),
        (signal.SIGTERM, Reason.CANCELLED, "SIGTERM"),
        (signal.SIGINT, Reason.CANCELLED, "interrupted"),
        (signal.SIGSEGV, Reason.CRASHED, "SIGSEGV"),
        (signal.SIGBUS, Reason.CRASHED, "SIGBUS"),
        (signal.SIGABRT, Reason.CRASHED, "signal 6"),
    ],
)
def test_signals_from_subprocess_and_from_a_shell(number: int, reason: Reason, words: str) -> None:
    for code in (-number, 128 + number):
        diagnosis = diagnose_exit(code)
        assert diagnosis.reason is reason
        assert words in diagnosis.summary
        assert diagnosis.resolution.endswith(".")


@pytest.mark.parametrize("code", [0, 1, 2, 77, 128])
def test_plain_exit_status(code: int) -> None:
    diagnosis = diagnose_exit(code)
    assert diagnosis.reason is Reason.FAILED
    assert str(code) in diagnosis.summary


def test_names_are_stable() -> None:
    assert {reason.value for reason in Reason} >= {"out-of-memory", "killed", "cancelled", "crashed", "failed"}
