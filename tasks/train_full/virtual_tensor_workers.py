"""Tensor workers on the virtual clock: true results, after simulated seconds of links and of one thread each."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from superworkflow.tasks.train_full.pool_size import PoolSize
from superworkflow.tasks.train_full.virtual_clock import VirtualClock

if TYPE_CHECKING:
    from superworkflow.infra.engines.workers.calls import CallResult  # needs pyzmq
    from superworkflow.tasks.lib.gnn.tensor_tasks import TensorFacts  # needs compiled kernels
    from superworkflow.tasks.train_full.whole_network import NetworkWeights

Compute = Callable[[Mapping[str, Any], Sequence[NDArray[Any]], Sequence[NDArray[Any]]], list[NDArray[Any]]]
"""`tensor_tasks.compute_call`, or what takes its place."""


class VirtualResult(NamedTuple):
    """Result of a call, as `calls.CallResult`."""

    arrays: list[NDArray[Any]]
    member: int
    begun: float
    ended: float


class _Call(NamedTuple):
    facts: Mapping[str, Any]
    version: int
    shared: list[NDArray[Any]]
    arrays: Sequence[NDArray[Any]]
    ended: Callable[[CallResult | None], None]


class VirtualTensorWorkers:
    """The `pipeline.TensorPool` of simulated workers, each at one call at a time. No call is late or lost.

    Args:
        clock: the clock.
        most: how many there are; at least 1.
        intervals: calls that there may be at once.
        bits_s: bits a second of each one's link, each way.
        seconds: that a call is computed.
        compute: executes a call.
    """

    def __init__(
        self, clock: VirtualClock, most: int, intervals: int, bits_s: float,
        seconds: Callable[[Mapping[str, Any], Sequence[NDArray[Any]]], float], compute: Compute,
    ):  # fmt: skip
        self._clock, self._bits_s, self._seconds, self._compute = clock, bits_s, seconds, compute
        self._size, self._free, self._waiting = PoolSize(intervals, most), [*range(most)], deque[_Call]()
        self._kept: dict[int, int] = {}
        self.stats = {"calls": 0.0, "seconds": 0.0, "bytes_sent": 0.0, "bytes_received": 0.0}

    @property
    def available(self) -> bool:
        return True

    def submit(
        self, facts: TensorFacts, versions: Mapping[int, NetworkWeights], version: int, arrays: Sequence[NDArray[Any]],
        ended: Callable[[CallResult | None], None],
    ) -> None:  # fmt: skip
        layers = versions[version]
        shared = [layer[name] for layer in layers for name in sorted(layer)]
        call = _Call({**facts, "weights": [sorted(layer) for layer in layers]}, version, shared, arrays, ended)

        def leave() -> None:
            self._waiting.append(call)
            self._give()

        self._clock.send(_bytes(arrays), leave)

    def end_epoch(self, epoch: int, queue: float) -> None:
        self._size.next(queue)

    def _give(self) -> None:
        """Give calls that wait to workers that are free."""
        while self._waiting and self._free and self._free[0] < self._size.size:
            self._begin(self._waiting.popleft(), heapq.heappop(self._free))

    def _begin(self, call: _Call, member: int) -> None:
        begun, sent = self._clock.now, _bytes(call.arrays)
        if self._kept.get(member) != call.version:
            sent += _bytes(call.shared)
            self._kept[member] = call.version
        results, seconds = self._compute(call.facts, call.shared, call.arrays), self._seconds(call.facts, call.arrays)
        received = _bytes(results)
        for name, value in (("calls", 1), ("seconds", seconds), ("bytes_sent", sent), ("bytes_received", received)):
            self.stats[name] += value
        end = begun + seconds + 8 * (sent + received) / self._bits_s
        result: Any = VirtualResult(results, member, begun, end)

        def come() -> None:
            heapq.heappush(self._free, member)
            call.ended(result)
            self._give()

        self._clock.at(end, come)


def shared_among(workers: int, servers: int, server: int) -> int:
    """Workers of one of several graph servers, as even as can be."""
    return workers // servers + (server < workers % servers)


def _bytes(arrays: Sequence[NDArray[Any]]) -> int:
    return sum(each.nbytes for each in arrays)
