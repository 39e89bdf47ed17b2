"""Exchange of arrays between the ranks of a worker group."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.buffer_sizes import BufferSizes, SizeKey
from superworkflow.tasks.lib.distributed.shared_memory import SharedBuffers
from superworkflow.tasks.lib.kernels.buffer_pool import Memory


class Exchange:
    """Arrays from each worker to each other.

    Args:
        group: of torch.distributed; one thread at a time may use it.
        memory: where arrays that cross are, for who exchanges arrays of the same sizes again and again. What a thread
            beside the first one frees goes back to the system otherwise, which gives it out again as huge pages full of
            zeros; and what crosses once would stay.
        shared: buffers of the group; without them arrays cross by TCP.

    `sent` counts the bytes that have left this worker, by what they are, `count` the exchanges, and `waited` their
    seconds.
    """

    def __init__(self, group: Any, memory: Memory | None = None, shared: SharedBuffers | None = None):
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        self.sent: dict[str, int] = {}
        self.waited, self.count = 0.0, 0
        self._memory, self._shared = memory, shared
        self._leaving, self._coming = ([BufferSizes() for _ in range(self.size)] for _ in range(2))

    def swap(
        self, outgoing: Sequence[NDArray[Any]], kind: str, coming: Sequence[int] | None = None
    ) -> list[NDArray[Any]]:
        """Send an array [n] or [n, width] to each worker, of one type and width, and get one from each.

        Args:
            outgoing: by rank.
            kind: what they are, for `sent`.
            coming: how long those are that come, by rank; where all workers know it, they need not tell each other.
        """
        counts = [len(each) for each in outgoing]
        if coming is None:
            began = time.monotonic()
            coming = self._all_to_all(torch.tensor(counts), [1] * self.size, [1] * self.size).tolist()
            self.waited += time.monotonic() - began
        return np.split(self.cross(np.concatenate(outgoing), counts, coming, kind), np.cumsum(coming)[:-1])

    def cross(self, out: NDArray[Any], leaving: Sequence[int], coming: Sequence[int], kind: str) -> NDArray[Any]:
        """`swap` of arrays that stand one behind the other by rank, as those do that come.

        Args:
            out: them, [n] or [n, width].
            leaving, coming: lengths, by rank.
            kind: what they are, for `sent`.
        """
        began = time.monotonic()
        received = self._all_to_all(torch.from_numpy(np.ascontiguousarray(out)), leaving, coming).numpy()
        self.waited += time.monotonic() - began
        self._note(kind, (len(out) - leaving[self.rank]) * (out.nbytes // max(1, len(out))))
        return received

    def swap_likely(
        self, outgoing: Sequence[NDArray[np.int64]], kind: str, likely: SizeKey
    ) -> list[NDArray[np.int64]]:  # fmt: skip
        """Send an array of integers to each worker and get one from each, whose lengths come with them.

        There is room for as many as such arrays had before; those who have more for another worker send it the rest.

        Args:
            outgoing: by rank.
            kind: what they are, for `sent`.
            likely: how long they may be.
        """
        began, others = time.monotonic(), [rank for rank in range(self.size) if rank != self.rank]
        leaving, coming = [0] * self.size, [0] * self.size
        for rank in others:  # and the length before each
            leaving[rank] = 1 + self._leaving[rank].room(likely)
            coming[rank] = 1 + self._coming[rank].room(likely)
        out, ends = self.leaving(sum(leaving), np.int64), np.cumsum([0, *leaving])
        for rank in others:
            first = outgoing[rank][: leaving[rank] - 1]
            out[ends[rank]] = len(outgoing[rank])
            out[ends[rank] + 1 : ends[rank] + 1 + len(first)] = first
        received = self._all_to_all(torch.from_numpy(out), leaving, coming).numpy()
        pieces = np.split(received, np.cumsum(coming)[:-1])
        lengths = {rank: int(pieces[rank][0]) for rank in others}
        more = {rank: length + 1 - coming[rank] for rank, length in lengths.items() if length >= coming[rank]}
        rest = {rank: outgoing[rank][leaving[rank] - 1 :] for rank in others if len(outgoing[rank]) >= leaving[rank]}
        added = self._send_rest(rest, more) if rest or more else {}
        found = list(outgoing)
        for rank in others:
            found[rank] = pieces[rank][1 : 1 + lengths[rank]]
            if rank in added:
                found[rank] = np.concatenate([found[rank], added[rank]])
            self._leaving[rank].note(likely, len(outgoing[rank]))
            self._coming[rank].note(likely, lengths[rank])
        self.waited += time.monotonic() - began
        self._note(kind, out.nbytes + sum(each.nbytes for each in rest.values()))
        return found

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array for what crosses, or is made of it; not filled."""
        return np.empty(shape, dtype) if self._memory is None else self._memory.array(shape, dtype)

    def leaving(self, length: int, dtype: Any) -> NDArray[Any]:
        """An array for what leaves in the next exchange, for which it need not be copied then; not filled."""
        if self._shared is None:
            return self.array((length,), dtype)
        return self._shared.room(length * np.dtype(dtype).itemsize).view(dtype)

    def everyone(self, values: NDArray[Any], kind: str, *, alike: bool = False) -> NDArray[Any]:
        """The arrays of all workers, one after the other by rank; `alike` where all have the same length."""
        coming = [len(values)] * self.size if alike else None
        return np.concatenate(self.swap([values] * self.size, kind, coming))

    def add_up(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of all workers' values [n], float32, the same bits on each of them.

        Args:
            values: of this worker, in what `leaving` has made; not to be read any more.
        """
        self._note("gradients", values.nbytes * (self.size > 1))
        if self._shared is None:
            dist.all_reduce(values, group=self.group)
            return values
        first, *others = (each.view(np.float32) for each in self._shared.everyone(_bytes_of(values)))
        total = first.copy()
        for each in others:
            total += each
        return torch.from_numpy(total)

    def _note(self, kind: str, size: int) -> None:
        self.sent[kind] = self.sent.get(kind, 0) + size

    def _all_to_all(self, out: torch.Tensor, leaving: Sequence[int], coming: Sequence[int]) -> torch.Tensor:
        """One exchange: so many values to each rank, and so many from each."""
        received = torch.from_numpy(self.array((sum(coming), *out.shape[1:]), out.numpy().dtype))
        if self._shared is None:
            dist.all_to_all_single(received, out, list(coming), list(leaving), group=self.group)
        else:
            size = out.element_size() * math.prod(out.shape[1:])
            there, here = ([size * count for count in of] for of in (leaving, coming))
            self._shared.exchange(_bytes_of(out), there, _bytes_of(received), here)
        self.count += 1
        return received

    def _send_rest(
        self, leaving: Mapping[int, NDArray[np.int64]], coming: Mapping[int, int]
    ) -> dict[int, NDArray[np.int64]]:
        """Another exchange, of those alone who have something for each other, and know it."""
        found = {rank: torch.empty(length, dtype=torch.int64) for rank, length in coming.items()}
        running = [dist.irecv(each, group=self.group, group_src=rank) for rank, each in found.items()]
        for rank, each in leaving.items():
            out = torch.from_numpy(np.ascontiguousarray(each))
            running.append(dist.isend(out, group=self.group, group_dst=rank))
        for work in running:
            assert work is not None
            work.wait()
        self.count += 1
        return {rank: each.numpy() for rank, each in found.items()}


def _bytes_of(values: torch.Tensor) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = values.numpy().reshape(-1).view(np.uint8)
    return found
