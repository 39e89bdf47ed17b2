"""Training on a worker group: the blocks and the losses of one process, for any partitioning."""

import contextlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch.distributed as dist
from hypothesis import strategies as st
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import aggregate, infer, partition, shard
from superworkflow.tasks.aggregate.on_workers import aggregate as aggregate_together
from superworkflow.tasks.infer.on_workers import infer as infer_together
from superworkflow.tasks.lib.checkpoint_stores import GROUP_NOTE
from superworkflow.tasks.lib.distributed import buffer_sizes
from superworkflow.tasks.lib.distributed.buffer_sizes import SizeKey
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.kv_store import KVStore
from superworkflow.tasks.lib.distributed.shards import Shards
from superworkflow.tasks.lib.formats.safetensors import read_tensors, write_tensors
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.distributed.dist_sampler import BatchRequest, DistNeighborSampler
from superworkflow.tasks.lib.gnn.distributed.worker_partition import WorkerPartition
from superworkflow.tasks.lib.gnn.relations import LayerSchema, Relation
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws
from superworkflow.tasks.train import STAGE, checkpoint
from superworkflow.tasks.train.distributed_batches import shares
from superworkflow.tasks.train.on_workers import train, trainer_of
from superworkflow.tasks.train.params import TrainParams
from superworkflow.tasks.train.stragglers import StragglerStats, slow_one
from superworkflow.tasks.train.trainer import Trainer
from tests.tasks import edge_feature_graphs
from tests.tasks.gnn_graphs import one_kind, prepared, sampler_of, two_kinds
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage
from tests.tasks.worker_graphs import Made, linked

PARAMS = {"hidden": 16, "epochs": 3, "lookahead": 2}
FULL = {"features, all": {"fanouts": "all,all", "batch": 8},
        "means": {"fanouts": "3,all", "batch": 8},
        "gcn": {"model": "gcn", "fanouts": "2,all", "batch": "all"},
        "gat": {"model": "gat", "heads": 4, "fanouts": "3,3", "sampler": "labor", "batch": 7},
        "embeddings": {"fanouts": "all,2", "batch": 8, "clip_norm": 0.05},
        "rgat, features of edges": {"model": "rgat", "fanouts": "2,all", "batch": 7, "heads": 2},
        "typed": {"label": "paper.venue", "model": "rgcn", "fanouts": "4,3", "batch": 7, "embeddings_by": "adagrad"},
        "course": {"fanouts": "3,3", "batch": 7, "class_weights": "balanced", "label_smoothing": 0.1, "clip_norm": 0.3,
                   "learning_rate_schedule": "cosine", "warmup_steps": 3},
        "links": {"fanouts": "4,all", "batch": 40, "negatives": 2},
        "links, gcn": {"model": "gcn", "fanouts": "4,3", "batch": 40, "decoder": "distmult"},
        "links, typed": {"fanouts": "3,3", "batch": 9, "negatives_by": "degree"}}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Made]:
    folder = tmp_path_factory.mktemp("workers")
    return {
        "one": Made(folder / "one", one_kind), "bare": Made(folder / "bare", one_kind, features=False),
        "two": Made(folder / "two", two_kinds), "links": Made(folder / "links", linked),
        "rare": Made(folder / "rare", one_kind, rare=True),
        "typed links": Made(folder / "typed-links", linked, base=two_kinds, edges="writes"),
        "edges": Made(folder / "edges", edge_feature_graphs.graph_of, typed=True),
    }  # fmt: skip


def blocks_of(worker: Worker, shards_uri: str, fanouts: list[int], labor: bool, steps: list[list[Any]]) -> list[Any]:
    """Blocks that each worker draws around the targets that it owns, and the number of exchanges.

    Buffers have room for nothing at first, then for one step's arrays, and finally for those of all steps.
    """
    usual, buffer_sizes.LEAST = buffer_sizes.LEAST, 0
    shards = Shards(Dataset.open(shards_uri))
    names = tuple(shards.node_sets)
    relations = tuple(Relation(j, each.name, each.source, each.target) for j, each in enumerate(shards.edge_sets))
    mine = WorkerPartition(worker, shards)
    levels, owners = (
        [LayerSchema(names, relations, names)] * len(fanouts),
        KVStore(mine.book, Exchange(dist.group.WORLD)),
    )
    store = DistNeighborSampler(mine.piece, owners, Draws(levels, fanouts, labor, frozenset(), 42), {}, False,
                  frozenset(mine.piece.features))  # fmt: skip
    window = []
    for name, nodes, step in steps:
        targets = np.array(nodes, np.int64)
        own = targets[mine.book.owners(name, targets) == worker.rank]
        window.append(BatchRequest({name: own}, tuple(step), items=len(nodes)))

    def drawn() -> list[Any]:
        return [
            [sorted((each.number, int(edge)) for each in relations for edge in block.hops[each.number].positions)
             for block in batch.blocks]
            + [{name: inputs.features[name][batch.blocks[0].senders[name]].sum(1).tolist() for name in inputs.features},
               {name: nodes.tolist() for name, nodes in batch.blocks[0].senders.items()}]
            for batch, inputs in store.batches(window)
        ]  # fmt: skip

    store.batches(window[:1])
    first, before = drawn(), owners.exchange.count
    again = drawn()
    buffer_sizes.LEAST = usual
    return [again, first == again, owners.exchange.count - before, before]


class Group(NamedTuple):
    """A worker group of four, the folder of its checkpoint, and its log."""

    run: Callable[..., list[Any]]
    folder: Path
    log: io.StringIO


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    folder, log = tmp_path_factory.mktemp("group"), io.StringIO()
    kept = folder / "checkpoint"
    with local_group([Role("worker", 4)], Checkpoint(kept), Progress("train", stream=log), folder) as found:
        yield Group(found.run, kept, log)


@pytest.mark.parametrize(("kind", "labor"), [("one", True), ("two", False)])
def test_all_blocks_together_are_those_of_one_process(group, made, kind: str, labor: bool):
    """Edges and rows, in a window of three steps; a window's targets may all be one worker's."""
    graph = made[kind].graph
    target, label = {"one": ("node", "node.label"), "two": ("paper", "paper.venue")}[kind]
    model = TrainParams(label=label, hidden=16, fanouts="3,4")
    _, _, shape, data = prepared(graph, model)
    sampler = sampler_of(shape, data, (3, 4), labor)
    steps = [
        [target, nodes, [random_streams.TRAINING, 0, step]] for step, nodes in enumerate(([5], [1, 7, 30, 31], [2, 8]))
    ]
    workers = group.run(blocks_of, made[kind].shards.uri, [3, 4], labor, steps)
    assert {(alike, exchanges) for _, alike, exchanges, _ in workers} == {(True, 2 * 2 + 2)}
    assert max(before for *_, before in workers) > 2 * (2 * 2 + 2)
    drawn = [drawn for drawn, *_ in workers]
    for index, (name, nodes, step) in enumerate(steps):
        for depth in (0, 1):
            found = {tuple(edge) for worker in drawn for edge in worker[index][depth]}
            alone = sampler.batch({name: np.array(nodes)}, *step).blocks[depth]
            assert found == {(number, int(e)) for number, hop in alone.hops.items() for e in hop.positions}
        for worker in drawn:
            for each, sums in worker[index][2].items():
                rows = data.inputs.features[each][worker[index][3][each]]
                assert sums == pytest.approx(rows.sum(1).tolist(), abs=1e-5)


def test_room_is_that_of_the_longest_array_about_as_many_items() -> None:
    found = buffer_sizes.BufferSizes()
    assert found.room(SizeKey("a", 10)) == buffer_sizes.LEAST
    for items, length in ((10, 30), (10, 32), (10, 31), (100, 160)):
        found.note(SizeKey("a", items), length)
    more = [found.room(SizeKey("a", items)) - buffer_sizes.LEAST for items in (10, 5, 20, 100, 200)]
    assert more == [34, 34, 68, 170, 340]
    assert found.room(SizeKey("b", 10)) == buffer_sizes.LEAST


@pytest.mark.parametrize("kind", FULL)
def test_losses_are_those_of_one_process(group, made, kind: str, tmp_path: Path):
    names = {
        "embeddings": "bare",
        "course": "rare",
        "rgat, features of edges": "edges",
        "typed": "two",
        "links": "links",
        "links, gcn": "links",
        "links, typed": "typed links",
    }
    source, summed = made[names.get(kind, "one")], kind in ("means", "links")
    params = {**PARAMS, **FULL[kind], "dropout": 0.3}
    given = source.inputs(sums=source.sums) if summed else source.inputs()
    alone = run_stage(STAGE, params, given, tmp_path / "alone", 1)
    output = tmp_path / "together"
    whole = TrainParams(**params).model_dump(mode="json")
    results = group.run(
        train, whole, source.graph.uri, source.shards.uri, source.sums.uri if summed else "", str(output)
    )
    losses = alone.table("losses.parquet", ["loss"])["loss"].to_pylist()
    assert pq.read_table(output / "losses.parquet")["loss"].to_pylist() == pytest.approx(losses, abs=1e-4)
    figure = "validation_auc" if "links" in kind else "validation_accuracy"
    assert results[0]["facts"].keys() == alone.stats.keys()
    assert results[0]["facts"][figure] == pytest.approx(alone.stats[figure], abs=0.05)
    assert {file["path"] for file in results[0]["files"]} == {file.path for file in alone.manifest.files}


def test_the_dataset_is_named_as_that_of_one_process(made, tmp_path: Path):
    """Workers and parts are not in the digest; what is written is whole."""
    source, params = made["one"], {**PARAMS, "fanouts": "3,all", "batch": 8}
    alone = run_stage(STAGE, params, source.inputs(sums=source.sums), tmp_path / "alone", 1)
    resources = Resources.model_validate({"workers": {"count": 1, "cpu": 1, "memory": "1Gi"}})
    inputs, log = source.inputs(sums=source.sums, shards=source.shards), io.StringIO()
    made_by = execute(
        STAGE, params, inputs, str(tmp_path / "workers"), resources, Progress("train", stream=log), "workers"
    )
    assert made_by.dataset.digest == alone.digest
    assert made_by.dataset.manifest.inputs.keys() == {"graph", "sums"}
    assert made_by.dataset.stats.keys() == alone.stats.keys()
    made_by.dataset.verify()
    assert "rank 0" in log.getvalue()
    with pytest.raises(UserError, match="graph in parts"):
        execute(
            STAGE, params, source.inputs(), str(tmp_path / "none"), resources, Progress("train", stream=log), "workers"
        )
    many = Resources.model_validate({"workers": {"count": 5, "cpu": 1, "memory": "1Gi"}})
    for stage, given in ((STAGE, {}), (aggregate.STAGE, {}), (infer.STAGE, {"network": alone})):
        with pytest.raises(UserError, match="more workers than the graph's 4 parts"):
            execute(stage, {}, source.inputs(shards=source.shards, **given), str(tmp_path / "none"), many,
                    Progress("train", stream=log), "workers")  # fmt: skip
    with pytest.raises(UserError, match="parts of another graph"):
        execute(STAGE, params, source.inputs(shards=made["two"].shards), str(tmp_path / "none"), resources,
                Progress("train", stream=log), "workers")  # fmt: skip


@pytest.mark.slow
def test_stopped_workers_have_saved_their_last_step(made, tmp_path: Path):
    """Stopped sooner than a checkpoint is due; run again, they end with the same bits as undisturbed ones."""
    source, params = made["bare"], {**PARAMS, "fanouts": "3,3", "batch": 4, "epochs": 60, "patience": 0, "dropout": 0.3}
    workers = {"workers": {"count": 2, "cpu": 1, "memory": "1Gi"}}
    command = [sys.executable, "-P", "-m", "superworkflow", "stage", "train", "--engine", "workers", "--events"]
    command += ["--resources-json", json.dumps(workers), "--params-json", json.dumps(params)]
    command += [f"--input={name}={uri}" for name, uri in source.inputs(shards=source.shards).items()]

    def begun(output: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*command, "--output", str(tmp_path / output)], stdout=subprocess.PIPE, text=True)

    with begun("stopped") as stage:
        assert stage.stdout is not None
        next(line for line in stage.stdout if '"progress"' in line)
        stage.terminate()
        said = stage.stdout.read()
    assert stage.returncode == 128 + signal.SIGTERM, said
    found = re.search(r"stopped: saved after (\d+) steps", said)
    assert found, said
    said = {output: begun(output).communicate()[0] for output in ("stopped", "whole")}
    losses = [pq.read_table(tmp_path / output / "losses.parquet") for output in ("stopped", "whole")]
    assert losses[0].num_rows > int(found[1]) > 0
    next_one = losses[1].slice(int(found[1]), 1).to_pylist()[0]
    assert f"resuming at epoch {next_one['epoch']}, step {next_one['step']}" in said["stopped"]
    for name in ("model.safetensors", "losses.parquet"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def compare_paces(worker: Worker) -> None:
    """Rank 2 has worked for an hour, the others for ten seconds."""
    StragglerStats(Exchange(dist.group.WORLD), worker).compare(7, 3600.0 if worker.rank == 2 else 10.0)


def test_a_slow_worker_is_named_with_the_wait_it_causes(group):
    group.run(compare_paces)
    assert "epoch 7: rank 2 is 360.0 times slower than the others, which waited " in group.log.getvalue()
    assert slow_one(np.array([[9.0, 0.0], [5.0, 4.0], [8.0, 1.0]])) is None
    assert slow_one(np.array([[9.0, 0.0]])) is None


def train_and_save(worker: Worker, *given: Any) -> Any:
    """Train, saving after each step."""
    checkpoint.CHECKPOINT_SECONDS, usual = -1.0, checkpoint.CHECKPOINT_SECONDS
    try:
        return train(worker, *given)
    finally:
        checkpoint.CHECKPOINT_SECONDS = usual


def train_until_killed(worker: Worker, last: int, mark: str, *given: Any) -> Any:
    """Train, saving after each step; the second worker's process is killed once, in step `last`."""
    usual = Trainer._report

    def report(trainer: Trainer) -> None:
        usual(trainer)
        if worker.rank == 1 and trainer.position.epoch * trainer.steps + trainer.position.step == last:
            with contextlib.suppress(FileExistsError), open(mark, "x"):
                os.kill(os.getpid(), signal.SIGKILL)

    Trainer._report = report  # type: ignore[method-assign]
    try:
        return train_and_save(worker, *given)
    finally:
        Trainer._report = usual  # type: ignore[method-assign]


@pytest.mark.slow
def test_goes_on_after_a_kill_and_with_another_number_of_workers(group, made, tmp_path: Path):
    """Learned embeddings, whose optimizer has a state too; results equal those of undisturbed training."""
    source, params = made["bare"], {**PARAMS, "epochs": 4, "fanouts": "3,3", "batch": 8, "dropout": 0.3}

    def given(output: str, **more: Any) -> list[Any]:
        whole = TrainParams(**(params | more)).model_dump(mode="json")
        return [whole, source.graph.uri, source.shards.uri, "", str(tmp_path / output)]

    undisturbed = group.run(train, *given("undisturbed"))
    group.run(train_and_save, *given("begun", epochs=2))
    log = Progress("train", stream=group.log)
    with local_group([Role("worker", 2)], Checkpoint(group.folder), log, tmp_path) as two:
        ended = two.run(train_until_killed, 10, str(tmp_path / "killed"), *given("ended"))
        for piece in group.folder.glob("workers/*-embeddings-0-part-0003.0"):
            piece.unlink()
        two.run(train, *given("anew", epochs=1))
        shutil.rmtree(group.folder)
        two.run(train, *given("both"))
        two.run(train_until_killed, 13, str(tmp_path / "killed again"), *given("both, killed"))
    shutil.rmtree(group.folder)
    losses = [
        pq.read_table(tmp_path / name / "losses.parquet")["loss"].to_pylist() for name in ("ended", "undisturbed")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert ended[0]["facts"]["steps"] == undisturbed[0]["facts"]["steps"] == len(losses[0])
    weights = [read_tensors(tmp_path / name / "model.safetensors") for name in ("ended", "undisturbed")]
    assert weights[0].keys() == weights[1].keys()
    for name, values in weights[0].items():
        assert values == pytest.approx(weights[1][name], abs=1e-3)
    log_text = group.log.getvalue()
    assert "resuming at epoch 3, step 1" in log_text
    assert "resuming at epoch 3, step 2" in log_text
    assert "training begins anew: there is a checkpoint, and it cannot be used (" in log_text
    assert len(pq.read_table(tmp_path / "anew" / "losses.parquet")) == len(losses[0]) // 4
    assert (tmp_path / "killed").exists()
    assert (tmp_path / "killed again").exists()
    for name in ("model.safetensors", "losses.parquet"):  # as many workers give the same bits
        assert (tmp_path / "both" / name).read_bytes() == (tmp_path / "both, killed" / name).read_bytes()


def go_back(worker: Worker, given: dict[str, Any], graph: str, shards: str, folder: str) -> list[bool]:
    """True if a worker restored the checkpoint, and true if its state changed."""
    own = Path(folder) / str(worker.rank)
    own.mkdir(exist_ok=True)
    trainer, training = trainer_of(worker, TrainParams.model_validate(given), graph, shards, "", own)

    def state() -> list[Any]:
        arrays = [trainer.network.arrays(), training.rows(), *trainer.best]
        values = [{name: each.tobytes() for name, each in by_name.items()} for by_name in arrays]
        return [asdict(trainer.position), values, [each.states().keys() for each in training.optimizers]]

    before = state()
    try:
        return [trainer.resume(), before != state()]
    finally:
        trainer.source.close()


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a row less": lambda part: {name: each[:-1] if each.ndim else each for name, each in part.items()},
    "a row less of the best": lambda part: part | {"best": part["best"][:-1]},
    "no rows": lambda part: {name: each for name, each in part.items() if name != "rows"},
    "one number for all rows": lambda part: part | {"rows": np.float32(1).reshape(())},
    "other numbers": lambda part: part | {"rows": part["rows"].astype(np.float64)},
    "no best ones": lambda part: {name: each for name, each in part.items() if name != "best"},
    "a state less": lambda part: {name: each for name, each in part.items() if name != "optimizer.exp_avg"},
    "a state of another optimizer": lambda part: part | {"optimizer.sum": part["rows"]},
    "steps by row": lambda part: part | {"optimizer.step": part["rows"]},
    "no step": lambda part: part | {"optimizer.step": np.float32(1).reshape(())},
}
EMBEDDINGS, DENSE = "*-{slot}-embeddings-0-part-{parts}.0", "{slot}.0"


@pytest.mark.slow
def test_a_damaged_checkpoint_is_used_by_no_worker(group, made, tmp_path: Path):
    """All workers begin anew without any of its state, and the log has the reason."""
    source, log = made["bare"], io.StringIO()
    params = TrainParams(**PARAMS, fanouts="3,3", batch=8).model_dump(mode="json")
    given, kept, results = [params, source.graph.uri, source.shards.uri], tmp_path / "kept", {}
    cases = {(name, parts): (EMBEDDINGS, damage) for name, damage in DAMAGES.items() for parts in ("0003", "000[23]")}
    cases["a weight more", ""] = (DENSE, lambda part: part | {"weights.more": np.zeros(3, np.float32)})
    with local_group([Role("worker", 2)], Checkpoint(kept), Progress("train", stream=log), tmp_path) as two:
        two.run(train_and_save, *given, "", str(tmp_path / "output"))
        whole = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
        slot = f"state-{json.loads((kept / GROUP_NOTE).read_text())['saves'] % 2}"
        for (name, parts), (pattern, damage) in cases.items():
            for path in (kept / "workers").glob(pattern.format(slot=slot, parts=parts)):
                write_tensors(path, damage(read_tensors(path)))
            before = len(log.getvalue())
            results[name, parts] = [*two.run(go_back, *given, str(tmp_path)), "begins anew" in log.getvalue()[before:]]
            for path, content in whole.items():
                path.write_bytes(content)
        assert two.run(go_back, *given, str(tmp_path)) == [[True, True]] * 2
    assert results == {case: [[False, False], [False, False], True] for case in cases}


@pytest.mark.parametrize("kind", ["one", "two", "numbers", "typed links", "edges"])
def test_means_and_predictions_are_those_of_one_process(group, made, kind: str, tmp_path: Path):
    """GCN, and a typed graph whose authors have learned embeddings; means are bit-equal."""
    source = made["two" if kind == "numbers" else kind]
    model = {
        "one": {"model": "gcn"}, "two": {"label": "paper.venue"}, "typed links": {"batch": 9},
        "edges": {"model": "rgat", "heads": 2},
        "numbers": {"label": "paper.venue", "task": "regression"},
    }[kind]  # fmt: skip
    network = run_stage(
        STAGE, {"hidden": 16, "epochs": 1, "fanouts": "3,3", **model}, source.inputs(), tmp_path / "train"
    )
    alone = run_stage(infer.STAGE, {"batch": 7}, source.inputs(network=network), tmp_path / "alone")
    (results, *_) = group.run(aggregate_together, source.shards.uri, str(tmp_path / "sums"))
    wanted = {entry.path: entry.sha256 for entry in source.sums.manifest.files}
    assert {entry["path"]: entry["sha256"] for entry in results} == wanted
    given = [{"batch": 7}, source.graph.uri, network.uri, source.shards.uri, network.uri, str(tmp_path / "together")]
    (results, *_) = group.run(infer_together, *given)
    assert {entry["path"] for entry in results["files"]} == {entry.path for entry in alone.manifest.files}
    assert results["stats"] == {name: alone.stats[name] for name in results["stats"]}
    inner = [entry.path for entry in alone.manifest.files if entry.path.startswith("rows-")]
    assert len(inner) == {"one": 0, "two": 1, "numbers": 1, "typed links": 2, "edges": 0}[kind]
    for entry in alone.manifest.files:
        if entry.path in (*inner, "probabilities.npy"):
            assert np.load(tmp_path / "together" / entry.path) == pytest.approx(alone.array(entry.path), abs=1e-5)
        if entry.path.endswith("parquet"):
            one, other = alone.table(entry.path), pq.read_table(tmp_path / "together" / entry.path)
            for name in one.column_names:
                first, second = one[name].to_pylist(), other[name].to_pylist()
                if name in ("vector", "probability", "score") or one[name].type == "double":
                    assert np.array(second) == pytest.approx(np.array(first), abs=1e-5)
                else:
                    assert first == second


@pytest.mark.parametrize("features", [True, False], ids=["features", "embeddings"])
def test_losses_are_those_of_one_process_where_workers_have_nothing(group, tmp_path: Path, features: bool):
    """One of four workers owns all three targets, of which a step has two or one, and the only validation item."""
    names = [f"n{number:02}" for number in range(16)]
    ends = [(each, names[(index + by) % 16]) for index, each in enumerate(names) for by in (1, 5, 11, 15)]
    given: dict[str, Any] = {
        "label": ["a", "b", "a", "b", *["a"] * 12], "split": [*["train"] * 3, "validation", *["test"] * 12]
    }  # fmt: skip
    if features:
        given["numbers"] = np.random.default_rng(5).normal(size=(16, 4)).astype(np.float32)
    graph = write_heterograph(tmp_path / "graph", {"node": Nodes(names, given)}, {"edge": Edges("node", "node", ends)})
    parts = run_stage(partition.STAGE, {"parts": 4, "method": "contiguous"}, {"graph": graph.uri}, tmp_path / "parts")
    shards = run_stage(shard.STAGE, {}, {"graph": graph.uri, "partition": parts.uri}, tmp_path / "shards")
    params = {**PARAMS, "fanouts": "3,3", "batch": 2}
    alone = run_stage(STAGE, params, {"graph": graph.uri}, tmp_path / "alone", 1)
    whole = TrainParams(**params).model_dump(mode="json")
    results = group.run(train, whole, graph.uri, shards.uri, "", str(tmp_path / "together"))
    losses = alone.table("losses.parquet", ["loss"])["loss"].to_pylist()
    assert len(losses) == 6
    assert pq.read_table(tmp_path / "together/losses.parquet")["loss"].to_pylist() == pytest.approx(losses, abs=1e-4)
    for name in ("validation_accuracy", "validation_loss"):
        epochs = [json.loads((tmp_path / run / "history.json").read_text()) for run in ("alone", "together")]
        assert [each[name] for each in epochs[1]] == pytest.approx([each[name] for each in epochs[0]], abs=1e-4)
    assert results[0]["facts"].keys() == alone.stats.keys()


@st.composite
def owned(draw: st.DrawFn) -> tuple[NDArray[np.int64], int]:
    """Owners of a step's targets, of which there may be fewer than workers, or none, and some may own none."""
    size = draw(st.integers(1, 7))
    owning = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=size))
    return np.array(draw(st.lists(st.sampled_from(owning), max_size=40)), np.int64), size


@hypothesis.given(owned())
@hypothesis.settings(max_examples=300, deadline=None)
def test_targets_are_evened_out(case: tuple[NDArray[np.int64], int]):
    """Each target has one worker, nobody more than one more than another, and as few as possible move."""
    owners, size = case
    before = owners.copy()
    found = shares(owners, size)
    assert found.shape == owners.shape
    assert all(0 <= each < size for each in found.tolist())
    counts, own = np.bincount(found, minlength=size), np.bincount(owners, minlength=size)
    assert counts.max() - counts.min() <= 1
    each, more = divmod(len(owners), size)
    stay = max(  # of all ways to say who has one more
        sum(min(own[rank], each + (rank in chosen)) for rank in range(size))
        for chosen in itertools.combinations(range(size), more)
    )
    assert (found == owners).sum() == stay
    assert (owners == before).all()
    for dtype in (np.int8, np.int32):  # all workers come to the same, whatever they asked before
        shares(owners[::-1], size)
        assert shares(owners.astype(dtype), size).tolist() == found.tolist()
