"""Identity of a process, and whether it has ended."""

import subprocess
import sys
from dataclasses import replace

import pytest

from superworkflow.infra.process.identity import ProcessIdentity, has_ended


def test_a_process_of_this_machine() -> None:
    program = (
        "from superworkflow.infra.process.identity import ProcessIdentity\n"
        "print(ProcessIdentity.here(), flush=True)\ninput()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    identity = ProcessIdentity.parse(process.stdout.readline().strip())
    assert identity is not None
    assert not has_ended(str(identity))
    assert has_ended(str(replace(identity, started="1")))  # the number was given to another process
    process.kill()
    process.communicate()
    assert has_ended(str(identity))
    assert not has_ended(str(ProcessIdentity.here()))


@pytest.mark.parametrize("changed", [{"host": "another"}, {"host": ""}, {"started": ""}])
def test_processes_that_cannot_be_seen(changed: dict[str, str]) -> None:
    assert not has_ended(str(replace(ProcessIdentity.here(), **{"pid": 1 << 30, **changed})))


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", "None", "x/../1/1", "x/../1/y"])
def test_texts_that_are_no_identity(text: str) -> None:
    assert ProcessIdentity.parse(text) is None
    assert not has_ended(text)
