"""Rendezvous of the agents of a worker group: torch's own, over a store that the coordinator hosts.

The store knows no password, and torch unpickles what stands in it as the state of the rendezvous. Here that state is
signed with the group's key, and what has no such signature is never unpickled.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import uuid
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # they are public
from torch.distributed.elastic.rendezvous import RendezvousStateError
from torch.distributed.elastic.rendezvous.api import RendezvousInfo
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousBackend,
    RendezvousTimeout,
    Token,
)

ROUND_VARIABLE = "SUPERWORKFLOW_WORKERS_ROUND"
"""Variable that names the round of an agent's workers."""
KEEP_ALIVE_SECONDS = 1
KEEP_ALIVE_ATTEMPTS = 3
"""Missed heartbeats after which a killed agent is dropped, so that its replacement can join soon. With torch's own
5 s the replacement runs into a time-out of the store."""
PATIENCE = timedelta(days=7)
"""For others to join: the coordinator says when it has been too long."""
_SIGNATURE_BYTES = hashlib.sha256().digest_size


def host_store(address: str, port: int = 0) -> TCPStore:
    """A store for the agents and workers of one group, which listens on one address alone; its port is `.port`.

    Args:
        address: IPv4 address of this machine.
        port: to listen on; any when 0.
    """
    listening = socket.create_server((address, port), backlog=512)
    port = listening.getsockname()[1]
    return TCPStore(
        address, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
    )  # the store closes it


def join_store(address: str, port: int, part: str = "") -> Store:
    """The store that a coordinator hosts, or a part of it with names of its own."""
    store = TCPStore(address, port, is_master=False, wait_for_workers=False)
    return PrefixStore(part, store) if part else store


class SignedBackend(RendezvousBackend):
    """A backend whose state only the members of a group can make.

    Args:
        backend: where the state stands.
        key: of the group.
    """

    def __init__(self, backend: RendezvousBackend, key: bytes):
        self._backend, self._key = backend, key

    @property
    def name(self) -> str:
        return self._backend.name

    def get_state(self) -> tuple[bytes, Token] | None:
        """See `RendezvousBackend`.

        Raises:
            RendezvousStateError: the state was not made by a member.
        """
        found = self._backend.get_state()
        return None if found is None else (self._checked(found[0]), found[1])

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """See `RendezvousBackend`, and `get_state`."""
        found = self._backend.set_state(self._signature(state) + state, token)
        return None if found is None else (self._checked(found[0]), found[1], found[2])

    def _checked(self, signed: bytes) -> bytes:
        signature, state = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(state)):
            raise RendezvousStateError("the state of the rendezvous was not written by a member of the worker group")
        return state

    def _signature(self, state: bytes) -> bytes:
        return hmac.digest(self._key, state, "sha256")


class _NamedRounds(DynamicRendezvousHandler):
    """Gives each round a name, which the workers that are started for it find in their environment."""

    def next_rendezvous(self) -> RendezvousInfo:
        info = super().next_rendezvous()
        if info.rank == 0:
            info.store.set("superworkflow/round", uuid.uuid4().hex)
        os.environ[ROUND_VARIABLE] = info.store.get("superworkflow/round").decode()
        return info


def rendezvous_handler(store: Store, address: str, agents: int, key: bytes) -> Any:
    """The rendezvous of exactly `agents` agents.

    Args:
        store: that the coordinator hosts.
        address: of this agent's machine.
        agents: how many there are in the group.
        key: of the group.
    """
    # Else the agent of the first rank would host a second store, on all addresses of its machine.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    run_id = "superworkflow"
    return _NamedRounds.from_backend(
        run_id, store, SignedBackend(C10dRendezvousBackend(store, run_id), key), agents, agents, address,
        RendezvousTimeout(join=PATIENCE), KEEP_ALIVE_SECONDS, KEEP_ALIVE_ATTEMPTS,
    )  # fmt: skip
