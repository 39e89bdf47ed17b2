"""The server's side of a warm start: a process that has imported what stages import, and forks one child for each.

A child is a stage's process like any other: its own environment, working folder, standard streams, signals, memory
and measurements; only its imports are done. It dies with the server, and with the launcher, whose pipe is its
standard input. The server has no threads of its own and computes nothing, so that forking it is safe.

A request is one message on the control socket: a JSON object of `arguments`, `environment` and `folder`, with three
file descriptors: the child's standard input, its output (also for errors), and a socket on which the server sends
the child's pid (with a descriptor of the process) and later its exit status.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

MESSAGE_BYTES = 1 << 18
TITLE_ROOM = "." * 8192
"""Last argument of the server: its place is where children write their own command lines."""

_THREADS_OF_LIBRARIES = {"jemalloc_bg_thd"}
"""Threads whose library sees to forks itself."""
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

Main = Callable[[Sequence[str]], int]


def serve(control: socket.socket, preload: Iterator[None], main: Main) -> int:
    """Fork children until the launcher goes away.

    Args:
        control: SOCK_SEQPACKET socket to the launcher.
        preload: imports something at each step; requests are served between two steps.
        main: runs a command line in a child, and returns its exit status.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the terminal: the launcher decides what becomes of it
    return _Server(control, main).run(preload)


class _Server:
    def __init__(self, control: socket.socket, main: Main):
        self._control, self._main = control, main
        self._title = _Title()
        self._title.set(self._title.words[:-1])
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """Pid and status socket of each child by the descriptor of its process."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def run(self, preload: Iterator[None]) -> int:
        loading = True
        while True:
            if loading and not _step(preload):
                loading = False
                gc.collect()
                gc.freeze()  # else the children's collectors would copy every page
            for key, _ in self._selector.select(0 if loading else None):
                if key.fd != self._control.fileno():
                    self._send_end(key.fd)
                    continue
                message, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 3)
                if not message:
                    return 0  # children die with this process
                if len(descriptors) == 3:
                    self._start(message, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)  # a launcher whose status socket closes starts a fresh process instead

    def _start(self, message: bytes, descriptors: list[int]) -> None:
        if _other_threads():
            return
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            return
        status = socket.socket(fileno=os.dup(descriptors[2]))
        if pid == 0:
            self._control.close()
            self._selector.close()
            for process, (_, other) in self._children.items():
                os.close(process)
                other.close()
            os.close(descriptors.pop())
            _run_child(json.loads(message), descriptors, status, server, self._title, self._main)
        process = os.pidfd_open(pid)
        self._children[process] = pid, status
        self._selector.register(process, selectors.EVENT_READ)
        with contextlib.suppress(OSError):
            socket.send_fds(status, [str(pid).encode()], [process])

    def _send_end(self, process: int) -> None:
        self._selector.unregister(process)
        pid, status = self._children.pop(process)
        _, code = os.waitpid(pid, 0)
        os.close(process)
        with status, contextlib.suppress(OSError):  # the launcher may have it from the child itself
            status.send(str(os.waitstatus_to_exitcode(code)).encode())


def _step(preload: Iterator[None]) -> bool:
    """Take one step; False when nothing is left to import."""
    try:
        return next(preload, True) is None
    except Exception:  # the child that needs it will meet the same error and report it
        return False


def _other_threads() -> bool:
    """True if this process has threads that a fork would lose."""
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return len([name for name in names if name not in _THREADS_OF_LIBRARIES]) > 1


def _run_child(
    request: dict[str, Any],
    descriptors: list[int],
    status: socket.socket,
    server: int,
    title: _Title,
    main: Main,
) -> NoReturn:
    """Become the process that the request asks for; `descriptors` are its input and output."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(143)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for descriptor, targets in zip(descriptors, ((0,), (1, 2)), strict=True):
            for target in targets:
                os.dup2(descriptor, target)
            os.close(descriptor)
        arguments = request["arguments"]
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        title.set([*title.words[: title.words.index("serve")], *arguments])
        sys.argv[1:] = arguments
        tempfile.tempdir = None  # TMPDIR may be another one
        _limit_threads()
        code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            sys.stderr.write(error.code + "\n")
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            threading._shutdown()  # type: ignore[attr-defined]  # joins threads, as the interpreter's own end does
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            status.send(str(code).encode())  # the server may be busy importing
        os._exit(code)


def _limit_threads() -> None:
    """Give loaded thread pools the limits that libraries read from the environment when they are loaded."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    for variable, kind in (("OMP_NUM_THREADS", "openmp"), ("OPENBLAS_NUM_THREADS", "blas")):
        threads = os.environ.get(variable) or os.environ.get("OMP_NUM_THREADS", "")
        if threads.isdecimal():
            threadpool_limits(int(threads), kind)


class _Title:
    """This process's command line as others see it."""

    def __init__(self) -> None:
        fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
        self._start, end = int(fields[45]), int(fields[46])
        self._room = end - self._start
        self.words = Path("/proc/self/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
        """The command line that the process was started with."""

    def set(self, words: Sequence[str]) -> None:
        """Show these words, cut off where the room ends."""
        text = "\0".join(words).encode(errors="surrogateescape")[: self._room - 1]
        ctypes.memmove(self._start, text.ljust(self._room, b"\0"), self._room)
