"""Channel between a worker group's coordinator and its workers: ZeroMQ over TCP, encrypted and authenticated by CURVE.

A message is a small JSON object, the header, and bytes. The coordinator takes messages only from who holds the group's
key, and holds them against their limits and models all the same; nothing here is unpickled.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

HEADER_BYTES = 1 << 20
"""Most bytes of a header: calls with their arguments, and the values that functions return."""
PAYLOAD_BYTES = 64 << 20
"""Most bytes of a payload: one file of a checkpoint."""
LINGER_MILLISECONDS = 2000
SERVE = "serve"
"""Kind of the messages in which a rank wants members, and in which a member is given the address of a rank."""
_WAKE = "inproc://wake"


@dataclass(frozen=True)
class Keys:
    """Keys derived from the token of a group; holding the token makes a process a member.

    Args:
        coordinator, coordinator_secret: pair of the coordinator, by which members know it, as Z85 texts.
        member, member_secret: pair that all members share, by which the coordinator knows them.
        rendezvous: with which members sign what they write into the store of their rendezvous.
    """

    coordinator: bytes
    coordinator_secret: bytes = field(repr=False)
    member: bytes
    member_secret: bytes = field(repr=False)
    rendezvous: bytes = field(repr=False)

    @classmethod
    def of(cls, token: str) -> Keys:
        """The keys of the group with this token."""
        made = [hmac.digest(token.encode(), use, "sha256") for use in (b"coordinator", b"member", b"rendezvous")]
        coordinator, member = (z85.encode(secret) for secret in made[:2])
        return cls(zmq.curve_public(coordinator), coordinator, zmq.curve_public(member), member, made[2])


@dataclass(frozen=True)
class Message:
    """One message to the coordinator; `sender` is its connection, to which answers go."""

    sender: bytes
    header: Mapping[str, Any]
    payload: bytes


class _Group:
    """Admits connections with the group's key pair."""

    def __init__(self, public: bytes):
        self._public = public

    def callback(self, domain: str, key: bytes) -> bool:
        return key == self._public


class Server:
    """The coordinator's end. For one thread, but for `wake`.

    Args:
        host: address to listen on.
        keys: of the group.
        port: to listen on; any when 0.
    """

    def __init__(self, host: str, keys: Keys, port: int = 0):
        self._context = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback("*", credentials_provider=_Group(keys.member))
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.curve_server = True
        self._socket.curve_publickey, self._socket.curve_secretkey = keys.coordinator, keys.coordinator_secret
        self._socket.linger = LINGER_MILLISECONDS
        self._socket.router_mandatory = True
        self._socket.maxmsgsize = max(HEADER_BYTES, PAYLOAD_BYTES)
        self._socket.rcvhwm = self._socket.sndhwm = 0  # what a coordinator that computes has not read yet is small
        self._socket.bind(f"tcp://{host}:{port or '*'}")
        self._woken, self._waker = self._context.socket(zmq.PULL), self._context.socket(zmq.PUSH)
        self._woken.bind(_WAKE)
        self._waker.connect(_WAKE)
        self._guard = threading.Lock()
        self._poller = zmq.Poller()
        for each in (self._socket, self._woken):
            self._poller.register(each, zmq.POLLIN)
        self.port = int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    def receive(self, seconds: float) -> Iterator[Message]:
        """Messages that are waiting or arrive within `seconds`; malformed ones are skipped. `wake` ends the wait."""
        while ready := dict(self._poller.poll(int(1000 * seconds))):
            seconds = 0
            if self._woken in ready:
                self._woken.recv()
            if self._socket not in ready:
                continue
            frames = self._socket.recv_multipart()
            header = _parsed(frames[1]) if len(frames) == 3 else None
            if header is not None:
                yield Message(frames[0], header, frames[2])

    def send(self, receiver: bytes, header: Mapping[str, Any], payload: bytes = b"") -> bool:
        """Send to one member; False where its connection is gone, and the message is dropped."""
        try:
            self._socket.send_multipart([receiver, encoded(header, payload), payload])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def wake(self) -> None:
        """End the wait in `receive`; any thread may."""
        with self._guard, contextlib.suppress(zmq.Again):  # as many as fit wait to be heard already
            self._waker.send(b"", zmq.NOBLOCK)

    def close(self) -> None:
        for each in (self._socket, self._woken, self._waker):
            each.close()
        self._authenticator.stop()
        self._context.term()


class TooLarge(ValueError):
    """A message over the limits."""


def encoded(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """A header as it is sent.

    Raises:
        TypeError, ValueError: it is not JSON.
        TooLarge: it or its payload is larger than a message may be.
    """
    text = json.dumps(header).encode()
    if len(text) > HEADER_BYTES:
        raise TooLarge(f"{len(text)} bytes of JSON; at most {HEADER_BYTES} may be sent")
    if len(payload) > PAYLOAD_BYTES:
        raise TooLarge(f"{len(payload)} bytes; at most {PAYLOAD_BYTES} may be sent")
    return text


def connect(context: zmq.Context[Any], address: str, keys: Keys) -> zmq.Socket[bytes]:
    """A member's end: a DEALER socket, for one thread.

    Args:
        context: of this process; not one from before a fork.
        address: `tcp://HOST:PORT` of the coordinator.
    """
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    socket.curve_serverkey = keys.coordinator
    socket.curve_publickey, socket.curve_secretkey = keys.member, keys.member_secret
    socket.linger = LINGER_MILLISECONDS
    socket.connect(address)
    return socket


def received(socket: zmq.Socket[bytes]) -> tuple[dict[str, Any], bytes]:
    """One message from the coordinator, which CURVE has shown to be it."""
    header, payload = socket.recv_multipart()
    parsed = _parsed(header)
    assert parsed is not None
    return parsed, payload


def _parsed(header: bytes) -> dict[str, Any] | None:
    if len(header) <= HEADER_BYTES:
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(header)
            if isinstance(found, dict):
                return found
    return None
