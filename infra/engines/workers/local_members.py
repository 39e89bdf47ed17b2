"""Members of a worker group as processes on this machine, which end with this one however it ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from superworkflow.infra.engines.workers.setup import MemberSetup

END_SECONDS = 10.0
"""Seconds that members have to end by themselves."""
AGENT = "superworkflow.infra.engines.workers.agent"


@dataclass
class _Member:
    program: str
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes]
    setup: bytes = b""
    leaving: bool = False


class Processes:
    """Starts members, starts lost ones again, and ends all.

    A member ends when the thread that made it does (the kernel sees to it), and when its standard input closes, whose
    other end only this process holds. Members and all that they fork hold one end of a pipe: it is at its end when
    there are none any more.
    """

    def __init__(self) -> None:
        self._members: dict[int, _Member] = {}
        self._started = 0
        self._alive, self._held = os.pipe()

    def start(self, program: str, environment: Mapping[str, str]) -> int:
        """Start a member; it may import modules while it waits for its `MemberSetup`. Returns its number."""
        number, self._started = self._started, self._started + 1
        self._members[number] = _Member(program, environment, self._spawn(program, environment))
        return number

    def send_setup(self, number: int, setup: MemberSetup) -> None:
        """Send a member its setup."""
        member = self._members[number]
        member.setup = setup.model_dump_json().encode() + b"\n"
        self._send(member)

    def pid(self, number: int) -> int:
        """Process of a member."""
        return self._members[number].process.pid

    def leave(self, number: int) -> None:
        """Ask a member to end; it is not started again."""
        self._members[number].leaving = True
        self._members[number].process.terminate()

    def kill_process(self, pid: int) -> None:
        """End one member at once, by its process; nothing where it is none."""
        for member in self._members.values():
            if member.process.pid == pid:
                member.process.kill()

    def kill_rank(self, pid: int) -> bool:
        """End one process that a member has forked at once; False if it is none."""
        agents = {member.process.pid for member in self._members.values()}
        with contextlib.suppress(OSError, IndexError, ValueError):
            process = os.pidfd_open(pid)
            try:
                parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                if parent in agents:
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    return True
            finally:
                os.close(process)
        return False

    def replace_lost(self) -> Iterator[tuple[str, int]]:
        """Start members that have ended again; role and exit status of each, negative for a signal."""
        for number, member in list(self._members.items()):
            code = member.process.poll()
            if code is None:
                continue
            assert member.process.stdin is not None
            with contextlib.suppress(OSError):
                member.process.stdin.close()
            if member.leaving:
                del self._members[number]
                continue
            member.process = self._spawn(member.program, member.environment)
            self._send(member)
            yield MemberSetup.model_validate_json(member.setup).role, code

    def wait(self, seconds: float = END_SECONDS) -> None:
        """Give members time to end by themselves."""
        until = time.monotonic() + seconds
        for member in self._members.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(max(0.0, until - time.monotonic()))

    def kill(self) -> None:
        """End all members; from any thread. What they have forked ends with them."""
        for member in list(self._members.values()):
            member.process.kill()

    def close(self) -> None:
        """End all members, and return when nothing of them runs."""
        self.kill()
        for member in self._members.values():
            assert member.process.stdin is not None
            with contextlib.suppress(OSError):
                member.process.stdin.close()
            member.process.wait()
        os.close(self._held)
        select.select([self._alive], [], [], END_SECONDS)
        os.close(self._alive)

    def _spawn(self, program: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", program], env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=2,
            pass_fds=[self._held],
            start_new_session=True,  # what a terminal sends is for the stage, which ends its members itself
        )  # fmt: skip

    def _send(self, member: _Member) -> None:
        assert member.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended; the next look finds it so
            member.process.stdin.write(member.setup)
            member.process.stdin.flush()
