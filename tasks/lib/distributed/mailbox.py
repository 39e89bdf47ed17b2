"""Messages between ranks, each as soon as it is there, without a collective that all would have to wait in.

Each pair of ranks shares a connection, with a thread for each direction; messages arrive in the order in which a rank
has sent them. Sockets are used as they are: by Gloo a message of any size took 0.4 ms of CPU at each end, as one for
its length and one for its bytes.
"""

from __future__ import annotations

import contextlib
import hmac
import queue
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.infra.engines.workers.rank import COLLECTIVE_TIMEOUT, own_address

_END = -1
_TOKEN_BYTES, _GREETING, _DOOR = 32, struct.Struct("<32sq"), struct.Struct("<46sH32s")
"""Length of a rank's token; the greeting of who connects to it, this token and the own number; and what ranks exchange
first: address, port, token."""
_GREETING_TIMEOUT = 60.0
"""Seconds within which a rank that has called for all others' addresses connects."""
Header = tuple[int, ...]
"""Whole numbers, not negative; as many in all messages of a mailbox."""


class Mailbox:
    """Mailbox of a rank. Collective.

    Args:
        words: numbers in a header.
        take: called with the header and the bytes of each message, on the thread that got it.
        fail: called with what keeps messages from coming or going, on that thread.
        first: rank that `send` counts from, in turn.

    `sent` counts the bytes that have left this rank, headers apart, by kind, and `messages` all messages.
    """

    def __init__(
        self, words: int, take: Callable[[Header, NDArray[np.uint8]], None], fail: Callable[[BaseException], None],
        first: int = 0,
    ):  # fmt: skip
        self._group = dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
        self._rank, self._size = dist.get_rank(self._group), dist.get_world_size(self._group)
        self._shape = struct.Struct(f"<{words + 1}q")
        self._words, self._take, self._fail, self._first = words, take, fail, first
        others = [rank for rank in range(self._size) if self._rank_of(rank) != self._rank]
        try:
            links = self._connected()
        except OSError as error:
            raise _as_of_collectives(error) from error
        self._links = {rank: links[self._rank_of(rank)] for rank in others}
        self._leaving: dict[int, queue.SimpleQueue[tuple[Header, Sequence[NDArray[Any]]] | None]]
        self._leaving = {rank: queue.SimpleQueue() for rank in others}
        self._threads = [
            threading.Thread(target=work, args=(rank,), name=f"{work.__name__} {rank}", daemon=True)
            for rank in others for work in (self._send, self._receive)
        ]  # fmt: skip
        self._guard = threading.Lock()
        self.sent: dict[str, int] = {}
        self.messages = 0

    def send(self, rank: int, header: Header, arrays: Sequence[NDArray[Any]], kind: str) -> None:
        """Send a message; returns at once, and any thread may.

        Args:
            rank: to whom.
            header: its numbers.
            arrays: whose bytes follow one another; nobody may change them any more.
            kind: key in `sent`.
        """
        with self._guard:
            self.messages += 1
            self.sent[kind] = self.sent.get(kind, 0) + sum(each.nbytes for each in arrays)
        self._leaving[rank].put((header, arrays))

    @contextlib.contextmanager
    def running(self, ends: tuple[type[BaseException], ...] = ()) -> Iterator[Mailbox]:
        """Within the block, messages come and go; all ranks have to leave it at the same point.

        Args:
            ends: errors with which all ranks leave it alike; after others nothing is waited for.
        """
        for each in self._threads:
            each.start()
        try:
            yield self
        except ends:
            self._end()
            raise
        self._end()

    def _end(self) -> None:
        """Send what is waiting, and await what the others have sent."""
        for waiting in self._leaving.values():
            waiting.put(None)
        for each in self._threads:
            each.join()
        for link in self._links.values():
            link.close()

    def _connected(self) -> dict[int, socket.socket]:
        """Connections to all other ranks: each connects to those before it, which know it by their token."""
        token, (family, host) = secrets.token_bytes(_TOKEN_BYTES), own_address()
        with socket.create_server((host, 0), family=family) as server:
            own = torch.frombuffer(
                bytearray(_DOOR.pack(host.encode(), server.getsockname()[1], token)), dtype=torch.uint8
            )
            doors = [torch.empty_like(own) for _ in range(self._size)]
            dist.all_gather(doors, own, group=self._group)
            found = dict[int, socket.socket]()
            for rank in range(self._rank):
                name, port, theirs = _DOOR.unpack(bytes(doors[rank].tolist()))
                address = name.rstrip(b"\0").decode(), port
                found[rank] = socket.create_connection(address, _GREETING_TIMEOUT)
                found[rank].sendall(_GREETING.pack(theirs, self._rank))
            server.settimeout(_GREETING_TIMEOUT)
            while len(found) < self._size - 1:
                link, _ = server.accept()
                number = _greeted(link, token)
                if number is None or not self._rank < number < self._size or number in found:
                    link.close()  # not a rank's
                else:
                    found[number] = link
        for link in found.values():
            link.settimeout(None)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        return found

    def _send(self, rank: int) -> None:
        try:
            while (message := self._leaving[rank].get()) is not None:
                header, arrays = message
                flat = [np.ascontiguousarray(each).reshape(-1).view(np.uint8).data for each in arrays]
                length = sum(map(len, flat))
                _put(self._links[rank], [self._shape.pack(*header, length), *filter(len, flat)])
            _put(self._links[rank], [self._shape.pack(*[_END] * (self._words + 1))])
        except BaseException as error:
            self._fail(_as_of_collectives(error))

    def _rank_of(self, number: int) -> int:
        return (self._first + number) % self._size

    def _receive(self, rank: int) -> None:
        try:
            header = bytearray(self._shape.size)
            while True:
                _fill(self._links[rank], header)
                *numbers, length = self._shape.unpack(header)
                if length == _END:
                    return
                body = np.empty(length, np.uint8)
                _fill(self._links[rank], body.data)
                self._take(tuple(numbers), body)
        except BaseException as error:
            self._fail(_as_of_collectives(error))


def _as_of_collectives(error: BaseException) -> BaseException:
    """An error as a collective would raise it where a peer is lost."""
    return dist.DistNetworkError(f"connection closed by peer: {error}") if isinstance(error, OSError) else error


def _greeted(link: socket.socket, token: bytes) -> int | None:
    """The rank that has greeted; None if the token is wrong."""
    greeting = bytearray(_GREETING.size)
    link.settimeout(_GREETING_TIMEOUT)
    try:
        _fill(link, greeting)
    except OSError:
        return None
    given, rank = _GREETING.unpack(greeting)
    return int(rank) if hmac.compare_digest(given, token) else None


def _put(link: socket.socket, parts: list[Any]) -> None:
    """Send all parts, in one call if the system takes them."""
    left = sum(map(len, parts))
    while (left := left - (sent := link.sendmsg(parts))) > 0:
        while sent >= len(parts[0]):
            sent -= len(parts.pop(0))
        parts[0] = memoryview(parts[0])[sent:]


def _fill(link: socket.socket, room: Any) -> None:
    """Receive as many bytes as there is room for.

    Raises:
        OSError: the connection ends before.
    """
    view = memoryview(room)
    while len(view):
        count = link.recv_into(view, flags=socket.MSG_WAITALL)
        if not count:
            raise ConnectionResetError("it ended")
        view = view[count:]
