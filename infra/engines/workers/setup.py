"""Setup of a member of a worker group, and its end when the process that started it ends."""

from __future__ import annotations

import json
import os
import secrets
import threading

from pydantic import BaseModel, Field

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.engines.workers import TOKEN_VARIABLE

SETUP_VARIABLE = "SUPERWORKFLOW_WORKER"
"""Variable with a pod's setup as JSON; the token of its group is in another one, from a Secret."""
CHANNEL_PORT, STORE_PORT = 7071, 7072
"""Ports of a coordinator in a pod, which has an address of its own."""
LOOPBACK, INTERFACE_VARIABLE = "127.0.0.1", "GLOO_SOCKET_IFNAME"
"""Address of a group on one machine, and the variable by which Gloo takes it."""
LOGS = "/tmp/superworkflow-workers"


class MemberSetup(BaseModel, frozen=True, extra="forbid"):
    """All that a member receives: the first line of its standard input.

    Args:
        host: address of the coordinator.
        port: of its channel.
        store_port: of the store in which agents and ranks find each other.
        token: of the group.
        role: of this member.
        count: workers that this member starts.
        offset: rank of the first worker of this role in the group.
        agents: members in the group that take part in the rendezvous.
        elastic: this member has no rank, and takes part in no rendezvous.
        threads, gpus: of each worker.
        first_gpu: of this member, among those of its machine.
        parent: process that started this one, 0 for a process of another machine.
        path: where modules are found, as in the coordinator; empty for as in this process.
        logs: folder for what torch notes of errors.
    """

    host: str
    port: int
    store_port: int
    token: str = Field(min_length=32, repr=False)
    role: str
    count: int = Field(default=1, ge=1)
    offset: int = Field(default=0, ge=0)
    agents: int = Field(default=1, ge=1)
    elastic: bool = False
    threads: int = Field(ge=1)
    gpus: int = Field(default=0, ge=0)
    first_gpu: int = Field(default=0, ge=0)
    parent: int = 0
    path: tuple[str, ...] = ()
    logs: str = LOGS

    @property
    def address(self) -> str:
        """Address of the coordinator's channel."""
        return f"tcp://{self.host}:{self.port}"


def new_token() -> str:
    """The token of a new group."""
    return secrets.token_hex(32)


def read_setup() -> MemberSetup:
    """The first line of standard input, and not a byte more."""
    text = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        text += byte
    return MemberSetup.model_validate_json(bytes(text))


def setup_from_environment() -> MemberSetup:
    """Setup of a member on another machine than its coordinator's.

    Raises:
        UserError: the environment holds none; only launchers start members.
    """
    for name in (SETUP_VARIABLE, TOKEN_VARIABLE):
        if name not in os.environ:
            raise UserError("not in the pod of a worker", where=name, remedy="Leave starting workers to a stage")
    setup = json.loads(os.environ[SETUP_VARIABLE])
    return MemberSetup.model_validate({**setup, "token": os.environ[TOKEN_VARIABLE]})


def end_with_stdin() -> None:
    """End this process when its standard input closes: its other end is the coordinator's alone."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="coordinator", daemon=True).start()
