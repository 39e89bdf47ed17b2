"""Which process holds something that is shared, and whether that process is still alive."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def _host() -> str:
    """This machine since its last start, and this container: where a process id means the same process."""
    try:
        return f"{_BOOT.read_text().strip()[:13]}.{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """Start time of a process; empty when there is none, or when it is dead and only not yet waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


@dataclass(frozen=True)
class Owner:
    """One process.

    Args:
        host: machine and container.
        pid: process id there.
        started: its start time, since process ids are used again.
        token: of what it holds there.
    """

    host: str
    pid: int
    started: str
    token: str

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        return cls(_host(), os.getpid(), _started(os.getpid()), uuid.uuid4().hex[:12])

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.started}/{self.token}"

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The inverse of `str`; None when the text is not one."""
        parts = text.split("/")
        return cls(parts[0], int(parts[1]), parts[2], parts[3]) if len(parts) == 4 and parts[1].isdigit() else None

    @property
    def is_here(self) -> bool:
        """Whether it is or was a process of this machine and container, whose process table says more than a beat."""
        return self.host == _host()

    @property
    def is_running(self) -> bool:
        """Whether the process table of this machine has it; only where `is_here`."""
        return _started(self.pid) == self.started != ""
