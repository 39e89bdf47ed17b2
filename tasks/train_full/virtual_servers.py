"""Graph servers on the virtual clock: all in one process, with simulated threads and links, and the true weights."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.process.shutdown import Shutdown
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.checkpoint_stores import Folder
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.tensor_tasks import MATRIX, SparseRows
from superworkflow.tasks.train_full import training
from superworkflow.tasks.train_full.graph_servers import GraphServer, ServerGroup, server_rows, server_stats
from superworkflow.tasks.train_full.params import TrainFullParams
from superworkflow.tasks.train_full.pipeline import wide_numbers
from superworkflow.tasks.train_full.timeline import TimelineRow
from superworkflow.tasks.train_full.trainer import WholeTrainer
from superworkflow.tasks.train_full.virtual_clock import NominalSeconds, VirtualClock

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
        self._clock, self._takers, self._bits_s, self._free = clock, takers, bits_s, 0.0
        takers.append(take)
        self.sent: dict[str, int] = {}
        self.messages = 0

    def send(self, rank: int, header: Header, arrays: Sequence[NDArray[Any]], kind: str) -> None:
        """Have a message come when the link has carried it, after the work that is being computed."""
        message = np.concatenate([np.empty(0, np.uint8), *(np.frombuffer(each.tobytes(), np.uint8) for each in arrays)])
        self.messages += 1
        self.sent[kind] = self.sent.get(kind, 0) + len(message)
        made = self._clock.ends

        def leave() -> None:
            self._free = max(self._free, made) + 8 * (len(message) + _HEADER_BYTES) / self._bits_s
            self._clock.at(self._free, lambda: self._takers[rank](header, message))

        self._clock.at(made, leave)


def train_virtually(
    job: StageRun[TrainFullParams], work: training.FullGraphWork, shutdown: Shutdown
) -> tuple[WholeTrainer, list[TimelineRow], dict[str, Stat]]:
    """Train on `virtual_servers`; the trainer of the first one, the timeline of all, and stats."""
    options, takers, clock = job.params, list[Callable[..., None]](), VirtualClock(job.params.virtual_threads)
    count, inputs = options.virtual_servers, training.inputs_of(work, job.inputs.get("sums"))
    machines, pipelines, servers, trainers, ghosts = [], [], [], [], 0
    for rank in range(count):
        own = training.part_of(work, count, rank)
        network, first, last = Network(own.shape, own.params.seed), own.whole.first, own.whole.first + own.whole.count
        progress = job.progress if not rank else Progress("train_full", stream=io.StringIO())
        group = ServerGroup(network, own.params, Folder(job.checkpoint), job.save_checkpoint, progress.log, shutdown,
                            not rank)  # fmt: skip
        trainer = WholeTrainer(network, own.task, own.params, options, group, own.whole.order, progress)
        part = inputs.rows(first, last) if isinstance(inputs, SparseRows) else inputs[first:last]
        executed = training.whole_network(options, own, part, network)
        server = GraphServer(
            rank, count, executed, trainer, group,
            lambda words, take, fail: VirtualMailbox(clock, takers, 1e9 * options.virtual_gbps, take),
        )  # fmt: skip
        pipelines.append(training.pipeline_of(trainer, executed, options, 1, server=server))
        shapes = [layer[MATRIX].shape for layer in trainer.weights()]
        machines.append(pipelines[-1].machine(NominalSeconds(own.whole, shapes)))
        servers.append(server)
        trainers.append(trainer)
        ghosts += len(own.whole.ghosts.numbers)
    with wide_numbers():
        clock.run(machines)
    training.take_best(trainers[0])
    threads = options.virtual_threads
    rows = [row for rank, each in enumerate(pipelines) for row in server_rows(each.timeline, rank, count, threads)]
    posts = [server.mailbox for server in servers]
    return trainers[0], rows, server_stats([post.sent for post in posts], sum(post.messages for post in posts), ghosts)
