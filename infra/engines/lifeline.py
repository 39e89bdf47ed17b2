"""Members end with the stage's own process, whatever becomes of it.

One in a pod has a connection on which nothing is said. The kernel ends it with the stage's process; that the machine of
this is gone, a member finds out within two minutes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable

STAGE_GONE = 76
"""Exit status of a member whose connection to the stage's process was closed: it need not be replaced if the stage has
ended, of which the cluster may learn a few seconds later."""
CALL_SECONDS = 0.5
"""Pause before a stage that does not listen yet is called again."""
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_PROBES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}


@functools.cache
def hold_lifeline(address: str, port: int) -> socket.socket:
    """Let members connect, from now on until this process ends."""
    return socket.create_server((address, port), backlog=4096)


def follow_lifeline(address: str, port: int, ended: Callable[[], None]) -> str:
    """Wait until the stage's process listens; call `ended` in a thread when it is gone.

    Returns:
        Address of this machine that the stage's process can reach.
    """
    while True:
        with contextlib.suppress(OSError):
            connection = socket.create_connection((address, port))
            break
        time.sleep(CALL_SECONDS)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def watch() -> None:
        with contextlib.suppress(OSError):
            while connection.recv(4096):
                pass
        ended()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
    return str(connection.getsockname()[0])


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when the thread that started it does.

    Args:
        parent: the process that should be the parent; when it is not any more, this process ends at once.
    """
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
