"""Small real stages of worker groups, for tests of the platform: an iteration in which every block needs all sums, and
one of independent items, which the members of an elastic role compute.

Blocks are divided among the ranks; in each step the ranks exchange the sums of their blocks, and sum those in the order
of the blocks, so that the bytes are the same for any number of workers. The workers write their blocks to the store.
"""

import io
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Estimate, Output, Resources, Stage, StageParams, StageRun, Stats
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.engines.workers.session import worker_group
from superworkflow.infra.engines.workers.worker import ElasticWorker, Worker
from superworkflow.infra.storage.manifest import FileEntry

_ALONE: dict[str, Any] = {"affects_result": False}


class RelaxParams(StageParams):
    """Parameters of `relax`."""

    blocks: int = Field(default=8, ge=1, description="How many blocks.")
    steps: int = Field(default=6, ge=1, description="How many steps.")
    seconds: float = Field(default=0.0, ge=0, description="Seconds that each step takes.", json_schema_extra=_ALONE)
    fill_mib: int = Field(default=0, ge=0, description="MiB that each worker fills.", json_schema_extra=_ALONE)
    end: str = Field(default="well", description="well, bug or bad-input.", json_schema_extra=_ALONE)
    silence: float = Field(default=120, gt=0, description="Seconds to wait for a sign.", json_schema_extra=_ALONE)


def relax(job: StageRun[RelaxParams]) -> Output:
    """Coordinate: the workers do the work and write the files."""
    params = job.params
    names = [f"block-{block}.npy" for block in range(params.blocks)]
    job.output.claim(names)
    with worker_group(job, silence_s=params.silence) as group:
        answers = group.run(iterate, params.model_dump(mode="json"), job.output.location.uri)
    for each in answers:
        job.output.adopt(FileEntry.model_validate(entry) for entry in each["files"])
    return Output(
        rows=params.blocks, stats={"resumed": max(each["resumed"] for each in answers), "ranks": len(answers)}
    )


def iterate(worker: Worker, params: dict[str, Any], output: str) -> dict[str, Any]:
    """One rank's part: its blocks, from the checkpoint on."""
    import torch
    import torch.distributed as dist

    filled = np.ones(params["fill_mib"] << 20, np.uint8)
    mine = list(range(worker.rank, params["blocks"], worker.size))
    resumed = step = int((worker.load("step") or b"0").decode())
    blocks = {block: _kept(worker, step, block) if step else _beginning(block) for block in mine}
    while step < params["steps"]:
        sums = torch.zeros(params["blocks"], dtype=torch.float64)
        for block, values in blocks.items():
            sums[block] = values.sum()
        dist.all_reduce(sums)  # adds zeros to what one rank has: exact
        total = np.float64(0)
        for each in sums.tolist():
            total += each
        blocks = {block: np.cos(values + total / params["blocks"]) for block, values in blocks.items()}
        step += 1
        for block, values in blocks.items():
            worker.save(f"{step}/{block}", _bytes(values))
        dist.barrier()
        if worker.rank == 0:
            worker.save("step", str(step).encode())
            worker.update(step, params["steps"], "steps", process=os.getpid())
        time.sleep(params["seconds"])
        if worker.rank == worker.size - 1 and params["end"] == "bug":
            raise RuntimeError("no further than here")
        if worker.rank == 0 and params["end"] == "bad-input":
            raise UserError("these blocks cannot be relaxed", where="blocks", value=params["blocks"])
    writer = TaskWriter(output)
    for block, values in blocks.items():
        writer.array(f"block-{block}.npy", values)
    return {"files": [entry.model_dump() for entry in writer.entries], "resumed": resumed, "filled": len(filled)}


def _beginning(block: int) -> NDArray[np.float64]:
    return np.random.Generator(np.random.Philox(key=[7, block])).random(1000)


def _bytes(values: NDArray[np.float64]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=False)
    return stream.getvalue()


def _kept(worker: Worker, step: int, block: int) -> NDArray[np.float64]:
    data = worker.load(f"{step}/{block}")
    assert data is not None
    found: NDArray[np.float64] = np.load(io.BytesIO(data), allow_pickle=False)
    return found


def meet(worker: Worker, value: Any) -> dict[str, Any]:
    """Describe this rank, once it has met the others."""
    import torch
    import torch.distributed as dist

    ranks = torch.tensor(worker.rank)
    dist.all_reduce(ranks)
    return {
        "role": worker.role, "rank": worker.rank, "size": worker.size, "role_rank": worker.role_rank,
        "role_size": worker.role_size, "threads": torch.get_num_threads(), "ranks": ranks.item(), "value": value,
        "process": os.getpid(), "agent": os.getppid(),
    }  # fmt: skip


def wait_in_turn(worker: Worker, steps: int, seconds: float) -> int:
    """Take steps together, from the checkpoint on; the step from which it went."""
    import torch.distributed as dist

    begun = int((worker.load("step") or b"0").decode())
    for step in range(begun, steps):
        time.sleep(seconds)
        dist.barrier()
        if worker.rank == 0:
            worker.save("step", str(step + 1).encode())
            worker.update(step + 1, steps, "steps")
    dist.barrier()
    return begun


class PoolParams(StageParams):
    """Parameters of `pool`."""

    items: int = Field(default=24, ge=3, description="How many items.")
    scales: list[int] = Field(default=[], description="How many members, for each third.", json_schema_extra=_ALONE)
    seconds: float = Field(default=0.0, ge=0, description="Seconds that each item takes.", json_schema_extra=_ALONE)


def pool(job: StageRun[PoolParams]) -> Output:
    """Write what the members of an elastic role compute; there may be others for each third of the items."""
    params, done = job.params, list[dict[str, Any]]()
    thirds = [range(third * params.items // 3, (third + 1) * params.items // 3) for third in range(3)]
    with worker_group(job) as group:
        role = group.role("tensor")
        for third, count in zip(thirds, params.scales or [role.count] * 3, strict=True):
            role.scale(count)
            while role.present != count:
                group.listen()
            for found in role.map(compute_item, [[item, params.seconds] for item in third]):
                done.append(found)
                job.progress.update(len(done), params.items, "items", members=role.present)
    job.output.array("sums.npy", np.array([each["sum"] for each in done]))
    members = {(each["host"], each["process"]) for each in done}
    stats = {"members": len(members), "torch": int(any(each["torch"] for each in done))}
    return Output(rows=params.items, stats={**stats, "largest": max(each["memory"] for each in done)})


def compute_item(worker: ElasticWorker, given: list[Any]) -> dict[str, Any]:
    """A sum that depends on the item alone, after the given seconds, with the process that computed it."""
    item, seconds = given
    worker.log(f"item {item} begun by {os.getpid()}")
    time.sleep(seconds)
    return {
        "sum": value_of(item), "host": os.uname().nodename, "process": os.getpid(),
        "torch": "torch" in sys.modules, "memory": peak_memory(),
    }  # fmt: skip


def peak_memory() -> int:
    """Bytes; not from `getrusage`, which begins with what the parent had."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def value_of(item: int) -> float:
    """Value that `compute_item` computes."""
    return float(np.cos(_beginning(item)).sum())


def nothing(job: StageRun[Any]) -> Output:
    """It has no work to do in process."""
    return Output(rows=0)


def estimate(params: Any, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Nobody asks."""
    return Estimate(memory_bytes=1 << 28, cpu_s=1, output_bytes=8)


STAGE = Stage(
    name="relax", version="1", params=RelaxParams, inputs={}, estimate=estimate,
    image="torch", run="tests.toy_workers:nothing", engines={"workers": "tests.toy_workers:relax"},
)  # fmt: skip
POOL = Stage(
    name="pool", version="1", params=PoolParams, inputs={}, estimate=estimate,
    image="torch", run="tests.toy_workers:nothing", engines={"workers": "tests.toy_workers:pool"},
)  # fmt: skip
