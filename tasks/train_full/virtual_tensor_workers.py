"""Tensor workers on the virtual clock: true results, after simulated seconds of links and of one thread each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from superworkflow.tasks.train_full.pool_size import PoolSize
from superworkflow.tasks.train_full.virtual_clock import VirtualClock, VirtualLink

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


@dataclass
class _Worker:
    """A worker, the calls that it has, the version of the weights that it keeps, until when it computes, and when its
    last result came."""

    number: int
    down: VirtualLink
    up: VirtualLink
    calls: int = 0
    version: int = -1
    busy_until: float = 0.0
    came: float = 0.0


class VirtualTensorWorkers:
    """The `pipeline.TensorPool` of simulated workers, which compute one call at a time. No call is late or lost.

    Args:
        clock: the clock.
        most: how many there are; at least 1.
        intervals: calls that there may be at once.
        bits_s: bits a second of each one's link, each way.
        seconds: that a call is computed.
        compute: executes a call.
        streams: a worker gets a call while it computes another.
    """

    def __init__(
        self, clock: VirtualClock, most: int, intervals: int, bits_s: float,
        seconds: Callable[[Mapping[str, Any], Sequence[NDArray[Any]]], float], compute: Compute, streams: bool,
    ):  # fmt: skip
        self._clock, self._seconds, self._compute, self._at_once = clock, seconds, compute, 1 + streams
        self._size, self._waiting = PoolSize(intervals, most), deque[_Call]()
        self._workers = [
            _Worker(number, VirtualLink(clock, bits_s), VirtualLink(clock, bits_s)) for number in range(most)
        ]
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
        """Give calls that wait to workers without one, then to those that may have another."""
        while self._waiting:
            worker = min(self._workers[: self._size.size], key=lambda each: (each.calls, each.number))
            if worker.calls >= self._at_once:
                return
            self._send(self._waiting.popleft(), worker)

    def _send(self, call: _Call, worker: _Worker) -> None:
        sent, begun = _bytes(call.arrays), self._clock.now
        if worker.version != call.version:
            sent += _bytes(call.shared)
        worker.calls, worker.version = worker.calls + 1, call.version

        def arrive() -> None:
            results, seconds = (
                self._compute(call.facts, call.shared, call.arrays), self._seconds(call.facts, call.arrays)
            )  # fmt: skip
            received = _bytes(results)
            for name, value in (("calls", 1), ("seconds", seconds), ("bytes_sent", sent), ("bytes_received", received)):
                self.stats[name] += value
            worker.busy_until = max(self._clock.now, worker.busy_until) + seconds
            self._clock.at(worker.busy_until, lambda: worker.up.carry(received, lambda: come(results)))

        def come(results: list[NDArray[Any]]) -> None:
            span, worker.came = (max(begun, worker.came), self._clock.now), self._clock.now
            worker.calls -= 1
            result: Any = VirtualResult(results, worker.number, *span)
            call.ended(result)
            self._give()

        worker.down.carry(sent, arrive)


def shared_among(workers: int, servers: int, server: int) -> int:
    """Workers of one of several graph servers, as even as can be."""
    return workers // servers + (server < workers % servers)


def _bytes(arrays: Sequence[NDArray[Any]]) -> int:
    return sum(each.nbytes for each in arrays)
