"""What a member of a worker group is told when it starts, and how it ends with whoever started it."""

from __future__ import annotations

import ctypes
import os
import signal
import threading

from pydantic import BaseModel, ConfigDict, Field

from superworkflow.infra.engines.workers.channel import Keys

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class Setup(BaseModel):
    """All that a member is told; the first line of its standard input.

    Args:
        host: address of the coordinator.
        port: of its channel.
        store_port: of the store in which agents and ranks find each other.
        keys: of the group.
        role: of this member.
        count: workers that this member starts.
        offset: rank of the first worker of this role in the group.
        agents: members in the group that take part in the rendezvous.
        threads, gpus: of each worker.
        first_gpu: of this member, among those of its machine.
        parent: process that started this one, 0 for a process of another machine.
        path: where modules are found, as in the coordinator; empty for as in this process.
        logs: folder for what torch notes of errors.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    port: int
    store_port: int
    keys: Keys
    role: str
    count: int = Field(ge=1)
    offset: int = Field(ge=0)
    agents: int = Field(ge=1)
    threads: int = Field(ge=1)
    gpus: int = Field(ge=0)
    first_gpu: int = Field(default=0, ge=0)
    parent: int = 0
    path: tuple[str, ...] = ()
    logs: str

    @property
    def address(self) -> str:
        """Of the coordinator's channel."""
        return f"tcp://{self.host}:{self.port}"


def read_setup() -> Setup:
    """The first line of standard input, and not a byte more."""
    text = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        text += byte
    return Setup.model_validate_json(bytes(text))


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when the thread that started it does.

    Args:
        parent: the process that should be the parent; when it is not any more, this process ends at once.
    """
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def end_with_stdin() -> None:
    """End this process when its standard input closes: its other end is the coordinator's alone."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="coordinator", daemon=True).start()
