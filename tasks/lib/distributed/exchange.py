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
    """All-to-all exchange of arrays between the workers of a group.

    Args:
        group: process group of torch.distributed; one thread at a time may use it.
        memory: pool for received arrays, for callers that exchange equal sizes repeatedly. Without it, memory that a
            thread other than the main one frees returns to the system, which hands it out again as zeroed huge pages.
        shared: buffers of the group; without them arrays travel by TCP.

    `sent` counts the bytes that have left this worker, by kind, `count` the exchanges, and `waited` their seconds.
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
            outgoing: arrays by rank.
            kind: key in `sent`.
            coming: lengths of the arrays to receive, by rank; None exchanges the lengths first.
        """
        counts = [len(each) for each in outgoing]
        if coming is None:
            began = time.monotonic()
            coming = self._all_to_all(torch.tensor(counts), [1] * self.size, [1] * self.size).tolist()
            self.waited += time.monotonic() - began
        return np.split(self.cross(np.concatenate(outgoing), counts, coming, kind), np.cumsum(coming)[:-1])

    def post(self, outgoing: Sequence[NDArray[np.uint8]], kind: str) -> list[NDArray[np.uint8]]:
        """Send bytes to each worker and get some from each, of any lengths; over shared memory in one exchange.

        Args:
            outgoing: messages by rank.
            kind: key in `sent`.

        Returns:
            Messages by rank, valid until the next exchange but one.
        """
        if self._shared is None:
            return self.swap(outgoing, kind)
        began = time.monotonic()
        found = self._shared.post(outgoing)
        self.waited += time.monotonic() - began
        self.count += 1
        self._note(kind, sum(len(each) for rank, each in enumerate(outgoing) if rank != self.rank))
        return found

    def cross(self, out: NDArray[Any], leaving: Sequence[int], coming: Sequence[int], kind: str) -> NDArray[Any]:
        """Like `swap`, of arrays that are concatenated by rank, as is the result.

        Args:
            out: outgoing arrays, [n] or [n, width].
            leaving, coming: lengths, by rank.
            kind: key in `sent`.
        """
        began = time.monotonic()
        received = self._all_to_all(torch.from_numpy(np.ascontiguousarray(out)), leaving, coming).numpy()
        self.waited += time.monotonic() - began
        self._note(kind, (len(out) - leaving[self.rank]) * (out.nbytes // max(1, len(out))))
        return received

    def swap_likely(
        self, outgoing: Sequence[NDArray[np.int64]], kind: str, likely: SizeKey
    ) -> list[NDArray[np.int64]]:  # fmt: skip
        """Send an array of integers to each worker and get one from each; the lengths travel with the arrays.

        Buffers have the predicted size; a worker that has more for another one sends it the rest separately.

        Args:
            outgoing: arrays by rank.
            kind: key in `sent`.
            likely: key of the prediction.
        """
        began, others = time.monotonic(), [rank for rank in range(self.size) if rank != self.rank]
        leaving, coming = [0] * self.size, [0] * self.size
        for rank in others:  # the length precedes each array
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
        """Uninitialized array from the pool, for data that is exchanged or derived from it."""
        return np.empty(shape, dtype) if self._memory is None else self._memory.array(shape, dtype)

    def leaving(self, length: int, dtype: Any) -> NDArray[Any]:
        """Uninitialized send buffer of the next exchange: data written into it need not be copied."""
        if self._shared is None:
            return self.array((length,), dtype)
        return self._shared.room(length * np.dtype(dtype).itemsize).view(dtype)

    def everyone(self, values: NDArray[Any], kind: str, *, alike: bool = False) -> NDArray[Any]:
        """All workers' arrays, concatenated by rank; `alike` if all have the same length."""
        coming = [len(values)] * self.size if alike else None
        return np.concatenate(self.swap([values] * self.size, kind, coming))

    def add_up(self, values: torch.Tensor) -> torch.Tensor:
        """Sum of all workers' values [n], float32, bit-equal on all of them.

        Args:
            values: this worker's, in a buffer made by `leaving`; overwritten.
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
        """One exchange; `leaving` and `coming` count the values by rank."""
        received = torch.from_numpy(self.array((sum(coming), *out.shape[1:]), out.numpy().dtype))
        if self._shared is None:
            dist.all_to_all_single(received, out, list(coming), list(leaving), group=self.group)
        else:
            size = out.element_size() * math.prod(out.shape[1:])
            leaving, coming = ([size * count for count in counts] for counts in (leaving, coming))
            self._shared.exchange(_bytes_of(out), leaving, _bytes_of(received), coming)
        self.count += 1
        return received

    def _send_rest(
        self, leaving: Mapping[int, NDArray[np.int64]], coming: Mapping[int, int]
    ) -> dict[int, NDArray[np.int64]]:
        """Point-to-point exchange of what did not fit the predicted sizes; both sides know its lengths."""
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
