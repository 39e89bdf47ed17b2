"""The work of stage `train_full`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import Resources, format_bytes
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.process.shutdown import saves_first
from superworkflow.tasks.lib.checkpoint_stores import Folder
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.tensor_tasks import TensorFacts
from superworkflow.tasks.train.one_process import OneProcess
from superworkflow.tasks.train_full.params import REAL, TENSOR, TrainFullParams
from superworkflow.tasks.train_full.trainer import WholeTrainer
from superworkflow.tasks.train_full.training import (
    inputs_of,
    log_facts,
    one_thread,
    train,
    whole_network,
    work_of,
    write_results,
)
from superworkflow.tasks.train_full.virtual_servers import train_virtually

if TYPE_CHECKING:
    from superworkflow.tasks.train_full.tensor_pool import WorkerPool

_WORKER_BYTES, _CALL_BYTES, _COPIES = 144 << 20, 192 << 20, 3
"""Memory of a tensor worker without calls; three times the most bytes of a call; copies of a call's arrays."""


def run(job: StageRun[TrainFullParams]) -> Output:
    """Train a network; see `tasks.train_full`.

    Raises:
        UserError: labels or features cannot be used, or training diverged.
    """
    options = job.params
    work = work_of(job.inputs, options)
    log_facts(job.progress, work)
    with one_thread(), saves_first() as shutdown:
        if options.clock != REAL:
            check_roles(job)
            first, rows, facts = train_virtually(job, work, shutdown)
            return Output(work.items, write_results(job.output, first, rows, job.progress) | facts)
        network = Network(work.shape, work.params.seed)
        kept, log = Folder(job.checkpoint), job.progress.log
        group = OneProcess(network, work.params, kept, job.save_checkpoint, log, shutdown)
        trainer = WholeTrainer(network, work.task, work.params, options, group, work.whole.order, job.progress)
        executed = whole_network(options, work, inputs_of(work, job.inputs.get("sums"), options.precision), network)
        call_bytes = executed.call_bytes(trainer.weights())
        with tensor_pool(job, len(work.whole.intervals), executed.example(), call_bytes) as pool:
            timeline = train(trainer, executed, options, job.threads, pool)
    stats = write_results(job.output, trainer, timeline, job.progress)
    if pool is not None:
        from superworkflow.tasks.train_full.tensor_pool import write_pool  # needs pyzmq

        stats |= write_pool(job.output, pool.rows)
    return Output(rows=work.items, stats=stats)


def check_roles(job: StageRun[TrainFullParams]) -> bool:
    """True if there may be tensor workers.

    Raises:
        UserError: the resources name another role, or tensor workers on a virtual clock.
    """
    workers, endpoints = job.resources.workers or {}, job.resources.endpoints or {}
    if other := [role for role in workers if role != TENSOR]:
        raise UserError("full-graph training has workers of one role alone", where="resources",
                        value=other[0], remedy=f"Name {TENSOR}, or none")  # fmt: skip
    check_endpoints(job.resources)
    if not endpoints and not (workers and workers[TENSOR].count):
        return False
    if job.params.clock != REAL:
        raise UserError("the virtual clock has simulated tensor workers", where="train_full.clock",
                        value=job.params.clock, remedy=f"Set train_full.virtual_tensor_workers, and leave out the role "
                        f"{TENSOR}")  # fmt: skip
    return True


def check_endpoints(resources: Resources) -> None:
    """Refuse endpoints of other roles than that of tensor workers, and of a role that has workers too.

    Raises:
        UserError: names the role.
    """
    for role in resources.endpoints or ():
        if role != TENSOR or role in (resources.workers or ()):
            raise UserError(f"calls go to an endpoint of the role {TENSOR} alone, which has no workers then",
                            where="resources.endpoints", value=role,
                            remedy=f"Name {TENSOR} once, among the endpoints or among the workers")  # fmt: skip


@contextlib.contextmanager
def tensor_pool(
    job: StageRun[TrainFullParams], intervals: int, example: TensorFacts, call_bytes: int
) -> Iterator[WorkerPool | None]:  # fmt: skip
    """The tensor workers that the stage's resources name, if any, while it trains.

    Raises:
        UserError: the resources name another role, or too little memory for a call.
    """
    if not check_roles(job):
        yield None
        return
    from superworkflow.tasks.train_full.tensor_pool import PoolPlace, open_pool  # needs pyzmq

    place = PoolPlace.of_resources(job.resources)
    assert place is not None
    check_calls(place.memory, call_bytes)
    streams = job.params.streaming and may_stream(place.memory, call_bytes)
    with open_pool(job, place, intervals, example, streams) as pool:
        yield pool


def check_calls(memory: int, call_bytes: int) -> None:
    """Refuse calls that do not fit into a tensor worker's memory, in bytes.

    Raises:
        UserError: says how large they may be.
    """
    needed = min(_CALL_BYTES, memory - _WORKER_BYTES) // _COPIES
    if call_bytes > needed:
        raise UserError(f"a call of {format_bytes(call_bytes)} does not fit into a tensor worker: at most "
                        f"{format_bytes(max(0, needed))}", where="resources", value=format_bytes(memory),
                        remedy="Raise train_full.intervals, or the memory of the role")  # fmt: skip


def may_stream(memory: int, call_bytes: int) -> bool:
    """True if a tensor worker with this memory, in bytes, has room for the next call too."""
    return call_bytes <= (memory - _WORKER_BYTES) // (_COPIES + 1)
