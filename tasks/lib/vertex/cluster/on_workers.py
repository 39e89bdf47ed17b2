"""A vertex program's stage on a worker group: the workers update and the first one writes."""

from __future__ import annotations

import contextlib
import linecache
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

import numba as nb
import numpy as np
import torch.distributed as dist

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.code_file import code_of_text, run_code
from superworkflow.infra.contract.resources import format_bytes
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.shared_dataset import SharedDataset, uri_of
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.engines.workers.session import worker_group
from superworkflow.infra.engines.workers.worker import StateSaved, Worker
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.group_kept import GroupKept
from superworkflow.tasks.lib.distributed.shared_memory import shared_buffers
from superworkflow.tasks.lib.vertex.cluster.engine import WorkerEngine
from superworkflow.tasks.lib.vertex.program import CLASSES, VertexProgram
from superworkflow.tasks.lib.vertex.snapshots import Snapshots
from superworkflow.tasks.lib.vertex.stage import (
    GLOBALS,
    SHARD,
    TRACE,
    coloured_graph,
    earlier_run,
    given_by,
    numbers_of,
    with_defaults,
    write_outcome,
)

_FURTHER = ("table", "arcs", "initial", "before")
"""Inputs that a program may have besides graph and colours."""


def run_on_workers(program: VertexProgram, job: StageRun[Any]) -> Output:
    """Coordinate the workers; see `VertexProgram.__call__`.

    Raises:
        UserError: there are more workers than vertices, or as in process.
    """
    graph, vertices = job.inputs["graph"], int(job.inputs["graph"].stats["vertices"] or 0)
    workers = sum(group.count for group in (job.resources.workers or {}).values())
    if workers > max(1, vertices):
        raise UserError("there are more workers than vertices", where="resources.workers.count", value=workers,
                        remedy=f"Give {max(1, vertices)} at most")  # fmt: skip
    if job.params.verify:
        raise UserError("a run is verified in process alone", where=f"{program.name}.verify", value=True,
                        remedy="Set it to false, or the engine to in-process")  # fmt: skip
    params = with_defaults(program, job.params)
    slots = 2 * int(graph.stats.get("directed_edges") or graph.stats.get("edges") or 0)
    rows = dict.fromkeys(_written(program, params), vertices)
    rows |= dict.fromkeys(program.messages if program.restart is not None else (), slots)
    names = [f"{field}-{number:05d}.npy" for field, count in rows.items()
             for number in range(max(1, -(-count // SHARD)))]  # fmt: skip
    job.output.claim([*names, TRACE, GLOBALS, *([CLASSES] if program.classes or program.shown else [])])
    inputs = [graph.uri, job.inputs["colours"].uri, *(uri_of(job.inputs.get(name)) for name in _FURTHER)]
    with worker_group(job) as group:
        given = [each.model_dump(mode="json") for each in (params, job.params)]
        results = group.run_saving(update, _reference(program), given, inputs, job.output.location.uri)
    job.output.adopt(results[0]["files"])
    for rank, each in enumerate(results):
        sent = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in sorted(each["sent"].items()))
        job.progress.log(
            f"rank {rank}: {each['vertices']} vertices, {each['ghosts']} ghosts, {each['cpu_s']:.1f} CPU seconds, of "
            f"which {each['setup_s']:.1f} before the first step; waited {each['waited_s'] / each['wall_s']:.0%} of "
            f"{each['wall_s']:.1f} s; sent: {sent}; values that had changed: {format_bytes(each['changed'])}"
        )
    facts: dict[str, Stat] = {
        "workers.count": len(results), "workers.ghosts": sum(each["ghosts"] for each in results),
        "workers.sent_bytes": sum(sum(each["sent"].values()) for each in results),
        "workers.waited_s": round(sum(each["waited_s"] for each in results), 3),
    }  # fmt: skip
    return Output(rows=vertices, stats=results[0]["stats"] | facts)


def _written(program: VertexProgram, params: Any) -> list[str]:
    """Names of the fields that will be written: `finish` says which, given fields of no vertices, or of one."""
    if program.finish is None:
        return list(program.fields)
    for vertices in (0, 1):
        kinds = {name: kind if isinstance(kind, tuple) else (kind, 0) for name, kind in program.fields.items()}
        fields = {
            name: np.zeros((vertices, 2) if length else vertices, dtype) for name, (dtype, length) in kinds.items()
        }
        with contextlib.suppress(Exception), np.errstate(all="ignore"):
            return list(program.finish(fields, params))
    return list(program.fields)


def _reference(program: VertexProgram) -> dict[str, str]:
    """The program as a worker finds it: its module and name, and the text of a user's file.

    Its `defaults` may be others: the coordinator has resolved the parameters.
    """
    module = sys.modules[program.update.__module__]
    found = {name: value for name, value in vars(module).items()
             if isinstance(value, VertexProgram) and value.update is program.update}  # fmt: skip
    name = next((name for name, value in found.items() if value.finish is program.finish), "")
    if found and not name:
        raise UserError("what the program makes of its fields is computed in process alone",
                        where=f"program {program.name}", remedy="Set the engine to in-process")  # fmt: skip
    if not name:
        raise UserError("workers cannot import the program", where=f"program {program.name}",
                        remedy=f"Define it at the top of {module.__name__}, next to its update")  # fmt: skip
    file = module.__file__ or ""
    spec = module.__spec__
    text = "".join(linecache.getlines(file)) if spec is not None and spec.loader is None else ""
    return {"module": module.__name__, "name": name, "file": Path(file).name, "text": text}


def _program(reference: dict[str, str]) -> VertexProgram:
    if reference["text"]:
        run_code(code_of_text(reference["file"], reference["text"]))
    found: VertexProgram = imported(f"{reference['module']}:{reference['name']}")
    return found


class _Workers:
    """The `SnapshotGroup` of a worker group."""

    def __init__(self, exchange: Exchange):
        self.rank, self.size, self._exchange = exchange.rank, exchange.size, exchange

    def barrier(self) -> None:
        dist.barrier(group=self._exchange.group)

    def all_agree(self, fine: bool) -> bool:
        return bool(self._exchange.everyone(np.array([fine]), "snapshots", alike=True).all())


def _end() -> NoReturn:
    raise StateSaved


def update(
    worker: Worker, reference: dict[str, str], given: list[dict[str, Any]], inputs: list[str], output: str
) -> dict[str, Any]:
    """Run one rank.

    Args:
        worker: this rank.
        reference: of the program.
        given: its parameters, and these without the program's own defaults.
        inputs: URIs of graph and colours, and of `_FURTHER`, empty for none.
        output: URI of the dataset to write.
    """
    began, start_s = time.process_time(), time.monotonic()
    nb.set_num_threads(min(worker.threads, nb.get_num_threads()))
    program = _program(reference)
    params, plain = (program.params.model_validate(each) for each in given)
    log = worker.log if worker.rank == 0 else lambda message: None
    source, colours, table, arcs, initial, before = (SharedDataset.at_any(uri) for uri in inputs)
    assert source is not None
    assert colours is not None
    graph = coloured_graph(source, colours, program, arcs, mapped=True)
    values, nodes = given_by(program, source, table), numbers_of(program, params, source)
    earlier = earlier_run(program, plain, (initial, before, source), graph, values, log)
    log(f"{len(graph.indptr) - 1} vertices, {len(graph.indices)} arcs, {len(graph.bounds) - 1} colours")
    exchange = Exchange(dist.group.WORLD, shared=shared_buffers(dist.group.WORLD))
    with tempfile.TemporaryDirectory() as folder:
        snapshots = Snapshots(
            GroupKept(worker, Path(folder)), params.snapshot_every, lambda: worker.stopping, _end, log,
            group=_Workers(exchange),
        )  # fmt: skip
        engine = WorkerEngine(
            program, params, graph, exchange, worker.threads, nodes, values, earlier=earlier, snapshots=snapshots
        )  # fmt: skip
        setup_s = time.process_time() - began
        outcome = engine.run(worker if worker.rank == 0 else None)
    result: dict[str, Any] = {
        "vertices": engine.vertices, "ghosts": engine.ghosts, "sent": exchange.sent, "changed": engine.changed_bytes,
        "waited_s": exchange.waited, "setup_s": setup_s, "files": [], "stats": {},
    }  # fmt: skip
    if worker.rank == 0:
        writer = TaskWriter(output)
        result["stats"] = write_outcome(program, params, values, outcome, writer, log).stats
        result["files"] = [entry.model_dump() for entry in writer.entries]
    return result | {"cpu_s": time.process_time() - began, "wall_s": time.monotonic() - start_s}
