"""Resource usage of a stage's process: wall time, CPU time, peak memory."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from pathlib import Path

from superworkflow.infra.process.identity import started

_STATUS = Path("/proc/self/status")
_CGROUP = Path("/sys/fs/cgroup")


def peak_memory_bytes() -> int:
    """Largest resident set of this process or of any of its ended children, whichever is larger."""
    unit = 1 if sys.platform == "darwin" else 1024
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    if _STATUS.exists():
        # ru_maxrss survives exec: a small process started by a large one would show the parent's peak.
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return max(int(line.split()[1]) * 1024, children)
    return max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, children)


def cpu_seconds() -> float:
    """User and system seconds of this process and its ended children since they began."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def container_usage(root: Path = _CGROUP) -> tuple[float | None, int | None]:
    """CPU seconds and peak bytes of this process's container, from its cgroup (version 2 or 1).

    None where the kernel has no such figures, and outside of the project's containers, where they are the machine's.
    The peak counts cached files too, as the container's limit does.
    """
    if not os.environ.get("SUPERWORKFLOW_IN_CONTAINER"):
        return None, None
    if (root / "cgroup.controllers").exists():
        return _usage_usec(root / "cpu.stat"), _number(root / "memory.peak")
    nanoseconds = _number(root / "cpuacct" / "cpuacct.usage")
    cpu = None if nanoseconds is None else nanoseconds / 1e9
    return cpu, _number(root / "memory" / "memory.max_usage_in_bytes")


def out_of_memory_kills(root: Path = _CGROUP) -> int:
    """Processes of this container that the kernel has ended for lack of memory; 0 where that is unknown."""
    version_2 = (root / "cgroup.controllers").exists()
    path = root / "memory.events" if version_2 else root / "memory" / "memory.oom_control"
    try:
        return int(dict(line.split() for line in path.read_text().splitlines())["oom_kill"])
    except (OSError, KeyError, ValueError):
        return 0


def _usage_usec(path: Path) -> float | None:
    try:
        figures = dict(line.split() for line in path.read_text().splitlines())
        return int(figures["usage_usec"]) / 1e6
    except (OSError, KeyError, ValueError):
        return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def process_age_seconds() -> float:
    """Wall seconds since this process began, start-up of the interpreter included."""
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return uptime - float(started(os.getpid())) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return time.perf_counter() - _IMPORTED


def delayed_seconds() -> float:
    """Longest that one of this process's threads was ready to run and had no processor; 0 where that is unknown."""
    longest = 0
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        try:
            longest = max(longest, int(thread.read_text().split()[1]))
        except (OSError, IndexError, ValueError):
            continue  # the thread has ended
    return longest / 1e9


def processor() -> str:
    """Name of this machine's kind of processor, such as `AMD EPYC 9R14`; that of its architecture without one."""
    try:
        with Path("/proc/cpuinfo").open("rb") as stream:
            beginning = stream.read(4096).decode(errors="replace")  # of the first of all its processors
    except OSError:
        beginning = ""
    lines = (line.partition(":") for line in beginning.splitlines())
    names = (" ".join(value.split()) for key, _, value in lines if key.strip() == "model name")
    return next(names, "") or platform.processor() or platform.machine()


_IMPORTED = time.perf_counter()
