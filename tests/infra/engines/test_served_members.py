"""Members of an elastic role that ranks give tasks themselves: each rank its own, as long as it has some to give."""

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.engines.workers import calls as calls_module
from superworkflow.infra.engines.workers.call_executor import Shared
from superworkflow.infra.engines.workers.calls import CallResult, Calls, Members
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.served_members import ServedMembers, own_address
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.engines.workers.worker import ElasticWorker, Worker
from tests.infra.engines.test_workers import SOON, RecordedProgress, members_of

CALLS = 30


def process_of(worker: ElasticWorker, item: int) -> int:
    return os.getpid()


def prepared(worker: ElasticWorker, item: Any) -> None:
    assert item == {"number": 7}


def scaled(facts: Mapping[str, Any], shared: Sequence[NDArray[Any]], arrays: Sequence[NDArray[Any]]) -> Any:
    time.sleep(0.01)
    return [shared[0] * arrays[0] * facts["factor"], np.array([os.getpid()])]


def give_tasks(worker: Worker, wanted: list[int]) -> dict[str, Any]:
    """Have this rank's members do calls; what came of them, and who did them."""
    import torch.distributed as dist  # not in members

    calls_module.LEAST_SECONDS = 60.0  # no call is late
    found: list[CallResult | None] = []
    enough = threading.Event()

    def ended(result: CallResult | None) -> None:
        found.append(result)
        if len(found) == CALLS:
            enough.set()

    with contextlib.closing(ServedMembers(worker, "tensor", 4)) as served:
        calls = Calls(
            Members(served, "tensor", scaled, prepared, {"number": 7}), worker.log, "worker", "nothing is done"
        )
        calls.scale(wanted[worker.rank])
        with calls.running():
            for _ in range(2):  # members may move once the wishes of all ranks are there
                until = time.monotonic() + SOON
                while calls.counts().get("present", 0) < wanted[worker.rank]:
                    assert time.monotonic() < until
                    time.sleep(0.02)
                dist.barrier()
            for number in range(CALLS):
                own = np.full(1000, number, np.float32)
                version = number // 10
                weights = [np.full(1000, version + worker.rank, np.float32)]
                calls.submit({"factor": 2}, Shared(version, weights, (version,)), [own], ended)
            assert enough.wait(SOON), (len(found), calls.counts())
        dist.barrier()
    done = [each for each in found if each is not None]
    sums = sorted(float(each.arrays[0].sum()) for each in done)
    return {"sums": sums, "processes": sorted({int(each.arrays[1][0]) for each in done})}


def test_each_rank_has_members_of_its_own_and_gives_them_back(tmp_path: Path) -> None:
    progress, roles = RecordedProgress(), [Role("graph", 2), Role("tensor", 1, most=3)]
    with local_group(roles, Checkpoint(tmp_path / "kept"), progress, tmp_path / "logs") as group:
        first, second = (group.run(give_tasks, wanted) for wanted in ([1, 2], [2, 1]))
        for results, wanted in ((first, [1, 2]), (second, [2, 1])):
            for rank, found in enumerate(results):
                sums = [2.0 * 1000 * number * (number // 10 + rank) for number in range(CALLS)]
                assert found["sums"] == sorted(sums), progress.log_text
                assert 1 <= len(found["processes"]) <= wanted[rank]
            assert not {*results[0]["processes"]} & {*results[1]["processes"]}
        everybody = {process for found in (*first, *second) for process in found["processes"]}
        assert set(group.role("tensor").map(process_of, range(9))) <= everybody | {
            each.pid for each in members_of(os.getpid())
        }
    assert members_of(os.getpid()) == []


def test_the_own_address_is_that_of_the_way_to_the_coordinator() -> None:
    assert own_address("tcp://127.0.0.1:7071") == "127.0.0.1"
