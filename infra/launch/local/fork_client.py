"""The launcher's side of a warm start: one server for each process that launches, and the children it forks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from superworkflow.infra.launch.local.fork_server import MESSAGE_BYTES, TITLE_ROOM

_READ_WHEN_LOADED = ("PYTHON", "NUMBA_", "OMP_", "MKL_", "GOMP_", "KMP_", "LD_", "MALLOC_", "ARROW_")
"""Beginnings of variables that libraries read when they are loaded: a child's must be those of the server."""
_SET_FOR_EACH = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONUNBUFFERED", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK",
)  # fmt: skip
"""Exceptions among them, which a child applies itself; scikit-learn sets the last two wherever it is imported."""
_OF_THE_INTERPRETER = (
    "PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE", "PYTHONMALLOC", "PYTHONINSPECT", "PYTHONFAULTHANDLER",
)  # fmt: skip
"""Variables that call for an interpreter of the stage's own."""

PROGRAM = (sys.executable, "-P", "-m", "superworkflow")
"""Command line program; `-P` keeps a folder `superworkflow` in the working folder from hiding the package."""


class ForkedProcess:
    """A child of the fork server, with the part of the interface of `subprocess.Popen` that launchers use.

    Args:
        pid: its process id.
        stdin, stdout: our ends of its pipes.
        process: descriptor of the process, so that a signal can never meet another one that got its id.
        status: socket on which the server sends its exit status.
    """

    def __init__(self, pid: int, stdin: IO[str], stdout: IO[str], process: int, status: socket.socket):
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._process, self._status = process, status
        self._guard = threading.Lock()
        self._code: int | None = None
        weakref.finalize(self, os.close, process)  # not before: another thread may be about to send a signal

    def poll(self) -> int | None:
        """Exit status, negative for a signal, or None while it runs."""
        return self._end(0, socket.MSG_DONTWAIT)

    def wait(self) -> int:
        """Wait for its end; its exit status. A child whose server was killed was killed with it."""
        code = self._end(None, 0)
        assert code is not None
        return code

    def terminate(self) -> None:
        """Send SIGTERM; nothing happens when it has ended."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL; nothing happens when it has ended."""
        self._signal(signal.SIGKILL)

    def _end(self, timeout: int | None, flags: int) -> int | None:
        with self._guard:
            if self._code is None:
                try:
                    message = self._status.recv(64, flags)
                except BlockingIOError:
                    return None
                self._code = int(message) if message else -signal.SIGKILL
                self._status.close()
        ended = select.poll()
        ended.register(self._process, select.POLLIN)
        return self._code if ended.poll(timeout) else None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, number)


class ForkServer:
    """Starts stages by forking a process that has imported them.

    Args:
        stages: names of the stages to import, in the order in which they will be wanted.
        remote: protocol of the store when it is not local, whose client is imported too.
        program: what has the command `serve`, and takes the arguments of its children.
    """

    def __init__(self, stages: Sequence[str], remote: str = "", program: Sequence[str] = PROGRAM):
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
        self._control = near
        self._guard = threading.Lock()
        self._environment = _read_when_loaded(os.environ)
        command = [*program, "serve", "--control", str(far.fileno())]
        command += ["--stages", ",".join(stages), "--remote", remote, TITLE_ROOM]
        # One thread: a pool that a library starts when it is loaded would not live on in a child, which sets its own.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        # A session of its own: what a terminal sends is for the launcher, which ends its stages itself.
        with far:
            self._server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[far.fileno()], env=environment, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._server.pid

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> ForkedProcess | None:
        """Run the program with these arguments in a new child.

        Returns:
            The child, or None where a fresh process must be started instead: the server has died or cannot fork,
            or the environment has what only a fresh process would see.
        """
        if _read_when_loaded(environment) != self._environment or self._server.poll() is not None:
            return None
        request = {"arguments": list(arguments), "environment": dict(environment), "folder": str(Path.cwd())}
        message = json.dumps(request).encode()
        if len(message) > MESSAGE_BYTES // 2:
            return None
        their_in, our_in = os.pipe()
        our_out, their_out = os.pipe()
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            try:
                with self._guard:
                    socket.send_fds(self._control, [message], [their_in, their_out, far.fileno()])
            finally:
                os.close(their_in)
                os.close(their_out)
                far.close()
            pid, descriptors, _, _ = socket.recv_fds(near, 64, 1)
        except OSError:
            pid, descriptors = b"", []
        if not pid or not descriptors:
            os.close(our_in)
            os.close(our_out)
            near.close()
            return None
        stdin = os.fdopen(our_in, "w", encoding="utf-8")
        stdout = os.fdopen(our_out, encoding="utf-8", errors="replace")
        return ForkedProcess(int(pid), stdin, stdout, descriptors[0], near)

    def close(self) -> None:
        """End the server, and with it what children are left."""
        self._control.close()
        self._server.wait()


_shared: ForkServer | None = None
_shared_guard = threading.Lock()


def prepare(stages: Sequence[str], remote: str = "") -> None:
    """Start this process's server, once; it imports in the background."""
    global _shared
    possible = sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
    if not possible or any(name in os.environ for name in _OF_THE_INTERPRETER):
        return
    with _shared_guard:
        if _shared is None:
            _shared = ForkServer(stages, remote)


def shared() -> ForkServer | None:
    """This process's server, if one was prepared."""
    return _shared


def _read_when_loaded(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_WHEN_LOADED) and name not in _SET_FOR_EACH
    }
