"""Exchange by shared memory: the same results as by TCP, with nothing left behind."""

import gc
import hashlib
import io
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.rank import peer_is_lost
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.tasks import partition, shard
from superworkflow.tasks.lib.distributed import shared_memory
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.header_pipes import HeaderPipes
from superworkflow.tasks.lib.distributed.shared_memory import shared_buffers as shared_by
from superworkflow.tasks.train import on_workers
from superworkflow.tasks.train.on_workers import train
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.gnn_graphs import one_kind
from tests.tasks.index_helpers import run_stage

LENGTHS = (0, 3, 1 << 10, 300_000, 2, 700_000, 0, 5)
"""Lengths of the arrays that each worker sends: buffers grow twice, and stay when there is less to send."""


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    folder = tmp_path_factory.mktemp("group")
    progress = Progress("train", stream=io.StringIO())
    with local_group([Role("worker", 3)], Checkpoint(folder / "kept"), progress, folder) as found:
        yield found


def descriptors() -> int:
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def exchanged(worker: Worker) -> dict[str, Any]:
    """Arrays of all sizes both ways, each twice, and sums of them."""
    exchanges = [Exchange(dist.group.WORLD), Exchange(dist.group.WORLD, shared=shared_by(dist.group.WORLD))]
    assert exchanges[1]._shared is not None
    random, alike, sums, held = np.random.default_rng(worker.rank), [], [], 0
    for turn, length in enumerate((*LENGTHS, *LENGTHS)):
        parts = [random.random((length * (rank + worker.rank) // 3, 2)).astype(np.float32) for rank in range(3)]
        found = [each.swap(parts, "rows") for each in exchanges]
        alike += [a.tobytes() == b.tobytes() for a, b in zip(*found, strict=True)]
        values = [each.leaving(length + 1, np.float32) for each in exchanges]
        for each in values:
            each[:] = np.arange(length + 1) * (worker.rank + 1) / 7
        totals = [each.add_up(torch.from_numpy(given)) for each, given in zip(exchanges, values, strict=True)]
        alike.append(torch.allclose(*totals, rtol=1e-6, atol=1e-6))
        sums.append(hashlib.sha256(totals[1].numpy()).hexdigest())
        if turn == len(LENGTHS):
            held = descriptors()
    kept = descriptors() - held
    del exchanges, each, found, values, totals
    return {"alike": alike, "sums": sums, "kept": kept, "left": _shared_maps()}


def _shared_maps() -> int:
    gc.collect()
    return sum("memfd:superworkflow" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_what_crosses_is_what_tcp_would_bring(group):
    results = group.run(exchanged)
    assert all(all(each["alike"]) for each in results)
    assert results[0]["sums"] == results[1]["sums"] == results[2]["sums"]
    assert [(each["kept"], each["left"]) for each in results] == [(0, 0)] * 3


def in_place(worker: Worker) -> list[bool]:
    """Data written in the buffer from `leaving` arrives, and the next two exchanges do not change it."""
    exchange = Exchange(dist.group.WORLD, shared=shared_by(dist.group.WORLD))
    kept = []
    for turn in range(6):
        out = exchange.leaving(3 * 1000, np.int64)
        out[:] = np.arange(3 * 1000) + 10_000 * worker.rank + 100_000 * turn
        kept.append(exchange.cross(out, [1000] * 3, [1000] * 3, "rows"))
    wanted = [
        np.concatenate([np.arange(1000) + 1000 * worker.rank + 10_000 * rank + 100_000 * turn for rank in range(3)])
        for turn in range(6)
    ]
    return [np.array_equal(a, b) for a, b in zip(kept, wanted, strict=True)]


def test_buffers_are_used_again_only_when_they_were_read(group):
    assert group.run(in_place) == [[True] * 6] * 3


def refused(worker: Worker) -> list[bool]:
    """True for each case in which buffers are shared: normally, if one worker has no memfd, if one is remote."""
    found = [shared_by(dist.group.WORLD) is not None]
    for name in ("memfd_create", "getpid"):
        usual = getattr(os, name)
        if worker.rank == 1:
            setattr(os, name, _no_memory if name == "memfd_create" else lambda: 1 << 30)
        try:
            found.append(shared_by(dist.group.WORLD) is not None)
        finally:
            setattr(os, name, usual)
    return found


def _no_memory(name: str) -> int:
    raise OSError(f"no memory for {name}")


def test_all_use_tcp_where_one_cannot_share(group):
    assert group.run(refused) == [[True, False, False]] * 3


def ended(worker: Worker) -> bool:
    """The first worker drops its buffers after an exchange, while the others are late to open them."""
    exchange, usual = Exchange(dist.group.WORLD, shared=shared_by(dist.group.WORLD)), shared_memory._opened
    if worker.rank:
        shared_memory._opened = lambda *given: (time.sleep(0.3), usual(*given))[1]
    try:
        found = exchange.swap([np.full(8, worker.rank)] * 3, "rows", [8] * 3)
    finally:
        shared_memory._opened = usual
    return [each.tolist() for each in found] == [[rank] * 8 for rank in range(3)]


def test_a_worker_may_end_before_others_have_read(group):
    assert group.run(ended) == [True] * 3


def left(worker: Worker) -> tuple[str, bool]:
    """The first worker ends, as far as others see; its pipes end with it."""
    pipes = HeaderPipes(dist.group.WORLD, shared_by(dist.group.WORLD)._pids)
    if worker.rank == 0:
        del pipes
        gc.collect()
    dist.barrier()
    try:
        if worker.rank:
            pipes.swap([(0, 0, 0, 0)] * 3)
    except RuntimeError as error:
        dist.barrier()  # pipes of the others end after all have seen the first one's
        return str(error), peer_is_lost(error)
    dist.barrier()
    return "", False


def test_a_worker_that_has_ended_is_noticed(group):
    lost = ("pipe closed by peer: rank 0 has ended", True)
    assert [tuple(each) for each in group.run(left)] == [("", False), lost, lost]


def unlike(worker: Worker) -> str:
    """The first worker expects another length than the others send."""
    exchange = Exchange(dist.group.WORLD, shared=shared_by(dist.group.WORLD))
    coming = [8, 9, 8] if worker.rank == 0 else [8] * 3
    try:
        exchange.swap([np.zeros(8, np.float32)] * 3, "rows", coming)
    except RuntimeError as error:
        return str(error)
    return ""


def test_lengths_unlike_those_expected_are_refused(group):
    message = "rank 1 sends 32 bytes from 0 on, of 1048576, where 36 were expected"
    assert group.run(unlike) == [message, "", ""]


def shrunk(worker: Worker) -> str:
    """The memory of another worker has fewer bytes than it announces."""
    number = os.memfd_create("superworkflow-test")
    os.ftruncate(number, 4096)
    try:
        shared_memory._opened(os.getpid(), number, 8192)
    except RuntimeError as error:
        return str(error).replace(str(os.getpid()), "N")
    finally:
        os.close(number)
    return ""


def test_memory_that_is_too_short_is_not_read(group):
    assert group.run(shrunk) == ["the memory that process N shares does not have the expected 8192 bytes"] * 3


def trained(worker: Worker, share: bool, *given: Any) -> dict[str, Any]:
    """Train, by shared memory or by TCP."""
    on_workers.shared_buffers = shared_by if share else lambda group: None  # type: ignore[attr-defined]
    try:
        return train(worker, *given)
    finally:
        on_workers.shared_buffers = shared_by  # type: ignore[attr-defined]


@pytest.mark.parametrize("features", [True, False], ids=["features", "embeddings"])
def test_training_is_the_same_by_either_way(group, tmp_path: Path, features: bool):
    graph = one_kind(tmp_path / "graph", features=features)
    inputs = {"graph": graph.uri}
    parts = run_stage(partition.STAGE, {"parts": 4}, inputs, tmp_path / "parts")
    shards = run_stage(shard.STAGE, {}, inputs | {"partition": parts.uri}, tmp_path / "shards")
    params = {"hidden": 16, "epochs": 3, "lookahead": 2, "fanouts": "3,3", "batch": 8, "dropout": 0.3}
    whole, losses, sent = TrainParams(**params).model_dump(mode="json"), [], []
    for share in (True, False):
        output = tmp_path / f"output-{share}"
        results = group.run(trained, share, whole, graph.uri, shards.uri, "", str(output))
        losses.append(pq.read_table(output / "losses.parquet")["loss"].to_pylist())
        sent.append([each["sent"] for each in results])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert sent[0] == sent[1]
