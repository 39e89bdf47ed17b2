"""Graph servers on the virtual clock: all in one process, with simulated threads and links, and the true weights."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Progress, StageRun
from superworkflow.infra.process.shutdown import Shutdown
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.checkpoint_stores import Folder
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.tensor_tasks import MATRIX, SparseRows, compute_call
from superworkflow.tasks.train.one_process import OneProcess
from superworkflow.tasks.train_full import training
from superworkflow.tasks.train_full.graph_servers import GraphServer, ServerGroup, server_rows, server_stats
from superworkflow.tasks.train_full.parameter_servers import ParameterServer
from superworkflow.tasks.train_full.params import NOMINAL_RATES, TENSOR, TrainFullParams
from superworkflow.tasks.train_full.pipeline import wide_numbers
from superworkflow.tasks.train_full.task_seconds import NOMINAL, TaskSeconds
from superworkflow.tasks.train_full.timeline import TimelineRow
from superworkflow.tasks.train_full.trainer import WholeTrainer
from superworkflow.tasks.train_full.virtual_clock import Job, Machine, VirtualClock, VirtualLink, Work
from superworkflow.tasks.train_full.virtual_tensor_workers import VirtualTensorWorkers, shared_among

if TYPE_CHECKING:
    from superworkflow.tasks.lib.distributed.mailbox import Header  # needs pyzmq

_HEADER_BYTES = 40


class VirtualMailbox:
    """The mailbox of a simulated server, whose messages leave one after another.

    Args:
        clock: the clock.
        takers: what takes the messages of each server, by its number.
        bits_s: bits a second of its link.
        take: takes its own messages.
    """

    def __init__(
        self, clock: VirtualClock, takers: list[Callable[[Header, NDArray[np.uint8]], None]], bits_s: float,
        take: Callable[[Header, NDArray[np.uint8]], None],
    ):  # fmt: skip
        self._clock, self._takers, self._link = clock, takers, VirtualLink(clock, bits_s)
        takers.append(take)
        self.sent: dict[str, int] = {}
        self.messages = 0

    def send(self, rank: int, header: Header, arrays: Sequence[NDArray[Any]], kind: str) -> None:
        """Have a message come when the link has carried it, after the work that is being computed."""
        message = np.concatenate([np.empty(0, np.uint8), *(np.frombuffer(each.tobytes(), np.uint8) for each in arrays)])
        self.messages += 1
        self.sent[kind] = self.sent.get(kind, 0) + len(message)
        size = len(message) + _HEADER_BYTES
        self._clock.send(size, lambda: self._link.carry(size, lambda: self._takers[rank](header, message)))


def train_virtually(
    job: StageRun[TrainFullParams], work: training.FullGraphWork, shutdown: Shutdown
) -> tuple[WholeTrainer, list[TimelineRow], dict[str, Stat]]:
    """Train on `virtual_servers`; the trainer of the first one, the timeline of all, and stats."""
    options, takers, clock = job.params, list[Callable[..., None]](), VirtualClock(job.params.virtual_threads)
    count, parameters = options.virtual_servers, options.virtual_parameter_servers
    inputs = training.inputs_of(work, job.inputs.get("sums"), options.precision)
    rates = NOMINAL if options.virtual_rates == NOMINAL_RATES else _measured()
    machines, pipelines, servers, trainers, pools, ghosts = [], [], list[GraphServer[VirtualMailbox]](), [], [], 0
    many = count + parameters > 1

    def opened(words: int, take: Callable[..., None], fail: Callable[[BaseException], None]) -> VirtualMailbox:
        return VirtualMailbox(clock, takers, 1e9 * options.virtual_gbps, take)

    def joined(
        own: training.FullGraphWork, number: int, writes: bool
    ) -> tuple[Network, OneProcess, WholeTrainer]:  # fmt: skip
        network = Network(own.shape, own.params.seed)
        progress = job.progress if not number else Progress("train_full", stream=io.StringIO())
        given = network, own.params, Folder(job.checkpoint), job.save_checkpoint, progress.log, shutdown
        group = ServerGroup(*given, writes) if many else OneProcess(*given)
        return network, group, WholeTrainer(network, own.task, own.params, options, group, own.whole.order, progress)

    for rank in range(count):
        own = training.part_of(work, count, rank) if count > 1 else work
        first, last = own.whole.first, own.whole.first + own.whole.count
        network, group, trainer = joined(own, rank, not rank and not parameters)
        part = inputs.rows(first, last) if isinstance(inputs, SparseRows) else inputs[first:last]
        executed, server = training.whole_network(options, own, part, network), None
        if isinstance(group, ServerGroup):
            server = GraphServer(rank, count, executed, trainer, group, opened, parameters)
            servers.append(server)
            ghosts += len(own.whole.ghosts.numbers)
        shapes = [layer[MATRIX].shape for layer in trainer.weights()]
        seconds, pool = TaskSeconds(executed.sizes(), shapes, options.model, rates), None
        if workers := shared_among(options.virtual_tensor_workers, count, rank):
            intervals, bits_s = len(own.whole.own), 1e9 * options.virtual_tensor_gbps
            pool = VirtualTensorWorkers(
                clock, workers, intervals, bits_s, seconds.call, compute_call, options.streaming
            )  # fmt: skip
            pools.append(pool)
        pipelines.append(training.pipeline_of(trainer, executed, options, 1, pool, server))
        machines.append(pipelines[-1].machine(seconds))
        trainers.append(trainer)
    posts = [server.mailbox for server in servers]
    for rank in range(count, count + parameters):
        _, group, trainer = joined(work, rank, rank == count)
        assert isinstance(group, ServerGroup)
        every, intervals = range(count, count + parameters), len(work.whole.order.intervals)
        updating = ParameterServer(rank, every, trainer, group, intervals, opened)
        machines.append(_machine(updating, seconds))
        posts.append(updating.mailbox)
    with wide_numbers():
        clock.run(machines)
    training.take_best(trainers[0])
    threads = options.virtual_threads
    rows = [row for rank, each in enumerate(pipelines) for row in server_rows(each.timeline, rank, count, threads)]
    facts: dict[str, Stat] = {}
    if servers:
        sent, messages = [post.sent for post in posts], sum(post.messages for post in posts)
        facts = server_stats(sent, messages, ghosts, parameters)
    for name in pools[0].stats if pools else ():
        facts[f"{TENSOR}.{name}"] = sum(pool.stats[name] for pool in pools)
    return trainers[0], rows, facts


def _machine(server: ParameterServer[VirtualMailbox], seconds: Callable[[Work, int], float]) -> Machine:
    """Machine of a parameter server; its work is of no interval."""

    def next_job(thread: int) -> Job | None:
        if server.may_update:
            return _job(Work(server.update, is_update=True))
        if server.may_end:
            return _job(Work(server.end, is_end=True))
        if not server.has_next():
            return None
        came = server.next()
        return _job(Work(lambda: server.take(came), received=came[1].nbytes))

    return Machine(next_job, lambda: server.is_over, seconds)


def _job(work: Work) -> Job:
    yield work


def _measured() -> Mapping[str, float]:
    from superworkflow.tasks.train_full.task_rates import machine_rates  # measures where none are kept

    return machine_rates()
