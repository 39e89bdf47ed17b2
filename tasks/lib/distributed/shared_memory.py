"""Memory that all workers of one machine can read, so that what they exchange does not go through TCP.

A worker writes what it sends into a buffer of its own, says where in it each other worker's share begins, and the
others copy theirs. Buffers have no name in any file system: nothing is left where a worker is killed.
"""

from __future__ import annotations

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

_LEAST = 1 << 20
_TOKEN_BYTES = 8


class _Told(NamedTuple):
    """Header that a worker sends to another in an exchange.

    Args:
        number, size: descriptor of its buffer, and bytes that this has.
        begin, length: the other worker's share of it, in bytes.
    """

    number: int
    size: int
    begin: int
    length: int


class _Buffer:
    """A worker's own, of `size` bytes."""

    def __init__(self, size: int):
        self.number = os.memfd_create("superworkflow-exchange")
        weakref.finalize(self, os.close, self.number).atexit = False
        os.ftruncate(self.number, size)
        self.bytes: NDArray[np.uint8] = np.frombuffer(mmap.mmap(self.number, size), np.uint8)


class SharedBuffers:
    """Two buffers of each worker, which take turns: one is read by others while the next exchange fills the other.

    A worker that begins an exchange has copied what it got in the one before it. So once an exchange is over, nobody
    reads what was sent in the one before it, and that buffer is free.

    Args:
        group: of torch.distributed.
        pids: of its processes, by rank.
    """

    def __init__(self, group: Any, pids: Sequence[int]):
        self._group, self._pids, self._rank = group, pids, dist.get_rank(group)
        self._own: list[_Buffer | None] = [None, None]
        self._all: list[list[NDArray[np.uint8]]] = [[], []]
        self._turn = 0

    def room(self, size: int) -> NDArray[np.uint8]:
        """Buffer in which to write the data of the next exchange without a copy; not filled."""
        own = self._own[self._turn]
        if own is None or len(own.bytes) < size:
            own = self._own[self._turn] = _Buffer(max(_LEAST, 1 << (size - 1).bit_length()))
        return own.bytes[:size]

    def exchange(
        self, out: NDArray[np.uint8], leaving: Sequence[int], received: NDArray[np.uint8], coming: Sequence[int]
    ) -> None:
        """Send bytes to each worker and get some from each; all workers call it together.

        Args:
            out: one behind the other by rank; `room`, or anything else.
            leaving, coming: how many, by rank.
            received: filled, one behind the other by rank.

        Raises:
            RuntimeError: a worker sends less or more than is expected of it.
        """
        begins, places = np.cumsum([0, *leaving]).tolist(), np.cumsum([0, *coming]).tolist()
        own = slice(begins[self._rank], begins[self._rank + 1])
        room = self.room(len(out))
        if len(out) and room.ctypes.data != out.ctypes.data:
            for others in (slice(0, own.start), slice(own.stop, None)):
                room[others] = out[others]
        shares = self._shares(list(zip(begins, leaving, strict=False)), coming)
        for rank, share in enumerate(shares):
            received[places[rank] : places[rank + 1]] = out[own] if rank == self._rank else share

    def everyone(self, out: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """Data of each worker, where all wrote equal lengths; valid until the next exchange but one.

        Args:
            out: see `room`.
        """
        return self._shares([(0, len(out))] * len(self._pids), [len(out)] * len(self._pids))

    def _shares(self, leaving: Sequence[tuple[int, int]], coming: Sequence[int]) -> list[NDArray[np.uint8]]:
        """By rank what each has for this worker, in memory that is another's.

        Args:
            leaving: where in this worker's buffer each other one's share begins, and its bytes.
            coming: bytes that are expected.
        """
        own = self._own[self._turn]
        assert own is not None
        told = torch.tensor([(own.number, len(own.bytes), *share) for share in leaving])
        heard = torch.empty_like(told)
        dist.all_to_all_single(heard, told, group=self._group)
        theirs = [_Told(*each) for each in heard.tolist()]
        self._open(theirs, own.bytes)
        found = []
        for rank, there in enumerate(theirs):
            if there.length != coming[rank] or not 0 <= there.begin <= there.begin + there.length <= there.size:
                raise RuntimeError(
                    f"rank {rank} sends {there.length} bytes from {there.begin} on, of {there.size}, where "
                    f"{coming[rank]} were expected"
                )
            found.append(self._all[self._turn][rank][there.begin : there.begin + there.length])
        self._turn = 1 - self._turn
        return found

    def _open(self, told: Sequence[_Told], own: NDArray[np.uint8]) -> None:
        """Open what others have made anew, to have larger buffers; all hear the same of it.

        Nobody goes on before all have done so: memory that is open stays if its owner ends, but cannot be opened then.
        """
        before, now = self._all[self._turn], [each.size for each in told]
        if [len(each) for each in before] == now:
            return
        self._all[self._turn] = [
            own if rank == self._rank
            else before[rank] if before and len(before[rank]) == each.size
            else _opened(self._pids[rank], each.number, each.size)
            for rank, each in enumerate(told)
        ]  # fmt: skip
        dist.barrier(group=self._group)


def shared_buffers(group: Any) -> SharedBuffers | None:
    """Buffers of the workers of a group, which all call it together; None unless each can read all others' memory.

    Processes of different machines or containers cannot, nor those of systems that have no such memory.
    """
    token, number = secrets.randbits(8 * _TOKEN_BYTES - 1), -1
    try:
        number = os.memfd_create("superworkflow-token")
        os.write(number, token.to_bytes(_TOKEN_BYTES, "little"))
    except (AttributeError, OSError):
        number = -1
    try:
        mine, size = torch.tensor([os.getpid(), number, token]), dist.get_world_size(group)
        told = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(told, mine, group=group)
        found = [each.tolist() for each in told]
        lacking = torch.tensor([sum(not _is_there(*each) for each in found)])
        dist.all_reduce(lacking, group=group)  # after which all have looked
    finally:
        if number >= 0:
            os.close(number)
    return None if lacking.item() else SharedBuffers(group, [pid for pid, *_ in found])


def _is_there(pid: int, number: int, token: int) -> bool:
    """True if the process of this number is the one that told its token, and lets us read its memory."""
    if number < 0:
        return False
    try:
        with open(f"/proc/{pid}/fd/{number}", "rb") as file:
            return file.read() == token.to_bytes(_TOKEN_BYTES, "little")
    except OSError:
        return False


def _opened(pid: int, number: int, size: int) -> NDArray[np.uint8]:
    """The buffer of another process, to read."""
    with open(f"/proc/{pid}/fd/{number}", "rb") as file:
        if os.fstat(file.fileno()).st_size != size:  # to read beyond the end would end this process
            raise RuntimeError(f"the memory that process {pid} shares has not the {size} bytes that it should have")
        return np.frombuffer(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ), np.uint8)
