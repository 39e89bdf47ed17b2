"""The worker group of one stage: processes on its machine, or pods that the launcher keeps."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superworkflow.infra.base.extras import needs_package
from superworkflow.infra.contract.resources import Workers
from superworkflow.infra.contract.stage import Progress, StageRun
from superworkflow.infra.engines.lifeline import hold_lifeline
from superworkflow.infra.engines.workers import ENGINE
from superworkflow.infra.engines.workers.channel import Keys, Server
from superworkflow.infra.engines.workers.errors import WorkersFailed
from superworkflow.infra.engines.workers.group import (
    LOSSES,
    SILENCE_SECONDS,
    START_SECONDS,
    Checkpoint,
    MemberSupervisor,
    WorkerGroup,
)
from superworkflow.infra.engines.workers.local_members import AGENT, Processes
from superworkflow.infra.engines.workers.setup import (
    CHANNEL_PORT,
    INTERFACE_VARIABLE,
    LOOPBACK,
    STORE_PORT,
    MemberSetup,
    new_token,
)
from superworkflow.infra.process import shutdown
from superworkflow.infra.process.exit_status import diagnose_exit

POD_START_SECONDS = 1800.0

_kept: list[Any] = []
"""Stores that pods look at: they see by them that this process lives."""


@dataclass(frozen=True)
class Role:
    """Workers of one kind.

    Args:
        name: of the role.
        count: how many.
        threads, gpus: of each.
        most: that there may be of an elastic role; 0 for a fixed one, whose workers are ranks.
    """

    name: str
    count: int
    threads: int = 1
    gpus: int = 0
    most: int = 0


def roles_of(workers: Mapping[str, Workers]) -> list[Role]:
    """Roles in the order of their ranks."""
    return [
        Role(name, group.count, group.each.threads, group.gpu.count, group.most or 0) for name, group in workers.items()
    ]


class _LocalMembers:
    """One agent for each fixed role and one process for each member of the others, on this machine."""

    def __init__(self, roles: Sequence[Role]):
        self._processes, self._lost = Processes(), Counter[str]()
        self._fixed = [(self._start(role), role) for role in roles if not role.most]
        self._elastic = {role.name: role for role in roles if role.most}
        self._numbers: dict[str, list[int]] = {name: [] for name in self._elastic}
        self._setup: Callable[[Role, int, int], MemberSetup] | None = None

    def _start(self, role: Role) -> int:
        threads = str(role.threads)
        return self._processes.start(
            AGENT, {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, INTERFACE_VARIABLE: "lo"}
        )

    def send_setups(self, setup: Callable[[Role, int, int], MemberSetup]) -> None:
        """Give each agent its setup, by its role, and the rank and first GPU of its first worker; start the others."""
        self._setup, offset, gpus = setup, 0, 0
        for number, role in self._fixed:
            self._processes.send_setup(number, setup(role, offset, gpus))
            offset, gpus = offset + role.count, gpus + role.count * role.gpus
        for role in self._elastic.values():
            self.scale(role.name, role.count)

    def scale(self, role: str, count: int, hanging: Sequence[int] = (), busy: Collection[int] = ()) -> None:
        """See `MemberSupervisor`. Of those that are alike, those that were started last are the first to leave."""
        assert self._setup is not None
        numbers = self._numbers[role]
        for pid in hanging:
            self._processes.kill_process(pid)
        while len(numbers) > count:
            free = (each for each in reversed(numbers) if self._processes.pid(each) not in busy)
            leaving = next(free, numbers[-1])
            numbers.remove(leaving)
            self._processes.leave(leaving)
        while len(numbers) < count:
            numbers.append(self._start(self._elastic[role]))
            self._processes.send_setup(numbers[-1], self._setup(self._elastic[role], 0, 0))

    def replace(self, pid: int) -> bool:
        return self._processes.kill_rank(pid)

    def look(self, log: Callable[[str], None]) -> None:
        for role, code in self._processes.replace_lost():
            elastic = role in self._elastic
            pool = role if elastic else ""
            self._lost[pool] += 1
            why = diagnose_exit(code).summary
            if self._lost[pool] > LOSSES + (self._elastic[role].most if elastic else 0):
                what = "members" if elastic else "agents"
                raise WorkersFailed(f"{what} were lost {self._lost[pool]} times, most recently of role {role}: {why}")
            log(f"{'a member' if elastic else 'the agent'} of role {role} was lost: {why}; starting another")

    def end(self, *, well: bool) -> None:
        """End all members, and return when nothing of them runs; `well` gives them time to end by themselves."""
        if well:
            for number in (number for numbers in self._numbers.values() for number in numbers):
                self._processes.leave(number)
            self._processes.wait()
        self._processes.close()

    def kill(self) -> None:
        """End all at once; from any thread."""
        self._processes.kill()


class _Pods:
    """Members that the launcher starts, watches and replaces; it hears the events of the stage."""

    def replace(self, pid: int) -> bool:
        return False

    def look(self, log: Callable[[str], None]) -> None:
        """See `MemberSupervisor`."""

    def scale(self, role: str, count: int, hanging: Sequence[int], busy: Collection[int]) -> None:
        """See `MemberSupervisor`."""


@contextlib.contextmanager
def local_group(
    roles: Sequence[Role],
    checkpoint: Checkpoint,
    progress: Progress,
    logs: Path,
    silence_s: float = SILENCE_SECONDS,
    start_s: float = START_SECONDS,
) -> Iterator[WorkerGroup]:
    """A group of processes on this machine.

    Args:
        roles: in the order of their ranks.
        checkpoint: of the stage.
        progress: of the stage.
        logs: folder for what torch notes of errors.
        silence_s, start_s: see `WorkerGroup`.
    """
    members, token, well = _LocalMembers(roles), new_token(), False
    with contextlib.ExitStack() as stack:
        stack.callback(members.kill)
        stack.enter_context(shutdown.at_end(members.kill))
        store_port, ranks = 0, [role for role in roles if not role.most]
        if ranks:
            from superworkflow.infra.engines.workers.rendezvous import host_store  # torch, while agents import it too

            store = host_store(LOOPBACK)
            store_port = store.port
        server = Server(LOOPBACK, Keys.of(token))
        stack.callback(server.close)
        stack.callback(lambda: members.end(well=well))

        def setup(role: Role, offset: int, first_gpu: int) -> MemberSetup:
            return MemberSetup(
                host=LOOPBACK, port=server.port, store_port=store_port, token=token, role=role.name,
                count=1 if role.most else role.count, offset=offset, agents=max(1, len(ranks)),
                elastic=bool(role.most), threads=role.threads, gpus=role.gpus,
                first_gpu=first_gpu, parent=os.getpid(), path=tuple(sys.path), logs=str(logs),
            )  # fmt: skip

        members.send_setups(setup)
        group = _group(server, members, roles, checkpoint, progress, silence_s, start_s)
        yield group
        if not group.failed:
            group.end()
            well = True


@contextlib.contextmanager
def pod_group(
    address: str,
    token: str,
    roles: Sequence[Role],
    checkpoint: Checkpoint,
    progress: Progress,
    silence_s: float = SILENCE_SECONDS,
    start_s: float = POD_START_SECONDS,
) -> Iterator[WorkerGroup]:
    """A group whose members are pods, which call this one; a stage can open one.

    Args:
        address: of this pod.
        token: of the group.
        roles: in the order of their ranks.
        checkpoint: of the stage.
        progress: of the stage.
        silence_s, start_s: see `WorkerGroup`.
    """
    if _kept:
        raise RuntimeError("on a cluster a stage can open one worker group, and this one has opened one before")
    server = Server(address, Keys.of(token), CHANNEL_PORT)
    with contextlib.closing(server):
        if all(role.most for role in roles):
            _kept.append(hold_lifeline(address, STORE_PORT))
        else:
            from superworkflow.infra.engines.workers.rendezvous import host_store

            _kept.append(host_store(address, STORE_PORT))
        group = _group(server, _Pods(), roles, checkpoint, progress, silence_s, start_s)
        yield group
        if not group.failed:
            group.end()


def _group(
    server: Server, members: MemberSupervisor, roles: Sequence[Role], checkpoint: Checkpoint, progress: Progress,
    silence_s: float, start_s: float,
) -> WorkerGroup:  # fmt: skip
    size = sum(role.count for role in roles if not role.most)
    elastic = {role.name: (role.count, role.most) for role in roles if role.most}
    return WorkerGroup(server, members, size, checkpoint, progress, silence_s, start_s, elastic)


def worker_group(
    job: StageRun[Any], silence_s: float = SILENCE_SECONDS, start_s: float | None = None
) -> contextlib.AbstractContextManager[WorkerGroup]:
    """The worker group of a stage, sized by its resources; always ended with the block.

    Args:
        job: the stage's run.
        silence_s: seconds without a sign after which a worker is taken for hanging.
        start_s: seconds in which the group must be complete, at first and after a loss; 10 minutes by default for
            processes. For pods it is half an hour, since the launcher says sooner what keeps them from starting.

    Raises:
        UserError: the resources name no workers, or a package is missing.
    """
    ENGINE.check(job.resources.model_copy(update={"endpoints": None}), "resources.workers")
    roles = roles_of(job.resources.workers or {})
    if not all(role.most for role in roles) and importlib.util.find_spec("torch") is None:
        raise needs_package("torch", "engine workers")
    checkpoint, settings = Checkpoint(job.checkpoint, job.save_checkpoint), job.engine_settings
    if settings:
        most = start_s or POD_START_SECONDS
        return pod_group(settings["address"], settings["token"], roles, checkpoint, job.progress, silence_s, most)
    logs = job.scratch / "workers"
    return local_group(roles, checkpoint, job.progress, logs, silence_s, start_s or START_SECONDS)
