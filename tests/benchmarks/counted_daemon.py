"""Python's side of a Spark executor, which counts what its processes use; `spark.python.daemon.module` names it.

Spark counts the CPU time of its own threads alone. Each process leaves a file `<pid>.cpu` in the executor's folder with
what it has used at the end of its last task, in seconds: `{"cpu_s": …, "java_s": …}`, the second of Java's process as a
whole.
"""

import json
import os
import resource
from pathlib import Path
from typing import Any

from pyspark import daemon

_work, _java, _folder = daemon.worker, os.getppid(), Path.cwd()


def _java_used() -> float:
    fields = Path(f"/proc/{_java}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def counted(sock: Any, authenticated: bool) -> int:
    """One task, as `pyspark.daemon` does it, in a process that may do many."""
    try:
        return _work(sock, authenticated)
    finally:
        own = resource.getrusage(resource.RUSAGE_SELF)
        used = {"cpu_s": own.ru_utime + own.ru_stime, "java_s": _java_used()}
        (_folder / f"{os.getpid()}.cpu").write_text(json.dumps(used))


if __name__ == "__main__":
    daemon.worker = counted
    daemon.manager()
