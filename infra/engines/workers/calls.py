"""Short calls of functions of arrays, from any thread: relaunched when late, the first result is taken.

After the controller of Dorylus (Thorpe et al., OSDI 2021): a call that takes longer than five times the moving mean,
and than half a second, is sent again, to another that is free. A call that nobody executes comes back undone, for the
caller to execute itself. `Members` sends calls to an elastic role of a worker group; `http_endpoint` to a URL.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.engines.workers.arrays import Arrays
from superworkflow.infra.engines.workers.call_executor import ArrayFunction, Shared
from superworkflow.infra.engines.workers.elastic_role import ArrayTask, ElasticRole

LEAST_SECONDS, MEANS = 0.5, 5.0
"""A call is late after the larger of half a second and of five times the moving mean."""
_WEIGHT = 0.05
"""Weight of a call's time in the moving mean."""
_ATTEMPTS = 3
"""Times that a call is sent, before it comes back undone."""


class SentCall(Protocol):
    """A call that was sent.

    `begun` is the moment at which somebody got it, 0 before, `ended` that of its outcome, both as `time.monotonic`;
    `member` is the number of who got it.
    """

    done: bool
    begun: float
    ended: float
    member: int

    def result(self) -> tuple[list[NDArray[Any]], float]:
        """Arrays, and the seconds that the function took, of an attempt that is done.

        Raises:
            SuperworkflowError: it failed.
        """


class Transport(Protocol):
    """Way to those who execute calls. For one thread, but for `wake`."""

    def send(self, facts: Mapping[str, Any], shared: Shared, arrays: Arrays) -> SentCall:
        """Send a call, or queue it until somebody is free."""

    def withdraw(self, attempt: SentCall) -> None:
        """Take no outcome of an attempt any more."""

    def listen(self) -> None:
        """Take in outcomes; waits for a moment if there are none.

        Raises:
            SuperworkflowError: nobody will execute further calls.
        """

    def wake(self) -> None:
        """Have `listen` return."""

    def scale(self, count: int) -> None:
        """Set the number of those who execute calls."""

    def free(self, limit: float) -> int:
        """Number of those who are there and have not been at one call for longer than `limit` seconds."""

    def counts(self) -> Mapping[str, float]:
        """Those there are (`present`), how many came in all (`started`), `bytes_sent` and `bytes_received`."""


class RoleHolder(Protocol):
    """Group that has elastic roles, as the stage's own process sees it, or as a rank does."""

    def role(self, name: str) -> ElasticRole: ...

    def listen(self) -> None: ...

    def wake(self) -> None: ...


class Members:
    """`Transport` to the members of an elastic role of a group that is used for nothing else at that time.

    Args:
        group: a `WorkerGroup`, or `ServedMembers` of a rank.
        role: name of the role.
        function: what they execute.
        prepare, example: each member first calls `prepare(worker, example)`, which may take longer than calls do.
        streams: members get a call while they execute another.
    """

    def __init__(
        self, group: RoleHolder, role: str, function: ArrayFunction, prepare: Callable[..., Any], example: Any,
        streams: bool = False,
    ):  # fmt: skip
        self._group, self._role, self._function = group, group.role(role), function
        self._role.prepare(prepare, example)
        if streams:
            self._role.stream()

    def send(self, facts: Mapping[str, Any], shared: Shared, arrays: Arrays) -> ArrayTask:
        return self._role.submit_arrays(self._function, facts, shared, arrays)

    def withdraw(self, attempt: SentCall) -> None:
        assert isinstance(attempt, ArrayTask)
        self._role.withdraw(attempt)

    def listen(self) -> None:
        self._group.listen()

    def wake(self) -> None:
        self._group.wake()

    def scale(self, count: int) -> None:
        self._role.scale(max(1, min(count, self._role.most)))

    def free(self, limit: float) -> int:
        return self._role.present - self._role.late(limit)

    def counts(self) -> Mapping[str, float]:
        role = self._role
        return {
            "present": role.present, "started": role.joined, "bytes_sent": role.bytes_sent,
            "bytes_received": role.bytes_received,
        }  # fmt: skip


class CallResult(NamedTuple):
    """Result of a call.

    Args:
        arrays: what the function returned.
        member: number of who executed it.
        begun, ended: moments, as `time.monotonic`.
    """

    arrays: list[NDArray[Any]]
    member: int
    begun: float
    ended: float


Ended = Callable[[CallResult | None], None]
"""What is called with the result, or with None of a call that nobody did; on the thread of the calls."""


@dataclass(eq=False)
class _Call:
    facts: Mapping[str, Any]
    shared: Shared
    arrays: Arrays
    ended: Ended
    attempts: list[SentCall] = field(default_factory=list)
    sent: int = 0


class Calls:
    """Sends calls on a thread of its own.

    Args:
        transport: way to those who execute them.
        log: takes what people should know.
        name: of those who execute them, for the log.
        instead: what happens without them, for the log.
    """

    def __init__(self, transport: Transport, log: Callable[[str], None], name: str, instead: str):
        self._transport, self._log, self._name, self._instead = transport, log, name, instead
        self._new: deque[_Call | int] = deque()
        self._open: list[_Call] = []
        self._free, self._closing, self._moved = 0, False, time.monotonic()
        self._mean = 0.0
        self._counts: Mapping[str, float] = {}
        self.calls = self.relaunches = self.undone = self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="calls", daemon=True)

    @property
    def available(self) -> bool:
        """True if somebody is there to execute calls; any thread may ask."""
        return self._free > 0

    @property
    def limit(self) -> float:
        """Seconds after which a call is late."""
        return max(LEAST_SECONDS, MEANS * self._mean)

    def counts(self) -> dict[str, float]:
        """Figures since the start; see `Transport.counts`; `calls` that were done, `relaunches`, calls that came back
        `undone`, and `seconds` that functions took."""
        own = {"calls": self.calls, "relaunches": self.relaunches, "undone": self.undone, "seconds": self.seconds}
        return {**self._counts, **own}

    def submit(self, facts: Mapping[str, Any], shared: Shared, arrays: Arrays, ended: Ended) -> None:
        """Call the function; any thread may."""
        self._new.append(_Call(facts, shared, arrays, ended))
        self._transport.wake()

    def scale(self, count: int) -> None:
        """Set the number of those who execute calls; any thread may."""
        self._new.append(count)
        self._transport.wake()

    @contextlib.contextmanager
    def running(self) -> Iterator[Calls]:
        """Within the block, calls are sent; those that are open at its end are dropped."""
        self._thread.start()
        try:
            yield self
        finally:
            self._closing = True
            self._transport.wake()
            self._thread.join()

    def _run(self) -> None:
        there = False
        try:
            while not self._closing:
                self._transport.listen()
                self._take_new()
                self._look()
                if self.available != there:
                    there = self.available
                    without = f"there is no {self._name}; without one {self._instead}"
                    self._log(f"a {self._name} has joined" if there else without)
        except Exception as error:  # the caller continues without
            self._log(f"no {self._name} any more: {type(error).__name__}: {error}")
        finally:
            self._free = 0
            if not self._closing:
                self._end_without()

    def _end_without(self) -> None:
        """Give all calls back, now and later, until the end."""
        while not self._closing:
            while self._new:
                if isinstance(new := self._new.popleft(), _Call):
                    self._open.append(new)
            for call in self._open[:]:
                self._give_back(call)
            time.sleep(LEAST_SECONDS / 10)

    def _take_new(self) -> None:
        while self._new:
            new = self._new.popleft()
            if isinstance(new, int):
                self._transport.scale(new)
            else:
                self._open.append(new)
                self._send(new)

    def _send(self, call: _Call) -> None:
        call.attempts.append(self._transport.send(call.facts, call.shared, call.arrays))
        call.sent += 1

    def _look(self) -> None:
        """Take outcomes, send late calls again, and give back those that nobody will do."""
        for call in self._open[:]:
            if (done := next((each for each in call.attempts if each.done), None)) is not None:
                self._end(call, done)
        limit, now = self.limit, time.monotonic()
        for call in self._open[:]:
            last = call.attempts[-1]
            if last.begun and now - last.begun > limit:
                self._send_again(call)
        self._free, self._counts = self._transport.free(limit), self._transport.counts()
        if not self._open:
            self._moved = now
        elif self._free <= 0 or now - self._moved > _ATTEMPTS * limit:
            for call in self._open[:]:
                self._give_back(call)

    def _send_again(self, call: _Call) -> None:
        if call.sent < _ATTEMPTS:
            self.relaunches += 1
            self._send(call)
        else:
            self._give_back(call)

    def _end(self, call: _Call, attempt: SentCall) -> None:
        try:
            arrays, seconds = attempt.result()
        except SuperworkflowError as error:
            call.attempts.remove(attempt)
            if not call.attempts:
                self._log(f"a call failed: {error}")
                self._send_again(call)
            return
        self._moved, took = time.monotonic(), attempt.ended - attempt.begun
        self._mean = took if not self.calls else (1 - _WEIGHT) * self._mean + _WEIGHT * took
        self.calls += 1
        self.seconds += seconds
        self._close(call)
        call.ended(CallResult(arrays, attempt.member, attempt.begun, attempt.ended))

    def _give_back(self, call: _Call) -> None:
        self.undone += 1
        self._close(call)
        call.ended(None)

    def _close(self, call: _Call) -> None:
        self._open.remove(call)
        for each in call.attempts:
            if not each.done:
                self._transport.withdraw(each)
