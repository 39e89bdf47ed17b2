"""Identity of a process that holds something shared, and the check that it is still alive."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@cache
def _host() -> str:
    """Boot of this machine and PID namespace of this container, within which a process id is unique."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot[:13]}.{Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def user_name() -> str:
    """User that runs this process, for records."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return f"uid {os.getuid()}"


def started(pid: int) -> str:
    """When a process began, in ticks since the boot; empty when it has ended, or is dead and not yet waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError, ValueError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


@dataclass(frozen=True)
class ProcessIdentity:
    """One process.

    Args:
        host: machine and container.
        pid: process id there.
        started: its start time, since process ids are used again.
        token: random, one for each thing that the process holds.
    """

    host: str
    pid: int
    started: str
    token: str

    @classmethod
    def here(cls) -> ProcessIdentity:
        """This process."""
        return cls(_host(), os.getpid(), started(os.getpid()), uuid.uuid4().hex[:12])

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.started}/{self.token}"

    @classmethod
    def parse(cls, text: str) -> ProcessIdentity | None:
        """The inverse of `str`; None when the text is not one."""
        host, pid, *rest = text.split("/") if text.count("/") == 3 else ("", "")
        return cls(host, int(pid), *rest) if pid.isdecimal() and len(pid) < 20 else None

    @property
    def is_here(self) -> bool:
        """True if it is or was a process of this machine and container, whose process table says more than a beat."""
        return self.host == _host()

    @property
    def is_running(self) -> bool:
        """True if the process table of this machine has it; only where `is_here`."""
        return started(self.pid) == self.started != ""


def has_ended(process: str) -> bool:
    """True if the process of this identity, as text, was one of this machine and has ended; False when in doubt."""
    identity = ProcessIdentity.parse(process)
    return identity is not None and identity.is_here and identity.started != "" and not identity.is_running
