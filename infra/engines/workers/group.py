"""The coordinator of a worker group: calls functions on all ranks, keeps the checkpoint, and detects lost workers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, Field, ValidationError

from superworkflow.infra.base.errors import StagedUserError, UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.engines.scaling import CALLS, SCALE
from superworkflow.infra.engines.workers.assignment import Assignment
from superworkflow.infra.engines.workers.channel import Message, Server
from superworkflow.infra.engines.workers.elastic_role import ElasticRole, JoinedMember
from superworkflow.infra.engines.workers.errors import WorkersFailed
from superworkflow.infra.engines.workers.worker import call_of
from superworkflow.infra.process.exit_status import diagnose_exit
from superworkflow.infra.process.shutdown import Shutdown, saves_first
from superworkflow.infra.storage.safe_names import fault_of

SILENCE_SECONDS = 120.0
"""A worker that gives no sign for so long is taken for hanging."""
START_SECONDS = 600.0
"""Seconds in which a group must be complete, at first and after a loss."""
LOSSES = 5
"""Times that a group is completed again within one call."""
SAVE_SECONDS = 10.0
"""A checkpoint is sent to a remote store no more often; so much work may be done again where the machine is lost."""
_POLL_SECONDS = 0.2
AGAIN = "all workers start again, from the last checkpoint if there is one"


class Hello(BaseModel, frozen=True, extra="forbid", strict=True):
    """Introduction of a worker."""

    kind: str
    round: str = Field(pattern=r"^[0-9a-f]{32}$")
    role: str = Field(max_length=63)
    rank: int = Field(ge=0)
    size: int = Field(ge=1)
    role_rank: int = Field(ge=0)
    host: str = Field(max_length=255)
    pid: int = Field(ge=1)


class Gone(BaseModel, frozen=True, extra="forbid", strict=True):
    """Report of an agent that one of its ranks has ended, with its exit status."""

    kind: str
    role: str = Field(max_length=63)
    rank: int = Field(ge=0)
    host: str = Field(max_length=255)
    pid: int = Field(ge=1)
    code: int


class Update(BaseModel, frozen=True, extra="forbid", strict=True):
    """Progress of a worker."""

    kind: str
    done: float
    total: float
    unit: str = Field(max_length=100)
    facts: dict[str, float | int | str]


class Report(BaseModel, frozen=True, extra="forbid", strict=True):
    """An intermediate value."""

    kind: str
    step: int = Field(ge=0)
    steps: int = Field(ge=0)
    value: float
    facts: dict[str, float | int] = {}  # pydantic copies it


@dataclass
class _Present:
    """One worker that has introduced itself, and when it was last heard of."""

    hello: Hello
    address: bytes
    heard: float

    def __str__(self) -> str:
        hello = self.hello
        return f"rank {hello.rank} of role {hello.role} (host {hello.host}, process {hello.pid})"


@dataclass
class _Round:
    """The workers that were started together: all ranks of one process group of torch."""

    name: str
    present: dict[int, _Present] = field(default_factory=dict)
    results: dict[int, Any] = field(default_factory=dict)
    called: bool = False


class MemberSupervisor(Protocol):
    """Supervisor that keeps the members of a group running."""

    def look(self, log: Callable[[str], None]) -> None:
        """Replace what was lost.

        Raises:
            SuperworkflowError: there is no hope for a member.
        """

    def replace(self, pid: int) -> bool:
        """End the process of a rank that hangs, so that its agent starts another; False where it cannot be reached."""

    def scale(self, role: str, count: int, hanging: Sequence[int], busy: Collection[int]) -> None:
        """Set the number of members of an elastic role, and replace those in these processes.

        Members that leave finish their item first: those without one, whose processes are not `busy`, leave before
        others. Where a launcher keeps the members, an event informs it, and it chooses.
        """


class Checkpoint:
    """The stage's checkpoint, which workers read and write through the coordinator.

    Args:
        folder: where it is.
        save: sends all of it to the store where that is remote, in the order in which it was written.
    """

    def __init__(self, folder: Path, save: Callable[[], None] = lambda: None):
        self._folder, self._save = folder, save
        self._unsaved, self._saved = False, -SAVE_SECONDS

    def write(self, name: str, data: bytes) -> None:
        """Replace one file, as a whole."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(data)
        part.replace(path)
        self._unsaved = True

    def read(self, name: str) -> bytes | None:
        """One file, None when there is none."""
        path = self._folder / name
        return path.read_bytes() if path.is_file() else None

    def save(self, *, now: bool = False) -> None:
        """Send what was written to the store, unless that was done a short while ago."""
        if self._unsaved and (now or time.monotonic() - self._saved >= SAVE_SECONDS):
            self._unsaved, self._saved = False, time.monotonic()
            self._save()


class WorkerGroup:
    """A group of workers, to which the stage's own process gives the work. For one thread.

    Args:
        server: the coordinator's end of the channel.
        members: who keeps the members running.
        size: ranks.
        checkpoint: of the stage.
        progress: of the stage.
        silence_s: seconds without a sign after which a worker is taken for hanging.
        start_s: seconds in which the group must be complete.
        elastic: count and most of each elastic role.
    """

    def __init__(
        self,
        server: Server,
        members: MemberSupervisor,
        size: int,
        checkpoint: Checkpoint,
        progress: Progress,
        silence_s: float = SILENCE_SECONDS,
        start_s: float = START_SECONDS,
        elastic: Mapping[str, tuple[int, int]] = {},
    ):
        self._server, self._members, self.size = server, members, size
        self._checkpoint, self._progress = checkpoint, progress
        self._silence_s, self._start_s = silence_s, start_s
        self._round: _Round | None = None
        self._retired: set[str] = set()
        self._call: dict[str, Any] | None = None
        self._number = 0
        self._incomplete_since = time.monotonic()
        self._losses = 0
        self._failed = False
        self._shutdown: Shutdown | None = None
        self._unexplained, self._replaced = "", set[int]()
        self._roles = {
            role: ElasticRole(role, count, most, self, silence_s, start_s) for role, (count, most) in elastic.items()
        }
        self._assignments = {name: Assignment(role, self.send) for name, role in self._roles.items()}

    def role(self, name: str) -> ElasticRole:
        """An elastic role, which does tasks.

        Raises:
            UserError: the stage's resources name no elastic role of this name.
        """
        if name not in self._roles:
            raise UserError(
                "the stage needs an elastic role of this name, and its resources have none", where="resources.workers",
                value=name,
                remedy=nearest(name, list(self._roles)) if self._roles else f"Give {name} `most` in the profile",
            )  # fmt: skip
        return self._roles[name]

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call `function(worker, *arguments)` on every rank and wait for all.

        When a worker is lost, the group is completed again and every rank restarts the function: it continues from
        the checkpoint (`Worker.load`), and may do nothing that must not be done twice. What an earlier call has left
        in the memory of the workers may be gone.

        Args:
            function: at the top level of a module that workers can import.
            arguments: JSON values, small.

        Returns:
            What each rank has returned, by rank: JSON values, at most 1 MiB each.

        Raises:
            UserError: a worker raised one.
            WorkersFailed: a worker failed, hangs, or was lost too often. The group is of no further use.
            ValueError: the function cannot be imported by its name, or an argument is not JSON or too large.
        """
        if self._failed:
            raise WorkersFailed("the worker group has failed before")
        if not self.size:
            raise UserError(
                "the stage needs workers of a fixed role, and all roles are elastic", where="resources.workers",
                remedy="Name a role without `most` in the profile",
            )  # fmt: skip
        call = call_of(function, arguments)
        self._number += 1
        self._call = {"kind": "call", "call": self._number, **call}
        try:
            return self._to_results()
        except BaseException:
            self._failed = True
            raise
        finally:
            self._call = None
            self._checkpoint.save(now=True)

    def run_saving(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """As `run`, for a function that saves and raises `StateSaved` on all ranks when `Worker.stopping` is true.

        The end of this process by a signal waits for it; see `saves_first`.
        """
        with saves_first() as self._shutdown:
            return self.run(function, *arguments)

    @property
    def failed(self) -> bool:
        """True if a call has failed, after which there is none."""
        return self._failed

    def end(self) -> None:
        """Let the workers end."""
        for worker in self._present():
            self._server.send(worker.address, {"kind": "end"})
        for role in self._roles.values():
            role.end()

    def send(self, address: bytes, header: Mapping[str, Any], payload: bytes = b"") -> bool:
        return self._server.send(address, header, payload)

    def wake(self) -> None:
        """Have `listen` return; any thread may."""
        self._server.wake()

    def listen(self) -> None:
        """Take what members have sent, or wait for a moment until they do; see `Coordinator`."""
        self._receive()
        self._look()

    def scale(self, role: str, count: int, hanging: Sequence[tuple[str, int]] = (), busy: Collection[int] = ()) -> None:
        self._progress.emit(SCALE, role=role, count=count, hanging=[host for host, _ in hanging])
        self._members.scale(role, count, [pid for _, pid in hanging], busy)

    def log(self, message: str) -> None:
        self._progress.log(message)

    def _receive(self) -> None:
        until = time.monotonic() + 2 * _POLL_SECONDS
        for message in self._server.receive(_POLL_SECONDS):
            self._take(message)
            if time.monotonic() > until:  # each result of a role brings the next one
                return

    def _look(self) -> None:
        self._checkpoint.save()
        self._members.look(self._log_loss)
        for role in self._roles.values():
            role.look()
        for assignment in self._assignments.values():
            assignment.look()

    def _to_results(self) -> list[Any]:
        self._losses, self._replaced = 0, set()
        for worker in self._present():
            worker.heard = time.monotonic()  # not listened to since the last call
        if self._round is not None:
            self._round.results, self._round.called = {}, False
        self._call_all()
        while True:
            self._receive()
            current = self._round
            if current is not None and len(current.results) == self.size:
                return [current.results[rank] for rank in range(self.size)]
            self._look()
            self._stop_if_requested()
            self._check_silence()
            self._check_complete()

    def _note_gone(self, header: Mapping[str, Any]) -> None:
        with contextlib.suppress(ValidationError):
            gone = Gone.model_validate(dict(header))
            place = f"rank {gone.rank} of role {gone.role} (host {gone.host}, process {gone.pid})"
            if gone.pid not in self._replaced:
                self._log_loss(f"{place} was lost: {diagnose_exit(gone.code).summary}; {AGAIN}")

    def _log_loss(self, message: str) -> None:
        self._unexplained = ""
        self._progress.log(message)

    def _stop_if_requested(self) -> None:
        """Request that all workers save, if this process is to end; each time anew, for those that were replaced."""
        if self._shutdown is not None and self._shutdown.requested:
            for worker in self._present():
                self._server.send(worker.address, {"kind": "stop"})

    def _present(self) -> Sequence[_Present]:
        return list(self._round.present.values()) if self._round is not None else ()

    def _is_complete(self) -> bool:
        return self._round is not None and len(self._round.present) == self.size

    def _call_all(self) -> None:
        """Give the call to all workers, once they are all there."""
        if self._round is not None and self._is_complete() and not self._round.called and self._call is not None:
            self._round.called = True
            if self._unexplained:
                self._log_loss(self._unexplained)
            for worker in self._present():
                self._server.send(worker.address, self._call)

    def _take(self, message: Message) -> None:
        header, kind = message.header, message.header.get("kind")
        if kind == "hello":
            self._welcome(message)
            return
        if kind == "gone":
            self._note_gone(header)
            return
        if kind == "member":
            role = header.get("role")
            if isinstance(role, str) and role in self._roles:
                self._roles[role].meet(message)
            return
        for elastic in self._roles.values():
            if (member := elastic.member(message.sender)) is not None:
                if not elastic.take(member, message):
                    self._serve(member, message)
                return
        worker = next((each for each in self._present() if each.address == message.sender), None)
        if worker is None:
            return  # one of an earlier round, which its agent is ending
        worker.heard = time.monotonic()
        match kind:
            case "result" if self._of_this_call(header):
                assert self._round is not None
                self._round.results[worker.hello.rank] = header.get("value")
            case "failed" if self._of_this_call(header):
                text = str(header.get("message"))
                if header.get("user") is True:
                    raise StagedUserError(text)
                raise WorkersFailed(f"{worker} failed: {text}")
            case "lost" if self._of_this_call(header):
                self._unexplained = f"{worker} lost the connection to another worker; {AGAIN}"
                self._retire()  # its agent, or the supervisor of the members, reports which one
            case "stopped" if self._of_this_call(header) and self._shutdown is not None:
                if worker.hello.rank == 0:  # all have saved, and what the first rank logged about it was read before
                    self._checkpoint.save(now=True)
                    self._shutdown.end()
            case "serve":
                role = header.get("role")
                if isinstance(role, str) and role in self._assignments:
                    self._assignments[role].take(worker.hello.rank, message)
            case "progress":
                self._update(header)
            case "report":
                with contextlib.suppress(ValidationError):
                    report = Report.model_validate(dict(header))
                    self._progress.report(report.step, report.steps, report.value, **report.facts)
            case "calls":
                self._progress.emit(CALLS, **{name: header.get(name) for name in ("role", "calls", "seconds")})
            case _:
                self._serve(worker, message)

    def _serve(self, worker: _Present | JoinedMember, message: Message) -> None:
        """Do what any member may ask for."""
        match message.header.get("kind"):
            case "log":
                self._progress.log(str(message.header.get("message")))
            case "save" | "load":
                self._keep(worker, message)

    def _of_this_call(self, header: Mapping[str, Any]) -> bool:
        return self._call is not None and header.get("call") == self._number

    def _keep(self, worker: _Present | JoinedMember, message: Message) -> None:
        name = message.header.get("name")
        if not isinstance(name, str) or fault_of(name) is not None:
            raise WorkersFailed(f"{worker} has named a bad file of the checkpoint: {name!r}")
        if message.header["kind"] == "save":
            self._checkpoint.write(name, message.payload)
            self._server.send(worker.address, {"kind": "saved"})
        else:
            data = self._checkpoint.read(name)
            self._server.send(worker.address, {"kind": "loaded", "found": data is not None}, data or b"")

    def _welcome(self, message: Message) -> None:
        try:
            hello = Hello.model_validate(dict(message.header))
        except ValidationError:
            return
        if hello.size != self.size or hello.rank >= self.size or hello.round in self._retired:
            return
        if self._round is not None and self._round.name != hello.round:
            self._retire()
        if self._round is None:
            self._round = _Round(hello.round)
        self._round.present[hello.rank] = _Present(hello, message.sender, time.monotonic())
        self._call_all()

    def _retire(self) -> None:
        """Ignore the workers of this round from now on: their agents end them and start the next round's."""
        assert self._round is not None
        self._retired.add(self._round.name)
        self._round, self._incomplete_since = None, time.monotonic()
        for assignment in self._assignments.values():
            assignment.clear()
        self._losses += 1
        if self._losses > LOSSES:
            raise WorkersFailed(f"workers were lost {self._losses} times in one call; see the log above")

    def _check_silence(self) -> None:
        """Refuse to wait for a worker that gives no sign.

        One that was killed is silent as well, until those that are started in its place introduce themselves.
        """
        for worker in self._present():
            silence = time.monotonic() - worker.heard
            if silence > self._silence_s:
                message = f"{worker} hangs: no sign for {silence:.0f} s"
                if self._replaced or not self._members.replace(worker.hello.pid):
                    raise WorkersFailed(message)
                self._replaced.add(worker.hello.pid)
                self._log_loss(f"{message}; it is replaced, once in a call, and {AGAIN}")
                self._retire()
                return

    def _check_complete(self) -> None:
        waited = time.monotonic() - self._incomplete_since
        if not self._is_complete() and waited > self._start_s:
            there = sorted(worker.hello.rank for worker in self._present())
            raise WorkersFailed(
                f"{len(there)} of {self.size} workers are there after {waited:.0f} s (ranks {there}); see the log above"
            )

    def _update(self, header: Mapping[str, Any]) -> None:
        try:
            update = Update.model_validate(dict(header))
        except ValidationError:
            return
        self._progress.update(update.done, update.total, update.unit, **update.facts)
