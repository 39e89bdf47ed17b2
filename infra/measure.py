"""What a stage's process used: wall time, CPU time, peak memory."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_memory_bytes() -> int:
    """Largest resident set of this process or of any of its ended children, whichever is larger."""
    unit = 1 if sys.platform == "darwin" else 1024
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    if _STATUS.exists():
        # ru_maxrss survives exec, so that a small process started by a large one would show the large one's peak.
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return max(int(line.split()[1]) * 1024, children)
    return max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, children)


def cpu_seconds() -> float:
    """User and system seconds of this process and its ended children since they began."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def process_age_seconds() -> float:
    """Wall seconds since this process began, start-up of the interpreter included."""
    try:
        fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, IndexError, ValueError):
        return time.perf_counter() - _IMPORTED
    import os

    return uptime - float(fields[19]) / os.sysconf("SC_CLK_TCK")


_IMPORTED = time.perf_counter()
