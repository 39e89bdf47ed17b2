"""A member of an elastic role: one process that does one task after the other, until the group ends or it is to leave.

It is asked to leave by SIGTERM, on a cluster as on one machine, and finishes its task first. Torch is never imported.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

from superworkflow.infra.engines.workers.call_executor import ARRAYS, CallExecutor
from superworkflow.infra.engines.workers.channel import Keys
from superworkflow.infra.engines.workers.setup import MemberSetup
from superworkflow.infra.engines.workers.worker import ElasticWorker, Link, outcome_of
from superworkflow.infra.process.threads import limit_numba

LEFT = 128 + signal.SIGTERM
"""Exit status of a member that was asked to leave; 0 is for the end of the group."""
_links: list[Link] = []


def leave_on_sigterm() -> None:
    """From now on, SIGTERM makes this process leave its group; before it has joined, at once."""
    signal.signal(signal.SIGTERM, lambda number, frame: _leave())


def _leave() -> None:
    if not _links:
        os._exit(LEFT)
    _links[0].leave()


def do_tasks(setup: MemberSetup) -> int:
    """Do what the coordinator asks for until the end; the exit status. Call `leave_on_sigterm` before.

    The signs of life are introductions as well: a connection that broke and was made again needs nothing else.
    """
    about = {"kind": "member", "role": setup.role, "host": socket.gethostname(), "pid": os.getpid()}

    def sign() -> dict[str, Any]:
        return {**about, "leaving": any(link.leaving for link in _links)}

    limit_numba(setup.threads)
    link = Link(setup.address, Keys.of(setup.token), sign)
    _links.append(link)
    link.greet(sign())
    worker = ElasticWorker(link, role=setup.role, threads=setup.threads)
    executor = CallExecutor()
    while (call := link.next_call()) is not None:
        if ARRAYS in call:
            link.send(*executor.execute(call, link.payload))
        else:
            link.send(outcome_of(worker, call))
    if not link.leaving:
        return 0  # the coordinator hears nothing more
    link.send(sign())
    link.close()
    return LEFT
