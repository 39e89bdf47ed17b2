"""Training: losses of a plain loop, blocks independent of threads, resuming after SIGKILL, and refused input."""

import io
import json
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.contract.progress import Progress, parse_event
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.process.shutdown import Shutdown
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import aggregate, holdout_links, infer, score
from superworkflow.tasks.lib.checkpoint_stores import Folder
from superworkflow.tasks.lib.formats.safetensors import read_tensors, write_tensors
from superworkflow.tasks.lib.gnn.model import linear
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.objective.node_prediction import Classification
from superworkflow.tasks.lib.gnn.sampler.look_ahead import LookAhead
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import order_of
from superworkflow.tasks.train import STAGE
from superworkflow.tasks.train.checkpoint import save_checkpoint
from superworkflow.tasks.train.export import write_pyg
from superworkflow.tasks.train.one_process import LocalBatches, OneProcess
from superworkflow.tasks.train.params import TrainParams
from superworkflow.tasks.train.trainer import Trainer
from tests.tasks.gnn_graphs import adjacency, everything, one_kind, prepared, sampler_of, two_kinds
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage
from tests.tasks.test_model_selection import kept_by_rule

SMALL = {"hidden": 16, "batch": 8, "epochs": 6, "fanouts": "3,all"}


COURSE = {"class_weights": "balanced", "label_smoothing": 0.2, "clip_norm": 0.5,
          "learning_rate_schedule": "cosine", "warmup_steps": 4}  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Dataset:
    return one_kind(tmp_path_factory.mktemp("train") / "graph")


def trained(graph: Dataset, folder: Path, sums: Dataset | None = None, cpu: int = 1, **params) -> Dataset:
    given = {"graph": graph.uri}
    if sums is not None:
        given["sums"] = sums.uri
    return run_stage(STAGE, {**SMALL, **params}, given, folder, cpu)


def losses(dataset: Dataset) -> list[float]:
    return dataset.table("losses.parquet", ["loss"])["loss"].to_pylist()


def sums_of(dataset: Dataset) -> dict[str, str]:
    return {file.path: file.sha256 for file in dataset.manifest.files}


@pytest.mark.parametrize(("with_sums", "more"), [(False, {}), (True, COURSE)], ids=["constant", "course, means"])
def test_losses_are_those_of_a_plain_full_loop(tmp_path, with_sums, more):
    """All neighbours, no dropout: batches give the losses of products with the whole matrix."""
    graph = one_kind(tmp_path / "graph", rare=True)
    given = {"graph": graph.uri}
    sums = run_stage(aggregate.STAGE, {}, given, tmp_path / "sums")
    params = {
        "fanouts": "all,all",
        "dropout": 0.0,
        "batch": 10,
        "epochs": 8,
        "patience": 0,
        "weight_decay": 0.0,
        **more,
    }
    found = losses(trained(graph, tmp_path / "found", sums if with_sums else None, **params))
    opened, targets, shape, data = prepared(graph, TrainParams(**{**SMALL, **params}))
    network = Network(shape, 42)
    weights = dict(network.named_parameters())
    optimizer = torch.optim.Adam(list(weights.values()), lr=0.01)
    loss_of = torch.nn.CrossEntropyLoss()
    rates = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    if more:
        rising = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 4, 1.0, 3)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        rates = torch.optim.lr_scheduler.SequentialLR(optimizer, [rising, falling], [4])
        counts = np.bincount(targets.classes[targets.nodes("train")])
        assert counts.tolist() == [5, 15, 10]
        loss_of = torch.nn.CrossEntropyLoss(torch.tensor(30 / (3 * counts), dtype=torch.float32), label_smoothing=0.2)
    matrix = adjacency(opened, "edge")
    matrix = matrix / matrix.sum(1, keepdim=True).clamp(min=1)
    wanted = []
    for epoch in range(8):
        order = order_of(targets.nodes("train"), 42, epoch)
        for first in range(0, len(order), 10):
            rows = torch.from_numpy(np.array(data.inputs.features["node"]))
            for layer in range(2):
                own, neighbour = f"layers.{layer}.own.0.", f"layers.{layer}.neighbours.0.weight"
                made = rows @ weights[f"{own}weight"].T + weights[f"{own}bias"] + matrix @ rows @ weights[neighbour].T
                rows = torch.relu(made) if layer == 0 else made
            nodes = order[first : first + 10]
            loss = loss_of(rows[nodes], torch.from_numpy(targets.classes[nodes]))
            optimizer.zero_grad()
            loss.backward()
            if more:
                assert torch.nn.utils.clip_grad_norm_(list(weights.values()), 0.5) > 0
            optimizer.step()
            rates.step()
            wanted.append(loss.item())
    assert len(found) == 24
    assert found == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(
    "params", [{"sampler": "labor", "layers": 3, "fanouts": "2,3,4"}, {"model": "gat", "fanouts": "3,5"}]
)
def test_whoever_prepares_a_batch_the_weights_are_the_same(tmp_path, graph, params):
    made = [trained(graph, tmp_path / f"{n}", lookahead=n, **params) for n in (0, 5)]
    assert sums_of(made[0]) == sums_of(made[1])
    other = trained(graph, tmp_path / "other", seed=43, **params)
    assert losses(other) != losses(made[0])


def test_batches_are_the_same_from_many_threads(graph):
    _, targets, shape, data = prepared(graph, TrainParams(**{**SMALL, "fanouts": "2,3"}))
    nodes = targets.nodes("train")
    steps = [(nodes[step % 20 :: 3], (0, 0, step)) for step in range(40)]
    plain = [sampler_of(shape, data, (2, 3)).batch({"node": given}, *step) for given, step in steps]
    ahead = LookAhead(lambda: sampler_of(shape, data, (2, 3)), 3, 6)
    for wanted, found in zip(
        plain, ahead.each(lambda sampler, step: sampler.batch({"node": step[0]}, *step[1]), steps), strict=True
    ):
        for one, other in zip(wanted.blocks, found.blocks, strict=True):
            assert one.state == other.state
            assert (one.senders["node"] == other.senders["node"]).all()
            assert all(np.array_equal(a, b) for a, b in zip(one.hops[0], other.hops[0], strict=True))
    ahead.close()


@pytest.mark.parametrize("full", [False, True])
def test_epochs_can_be_gone_through_without_training(tmp_path, graph, full):
    """The same losses, and the same accuracy on the nodes to validate on."""
    params = {**SMALL, **({"fanouts": "all,all", "batch": "all"} if full else {"fanouts": "2,3"}), "epochs": 3}
    wanted = trained(graph, tmp_path / "wanted", patience=0, **params)
    trainer = _trainer(graph, params, Folder(tmp_path / "kept"), io.StringIO())
    found = [trainer.step(*each) for number in range(3) for each in trainer.epoch(number)]
    assert found == pytest.approx(losses(wanted), abs=1e-6)
    loss, accuracy = trainer.judge(trainer.task.items("validation"))
    if full:
        assert accuracy == wanted.json("history.json")[-1]["validation_accuracy"]
        assert loss == pytest.approx(wanted.json("history.json")[-1]["validation_loss"], abs=1e-6)
    assert 0 < accuracy <= 1


def _trainer(graph: Dataset, given: dict, kept: Folder, log: io.StringIO) -> Trainer:
    params = TrainParams(**given).concrete(False, 30, 30, False)
    _, targets, shape, data = prepared(graph, params)
    ahead = LookAhead(lambda: sampler_of(shape, data, params.sizes), 1, 0)
    progress, network, task = Progress("train", stream=log), Network(shape, 42), Classification(targets)
    group = OneProcess(network, params, kept, lambda: None, progress.log, Shutdown())
    return Trainer(network, task, params, LocalBatches(task, data.inputs, ahead), group, progress)


DAMAGES = {
    "is shorter": lambda values: values[..., :-1],
    "is of other numbers": lambda values: values.astype(np.int64),
    "is missing": lambda values: None,
}


@pytest.mark.parametrize("part", ["optimizer", "weights", "best"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_is_taken_from_a_checkpoint_that_does_not_fit(tmp_path, graph, part, damage):
    """Training that begins anew begins with the first weights."""
    kept, log = Folder(tmp_path / "kept"), io.StringIO()
    trainer = _trainer(graph, SMALL, kept, log)
    for each in trainer.epoch(0):
        trainer.step(*each)
    trainer.position.best = 1
    save_checkpoint(kept, trainer.network, trainer.group.optimizers, trainer.network.arrays(), trainer.position)
    whole = _trainer(graph, SMALL, kept, log)
    assert whole.resume()
    assert whole.group.optimizers[0].states().keys() == trainer.group.optimizers[0].states().keys()
    assert weights_of(whole) == weights_of(trainer)
    saved = kept.read(trainer.position.slot)
    name = next(name for name in reversed(saved) if name.startswith(f"{part}.") and saved[name].ndim)
    damaged = {**saved, name: DAMAGES[damage](saved[name])}
    kept.write(trainer.position.slot, {name: values for name, values in damaged.items() if values is not None})
    again, first = _trainer(graph, SMALL, kept, log), _trainer(graph, SMALL, kept, log)
    assert not again.resume()
    assert "training begins anew" in log.getvalue()
    assert weights_of(again) == weights_of(first)
    assert not again.group.optimizers[0].states()


@pytest.mark.parametrize(
    "note", ["[1]", '{"saves": "x"}', '{"saves": -1}', '{"losses": 7}', '{"speed": 7}', '{"saves": 1', ""]
)
def test_a_note_that_is_none_names_no_checkpoint(tmp_path, graph, note):
    kept, log = Folder(tmp_path), io.StringIO()
    kept.note(note)
    assert not _trainer(graph, SMALL, kept, log).resume()
    assert "training begins anew" in log.getvalue()


def weights_of(trainer: Trainer) -> dict[str, bytes]:
    return {name: values.tobytes() for name, values in trainer.network.arrays().items()}


KILLED = """
import os, signal, sys
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from superworkflow.tasks.train import STAGE, checkpoint, one_process
import json
save, left = one_process.save_checkpoint, [int(sys.argv[4])]
def then_die(*given):
    save(*given)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
one_process.save_checkpoint, checkpoint.CHECKPOINT_SECONDS = then_die, -1.0
graph, output, params = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
execute(STAGE, params, {"graph": graph}, output, Resources(cpu=1, memory=1 << 30), Progress("train"))
"""


@pytest.mark.slow
def test_killed_and_resumed_training_ends_with_the_same_weights(tmp_path):
    """Killed during the third epoch. Links with a learned decoder and without features, so that the sparse Adam of
    embeddings resumes too.
    """
    graph = one_kind(tmp_path / "whole-graph", features=False)
    given = {"graph": graph.uri}
    graph = run_stage(holdout_links.STAGE, {}, given, tmp_path / "graph")
    params = {**SMALL, "fanouts": "2,3", "decoder": "distmult", "negatives": 2, "batch": 64}
    params |= {"clip_norm": 0.1, "learning_rate_schedule": "linear", "warmup_steps": 9}
    whole = run_stage(STAGE, params, {"graph": graph.uri}, tmp_path / "whole", cpu=1)
    command = [sys.executable, "-c", KILLED, graph.uri, str(tmp_path / "killed")]
    done = subprocess.run([*command, json.dumps(params), "20"], capture_output=True, text=True, timeout=500)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "killed" / "manifest.json").exists()
    log = io.StringIO()
    given = {"graph": graph.uri}
    progress = Progress("train", stream=log)
    resumed = execute(STAGE, params, given, str(tmp_path / "killed"), Resources(cpu=1, memory=4 << 30), progress)
    assert "resuming at epoch 3, step " in log.getvalue()
    assert sums_of(resumed.dataset) == sums_of(whole)


def test_stopped_training_has_saved_its_last_step(tmp_path, graph):
    """Interrupted in the second epoch, sooner than a checkpoint is due; it resumes there, and ends with the same bits.

    `test_train_on_workers` terminates one.
    """
    params = {**SMALL, "batch": 4, "epochs": 6, "patience": 0}
    given = {"graph": graph.uri}
    whole = run_stage(STAGE, params, given, tmp_path / "whole", cpu=1)
    command = [sys.executable, "-c", SLOW, "stage", "train", "--input", f"graph={given['graph']}", "--output"]
    command += [str(tmp_path / "stopped"), "--params-json", json.dumps(params), "--threads", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as stage:
        assert stage.stderr is not None
        for line in stage.stderr:
            if "epoch 2 begins" in line:
                break
        stage.send_signal(signal.SIGINT)
        said = stage.stderr.read()
    assert stage.returncode == 128 + signal.SIGINT, said
    assert not (tmp_path / "stopped" / "manifest.json").exists()
    steps = int(re.search(r"stopped: saved after (\d+) steps", said)[1])
    log = io.StringIO()
    progress = Progress("train", stream=log)
    resumed = execute(STAGE, params, given, str(tmp_path / "stopped"), Resources(cpu=1, memory=4 << 30), progress)
    first = -(-whole.stats["steps"] // whole.stats["epochs"])
    assert first < steps < whole.stats["steps"]
    assert f"resuming at epoch {steps // first + 1}, step {steps % first + 1}" in log.getvalue()
    assert sums_of(resumed.dataset) == sums_of(whole)


SLOW = """
import sys, time
from superworkflow.__main__ import main
from superworkflow.tasks.train.trainer import Trainer
usual = Trainer._report
def report(trainer):
    usual(trainer)
    if trainer.position.epoch and trainer.position.step == 1:
        print(f"epoch {trainer.position.epoch + 1} begins", file=sys.stderr, flush=True)
    time.sleep(0.2 * bool(trainer.position.epoch))
Trainer._report = report
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("has", [False, True])
def test_emulated_products_are_a_warning(tmp_path, graph, monkeypatch, has):
    monkeypatch.setattr(linear, "_HAS_BFLOAT16", has and linear._HAS_BFLOAT16)
    log = io.StringIO()
    given = {"graph": graph.uri}
    run_stage(STAGE, {**SMALL, "epochs": 1, "products": "bfloat16"}, given, tmp_path / "made", 1, log)
    assert ("no products of bfloat16" in log.getvalue()) is not linear._HAS_BFLOAT16


def test_each_epoch_is_reported_and_the_best_is_kept(tmp_path, graph):
    stream = io.StringIO()
    progress = Progress("train", events=True, stream=stream)
    given = {"graph": graph.uri}
    params = {**SMALL, "epochs": 30, "patience": 3}
    made = execute(STAGE, params, given, str(tmp_path / "made"), Resources(cpu=1, memory=4 << 30), progress).dataset
    events = [event for line in stream.getvalue().splitlines() if (event := parse_event(line))]
    reports = [event for event in events if event["event"] == "report"]
    history = made.json("history.json")
    assert [event["value"] for event in reports] == [row["validation_accuracy"] for row in history]
    assert {event["steps"] for event in reports} == {30} == {STAGE.steps(parse_params(TrainParams, params, "train"))}
    best = min(history, key=lambda row: row["validation_loss"])
    assert made.stats["best_epoch"] == best["epoch"]
    assert made.stats["epochs"] == min(30, best["epoch"] + 3)


@pytest.mark.parametrize("by", ["figure", "both"])
def test_the_epoch_is_kept_that_the_rule_says(tmp_path, graph, by):
    made = trained(graph, tmp_path / "made", epochs=25, kept_by=by)
    history = made.json("history.json")
    assert made.stats["best_epoch"] == kept_by_rule(history, by, 25)[0]
    assert made.stats["best_epoch"] != min(history, key=lambda row: row["validation_loss"])["epoch"]
    shorter = trained(graph, tmp_path / "shorter", epochs=made.stats["best_epoch"], kept_by=by)
    files = ("model.safetensors", "splits.npy")
    assert [sums_of(shorter)[name] for name in files] == [sums_of(made)[name] for name in files]


@pytest.mark.parametrize("typed", [False, True])
def test_inference_is_what_the_network_says_of_each_node(tmp_path, graph, typed):
    made_of = two_kinds(tmp_path / "typed") if typed else graph
    params = {"fanouts": "all,all", **({"label": "paper.venue", "model": "rgcn", "bases": 2} if typed else {})}
    network = trained(made_of, tmp_path / "network", **params)
    given = {"graph": made_of.uri, "network": network.uri}
    found = run_stage(infer.STAGE, {"batch": 7}, given, tmp_path / "infer")
    _, targets, shape, data = prepared(made_of, TrainParams(**{**SMALL, **params}))
    model = Network(shape, 0)
    model.load_arrays(read_tensors(network.local("model.safetensors")))
    nodes = np.arange(len(targets.classes))
    batch = sampler_of(shape, data, everything(2)).batch({shape.head.node_sets[0]: nodes}, 0, 0, 0)
    with torch.no_grad():
        likely, classes = torch.softmax(model(batch, data.inputs)[shape.head.node_sets[0]], 1).max(1)
    table = found.table("predictions.parquet")
    assert table["probability"].to_numpy() == pytest.approx(likely.numpy(), abs=1e-5)
    assert table["predicted"].to_pylist() == [targets.names[number] for number in classes]
    assert table["label"].to_pylist() == [targets.names[number] for number in targets.classes]
    assert (
        found.table("embeddings.parquet")["vector"].combine_chunks().flatten().to_numpy().reshape(len(nodes), 16).min()
        >= 0
    )
    scored = run_stage(score.STAGE, {}, {"predictions": found.uri}, tmp_path / "score")
    tested = targets.nodes("test")
    right = float((classes.numpy()[tested] == targets.classes[tested]).mean())
    assert scored.stats["metrics.accuracy@test"] == pytest.approx(right)
    assert typed or right > 0.8


def test_weights_under_the_names_of_others(tmp_path, graph):
    """`tests.oracles.in_pyg_gnn` checks the names against torch_geometric."""
    made = trained(graph, tmp_path / "train", model="gat", heads=4, epochs=1, fanouts="all,all")
    write_pyg(made, tmp_path / "pyg.safetensors")
    own, found = read_tensors(made.local("model.safetensors")), read_tensors(tmp_path / "pyg.safetensors")
    names = ("att_src", "att_dst", "lin.weight", "bias")
    assert found.keys() == {f"convs.{layer}.{name}" for layer in (0, 1) for name in names}
    assert (found["convs.1.lin.weight"] == np.tile(own["layers.1.linear.weight"], (4, 1))).all()
    learned = trained(one_kind(tmp_path / "graph", features=False), tmp_path / "learned", epochs=1)
    with pytest.raises(UserError, match="nodes learn embeddings"):
        write_pyg(learned, tmp_path / "none")


def _changed(folder: Path, **features) -> Dataset:
    names = [f"n{i}" for i in range(12)]
    label = [f"k{i % 2}" for i in range(12)]
    given = {"label": label, "features": np.ones((12, 2), np.float32), **features}
    rows = [(names[i], names[(i + step) % 12]) for i in range(12) for step in (1, 11)]
    return write_heterograph(folder, {"node": Nodes(names, given)}, {"edge": Edges("node", "node", rows)})


BAD = np.ones((12, 2), np.float32)
BAD[4, 1] = np.nan


@pytest.mark.parametrize(
    ("features", "params", "words"),
    [
        ({"features": BAD}, {}, ["not a finite number", "'n4'"]),
        ({"split": ["train"] * 5 + ["test"] * 7, "label": ["a"] * 5 + ["b"] * 7}, {}, ["no node to train on", "'b'"]),
        ({"split": ["train", "tset"] * 6}, {}, ["no such split", "'tset'"]),
        ({"label": ["a"] * 12}, {}, ["labels of two kinds"]),
        ({}, {"label": "node.colour"}, ["train.label", "'node.colour'", "node.label"]),
        ({}, {"label": "node.features"}, ["a whole number or text", "float[2]"]),
        ({"features": np.full((12, 2), 3e38, np.float32)}, {"dropout": 0}, ["training diverged", "learning_rate"]),
    ],
)
def test_refused(tmp_path, features, params, words):
    with pytest.raises(UserError) as refused:
        trained(_changed(tmp_path / "graph", **features), tmp_path / "train", **params)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"fanouts": "10,all", "layers": 3}, "2 fan-outs .10,all. for 3 layers"),
        ({"fanouts": "10,some"}, "'some' is no fan-out"),
        ({"model": "gat", "hidden": 20}, "8 heads do not divide a hidden width of 20"),
        ({"batch": 0}, "1 to 1048576, or all"),
        ({"layers": 1, "fanouts": "all", "norm": "batch", "residual": True}, "norm and residual act between layers"),
    ],
)
def test_parameters_that_do_not_fit(params, words):
    with pytest.raises(UserError, match=words):
        parse_params(TrainParams, params, "train")


def test_a_gpu_that_is_not_there(tmp_path, graph):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UserError, match="no CUDA device"):
        trained(graph, tmp_path / "train", device="cuda")


def test_models_for_one_kind_refuse_others(tmp_path):
    with pytest.raises(UserError, match=r"gcn takes a graph of one node set.*rgcn"):
        trained(two_kinds(tmp_path / "graph"), tmp_path / "train", model="gcn", label="paper.venue")


def test_tensors_are_read_as_they_were_written(tmp_path):
    given = {"a.b": np.arange(6, dtype=np.float32).reshape(2, 3), "c": np.array(7), "é": np.zeros((0, 2), np.float16)}
    write_tensors(tmp_path / "t", given, {"format": "pt"})
    found = read_tensors(tmp_path / "t")
    assert {name: values.dtype for name, values in found.items()} == {n: v.dtype for n, v in given.items()}
    assert all((found[name] == given[name]).all() and found[name].shape == given[name].shape for name in given)
    whole = (tmp_path / "t").read_bytes()
    for broken in (whole[:-1], whole[:20], b"", whole + b"x", b"\xff" * 8 + whole[8:]):
        (tmp_path / "t").write_bytes(broken)
        with pytest.raises(ValueError):
            read_tensors(tmp_path / "t")
    place = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for header in (7, ["a"], {"a": 7}, {"a": {}}, {"a": place | {"dtype": "F7"}}, {"a": place | {"dtype": []}},
                   {"a": place | {"shape": 2}}, {"a": place | {"shape": ["2"]}}, {"a": place | {"shape": [True, 2]}},
                   {"a": place | {"data_offsets": [8]}}, {"a": place | {"data_offsets": ["0", 8]}}):  # fmt: skip
        text = json.dumps(header).encode()
        (tmp_path / "t").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
        with pytest.raises(ValueError, match=r"tensor|header"):
            read_tensors(tmp_path / "t")
