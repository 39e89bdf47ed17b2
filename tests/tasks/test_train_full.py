"""Training on the whole graph: the losses of a dense network with the same weights and masks, asynchrony, refusals."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.formats.safetensors import read_tensors
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.sampler.kernels import fill_masks
from superworkflow.tasks.lib.gnn.tensor_tasks import SparseRows, drop_dense
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.train import checkpoint
from superworkflow.tasks.train.defaults import FEW_ITEMS
from superworkflow.tasks.train_full import sparse_inputs
from superworkflow.tasks.train_full.dropped import Dropout
from superworkflow.tasks.train_full.params import TrainFullParams
from superworkflow.tasks.train_full.partners import Verdict
from superworkflow.tasks.train_full.picture import timeline_picture
from superworkflow.tasks.train_full.pipeline import Pipeline
from superworkflow.tasks.train_full.timeline import TimelineRow, faults
from superworkflow.tasks.train_full.trainer import WholeTrainer
from superworkflow.tasks.train_full.vertex_order import Interval, even_order, plain_order
from superworkflow.tasks.train_full.weight_versions import WeightVersions
from superworkflow.tasks.train_full.whole_graph import WholeGraph
from superworkflow.tasks.train_full.whole_layers import layers_of
from superworkflow.tasks.train_full.whole_network import WholeNetwork
from tests.tasks.gnn_graphs import NODES, adjacency, one_kind, prepared
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

SMALL = {"hidden": 16, "heads": 4, "patience": 0, "intervals": 5}


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Dataset:
    return one_kind(tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def sums(graph, tmp_path_factory) -> Dataset:
    inputs = {"graph": graph.uri}
    return run_stage(load_stage("aggregate"), {"form": "gcn"}, inputs, tmp_path_factory.mktemp("sums"))


def trained(
    graph: Dataset, sums: Dataset, folder: Path, cpu: int = 1, parts: Dataset | None = None, **params: Any
) -> Dataset:  # fmt: skip
    inputs = {"graph": graph.uri}
    if parts is not None:
        inputs["parts"] = parts.uri
    if params.get("model", "gcn") == "gcn":
        inputs["sums"] = sums.uri
    return run_stage(load_stage("train_full"), SMALL | params, inputs, folder, cpu=cpu)


def weights_of(dataset: Dataset) -> dict[str, np.ndarray]:
    return {name: np.array(each) for name, each in read_tensors(dataset.local("model.safetensors")).items()}


def history_of(dataset: Dataset) -> dict[str, list[float]]:
    return dataset.table("history.parquet").to_pydict()


def timeline_of(dataset: Dataset) -> list[TimelineRow]:
    return [TimelineRow(**row) for row in dataset.table("timeline.parquet").to_pylist()]


def dense_losses(graph: Dataset, params: TrainFullParams, epochs: int) -> list[float]:
    """Losses of a dense network in torch, which starts with the same weights and drops the same entries."""
    typed, targets, shape, data = prepared(graph, params.concrete(1))
    network, arcs = Network(shape, params.seed), adjacency(typed, "edge") + torch.eye(NODES)
    weights = dict(network.named_parameters())
    optimizer = torch.optim.Adam(weights.values(), params.learning_rate, weight_decay=params.weight_decay)
    features = torch.from_numpy(np.array(data.inputs.features["node"], np.float32))
    scales = arcs.sum(1).rsqrt()
    gcn = scales[:, None] * arcs * scales
    intervals = params.intervals_of(NODES) if params.updates == "interval" else 1
    order = even_order(typed.rows("edge"), intervals)
    spans = [order.between(each.first, each.last).astype(np.int64) for each in order.intervals]
    places = torch.from_numpy(np.argsort(np.concatenate(spans)))
    dropout, items = Dropout(params.dropout, params.seed), torch.from_numpy(targets.nodes("train"))
    wanted, losses = torch.from_numpy(targets.classes)[items], []
    everyone = np.arange(NODES, dtype=np.int32)
    for epoch in range(epochs):
        rows = gcn @ features if params.model == "gcn" else features
        # Each interval has weights of its own, which are equal, so that it has gradients of its own.
        copies = [{name: each.detach().clone().requires_grad_() for name, each in weights.items()} for _ in spans]

        def by_interval(use: Any, name: str, copies: Any = copies) -> torch.Tensor:
            return torch.cat([use(own[name], span) for own, span in zip(copies, spans, strict=True)])[places]

        for layer in range(shape.layers):
            prefix, is_gcn = f"layers.{layer}.", params.model == "gcn"
            rows = rows * torch.from_numpy(
                drop_dense(np.ones(rows.shape, np.float32), everyone, dropout.rows(epoch, layer))
            )
            made = by_interval(lambda each, span, rows=rows: rows[span] @ each.T, f"{prefix}linear.weight")
            bias = by_interval(lambda each, span: each.expand(len(span), -1),
                               f"{prefix}{'linear.' if is_gcn else ''}bias")  # fmt: skip
            if is_gcn:
                made = (gcn @ made if layer else made) + bias
            else:
                values = made.view(NODES, len(weights[f"{prefix}of_senders"]), -1)
                scores = [by_interval(lambda each, span, values=values: (values[span] * each).sum(-1), prefix + name)
                          for name in ("of_senders", "of_receivers")]  # fmt: skip
                made = attention(values, *scores, arcs, dropout.arcs(epoch, layer)) + bias
            act = torch.relu if is_gcn else functional.elu
            rows = act(made) if layer < shape.layers - 1 else made
        loss = functional.cross_entropy(rows[items], wanted)
        losses.append(float(loss.detach()))
        loss.backward()
        for own in copies:
            for name, weight in weights.items():
                weight.grad = own[name].grad
            optimizer.step()
    return losses


def attention(
    values: torch.Tensor, sending: torch.Tensor, receiving: torch.Tensor, arcs: torch.Tensor, drop: Any
) -> torch.Tensor:
    heads = values.shape[1]
    scores = functional.leaky_relu(sending[None] + receiving[:, None], 0.2)
    scores = scores.masked_fill(arcs[:, :, None] == 0, -torch.inf)
    keep = np.ones((NODES, NODES, heads), np.float32)
    if drop.share:
        for i, state in enumerate(drop.states_of(np.arange(NODES))):
            fill_masks(np.arange(NODES), drop.share, state, keep[i])
    return torch.einsum("ijh,jhd->ihd", torch.softmax(scores, 1) * torch.from_numpy(keep), values).flatten(1)


@pytest.mark.parametrize(
    ("model", "layers", "updates"),
    [("gcn", 1, "epoch"), ("gcn", 3, "epoch"), ("gat", 3, "epoch"), ("gat", 2, "interval")],
)
def test_losses_are_those_of_a_dense_network(graph, sums, tmp_path, model, layers, updates):
    given = {"model": model, "layers": layers, "dropout": 0.4, "learning_rate": 0.01, "weight_decay": 5e-4}
    given["updates"] = updates
    params = TrainFullParams.model_validate(SMALL | given)
    found = history_of(trained(graph, sums, tmp_path, epochs=20, **given))["loss"]
    assert found == pytest.approx(dense_losses(graph, params, 20), rel=1e-5)


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_threads_change_no_bit_and_intervals_little(graph, sums, tmp_path, model):
    given = {"model": model, "epochs": 8, "layers": 3}
    one = trained(graph, sums, tmp_path / "one", **given)
    two = trained(graph, sums, tmp_path / "two", cpu=3, **given)
    for name in ("model.safetensors", "history.parquet"):
        assert one.local(name).read_bytes() == two.local(name).read_bytes()
    assert not faults(timeline_of(two), 0)
    assert max(row.epoch - row.oldest for row in timeline_of(two)) == 0
    timeline_picture(two.table("timeline.parquet"), tmp_path / "pipeline.png")
    assert (tmp_path / "pipeline.png").read_bytes().startswith(b"\x89PNG")
    other = trained(graph, sums, tmp_path / "other", **given | {"intervals": 64})
    for name, values in weights_of(one).items():
        assert values == pytest.approx(weights_of(other)[name], rel=1e-3, abs=1e-5)
    short = trained(graph, sums, tmp_path / "short", precision="bfloat16", **given)
    assert history_of(short)["loss"] == pytest.approx(history_of(one)["loss"], rel=0.03)
    assert history_of(short)["loss"] != history_of(one)["loss"]


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_inference_of_the_kept_epoch(graph, sums, tmp_path, model):
    """Stage infer, with the layers of mini-batches, finds the validation accuracy of the epoch that was kept."""
    network = trained(graph, sums, tmp_path / "network", epochs=30, model=model)
    given = {"graph": graph.uri, "network": network.uri}
    run_stage(load_stage("infer"), {}, given, tmp_path / "found")
    judged = run_stage(load_stage("score"), {}, {"predictions": str(tmp_path / "found")}, tmp_path / "score")
    history, best = history_of(network), int(network.stats["best_epoch"] or 0)
    assert history["validation_loss"][best - 1] == min(history["validation_loss"]) or model == "gat"
    assert judged.metrics["accuracy@validation"] == pytest.approx(history["validation_accuracy"][best - 1])


@pytest.mark.parametrize(("model", "staleness"), [("gcn", 0), ("gat", 2)])
def test_asynchrony_keeps_its_bounds(graph, sums, tmp_path, model, staleness):
    given = {"model": model, "epochs": 25, "staleness": staleness, "dropout": 0.2}
    found = trained(graph, sums, tmp_path, cpu=3, **given)
    rows = timeline_of(found)
    assert not faults(rows, staleness)
    assert all(row.oldest == row.epoch for row in rows if row.epoch == 1)
    assert max(row.epoch - row.oldest for row in rows) >= 1
    assert {row.epoch for row in rows} == set(range(1, 26))
    assert len([row for row in rows if row.kind == "WU"]) == 25
    history = history_of(found)
    assert history["loss"][-1] < history["loss"][0]
    assert history["validation_accuracy"][-1] > 0.5


@pytest.mark.parametrize(("model", "staleness"), [("gcn", 0), ("gat", 2)])
def test_asynchrony_on_a_virtual_clock_repeats(graph, sums, tmp_path, model, staleness):
    given = {"model": model, "epochs": 12, "staleness": staleness, "clock": "virtual", "virtual_threads": 3}
    one = trained(graph, sums, tmp_path / "one", **given)
    again = trained(graph, sums, tmp_path / "again", cpu=3, **given)
    for name in ("model.safetensors", "history.parquet", "timeline.parquet"):
        assert one.local(name).read_bytes() == again.local(name).read_bytes()
    rows = timeline_of(one)
    assert not faults(rows, staleness)
    assert max(row.epoch - row.oldest for row in rows) >= 1
    assert {row.thread for row in rows} == {0, 1, 2}
    for thread in range(3):
        own = [row for row in rows if row.thread == thread]
        assert all(a.end_s <= b.begin_s for a, b in itertools.pairwise(own))
    fewer = trained(graph, sums, tmp_path / "fewer", **given | {"virtual_threads": 1})
    assert max(row.end_s for row in timeline_of(fewer)) > max(row.end_s for row in rows)
    assert weights_differ(fewer, one)


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_synchronous_weights_are_the_same_on_a_virtual_clock(graph, sums, tmp_path, model):
    real = trained(graph, sums, tmp_path / "real", epochs=4, model=model)
    virtual = trained(graph, sums, tmp_path / "virtual", epochs=4, model=model, clock="virtual")
    assert not weights_differ(real, virtual)


def weights_differ(one: Dataset, other: Dataset) -> bool:
    return one.local("model.safetensors").read_bytes() != other.local("model.safetensors").read_bytes()


def test_asynchrony_ends_at_an_accuracy(graph, sums, tmp_path):
    found = trained(graph, sums, tmp_path / "switch", epochs=30, staleness=0, switch_accuracy=0.6)
    accuracy = np.array(history_of(found)["validation_accuracy"])
    switch = int(np.flatnonzero(accuracy >= 0.6)[0]) + 1
    late = [row for row in timeline_of(found) if row.epoch > switch]
    assert late
    assert all(row.oldest == row.epoch for row in late)
    over = trained(graph, sums, tmp_path / "target", epochs=200, target_accuracy=0.6)
    assert len(history_of(over)["epoch"]) == switch or history_of(over)["validation_accuracy"][-1] >= 0.6
    assert (np.array(history_of(over)["validation_accuracy"][:-1]) < 0.6).all()


def test_checkers_find_what_is_wrong():
    row = TimelineRow(3, "forward", "GA", 1, 0, 0, 2, 0, 3, 0.0, 1.0)
    assert not faults([row, row._replace(way="back")], 0)
    assert "was done twice" in faults([row, row], 0)[0]
    assert "1 epochs ahead" in faults([row._replace(lead=1)], 0)[0]
    assert "values of epoch 1" in faults([row._replace(oldest=1)], 0)[0]
    assert "version 1 of the weights, not 2" in faults([row, row._replace(way="back", version=1)], 0)[0]


def test_versions_of_weights_are_freed():
    versions = WeightVersions([{}])
    first = versions.acquire()
    versions.add([{}])
    assert versions.kept() == [0, 1]
    again = versions.acquire()
    versions.release(first)
    assert versions.kept() == [1]
    versions.release(again)
    assert versions.kept() == [1]


class _Frozen:
    """Ends of epochs that change nothing."""

    def __init__(self, weights: Any):
        self.weights = weights

    def update(self, epoch: int, losses: Any, gradients: Any) -> Any:
        return self.weights

    def end(self, epoch: int) -> Verdict:
        return Verdict(False, False)


class _NoLoss:
    def loss(self, interval: Interval, scores: np.ndarray) -> tuple[float, np.ndarray]:
        return 0.0, np.zeros_like(scores)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_feature_moves_what_is_within_as_many_hops_as_layers(layers):
    """On a path, with weights that stay; also after asynchronous epochs, as the last validation is synchronous."""
    count, rng = 9, np.random.default_rng(3)
    ends = [[j for j in (i - 1, i + 1) if 0 <= j < count] for i in range(count)]
    rows = CsrRows(np.cumsum([0, *map(len, ends)]), np.array([j for each in ends for j in each], np.int32))
    whole = WholeGraph.of_rows(rows, plain_order(count, 4))
    params = TrainFullParams(model="gat", layers=layers, hidden=8, heads=2)
    weights = [
        {
            "linear.weight": rng.normal(size=(8, 8)).astype(np.float32), "bias": np.zeros(8, np.float32),
            "of_senders": rng.normal(size=(heads, 8 // heads)).astype(np.float32),
            "of_receivers": rng.normal(size=(heads, 8 // heads)).astype(np.float32),
        }
        for heads in [2] * (layers - 1) + [1]
    ]  # fmt: skip
    features = rng.normal(size=(count, 8)).astype(np.float32)
    shape = _Shape(layers)
    scores = []
    for inputs in (features, features + (np.arange(count) == 4).astype(np.float32)[:, None]):
        made = layers_of(shape, whole, params.precision)  # type: ignore[arg-type]
        network = WholeNetwork(whole, made, inputs, _NoLoss(), Dropout(0.0, 1), True, whole.all_places())
        pipeline = Pipeline(network, WeightVersions(weights), _Frozen(weights), 0, 3, 0, 2)
        pipeline.run()
        assert not faults(pipeline.timeline, 0)
        scores.append(np.concatenate([network.scores[number] for number in sorted(network.scores)]))
    moved = np.flatnonzero((scores[0] != scores[1]).any(axis=1))
    assert moved.tolist() == list(range(4 - layers, 5 + layers))


class _Shape:
    model, heads = "gat", 2

    def __init__(self, layers: int):
        self.layers = layers

    def width_out(self, number: int) -> int:
        return 8

    def is_hidden(self, number: int) -> bool:
        return number < self.layers - 1


def test_broken_off_and_resumed_training_ends_with_the_same_weights(graph, sums, tmp_path, monkeypatch):
    given = {"model": "gat", "epochs": 6}
    whole = trained(graph, sums, tmp_path / "whole", **given)
    update = WholeTrainer.update

    def breaks_off(self: WholeTrainer, epoch: int, *more: Any) -> Any:
        if epoch == 3:
            raise RuntimeError("broken off")
        return update(self, epoch, *more)

    monkeypatch.setattr(checkpoint, "CHECKPOINT_SECONDS", -1.0)
    with monkeypatch.context() as patch:
        patch.setattr(WholeTrainer, "update", breaks_off)
        with pytest.raises(RuntimeError, match="broken off"):
            trained(graph, sums, tmp_path / "again", **given)
    resumed = trained(graph, sums, tmp_path / "again", **given)
    assert {row.epoch for row in timeline_of(resumed)} == {4, 5, 6}
    for name in ("model.safetensors", "history.parquet"):
        assert whole.local(name).read_bytes() == resumed.local(name).read_bytes()


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_many_labels_have_a_course_of_their_own(graph, sums, tmp_path, monkeypatch, model):
    """Trained with nothing set, the weights are those of its values, dropout among them; what is set stays."""
    assert TrainFullParams(model=model).most_epochs == 1000
    few = TrainFullParams(model=model, learning_rate=0.5).concrete(FEW_ITEMS)
    many = TrainFullParams(model=model, learning_rate=0.5).concrete(FEW_ITEMS + 1)
    assert (few.learning_rate, many.learning_rate) == (0.5, 0.5)
    names = ("dropout", "learning_rate", "patience", "kept_by", "weight_decay")
    explicit = {name: getattr(TrainFullParams(model=model).concrete(FEW_ITEMS + 1), name) for name in names}
    assert explicit["dropout"] < few.dropout
    monkeypatch.setattr("superworkflow.tasks.train_full.params.FEW_ITEMS", 1)
    monkeypatch.setattr("superworkflow.tasks.train.defaults.FEW_ITEMS", 1)
    found = [
        trained(graph, sums, tmp_path / name, model=model, epochs=5, **given)
        for name, given in (("auto", {}), ("explicit", explicit))
    ]
    assert not weights_differ(*found)
    monkeypatch.undo()
    assert weights_differ(found[0], trained(graph, sums, tmp_path / "few", model=model, epochs=5))


def test_refusals(graph, sums, tmp_path):
    bare = one_kind(tmp_path / "bare", features=False)
    with pytest.raises(UserError, match="no features"):
        trained(bare, sums, tmp_path / "a", model="gat")
    with pytest.raises(UserError, match="another graph"):
        trained(one_kind(tmp_path / "other", seed=5), sums, tmp_path / "b")
    inputs = {"graph": graph.uri}
    with pytest.raises(UserError, match="reads sums"):
        run_stage(load_stage("train_full"), {}, inputs, tmp_path / "c")
    means = run_stage(load_stage("aggregate"), {}, inputs, tmp_path / "means")
    with pytest.raises(UserError, match=r"another form.*got 'mean'"):
        trained(graph, means, tmp_path / "d")
    with pytest.raises(UserError, match="3 heads do not divide"):
        trained(graph, sums, tmp_path / "f", model="gat", heads=3)
    names = [f"n{i}" for i in range(4)]
    for split, size, message in (("test", 1.0, "no node to train on"), ("train", 1e30, r"diverged in epoch \d+")):
        features = np.eye(4, dtype=np.float32) * np.float32(size)
        nodes = Nodes(names, {"features": features, "label": list("abab"), "split": [split] * 4})
        edges = Edges("node", "node", [("n0", "n1"), ("n1", "n0")])
        made = write_heterograph(tmp_path / split, {"node": nodes}, {"edge": edges})
        with pytest.raises(UserError, match=message):
            trained(made, sums, tmp_path / f"{split}-network", model="gat", layers=8, learning_rate=10, dropout=0)


def test_sparse_inputs_train_as_dense_ones(sums, tmp_path, monkeypatch):
    rng, names = np.random.default_rng(2), [f"n{i}" for i in range(NODES)]
    features = (rng.random((NODES, 60)) < 0.02).astype(np.float32)
    nodes = Nodes(names, {"features": features, "label": [f"k{i % 3}" for i in range(NODES)],
                          "split": [("train", "validation", "test")[i // 3 % 3] for i in range(NODES)]})  # fmt: skip
    pairs = sorted({(names[i], names[j]) for i in range(NODES) for j in ((i + 3) % NODES, (i - 3) % NODES)})
    made = write_heterograph(tmp_path / "graph", {"node": nodes}, {"edge": Edges("node", "node", pairs)})
    given = {"graph": made.uri}
    parts = run_stage(load_stage("partition"), {"parts": 4}, given, tmp_path / "parts")
    losses = []
    for least in (sparse_inputs.SPARSE, 0.0):
        monkeypatch.setattr(sparse_inputs, "SPARSE", least)
        assert isinstance(sparse_inputs.as_inputs(features, False), SparseRows) == bool(least)
        found = trained(made, sums, tmp_path / str(least), parts=parts, epochs=12, model="gat")
        losses.append(history_of(found)["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("model", ["gcn", "gat"])
@pytest.mark.parametrize("more", [{}, {"clock": "virtual", "virtual_servers": 2}])
def test_large_inputs_are_read_by_interval(graph, sums, tmp_path, monkeypatch, model, more):
    """Along parts, hence in another order than the file's."""
    parts = run_stage(load_stage("partition"), {"parts": 4}, {"graph": graph.uri}, tmp_path / "parts")
    found = []
    for most in (sparse_inputs.COPIED_INPUTS, 0):
        monkeypatch.setattr(sparse_inputs, "COPIED_INPUTS", most)
        found.append(trained(graph, sums, tmp_path / str(most), parts=parts, epochs=5, model=model, **more))
    copied, read = (made.local("model.safetensors").read_bytes() for made in found)
    assert copied == read


def test_sums_of_gcn_are_those_of_a_dense_matrix(graph, sums):
    typed = HeteroGraph.open(graph)
    arcs = (adjacency(typed, "edge") + torch.eye(NODES)).numpy().astype(np.float64)
    scales = 1 / np.sqrt(arcs.sum(1))
    features = np.asarray(typed.node_feature("node", "features"), np.float64)
    assert np.array(sums.array("gcn-0.npy")) == pytest.approx((scales[:, None] * arcs * scales) @ features, abs=1e-5)
