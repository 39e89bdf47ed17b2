"""Messages between ranks, each as soon as it is there, without a collective that all would have to wait in.

To every other rank goes one thread and comes another; messages arrive in the order in which a rank has sent them.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.infra.engines.workers.rank import COLLECTIVE_TIMEOUT

_END = -1
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
        self._words, self._take, self._fail, self._first = words, take, fail, first
        others = [rank for rank in range(self._size) if self._rank_of(rank) != self._rank]
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

    def _send(self, rank: int) -> None:
        try:
            while (found := self._leaving[rank].get()) is not None:
                header, arrays = found
                flat = [np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in arrays]
                body = np.concatenate(flat) if len(flat) > 1 else flat[0] if flat else np.empty(0, np.uint8)
                self._put(rank, torch.tensor([*header, len(body)]))
                if len(body):
                    self._put(rank, torch.from_numpy(body))
            self._put(rank, torch.tensor([_END] * (self._words + 1)))
        except BaseException as error:
            self._fail(error)

    def _rank_of(self, number: int) -> int:
        return (self._first + number) % self._size

    def _put(self, rank: int, values: torch.Tensor) -> None:
        dist.send(values, group=self._group, group_dst=self._rank_of(rank))

    def _receive(self, rank: int) -> None:
        try:
            header = torch.empty(self._words + 1, dtype=torch.int64)
            while True:
                dist.recv(header, group=self._group, group_src=self._rank_of(rank))
                *numbers, length = header.tolist()
                if length == _END:
                    return
                body = torch.empty(length, dtype=torch.uint8)
                if length:
                    dist.recv(body, group=self._group, group_src=self._rank_of(rank))
                self._take(tuple(numbers), body.numpy())
        except BaseException as error:
            self._fail(error)
