"""A member of an elastic role: one process that does one task after the other, until the group ends or it is to leave.

Where ranks give it tasks themselves, the coordinator names one for it to serve, by the address of its end of a channel.
It is asked to leave by SIGTERM, on a cluster as on one machine, and finishes its task first. Torch is never imported.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from typing import Any

from superworkflow.infra.engines.workers.call_executor import ARRAYS, CallExecutor
from superworkflow.infra.engines.workers.channel import SERVE, Keys
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
    limit_numba(setup.threads)
    link = _join(setup, setup.address)
    _links.append(link)
    _follow(link, setup, _Served(setup))
    if not link.leaving:
        return 0  # the coordinator hears nothing more
    _part(link, setup)
    return LEFT


def _sign(setup: MemberSetup, leaving: bool) -> dict[str, Any]:
    about = {"role": setup.role, "host": socket.gethostname(), "pid": os.getpid()}
    return {"kind": "member", **about, "leaving": leaving}


def _join(setup: MemberSetup, address: str) -> Link:
    link = Link(address, Keys.of(setup.token), lambda leaving: _sign(setup, leaving))
    link.greet(_sign(setup, False))
    return link


def _part(link: Link, setup: MemberSetup) -> None:
    link.send(_sign(setup, True))
    link.close()


def _follow(link: Link, setup: MemberSetup, served: _Served | None = None) -> None:
    """Execute what comes on a connection, until its end or until this member is to leave it.

    Args:
        link: to the coordinator, or to a rank.
        setup: setup of this member.
        served: the rank that the coordinator has this member serve.
    """
    worker = ElasticWorker(link, role=setup.role, threads=setup.threads)
    executor = CallExecutor()
    while (call := link.next_call()) is not None:
        if call["kind"] == SERVE:
            if served is not None:
                served.change(str(call["address"]))
        elif ARRAYS in call:
            link.send(*executor.execute(call, link.payload))
        else:
            link.send(outcome_of(worker, call))
    if served is not None and link.leaving:
        served.change("", waits=True)


class _Served:
    """The rank that a member serves, on a thread of its own.

    Args:
        setup: setup of the member.
    """

    def __init__(self, setup: MemberSetup):
        self._setup = setup
        self._link: Link | None = None
        self._thread: threading.Thread | None = None

    def change(self, address: str, waits: bool = False) -> None:
        """Serve the rank with this address, and none with an empty one, after what has come from the one before.

        Args:
            address: `tcp://HOST:PORT`.
            waits: return when the one before has been parted with.
        """
        if self._link is not None and (self._link.address != address or self._link.leaving):
            self._link.leave()
            if waits and self._thread is not None:
                self._thread.join()
            self._link = None
        if address and self._link is None:
            self._link = _join(self._setup, address)
            self._thread = threading.Thread(target=self._serve, args=(self._link,), name="served", daemon=True)
            self._thread.start()

    def _serve(self, link: Link) -> None:
        _follow(link, self._setup)
        _part(link, self._setup)
