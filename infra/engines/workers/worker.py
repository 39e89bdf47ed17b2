"""Worker: the object that a function in a worker gets, and its side of the channel to the coordinator."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.engines.scaling import CALLS
from superworkflow.infra.engines.workers.channel import Keys, TooLarge, connect, encoded, received
from superworkflow.infra.storage.safe_names import fault_of

BEAT_SECONDS = 1.0
"""A worker gives a sign of life this often."""
_OUTGOING = "inproc://outgoing"
_END = b"end"


class StateSaved(Exception):
    """Raised by a function that has saved its state because `Worker.stopping` is true."""


class ElasticWorker:
    """The member of an elastic role that does a task: the first argument of the task's function.

    Args:
        role: its role.
        threads: that it may compute with.
    """

    def __init__(self, link: Link, *, role: str, threads: int):
        self.role, self.threads, self._link = role, threads, link

    def log(self, message: str) -> None:
        """Write a message to the stage's log."""
        self._link.send({"kind": "log", "message": message})

    def save(self, name: str, data: bytes) -> None:
        """Replace one file of the stage's checkpoint; returns when the coordinator has it.

        Args:
            name: path inside the checkpoint.
            data: at most 64 MiB. What is larger workers write to the store themselves, and name it here.

        Raises:
            ValueError: a bad name, or too much.
        """
        self._link.ask({"kind": "save", "name": _checked(name)}, data)

    def load(self, name: str) -> bytes | None:
        """One file of the stage's checkpoint as it was saved last; None for none."""
        answer, data = self._link.ask({"kind": "load", "name": _checked(name)})
        return data if answer.get("found") else None


class Worker(ElasticWorker):
    """The worker that runs a function: the function's first argument.

    Args:
        role: its role.
        rank: among all workers of the group, which is also its rank in torch.distributed; roles follow each other in
            the order of the profile.
        size: workers in the group.
        role_rank, role_size: the same within its role.
        threads: that it may compute with.
        device: `cpu` or `cuda:0`, for torch.
    """

    def __init__(
        self, link: Link, *, role: str, rank: int, size: int, role_rank: int, role_size: int, threads: int,
        device: str = "cpu",
    ):  # fmt: skip
        super().__init__(link, role=role, threads=threads)
        self.rank, self.size, self.role_rank, self.role_size = rank, size, role_rank, role_size
        self.device = device

    @property
    def stopping(self) -> bool:
        """True once the stage is to end: a function called by `WorkerGroup.run_saving` saves, and raises `StateSaved`.

        Ranks may learn of it at different times.
        """
        return self._link.stopping

    def update(self, done: float, total: float, unit: str, **facts: float | int | str) -> None:
        """Report progress, as `Progress.update`; one worker reports for all."""
        self._link.send({"kind": "progress", "done": done, "total": total, "unit": unit, "facts": facts})

    def report(self, step: int, steps: int, value: float, **facts: float) -> None:
        """Report an intermediate value by which a sweep may prune this run, as `Progress.report`."""
        self._link.send({"kind": "report", "step": step, "steps": steps, "value": value, "facts": facts})

    def charge(self, role: str, calls: int, seconds: float) -> None:
        """Report calls of an endpoint's role, and the seconds that they took together; see `scaling.CALLS`."""
        self._link.send({"kind": CALLS, "role": role, "calls": calls, "seconds": seconds})

    @property
    def link(self) -> Link:
        """Connection to the coordinator."""
        return self._link

    def introduction(self, round_name: str) -> dict[str, Any]:
        """Introduction of this worker to the coordinator."""
        return {
            "kind": "hello", "round": round_name, "role": self.role, "rank": self.rank, "size": self.size,
            "role_rank": self.role_rank, "host": socket.gethostname(), "pid": os.getpid(),
        }  # fmt: skip


def _checked(name: str) -> str:
    fault = fault_of(name)
    if fault is not None:
        raise ValueError(f"the name of a checkpoint's file {fault}: {name!r}")
    return name


def call_of(function: Callable[..., Any], arguments: Sequence[Any]) -> dict[str, Any]:
    """Message that announces a call to the members.

    Raises:
        ValueError: the function cannot be imported by its name, or an argument is not JSON or too large.
    """
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not name.isidentifier():
        raise ValueError(f"workers cannot import {function!r}: it must be a module-level function")
    call = {"function": f"{module}:{name}", "arguments": list(arguments)}
    encoded(call)
    return call


def outcome_of(
    worker: ElasticWorker, call: Mapping[str, Any], is_lost: Callable[[BaseException], bool] = lambda error: False
) -> dict[str, Any]:
    """Execute a call, and return the answer to send.

    Args:
        worker: who does it.
        call: the coordinator's.
        is_lost: True for an error that comes from the loss of another worker.
    """
    return answered(call, lambda: {"value": imported(call["function"])(worker, *call["arguments"])}, is_lost)


def answered(
    call: Mapping[str, Any], work: Callable[[], Mapping[str, Any]],
    is_lost: Callable[[BaseException], bool] = lambda error: False,
) -> dict[str, Any]:  # fmt: skip
    """The answer to a call: what the work adds to it, or what it raised.

    Args:
        call: the coordinator's.
        work: does it.
        is_lost: True for an error that comes from the loss of another worker.
    """
    about = {"call": call["call"]}
    try:
        answer = {"kind": "result", **about, **work()}
        try:
            encoded(answer)
        except TooLarge as error:
            raise UserError(
                f"a worker's function returned too much: {error}", where=call["function"],
                remedy="Let workers write to the store, and return names and figures",
            ) from None  # fmt: skip
        except (TypeError, ValueError) as error:
            raise UserError(
                f"a worker's function returned what is not JSON ({error})", where=call["function"],
                remedy="Return numbers, texts, lists and dicts of them",
            ) from None  # fmt: skip
        return answer
    except StateSaved:
        return {"kind": "stopped", **about}
    except UserError as error:
        return {"kind": "failed", **about, "user": True, "message": str(error)}
    except MemoryError as error:
        return {"kind": "failed", **about, "user": False, "message": f"out of memory: {error}"}
    except (Exception, SystemExit) as error:
        message = f"{type(error).__name__}: {error}"[:2000]
        if is_lost(error):
            return {"kind": "lost", **about, "message": message[:200]}
        traceback.print_exc(file=sys.stderr)
        return {"kind": "failed", **about, "user": False, "message": message}


class Link:
    """A worker's connection to the coordinator, on a thread of its own that also sends heartbeats.

    Code that holds the interpreter's lock for longer than the coordinator waits looks dead: kernels must release it.

    Args:
        address: `tcp://HOST:PORT` of the coordinator.
        keys: of the group.
        sign: of life, given that this member is leaving or not; by default one that says nothing else.
    """

    def __init__(
        self, address: str, keys: Keys, sign: Callable[[bool], Mapping[str, Any]] = lambda leaving: {"kind": "beat"}
    ):
        self.address, self.keys = address, keys
        self._sign, self.leaving, self.stopping = sign, False, False
        self._context = zmq.Context()
        self.payload = b""
        self._incoming: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
        self._guard = threading.Lock()
        inner = self._context.socket(zmq.PULL)
        inner.bind(_OUTGOING)
        self._outgoing = self._context.socket(zmq.PUSH)
        self._outgoing.connect(_OUTGOING)
        self._thread = threading.Thread(target=self._run, args=(inner, address, keys), name="link", daemon=True)
        self._thread.start()

    def greet(self, introduction: Mapping[str, Any]) -> None:
        """Make this worker known; calls come from then on."""
        self.send(introduction)

    def next_call(self) -> dict[str, Any] | None:
        """Wait for the next call; None when the group ends, or this member is to leave it. `payload` is the call's."""
        if (found := self._incoming.get()) is None:
            return None
        call, self.payload = found
        return call

    def leave(self) -> None:
        """Make `next_call` return None after the calls already received; safe in a signal handler."""
        self.leaving = True
        self._incoming.put(None)

    def send(self, header: Mapping[str, Any], payload: bytes = b"") -> None:
        """Send a message. Any thread may."""
        text = encoded(header, payload)
        with self._guard:
            self._outgoing.send_multipart([text, payload])

    def ask(self, header: Mapping[str, Any], payload: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Send a request and wait for its answer. One thread at a time may."""
        self.send(header, payload)
        return self._answers.get()

    def close(self) -> None:
        """Send what is waiting, and part."""
        with self._guard:
            self._outgoing.send_multipart([_END, b""])
        self._thread.join()
        self._outgoing.close()
        self._context.term()

    def _run(self, inner: zmq.Socket[bytes], address: str, keys: Keys) -> None:
        outer = connect(self._context, address, keys)
        poller = zmq.Poller()
        poller.register(inner, zmq.POLLIN)
        poller.register(outer, zmq.POLLIN)
        beat = time.monotonic() + BEAT_SECONDS
        while True:
            ready = dict(poller.poll(max(0, int(1000 * (beat - time.monotonic())))))
            if inner in ready:
                frames = inner.recv_multipart()
                if frames[0] == _END:
                    break
                outer.send_multipart(frames)
            if outer in ready:
                header, payload = received(outer)
                match header["kind"]:
                    case "call" | "serve":
                        self._incoming.put((header, payload))
                    case "end":
                        self._incoming.put(None)
                    case "stop":
                        self.stopping = True
                    case "ping":
                        pass  # the coordinator checks this connection
                    case _:
                        self._answers.put((header, payload))
            if time.monotonic() >= beat:
                outer.send_multipart([encoded(self._sign(self.leaving)), b""])
                beat = time.monotonic() + BEAT_SECONDS
        inner.close()
        outer.close()
