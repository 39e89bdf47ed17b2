"""The pool of tensor workers: `AV` as calls, a pool whose size follows the queue, and what it did by epoch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Progress, Resources, StageRun
from superworkflow.infra.engines.scaling import CALLS
from superworkflow.infra.engines.workers.call_executor import Shared
from superworkflow.infra.engines.workers.calls import CallResult, Calls, Members, Transport
from superworkflow.infra.engines.workers.http_endpoint import HttpEndpoint, token_of_environment
from superworkflow.infra.engines.workers.served_members import ServedMembers
from superworkflow.infra.engines.workers.session import worker_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.gnn.tensor_tasks import TensorFacts, compute_call, prepare
from superworkflow.tasks.train_full.params import TENSOR, TrainFullParams
from superworkflow.tasks.train_full.pool_size import PoolSize
from superworkflow.tasks.train_full.timeline import POOL_FILE
from superworkflow.tasks.train_full.whole_network import NetworkWeights


class PoolRow(NamedTuple):
    """Figures of an epoch.

    Args:
        epoch: from 1.
        queue: mean number of tasks that waited for a thread of the graph server.
        size: tensor workers that were wanted.
        present: that were there at its end.
        calls, relaunches, undone: calls that were done, sent again, and left to the graph server.
        bytes_sent, bytes_received: of arrays.
        started: workers that came.
        seconds: that tensor workers computed.
    """

    epoch: int
    queue: float
    size: int
    present: int
    calls: int
    relaunches: int
    undone: int
    bytes_sent: int
    bytes_received: int
    started: int
    seconds: float

    @classmethod
    def of_numbers(cls, values: Sequence[float]) -> PoolRow:
        """A row by its values as floats."""
        exact = {name: int(value) for name, value in zip(cls._fields, values, strict=True)}
        return cls(**exact)._replace(queue=values[1], seconds=values[-1])


class PoolPlace(NamedTuple):
    """Tensor workers that the profile names for graph servers.

    Args:
        most: that there may be of all servers together.
        memory: bytes of each.
        url: of the endpoint that executes calls in their place; empty without one.
    """

    most: int
    memory: int
    url: str = ""

    @classmethod
    def of_resources(cls, resources: Resources) -> PoolPlace | None:
        """None without tensor workers."""
        endpoint, group = (resources.endpoints or {}).get(TENSOR), (resources.workers or {}).get(TENSOR)
        if endpoint is not None:
            return cls(endpoint.most, endpoint.memory, endpoint.url)
        return cls(group.largest, group.memory) if group is not None and group.count else None


Charge = Callable[[int, float], None]
_CHARGE_SECONDS = 10.0
"""Least time between two reports of calls: as much is not paid for where a graph server is lost."""
_SUMS = PoolRow._fields[2:]
_TOTALS = ("calls", "relaunches", "undone", "bytes_sent", "bytes_received", "started", "seconds")


class WorkerPool:
    """The `pipeline.TensorPool` whose workers are reached by calls.

    Args:
        calls: to the workers, of `tensor_tasks.compute_call`.
        size: of the pool, by the queue.
        charge: is given the number of calls that were executed since it was called last, and the seconds that they took
            together, of an endpoint.
    """

    def __init__(self, calls: Calls, size: PoolSize, charge: Charge | None = None):
        self._calls, self._size, self._charge = calls, size, charge
        self._before: Mapping[str, float] = {}
        self._charged, self._charged_at = (0.0, 0.0), time.monotonic()
        self.rows: list[PoolRow] = []
        calls.scale(size.size)

    @property
    def available(self) -> bool:
        return self._calls.available

    def counts(self) -> dict[str, float]:
        """Figures since the start; see `Calls.counts`."""
        return self._calls.counts()

    def submit(
        self, facts: TensorFacts, versions: Mapping[int, NetworkWeights], version: int, arrays: Sequence[NDArray[Any]],
        ended: Callable[[CallResult | None], None],
    ) -> None:  # fmt: skip
        layers = versions[version]
        shared = Shared(version, [layer[name] for layer in layers for name in sorted(layer)], tuple(versions))
        self._calls.submit({**facts, "weights": [sorted(layer) for layer in layers]}, shared, arrays, ended)

    def end_epoch(self, epoch: int, queue: float) -> None:
        now, size = self._calls.counts(), self._size.size
        found = {name: now.get(name, 0) - self._before.get(name, 0) for name in _TOTALS}
        seconds = found.pop("seconds")
        whole = {name: int(value) for name, value in found.items()}
        self.rows.append(PoolRow(epoch, queue, size, int(now.get("present", 0)), **whole, seconds=seconds))
        self._before = now
        if time.monotonic() - self._charged_at > _CHARGE_SECONDS:
            self.charge()
        if self._size.next(queue) != size:
            self._calls.scale(self._size.size)

    def charge(self) -> None:
        """Report calls that were not reported yet."""
        if self._charge is not None:
            (calls, seconds), found = self._charged, self.counts()
            self._charge(int(found["calls"] - calls), found["seconds"] - seconds)
            self._charged, self._charged_at = (found["calls"], found["seconds"]), time.monotonic()


def summed(pools: Sequence[Sequence[PoolRow]]) -> list[PoolRow]:
    """Rows of the pools of all graph servers, which have done the same epochs; `queue` is the mean of theirs."""
    found = []
    for rows in zip(*pools, strict=True):
        sums = {name: sum(getattr(row, name) for row in rows) for name in _SUMS}
        found.append(PoolRow(rows[0].epoch, sum(row.queue for row in rows) / len(rows), **sums))
    return found


def write_pool(output: FileWriter, rows: Sequence[PoolRow]) -> dict[str, Stat]:
    """Write a row for each epoch; totals, and means over epochs, for the record of the run."""
    columns = zip(*rows, strict=True) if rows else [()] * len(PoolRow._fields)
    table = {name: pa.array(each) for name, each in zip(PoolRow._fields, columns, strict=True)}
    output.table(POOL_FILE, pa.table(table))
    totals = {f"{TENSOR}.{name}": sum(getattr(row, name) for row in rows) for name in _TOTALS}
    count = max(1, len(rows))
    means = {f"{TENSOR}.{name}": sum(getattr(row, name) for row in rows) / count for name in ("queue", "size")}
    return totals | means


@contextlib.contextmanager
def open_pool(
    job: StageRun[TrainFullParams], place: PoolPlace, intervals: int, example: TensorFacts, streams: bool
) -> Iterator[WorkerPool]:  # fmt: skip
    """The pool of the stage's endpoint, or of its worker group's role, while it trains.

    Args:
        job: the stage's run.
        place: the tensor workers of its resources.
        intervals: tasks that there may be at once.
        example: facts of a task, for which workers are prepared.
        streams: see `Members`.

    Raises:
        UserError: the group cannot be opened, or there is no token.
    """
    if place.url:
        with open_endpoint_pool(place, job.progress.log, charge_of(job.progress), intervals) as pool:
            yield pool
        return
    with worker_group(job) as group:
        transport = Members(group, TENSOR, compute_call, prepare, example, streams)
        with _running(transport, job.progress.log, intervals, place.most) as pool:
            yield pool


def charge_of(progress: Progress) -> Charge:
    """A function that reports calls to the launcher."""
    return lambda calls, seconds: progress.emit(CALLS, role=TENSOR, calls=calls, seconds=seconds)


@contextlib.contextmanager
def open_endpoint_pool(
    place: PoolPlace, log: Callable[[str], None], charge: Charge, intervals: int, servers: int = 1, number: int = 0
) -> Iterator[WorkerPool]:  # fmt: skip
    """The pool of a graph server whose calls go to an endpoint; see `open_pool`.

    Args:
        place: the endpoint.
        log: takes what people should know.
        charge: see `WorkerPool`.
        intervals: of this server.
        servers, number: how many share the endpoint's requests, and which this one is; each has one at least.

    Raises:
        UserError: there is no token.
    """
    most = max(1, place.most // servers + (number < place.most % servers))
    with contextlib.closing(HttpEndpoint(place.url, token_of_environment(), most)) as transport:
        with _running(transport, log, intervals, most, charge) as pool:
            yield pool


@contextlib.contextmanager
def open_served_pool(
    worker: Worker, most: int, intervals: int, example: TensorFacts, streams: bool
) -> Iterator[WorkerPool]:  # fmt: skip
    """The pool of one of several graph servers, of members that are connected to it; see `open_pool`.

    Args:
        worker: the rank of the server.
        most: workers that all servers may have together.
        intervals, example: of this server.
        streams: see `Members`.
    """
    with contextlib.closing(ServedMembers(worker, TENSOR, most)) as served:
        transport = Members(served, TENSOR, compute_call, prepare, example, streams)
        with _running(transport, worker.log, intervals, most) as pool:
            yield pool


@contextlib.contextmanager
def _running(
    transport: Transport, log: Callable[[str], None], intervals: int, most: int, charge: Charge | None = None
) -> Iterator[WorkerPool]:  # fmt: skip
    calls = Calls(transport, log, "tensor worker", "the graph server does their tasks")
    pool = WorkerPool(calls, PoolSize(intervals, most), charge)
    try:
        with calls.running():
            yield pool
    finally:
        pool.charge()
