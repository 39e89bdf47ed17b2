"""Our mini-batches and steps by a group of workers of one thread each, which are started as stage train starts them.

python -m tests.benchmarks.own.gnn_workers GRAPH SHARDS MEANS WORKERS      folders of datasets of stages heterograph,
                                                                           shard and aggregate
{"work": "train", "params", "steps"} -> {"cpu_s", "open_cpu_s", "wall_s", "edges", "sent", "losses"}
{"work": "batches", …} -> the same, without losses
`params` are those of stage train; later requests with the same continue where earlier ones ended. By rank: CPU seconds
of the steps, and from opening the datasets to the first step; edges drawn; and bytes sent, by their kind.
Batches that are prepared ahead for steps to come are as many as those that were there before, but in the
first request.
"""

import io
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.engines.workers.group import Checkpoint, WorkerGroup
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.tasks.lib.kernels.huge_pages import keep_memory
from superworkflow.tasks.train.distributed_group import DistributedGroup
from superworkflow.tasks.train.on_workers import trainer_of
from superworkflow.tasks.train.params import TrainParams
from superworkflow.tasks.train.trainer import Prepared, Trainer
from tests.benchmarks.own.ready import ready
from tests.benchmarks.peers.serving import serve

_folder = tempfile.TemporaryDirectory()
_kept: dict[str, tuple[Trainer, DistributedGroup, Iterator[Prepared], float]] = {}
"""Of a worker, by what was asked for."""


def stepped(
    worker: Worker, work: str, steps: int, given: dict[str, Any], graph: str, shards: str, means: str
) -> dict[str, Any]:
    """One rank's share of some steps."""
    kind = json.dumps([work, given])
    if kind not in _kept:
        began = time.process_time()
        keep_memory()  # as `Trainer.train` does
        params = TrainParams(**given)
        sums = means if params.sums_features else ""
        trainer, group = trainer_of(worker, params, graph, shards, sums, Path(_folder.name))
        batches = itertools.chain.from_iterable(map(trainer.epoch, itertools.count()))
        _kept[kind] = trainer, group, batches, time.process_time() - began
    trainer, group, batches, opened = _kept[kind]
    before, cpu, wall = dict(group.sent), time.process_time(), time.perf_counter()
    edges, losses = 0, []
    for prepared in itertools.islice(batches, steps):
        if work == "train":
            losses.append(trainer.step(*prepared))
        else:
            ready(trainer.network, *prepared[1:])
        edges += sum(int(hop.starts[-1]) for block in prepared[1].blocks for hop in block.hops.values())
    return {
        "cpu_s": time.process_time() - cpu, "open_cpu_s": opened, "wall_s": time.perf_counter() - wall, "edges": edges,
        "sent": {name: size - before.get(name, 0) for name, size in group.sent.items()}, "losses": losses,
    }  # fmt: skip


def prepare() -> dict[str, Any]:
    folder = Path(made["stack"].enter_context(tempfile.TemporaryDirectory()))
    progress = Progress("train", stream=io.StringIO())
    roles = [Role("worker", int(sys.argv[4]))]
    made["group"] = made["stack"].enter_context(local_group(roles, Checkpoint(folder / "kept"), progress, folder))
    return {}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    from tests.benchmarks.own import gnn_workers  # workers cannot import what is in the main module

    group: WorkerGroup = made["group"]
    given = request["work"], request["steps"], {"dropout": 0.0, **request["params"]}
    reports = group.run(gnn_workers.stepped, *given, *sys.argv[1:4])
    return {name: [each[name] for each in reports] for name in reports[0]} | {"losses": reports[0]["losses"]}


made: dict[str, Any] = {}
if __name__ == "__main__":
    with ExitStack() as stack:
        made["stack"] = stack
        serve(answer, prepare)
