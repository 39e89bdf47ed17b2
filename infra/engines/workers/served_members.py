"""Members of an elastic role that a rank gives tasks itself, by connections to it, past the coordinator."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from superworkflow.infra.engines.workers.channel import SERVE, Server
from superworkflow.infra.engines.workers.elastic_role import ElasticRole
from superworkflow.infra.engines.workers.group import SILENCE_SECONDS, START_SECONDS
from superworkflow.infra.engines.workers.worker import Worker

_POLL_SECONDS = 0.2


class ServedMembers:
    """The role as a rank has it: none of its members at first, until it is scaled. For one thread, but for `wake`.

    Other ranks have members of the same role. How many come in all is limited by the profile, and each rank gets a
    share in proportion to what it asked for.

    Args:
        worker: the rank.
        role: name of the elastic role.
        most: members that this rank may have.
        silence_s: seconds without a sign after which a member is taken for hanging, and replaced.
    """

    def __init__(self, worker: Worker, role: str, most: int, silence_s: float = SILENCE_SECONDS):
        self._worker, host = worker, own_address(worker.link.address)
        self._server = Server(host, worker.link.keys)
        self._address = f"tcp://{host}:{self._server.port}"
        self._role = ElasticRole(role, 0, most, self, silence_s, START_SECONDS)

    def role(self, name: str) -> ElasticRole:
        """The role.

        Raises:
            ValueError: another name.
        """
        if name != self._role.name:
            raise ValueError(f"these are members of role {self._role.name}, not {name}")
        return self._role

    def send(self, address: bytes, header: Mapping[str, Any], payload: bytes = b"") -> bool:
        return self._server.send(address, header, payload)

    def listen(self) -> None:
        """Take what members have sent, or wait for a moment until they do; see `Coordinator`."""
        for message in self._server.receive(_POLL_SECONDS):
            if message.header.get("kind") == "member":
                if message.header.get("role") == self._role.name:
                    self._role.meet(message)
            elif (member := self._role.member(message.sender)) is not None:
                self._role.take(member, message)
        self._role.look()

    def wake(self) -> None:
        """Have `listen` return; any thread may."""
        self._server.wake()

    def scale(self, role: str, count: int, hanging: Sequence[tuple[str, int]] = (), busy: Collection[int] = ()) -> None:
        hosts, processes = [host for host, _ in hanging], [pid for _, pid in hanging]
        wish = {"kind": SERVE, "role": role, "address": self._address, "count": count}
        self._worker.link.send({**wish, "hosts": hosts, "processes": processes})

    def log(self, message: str) -> None:
        self._worker.log(message)

    def close(self) -> None:
        """Let all members serve others."""
        self.scale(self._role.name, 0)
        self._server.close()


def own_address(coordinator: str) -> str:
    """Address of this machine on the way to a coordinator; nothing is sent.

    Args:
        coordinator: `tcp://HOST:PORT`.
    """
    parts = urlsplit(coordinator)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname, parts.port))
        return str(probe.getsockname()[0])
