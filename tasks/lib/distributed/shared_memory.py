"""Shared memory for exchanges between workers of one machine, instead of TCP.

A worker writes outgoing data into a buffer of its own and announces the offset of each other worker's share by a pipe;
the others copy theirs. Buffers have no name in any file system, so a killed worker leaves nothing behind.
"""

from __future__ import annotations

import itertools
import mmap
import os
import secrets
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.header_pipes import HeaderPipes

_LEAST = 1 << 20
_TOKEN_BYTES = 8


class _Header(NamedTuple):
    """Header that a worker sends to another in an exchange.

    Args:
        number, size: file descriptor of the sender's buffer, and its bytes.
        begin, length: the receiver's share of it, in bytes.
    """

    number: int
    size: int
    begin: int
    length: int


class _Buffer:
    """A worker's own buffer of `size` bytes."""

    def __init__(self, size: int):
        self.number = os.memfd_create("superworkflow-exchange")
        weakref.finalize(self, os.close, self.number).atexit = False
        os.ftruncate(self.number, size)
        self.bytes: NDArray[np.uint8] = np.frombuffer(mmap.mmap(self.number, size), np.uint8)


class SharedBuffers:
    """Double buffering: others read one buffer of a worker while the next exchange fills its other one.

    A worker that begins an exchange has copied what it received in the previous one. So when an exchange is over, no
    worker reads the buffer of the previous one any more, and it is free.

    Args:
        group: process group of torch.distributed.
        pids: process ids by rank.
    """

    def __init__(self, group: Any, pids: Sequence[int]):
        self._group, self._pids, self._rank = group, pids, dist.get_rank(group)
        self._pipes = HeaderPipes(group, pids)
        self._own: list[_Buffer | None] = [None, None]
        self._all: list[list[NDArray[np.uint8]]] = [[], []]
        self._turn = 0

    def room(self, size: int) -> NDArray[np.uint8]:
        """Uninitialized send buffer of the next exchange: data written into it need not be copied."""
        own = self._own[self._turn]
        if own is None or len(own.bytes) < size:
            own = self._own[self._turn] = _Buffer(max(_LEAST, 1 << (size - 1).bit_length()))
        return own.bytes[:size]

    def exchange(
        self, out: NDArray[np.uint8], leaving: Sequence[int], received: NDArray[np.uint8], coming: Sequence[int]
    ) -> None:
        """Send bytes to each worker and receive bytes from each. Collective.

        Args:
            out: outgoing data, concatenated by rank; a buffer from `room`, or any other.
            leaving, coming: bytes by rank.
            received: filled, concatenated by rank.

        Raises:
            RuntimeError: a worker sends less or more than expected.
        """
        begins, places = (list(itertools.accumulate(sizes, initial=0)) for sizes in (leaving, coming))
        own = slice(begins[self._rank], begins[self._rank + 1])
        room = self.room(len(out))
        if len(out) and room.ctypes.data != out.ctypes.data:
            for others in (slice(0, own.start), slice(own.stop, None)):
                room[others] = out[others]
        shares = self._shares(list(zip(begins, leaving, strict=False)), coming)
        for rank, share in enumerate(shares):
            received[places[rank] : places[rank + 1]] = out[own] if rank == self._rank else share

    def everyone(self, out: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """Data of each worker, of equal lengths; valid until the next exchange but one.

        Args:
            out: this worker's data, in the buffer from `room`.
        """
        return self._shares([(0, len(out))] * len(self._pids), [len(out)] * len(self._pids))

    def post(self, outgoing: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
        """Send bytes to each worker and receive bytes from each, of any lengths. Collective.

        Args:
            outgoing: by rank; what is for this worker itself comes back as it is.

        Returns:
            Views, valid until the next exchange but one.
        """
        lengths = [0 if rank == self._rank else len(each) for rank, each in enumerate(outgoing)]
        begins = list(itertools.accumulate(lengths, initial=0))
        room = self.room(begins[-1])
        for rank, (begin, length) in enumerate(zip(begins, lengths, strict=False)):
            room[begin : begin + length] = outgoing[rank][:length]
        found = self._shares(list(zip(begins, lengths, strict=False)), None)
        return [outgoing[rank] if rank == self._rank else share for rank, share in enumerate(found)]

    def _shares(self, leaving: Sequence[tuple[int, int]], coming: Sequence[int] | None) -> list[NDArray[np.uint8]]:
        """Views by rank of this worker's shares, in the other workers' memory.

        Args:
            leaving: offset and length of each worker's share in this worker's buffer.
            coming: bytes that are expected; None for any.
        """
        own = self._own[self._turn]
        assert own is not None
        outgoing = [(own.number, len(own.bytes), begin, length) for begin, length in leaving]
        headers = [_Header(*each) for each in self._pipes.swap(outgoing)]
        self._open(headers, own.bytes)
        shares = []
        for rank, share in enumerate(headers):
            expected = share.length if coming is None else coming[rank]
            if share.length != expected or not 0 <= share.begin <= share.begin + share.length <= share.size:
                raise RuntimeError(
                    f"rank {rank} sends {share.length} bytes from {share.begin} on, of {share.size}, where "
                    f"{expected} were expected"
                )
            shares.append(self._all[self._turn][rank][share.begin : share.begin + share.length])
        self._turn = 1 - self._turn
        return shares

    def _open(self, headers: Sequence[_Header], own: NDArray[np.uint8]) -> None:
        """Map the buffers that others have replaced by larger ones; all workers see the same sizes.

        The barrier is needed because a mapping outlives its owner, but can only be made while the owner lives.
        """
        before = self._all[self._turn]
        if [len(each) for each in before] == [each.size for each in headers]:
            return
        self._all[self._turn] = [
            own if rank == self._rank
            else before[rank] if before and len(before[rank]) == each.size
            else _opened(self._pids[rank], each.number, each.size)
            for rank, each in enumerate(headers)
        ]  # fmt: skip
        dist.barrier(group=self._group)


def shared_buffers(group: Any) -> SharedBuffers | None:
    """Buffers of a group's workers; None unless each can read all others' memory. Collective.

    Processes of different machines or containers cannot, nor can those of systems without `memfd_create`.
    """
    token, number = secrets.randbits(8 * _TOKEN_BYTES - 1), -1
    try:
        number = os.memfd_create("superworkflow-token")
        os.write(number, token.to_bytes(_TOKEN_BYTES, "little"))
    except (AttributeError, OSError):
        number = -1
    try:
        mine, size = torch.tensor([os.getpid(), number, token]), dist.get_world_size(group)
        gathered = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(gathered, mine, group=group)
        announced = [each.tolist() for each in gathered]
        lacking = torch.tensor([sum(not _is_readable(*each) for each in announced)])
        dist.all_reduce(lacking, group=group)  # all have read the tokens now
    finally:
        if number >= 0:
            os.close(number)
    return None if lacking.item() else SharedBuffers(group, [pid for pid, *_ in announced])


def _is_readable(pid: int, number: int, token: int) -> bool:
    """True if the process of this id announced the token, and its memory can be read."""
    if number < 0:
        return False
    try:
        with open(f"/proc/{pid}/fd/{number}", "rb") as file:
            return file.read() == token.to_bytes(_TOKEN_BYTES, "little")
    except OSError:
        return False


def _opened(pid: int, number: int, size: int) -> NDArray[np.uint8]:
    """Map the buffer of another process for reading."""
    with open(f"/proc/{pid}/fd/{number}", "rb") as file:
        if os.fstat(file.fileno()).st_size != size:  # reading beyond the end would kill this process
            raise RuntimeError(f"the memory that process {pid} shares does not have the expected {size} bytes")
        return np.frombuffer(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ), np.uint8)
