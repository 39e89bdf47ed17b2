"""Pipes between the workers of one machine, through which they send each other short messages of one length.

A worker that waits for a message sleeps in the kernel: other than with Gloo, no thread of its own wakes for it.
"""

from __future__ import annotations

import os
import struct
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

_HEADER = struct.Struct("=4q")
Header = tuple[int, int, int, int]


class HeaderPipes:
    """A pipe for each ordered pair of workers, which ends with the process that writes to it. Collective.

    Args:
        group: process group of torch.distributed.
        pids: process ids by rank; all workers can open each other's files.
    """

    def __init__(self, group: Any, pids: Sequence[int]):
        self._rank, size = dist.get_rank(group), len(pids)
        ends = [os.pipe() if rank != self._rank else (-1, -1) for rank in range(size)]
        self._in, own = [read for read, _ in ends], torch.tensor([write for _, write in ends])
        announced = [torch.empty_like(own) for _ in pids]
        dist.all_gather(announced, own, group=group)
        self._out = [
            -1 if rank == self._rank
            else os.open(f"/proc/{pid}/fd/{int(announced[rank][self._rank])}", os.O_WRONLY | os.O_CLOEXEC)
            for rank, pid in enumerate(pids)
        ]  # fmt: skip
        weakref.finalize(self, _close, [*self._in, *self._out]).atexit = False
        dist.barrier(group=group)  # all have opened these
        _close(own.tolist())

    def swap(self, outgoing: Sequence[Header]) -> list[Header]:
        """Send four integers to each worker and get four from each; its own come back as they are. Collective.

        Raises:
            RuntimeError: a worker has ended.
        """
        others = [rank for rank in range(len(outgoing)) if rank != self._rank]
        found = list(outgoing)
        for rank in others:
            try:
                os.write(self._out[rank], _HEADER.pack(*outgoing[rank]))
            except BrokenPipeError:
                raise _lost(rank) from None
        for rank in others:
            text = os.read(self._in[rank], _HEADER.size)  # whole: short writes to pipes are atomic
            if len(text) < _HEADER.size:
                raise _lost(rank)
            found[rank] = _HEADER.unpack(text)
        return found


def _lost(rank: int) -> RuntimeError:
    return RuntimeError(f"pipe closed by peer: rank {rank} has ended")


def _close(numbers: Sequence[int]) -> None:
    for number in numbers:
        if number >= 0:
            os.close(number)
