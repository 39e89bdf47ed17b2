"""`superworkflow` in processes that need not import its libraries: seven CPU seconds of the nine of a cached run.

`Popen` and `run` are those of `subprocess`, for arguments of `superworkflow`. The first command in an environment is a
new interpreter, as users start it; later ones are forked from a process that has imported what the commands import. A
child has its own arguments, environment, folder, streams, signals and session, ends as an interpreter ends, and its
parent is the process of the tests: only its imports are done. Where the environment holds what is read while libraries
are imported, it has to be the same.

    python -m tests.warm DESCRIPTOR    # what children are forked from; the descriptor is of a socket to the tests
"""

import collections
import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = [sys.executable, "-m", "superworkflow"]
MESSAGE_BYTES = 1 << 18
LIBRARIES = (
    "superworkflow.dashboards.report",
    "superworkflow.infra.orchestration.deployment",
    "superworkflow.infra.orchestration.flow",
    "superworkflow.infra.orchestration.server",
    "superworkflow.infra.tracking.mlflow_tracker",
    "mlflow.store.tracking.sqlalchemy_store",
    "matplotlib.backends.backend_agg",
    "superworkflow.sweeps.study",
)
READ_WHEN_IMPORTED = (
    "PYTHON", "NUMBA_", "OMP_", "MKL_", "GOMP_", "KMP_", "OPENBLAS_", "LD_", "MALLOC_", "ARROW_", "MPL", "LANG", "LC_",
    "PREFECT_", "MLFLOW_",
)  # fmt: skip
"""Beginnings of variables that libraries may read when they are imported."""
READ_LATER = ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI")
"""But for these: a child has Prefect read its settings anew, and MLflow asks each time."""
_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER

_seen = collections.Counter[frozenset[tuple[str, str]]]()
_warm: dict[frozenset[tuple[str, str]], socket.socket] = {}
_guard = threading.Lock()


def run(arguments: Sequence[str], *, timeout: float | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command's end, and what it has written."""
    process = Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    with process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class Popen(subprocess.Popen[str]):
    """A process of `superworkflow`.

    Args:
        arguments: of the program.
        env: its whole environment; this process's unless given.
        options: `cwd`, `stdout`, `stderr` and `start_new_session` of `subprocess.Popen`. Signals are heard, also where
            this process ignores them because a shell has started it in the background.
    """

    def __init__(self, arguments: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any):
        self._environment = dict(os.environ if env is None else env)
        self._arguments = list(arguments)
        super().__init__(
            [*PROGRAM, *arguments], env=self._environment, text=True, preexec_fn=hear_interrupts, **options
        )

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *rest: Any) -> None:
        """Make the process; `subprocess` calls this once the pipes are there."""
        control = _warm_process(self._environment)
        if control is None:
            super()._execute_child(args, executable, preexec_fn, *rest)  # type: ignore[misc]
            return
        _, _, folder, _, _, _, _, *pipes, _, _, _, _, _, session, _ = rest
        _, _, _, out, _, err = pipes
        request = {"arguments": self._arguments, "environment": self._environment, "session": session,
                   "folder": str(folder or Path.cwd())}  # fmt: skip
        streams = [1 if out == -1 else out, 2 if err == -1 else err]
        with _guard, _adopting():
            socket.send_fds(control, [json.dumps(request).encode()], streams)
            self.pid = int(control.recv(64))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def hear_interrupts() -> None:
    """Reset SIGINT and SIGHUP, which processes that a shell starts in the background, or with nohup, ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextlib.contextmanager
def _adopting() -> Any:
    """While a descendant is made whose own parent ends at once: it becomes a child of this process."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, 0)


def _warm_process(environment: Mapping[str, str]) -> socket.socket | None:
    """Socket to the process that can fork children with this environment; None for the first of them."""
    if sys.platform != "linux":
        return None
    key = frozenset(
        (name, value)
        for name, value in environment.items()
        if name.startswith(READ_WHEN_IMPORTED) and name not in READ_LATER
    )
    with _guard:
        _seen[key] += 1
        if _seen[key] > 1 and key not in _warm:
            near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
            with far:
                # Ends when this process's end of the socket does.
                subprocess.Popen(
                    [sys.executable, "-m", __name__, str(far.fileno())], pass_fds=[far.fileno()],
                    stdin=subprocess.DEVNULL, env=environment, cwd=Path(__file__).parents[1],
                )  # fmt: skip
            _warm[key] = near
        return _warm.get(key)


def main() -> int:
    """Fork children until the tests end; in a child, run its command."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    before = set(os.environ)
    for name in LIBRARIES:
        importlib.import_module(name)
    added = {name: value for name, value in os.environ.items() if name not in before}
    gc.collect()
    gc.freeze()
    while True:
        message, streams, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2)
        if not message:
            return 0
        reading, writing = os.pipe()
        if (between := os.fork()) == 0:
            if (pid := os.fork()) != 0:
                os.write(writing, str(pid).encode())
                os._exit(0)
            control.close()
            os.close(reading)
            os.close(writing)
            return _run(json.loads(message), streams, added)
        os.waitpid(between, 0)  # the tests have adopted the child then
        control.send(os.read(reading, 64))
        os.close(reading)
        os.close(writing)
        for stream in streams:
            os.close(stream)


def _run(request: dict[str, Any], streams: list[int], added: Mapping[str, str]) -> int:
    """Become the process that is asked for, and run its command."""
    from prefect.context import refresh_global_settings_context

    import superworkflow.__main__ as program

    if request["session"]:
        os.setsid()
    hear_interrupts()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, target in zip(streams, (1, 2), strict=True):
        os.dup2(stream, target)
        os.close(stream)
    os.environ.clear()
    os.environ.update({**added, **request["environment"]})
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    sys.argv[:] = [str(program.__file__), *request["arguments"]]
    tempfile.tempdir = None  # TMPDIR may be another one
    refresh_global_settings_context()
    return program.main()


if __name__ == "__main__":
    sys.exit(main())
