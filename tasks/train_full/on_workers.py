"""Stage `train_full` on a worker group: graph servers, each with some intervals of the graph, and, if the profile names
them, parameter servers that update the weights and tensor workers that do products.

With `staleness=sync` the weights are the bits of one process, for any number of graph servers and threads.
"""

from __future__ import annotations

import contextlib
import functools
import io
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import WORKER, format_bytes
from superworkflow.infra.contract.stage import Output, Progress, StageRun
from superworkflow.infra.engines.shared_dataset import SharedDataset
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.engines.workers.session import worker_group
from superworkflow.infra.engines.workers.worker import StateSaved, Worker
from superworkflow.infra.process.shutdown import Shutdown
from superworkflow.tasks.lib.checkpoint_stores import STATE
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.group_kept import GroupKept
from superworkflow.tasks.lib.distributed.mailbox import Mailbox
from superworkflow.tasks.lib.gnn.model.config import NETWORK_FILE
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.model.weights import WEIGHTS_FILE
from superworkflow.tasks.train.checkpoint import ANOTHERS, TrainingState, saved_at
from superworkflow.tasks.train.distributed_group import GroupProgress
from superworkflow.tasks.train.params import ConcreteTrainParams
from superworkflow.tasks.train_full import run as in_process
from superworkflow.tasks.train_full import training
from superworkflow.tasks.train_full.graph_servers import GraphServer, ServerGroup, server_rows, server_stats
from superworkflow.tasks.train_full.parameter_servers import ParameterServer
from superworkflow.tasks.train_full.params import GRAPH, PARAMETER, REAL, TENSOR, TrainFullParams
from superworkflow.tasks.train_full.tensor_pool import (
    PoolPlace,
    PoolRow,
    WorkerPool,
    charge_of,
    open_endpoint_pool,
    open_served_pool,
    summed,
    write_pool,
)
from superworkflow.tasks.train_full.timeline import (
    POOL_FILE,
    TIMELINE_FILE,
    TimelineRow,
    read_timeline,
    write_timeline,
)
from superworkflow.tasks.train_full.trainer import WholeTrainer
from superworkflow.tasks.train_full.whole_network import WholeNetwork

SPLITS_FILE = "splits.npy"
FILES = [WEIGHTS_FILE, NETWORK_FILE, SPLITS_FILE, training.HISTORY_FILE, TIMELINE_FILE]


def run(job: StageRun[TrainFullParams]) -> Output:
    """Coordinate graph servers; the first one writes. Without any the stage's own process is the graph server.

    Raises:
        UserError: there are other roles, functions too, or more graph servers than intervals; or as in process.
    """
    workers = job.resources.workers or {}
    fixed = [role for role, group in workers.items() if not group.elastic]
    if not fixed:
        return in_process.run(job)
    _check_roles(job, fixed)
    parameters = workers[PARAMETER].count if PARAMETER in workers else 0
    inputs = {name: dataset.uri for name, dataset in job.inputs.items()}
    job.output.claim(FILES)
    pool = PoolPlace.of_resources(job.resources)
    if pool is not None:
        job.output.claim([POOL_FILE])
    with worker_group(job) as group:
        params = job.params.model_dump(mode="json")
        results = group.run_saving(train, params, inputs, job.output.location.uri, pool)
    first = results[parameters if fixed[0] == PARAMETER else 0]
    job.output.adopt(first["files"])
    for each in results:
        sent = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in sorted(each["sent"].items()))
        job.progress.log(
            f"{each['server']}: {each['vertices']} vertices, {each['ghosts']} ghosts, {each['cpu_s']:.1f} CPU "
            f"seconds, of which {each['setup_s']:.1f} before the first epoch; sent: {sent}"
        )
    messages, ghosts = (sum(each[name] for each in results) for name in ("messages", "ghosts"))
    seconds = {f"graph.{name}": round(sum(each[name] for each in results), 3) for name in ("cpu_s", "setup_s")}
    facts = server_stats([each["sent"] for each in results], messages, ghosts, parameters) | seconds
    if parameters:
        facts["parameter.servers"] = parameters
    return Output(rows=first["rows"], stats=first["stats"] | facts)


def _check_roles(job: StageRun[TrainFullParams], fixed: Sequence[str]) -> None:
    workers = job.resources.workers or {}
    elastic = [role for role in workers if role not in fixed]
    servers = [role for role in fixed if role != PARAMETER]
    if servers not in ([GRAPH], [WORKER]) or elastic not in ([], [TENSOR]):
        raise UserError(f"full-graph training has workers of the roles {GRAPH}, {PARAMETER} and {TENSOR}",
                        where="resources.workers", value=", ".join(workers),
                        remedy=f"Name {GRAPH} with a count, and {PARAMETER}, if at all; {TENSOR} with most",
                        )  # fmt: skip
    in_process.check_endpoints(job.resources)
    if job.params.clock != REAL:
        raise UserError("the virtual clock has simulated graph servers", where="train_full.clock",
                        value=job.params.clock,
                        remedy=f"Set train_full.virtual_servers, and leave out the role {servers[0]}")  # fmt: skip


def train(
    worker: Worker, given: dict[str, Any], inputs: dict[str, str], output: str, pool: Sequence[Any] | None = None
) -> dict[str, Any]:  # fmt: skip
    """Be one graph server, or a parameter server.

    Args:
        worker: this rank.
        given: the stage's parameters.
        inputs: URIs of the stage's inputs, by name.
        output: URI of the dataset to write.
        pool: the values of a `PoolPlace`, if there are tensor workers.
    """
    began, options, first = time.process_time(), TrainFullParams.model_validate(given), _first(worker)
    progress = GroupProgress(worker, first)
    datasets = {name: SharedDataset.at(uri, None) for name, uri in inputs.items()}
    if worker.role == PARAMETER:
        return _update(worker, training.learned_of(datasets, options), options, progress, pool is not None, began)
    servers, rank = worker.role_size, worker.role_rank
    work = training.work_of(datasets, options, servers, rank)
    training.log_facts(progress, work)
    whole, threads = work.whole, worker.threads
    with training.one_thread(), tempfile.TemporaryDirectory() as folder:
        network = Network(work.shape, work.params.seed)
        group = RankGroup(network, work.params, worker, Path(folder), not rank and servers == worker.size)
        trainer = WholeTrainer(network, work.task, work.params, options, group, whole.order, progress)
        executed = training.whole_network(
            options, work, training.inputs_of(work, datasets.get("sums"), options.precision, _add_up), network
        )
        opened = functools.partial(Mailbox, first=first)
        server = GraphServer(rank, servers, executed, trainer, group, opened, worker.size - servers)
        setup_s = time.process_time() - began
        with contextlib.ExitStack() as stack:
            tensors = None if pool is None else stack.enter_context(_pool(worker, executed, trainer, PoolPlace(*pool)))
            stack.enter_context(server.mailbox.running((StateSaved,)))
            timeline = training.train(trainer, executed, options, threads, tensors, server)
        rows = _all_rows(server_rows(timeline, rank, servers, threads), worker, Path(folder))
        calls = _all_calls(tensors, worker) if tensors is not None else []
    result = _facts(f"graph server {rank + 1}", server.mailbox, setup_s, work.items)
    result |= {"vertices": whole.count, "ghosts": len(whole.ghosts.numbers)}
    if not rank:
        writer = TaskWriter(output)
        result["stats"] = training.write_results(writer, trainer, rows, progress)
        if tensors is not None:
            result["stats"] |= write_pool(writer, calls)
        result["files"] = [entry.model_dump() for entry in writer.entries]
    return result | {"cpu_s": time.process_time() - began}


@contextlib.contextmanager
def _pool(
    worker: Worker, executed: WholeNetwork, trainer: WholeTrainer, place: PoolPlace
) -> Iterator[WorkerPool]:  # fmt: skip
    """The tensor workers of this graph server.

    Raises:
        UserError: too little memory for a call, or no token for the endpoint.
    """
    call_bytes = executed.call_bytes(trainer.weights())
    in_process.check_calls(place.memory, call_bytes)
    intervals = len(executed.graph.own)
    if place.url:
        charge = charge_of(GroupProgress(worker, worker.rank))
        opened = open_endpoint_pool(place, worker.log, charge, intervals, worker.role_size, worker.role_rank)
    else:
        streams = trainer.options.streaming and in_process.may_stream(place.memory, call_bytes)
        opened = open_served_pool(worker, place.most, intervals, executed.example(), streams)
    with opened as pool:
        yield pool


def _update(
    worker: Worker, learned: training.LearnedTask, options: TrainFullParams, progress: Progress, has_pool: bool,
    began: float,
) -> dict[str, Any]:  # fmt: skip
    """Be one parameter server."""
    with training.one_thread(), tempfile.TemporaryDirectory() as folder:
        network, servers = Network(learned.shape, learned.params.seed), worker.size - worker.role_size
        group = RankGroup(network, learned.params, worker, Path(folder), not worker.role_rank)
        trainer = WholeTrainer(network, learned.task, learned.params, options, group, learned.order, progress)
        _add_up(np.zeros(2, np.int64))  # as graph servers do
        opened = functools.partial(Mailbox, first=_first(worker))
        every = range(servers, worker.size)
        server = ParameterServer(every[worker.role_rank], every, trainer, group, len(learned.order.intervals), opened)
        setup_s = time.process_time() - began
        with server.mailbox.running((StateSaved,)):
            server.run()
        _all_rows([], worker, Path(folder))
        if has_pool:
            _at_first(np.empty(0, np.uint8), worker)
    result = _facts(f"parameter server {worker.role_rank + 1}", server.mailbox, setup_s, learned.items)
    return result | {"cpu_s": time.process_time() - began}


def _facts(server: str, mailbox: Mailbox, setup_s: float, items: int) -> dict[str, Any]:
    """Facts of any server for the coordinator; one without vertices writes nothing."""
    return {
        "server": server, "vertices": 0, "ghosts": 0, "sent": mailbox.sent, "messages": mailbox.messages,
        "setup_s": setup_s, "files": [], "stats": {}, "rows": items,
    }  # fmt: skip


class RankGroup(ServerGroup):
    """The same of a rank, whose checkpoint goes by way of the coordinator.

    Args:
        network: its copy of the network.
        params: course of training.
        worker: its rank.
        folder: folder of temporary files.
        is_first: see `ServerGroup`.
    """

    def __init__(
        self, network: Network, params: ConcreteTrainParams, worker: Worker, folder: Path, is_first: bool
    ):  # fmt: skip
        self._worker = worker
        log = worker.log if is_first else lambda message: None
        super().__init__(network, params, GroupKept(worker, folder), lambda: None, log, Shutdown(), is_first)

    def restore(self) -> TrainingState | None:
        found = super().restore()
        if found is None and self.is_first and self._kept.noted() is None and self._worker.load(STATE) is not None:
            self._worker.log(ANOTHERS)
        return found

    def wishes(self) -> tuple[bool, bool]:
        return super().wishes()[0], self._worker.stopping

    def save(self, checkpoint: TrainingState) -> None:
        super().save(checkpoint)
        if self.stops:
            dist.barrier()  # the first one has saved
            if self.is_first:
                self._worker.log(saved_at(checkpoint.position))
            raise StateSaved


def _add_up(values: NDArray[np.int64]) -> NDArray[np.int64]:
    total = torch.from_numpy(values.copy())
    dist.all_reduce(total)
    found: NDArray[np.int64] = total.numpy()
    return found


def _all_rows(rows: Sequence[TimelineRow], worker: Worker, folder: Path) -> list[TimelineRow]:
    """Timeline of all servers, on the first one. Collective."""
    write_timeline(folder / TIMELINE_FILE, rows)
    found = _at_first(np.fromfile(folder / TIMELINE_FILE, np.uint8), worker)
    return [row for each in found for row in read_timeline(io.BytesIO(each.tobytes()))]


def _all_calls(pool: WorkerPool, worker: Worker) -> list[PoolRow]:
    """Work of the pools of all servers by epoch, on the first one. Collective."""
    found = _at_first(np.array(pool.rows, np.float64).reshape(-1).view(np.uint8), worker)
    tables = [each.view(np.float64).reshape(-1, len(PoolRow._fields)) for each in found[: worker.role_size]]
    return summed([[PoolRow.of_numbers(row) for row in table.tolist()] for table in tables])


def _at_first(own: NDArray[np.uint8], worker: Worker) -> list[NDArray[np.uint8]]:
    """Bytes of all servers on the first graph server, in turn, and nothing on the others. Collective."""
    first, outgoing = _first(worker), [np.empty(0, np.uint8)] * worker.size
    outgoing[first] = own
    found = Exchange(dist.group.WORLD).swap(outgoing, "results")
    return [*found[first:], *found[:first]] if worker.rank == first else []


def _first(worker: Worker) -> int:
    """Rank of the first graph server: roles come in the order of the profile."""
    if worker.role == PARAMETER:
        return 0 if worker.rank > worker.role_rank else worker.role_size
    return worker.rank - worker.role_rank
