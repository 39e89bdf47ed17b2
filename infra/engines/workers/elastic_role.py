"""Elastic roles, as the coordinator sees them: members that join and leave while the stage runs, and do its tasks."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError

from superworkflow.infra.base.errors import StagedUserError
from superworkflow.infra.engines.workers.arrays import Arrays, packed, unpacked
from superworkflow.infra.engines.workers.call_executor import ARRAYS, LIVE, SHARED, VERSION, ArrayFunction, Shared
from superworkflow.infra.engines.workers.channel import Message
from superworkflow.infra.engines.workers.errors import WorkersFailed
from superworkflow.infra.engines.workers.worker import call_of

ITEM_LOSSES = 3
"""Members that an item may be lost with, before it is taken for what ends them."""
PING_SECONDS = 0.5
"""Seconds between checks of a member's connection."""
_DEAF_SECONDS = 5.0
"""Seconds after which a stage that did not listen cannot judge its members' silence."""
_TITLE_CHARACTERS = 100


class Introduction(BaseModel, frozen=True, extra="forbid", strict=True):
    """Introduction of a member, repeated as its heartbeat."""

    kind: Literal["member"]
    role: str = Field(max_length=63)
    host: str = Field(max_length=255)
    pid: int = Field(ge=1)
    leaving: bool


class Coordinator(Protocol):
    """Interface that a role uses of its group."""

    def send(self, address: bytes, header: Mapping[str, Any], payload: bytes = b"") -> bool:
        """Send to one member; False when its connection is gone."""

    def listen(self) -> None:
        """Process incoming messages (waiting briefly if there are none) and check all members."""

    def scale(self, role: str, count: int, hanging: Sequence[tuple[str, int]] = (), busy: Collection[int] = ()) -> None:
        """Set the number of members, and replace those that hang, given by host and process; others than those that
        are busy, given by process, leave first, where the group chooses."""

    def log(self, message: str) -> None:
        """Write to the stage's log."""


@dataclass
class JoinedMember:
    """A connected member and the tasks that it does in turn.

    `serves` is the address of the rank that a coordinator has it serve; empty without one.
    """

    role: str
    host: str
    pid: int
    address: bytes
    heard: float
    pinged: float
    number: int = 0
    leaving: bool = False
    ready: bool = True
    tasks: list[ElasticTask] = field(default_factory=list)
    versions: frozenset[int] = frozenset()
    serves: str = ""

    def __str__(self) -> str:
        return f"a member of role {self.role} (host {self.host}, process {self.pid})"


class ElasticTask:
    """A function's call with one item, which some member does. `ElasticRole.submit` makes it."""

    def __init__(self, number: int, call: Mapping[str, Any], listen: Callable[[], None]):
        self.number, self.call, self.losses = number, {"kind": "call", "call": number, **call}, 0
        self.done, self.begun, self.ended, self.member, self._listen = False, 0.0, 0.0, -1, listen
        self._value: Any = None
        self._error: Exception | None = None

    def __str__(self) -> str:
        item = json.dumps(self.call["arguments"][0])
        item = item if len(item) <= _TITLE_CHARACTERS else item[:_TITLE_CHARACTERS] + "…"
        return f"item {item} of {self.call['function']}"

    def message(self, versions: frozenset[int]) -> tuple[Mapping[str, Any], bytes, frozenset[int]]:
        """Header, payload, and the versions of shared arrays that the member has then.

        Args:
            versions: that it has now.
        """
        return self.call, b"", versions

    def take(self, message: Message) -> Any:
        """The value of an answer.

        Raises:
            ValueError: it is none.
        """
        return message.header.get("value")

    def result(self) -> Any:
        """Wait for what the function has returned.

        Raises:
            UserError: the function raised one.
            WorkersFailed: it raised another error, or the item was lost with too many members.
        """
        while not self.done:
            self._listen()
        if self._error is not None:
            raise self._error
        return self._value

    def end(self, value: Any = None, error: Exception | None = None) -> None:
        """Take the outcome, unless there is one."""
        if not self.done:
            self.done, self._value, self._error, self.ended = True, value, error, time.monotonic()


class ArrayTask(ElasticTask):
    """A call of a function of arrays; its result is arrays, and the seconds that they took.

    Args:
        shared: arrays that many calls read.
        arrays: its own.
    """

    def __init__(
        self, number: int, call: Mapping[str, Any], listen: Callable[[], None], shared: Shared, arrays: Arrays
    ):  # fmt: skip
        super().__init__(number, call, listen)
        self._shared, (self._forms, self._payload) = shared, packed(arrays)

    def message(self, versions: frozenset[int]) -> tuple[Mapping[str, Any], bytes, frozenset[int]]:
        version, arrays, live = self._shared
        header = {**self.call, ARRAYS: self._forms, VERSION: version, LIVE: live, SHARED: None}
        if version in versions:
            return header, self._payload, versions & {*live}
        header[SHARED], data = packed(arrays)
        return header, data + self._payload, (versions & {*live}) | {version}

    def take(self, message: Message) -> tuple[list[NDArray[Any]], float]:
        return unpacked(message.header.get(ARRAYS), message.payload), float(message.header.get("seconds", 0.0))


T = TypeVar("T", bound=ElasticTask)


class ElasticRole:
    """Members of one elastic role, to which the stage's own process gives items. For one thread.

    Args:
        name: of the role.
        count: members at the start.
        most: that there may be.
        coordinator: of the group.
        silence_s: seconds without a sign after which a member is taken for hanging, and replaced.
        start_s: seconds for which work may wait while no member is there.
    """

    def __init__(self, name: str, count: int, most: int, coordinator: Coordinator, silence_s: float, start_s: float):
        self.name, self.count, self.most = name, count, most
        self._coordinator, self._silence_s, self._start_s = coordinator, silence_s, start_s
        self._members: dict[bytes, JoinedMember] = {}
        self._tasks: dict[int, ElasticTask] = {}
        self._waiting: deque[ElasticTask] = deque()
        self._submitted = 0
        self._nobody_since = self._looked = time.monotonic()
        self._first: Mapping[str, Any] | None = None
        self._at_once = 1
        self.joined = self.bytes_sent = self.bytes_received = 0

    @property
    def present(self) -> int:
        """Number of members at present, without those that are leaving, or are not prepared; `count` is the requested
        number."""
        return sum(not member.leaving and member.ready for member in self._members.values())

    @property
    def staying(self) -> list[JoinedMember]:
        """Members that are not leaving, in the order in which they joined."""
        return [member for member in self._members.values() if not member.leaving]

    def scale(self, count: int) -> None:
        """Set the number of members; returns at once. Members that leave finish their item first.

        Raises:
            ValueError: not between 1 and `most`.
        """
        if not 1 <= count <= self.most:
            raise ValueError(f"role {self.name} may have 1 to {self.most} members, not {count}")
        if count != self.count:
            self.count = count
            self._coordinator.scale(self.name, count, (), {each.pid for each in self._members.values() if each.tasks})

    def replace(self, hanging: Sequence[tuple[str, int]]) -> None:
        """Replace members that hang, given by host and process."""
        self._coordinator.scale(self.name, self.count, hanging)

    def prepare(self, function: Callable[..., Any], item: Any) -> None:
        """Have each member that joins call `function(worker, item)` before it does tasks; see `submit`."""
        self._first = {"kind": "call", "call": -1, **call_of(function, [item])}

    def stream(self) -> None:
        """From now on a member gets its next task while it does one, so that arrays travel while it computes."""
        self._at_once = 2

    def submit(self, function: Callable[..., Any], item: Any) -> ElasticTask:
        """Have some member call `function(worker, item)`.

        The call is made again where its member is lost: what it writes must be the same each time. Items are
        handed out whenever the stage waits for a result, of this or of another role, or of all ranks.

        Args:
            function: at the top level of a module that members can import.
            item: a JSON value, small.

        Raises:
            ValueError: the function cannot be imported by its name, or the item is not JSON or too large.
        """
        return self._submit(ElasticTask(self._submitted, call_of(function, [item]), self._coordinator.listen))

    def submit_arrays(
        self, function: ArrayFunction, facts: Mapping[str, Any], shared: Shared, arrays: Arrays
    ) -> ArrayTask:  # fmt: skip
        """Have some member call `function(facts, shared arrays, arrays)`; see `submit`.

        Args:
            function: at the top level of a module that members can import.
            facts: JSON values, small.
            shared: arrays that many calls read.
            arrays: its own, at most 64 MiB together with the shared ones.
        """
        call = call_of(function, [facts])
        return self._submit(ArrayTask(self._submitted, call, self._coordinator.listen, shared, arrays))

    def withdraw(self, task: ElasticTask) -> None:
        """Take no outcome of a task any more."""
        self._end_task(task, error=WorkersFailed(f"{task} was withdrawn"))

    def late(self, seconds: float) -> int:
        """Number of members that have been at one task for longer than this."""
        limit = time.monotonic() - seconds
        return sum(bool(each.tasks) and each.tasks[0].begun < limit for each in self._members.values())

    def map(self, function: Callable[..., Any], items: Iterable[Any]) -> Iterator[Any]:
        """Call `function(worker, item)` for each item; what was returned, in the order of the items.

        All items are submitted at once. When one fails, or the iterator is closed, those that no member has begun are
        not begun any more. See `submit` and `ElasticTask.result`.
        """
        return self._results([self.submit(function, item) for item in items])

    def _results(self, tasks: Sequence[ElasticTask]) -> Iterator[Any]:
        try:
            for task in tasks:
                yield task.result()
        finally:
            for task in tasks:
                if not task.done:
                    self.withdraw(task)

    def _submit(self, task: T) -> T:
        self._submitted += 1
        self._tasks[task.number] = task
        self._waiting.append(task)
        self._give()
        return task

    def member(self, address: bytes) -> JoinedMember | None:
        """The member with this connection."""
        return self._members.get(address)

    def meet(self, message: Message) -> None:
        """Take in an introduction, the first one or another."""
        try:
            introduction = Introduction.model_validate(dict(message.header))
        except ValidationError:
            return
        member, now = self._members.get(message.sender), time.monotonic()
        if member is None:
            own = (introduction.host, introduction.pid)
            for old in [each for each in self._members.values() if (each.host, each.pid) == own]:
                self._lose(old)
            member = JoinedMember(self.name, *own, message.sender, now, now, self.joined)
            self.joined += 1
            self._members[message.sender] = member
            if self._first is not None:
                member.ready = False
                self._coordinator.send(member.address, self._first)
        member.heard, member.leaving = now, introduction.leaving
        self._give()

    def take(self, member: JoinedMember, message: Message) -> bool:
        """Take in another message of a member; False for one that is no outcome of a task."""
        member.heard, header, number = time.monotonic(), message.header, message.header.get("call")
        if header.get("kind") not in ("result", "failed"):
            return False
        if (own := next((each for each in member.tasks if each.number == number), None)) is not None:
            member.tasks.remove(own)
            for following in member.tasks[:1]:
                following.begun = member.heard
        if number == -1:
            member.ready = header["kind"] == "result"
            if not member.ready:
                self._coordinator.log(f"{member} cannot be prepared: {header.get('message')}")
        task = self._tasks.get(number) if isinstance(number, int) else None
        if task is not None:
            self.bytes_received += len(message.payload)
            value, error = None, _error_of(header, member, task)
            if error is None:
                try:
                    value = task.take(message)
                except ValueError as fault:
                    error = WorkersFailed(f"{member} answered {task} badly: {fault}")
            self._end_task(task, value, error)
        self._give()
        return True

    def look(self) -> None:
        """Detect lost and hanging members, and requeue their items."""
        if time.monotonic() - self._looked > _DEAF_SECONDS:
            for member in self._members.values():
                member.heard = time.monotonic()  # the stage has not listened since
            self._nobody_since = time.monotonic()
        self._looked = time.monotonic()
        for member in list(self._members.values()):
            now = time.monotonic()
            if now - member.heard > self._silence_s:
                self._coordinator.log(f"{member} hangs: no sign for {now - member.heard:.0f} s; replacing it")
                self._lose(member)
                self.replace([(member.host, member.pid)])
            elif now - member.pinged >= PING_SECONDS:
                member.pinged = now
                if not self._coordinator.send(member.address, {"kind": "ping"}):
                    self._lose(member)
        self._give()
        if self._members or not self._tasks:
            self._nobody_since = time.monotonic()
        elif (waited := time.monotonic() - self._nobody_since) > self._start_s:
            for task in list(self._tasks.values()):
                why = f"no member of role {self.name} has been there for {waited:.0f} s; see the log above"
                self._end_task(task, error=WorkersFailed(why))

    def end(self) -> None:
        """Let all members end."""
        for member in self._members.values():
            self._coordinator.send(member.address, {"kind": "end"})

    def _give(self) -> None:
        """Send tasks to members without one, then to those that may have another while they do one."""
        able = [member for member in self._members.values() if member.ready and not member.leaving]
        for own in range(self._at_once):
            for member in able:
                if len(member.tasks) > own:
                    continue
                while self._waiting and self._waiting[0].done:
                    self._waiting.popleft()
                if not self._waiting:
                    return
                header, payload, versions = self._waiting[0].message(member.versions)
                if self._coordinator.send(member.address, header, payload):  # else the next look finds it gone
                    task, member.versions = self._waiting.popleft(), versions
                    member.tasks.append(task)
                    task.begun, task.member = time.monotonic(), member.number
                    self.bytes_sent += len(payload)

    def _lose(self, member: JoinedMember) -> None:
        del self._members[member.address]
        for place, task in reversed([*enumerate(member.tasks)]):
            if not task.done:
                self._requeue(task, member, is_begun=not place)

    def _requeue(self, task: ElasticTask, member: JoinedMember, is_begun: bool) -> None:
        task.losses += 1 if is_begun and not member.leaving else 0
        if task.losses < ITEM_LOSSES:
            self._coordinator.log(f"{member} {'has left' if member.leaving else 'was lost'}; {task} goes to another")
            self._waiting.appendleft(task)
        else:
            why = f"{task} was lost with {task.losses} members, the last one {member}; see the log above"
            self._end_task(task, error=WorkersFailed(why))

    def _end_task(self, task: ElasticTask, value: Any = None, error: Exception | None = None) -> None:
        task.end(value, error)
        self._tasks.pop(task.number, None)


def _error_of(header: Mapping[str, Any], member: JoinedMember, task: ElasticTask) -> Exception | None:
    if header["kind"] == "result":
        return None
    text = str(header.get("message"))
    return StagedUserError(text) if header.get("user") is True else WorkersFailed(f"{member} failed on {task}: {text}")
