"""Inference multiplies before it takes means where that is less work, and makes the same rows either way."""

import numpy as np
import pytest
import torch

from superworkflow.tasks.infer import run
from superworkflow.tasks.infer.run import all_rows, multiplies_first
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.gnn_graphs import everything, one_kind, prepared, sampler_of, two_kinds

MODELS = [{}, {"model": "rgcn", "bases": 2}, {"aggregator": "pool"}, {"model": "gatv2", "heads": 2}]
WHOLE = [
    {"model": "gcn"}, {"model": "gcn", "norm": "layer", "residual": True}, {"model": "gat", "heads": 2},
    {"model": "gat", "heads": 8, "norm": "batch"}, {"model": "gin"}, {"model": "gin", "residual": True, "hidden": 3},
    {"model": "gcn", "jumping_knowledge": "cat"},
]  # fmt: skip


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_rows_are_the_same_whether_they_are_multiplied_first(tmp_path, monkeypatch, model, first):
    calls = []
    monkeypatch.setattr(run, "multiplies_first", lambda *sizes: calls.append(sizes) or first)
    params = TrainParams(layers=3, fanouts="all,all,all", hidden=16, **model)
    made = one_kind(tmp_path / "graph")
    if model.get("model") == "rgcn":
        made, params = two_kinds(tmp_path / "typed"), params.model_copy(update={"label": "paper.venue"})
    _, targets, shape, data = prepared(made, params)
    network = Network(shape, 1)
    (name,) = shape.head.node_sets
    nodes = np.arange(len(targets.classes))
    with torch.no_grad():
        found, hidden = all_rows(network, data, 7, lambda done, total, unit: None)
        batch = sampler_of(shape, data, everything(3)).batch({name: nodes}, 0, 0, 0)
        wanted = network(batch, data.inputs)[name].numpy()
    assert found[name] == pytest.approx(wanted, abs=1e-5)
    assert hidden[name].shape == (len(nodes), 16)
    reads_means = model.get("model", "sage") in ("sage", "rgcn") and "aggregator" not in model
    assert bool(calls) == reads_means


@pytest.mark.parametrize("model", WHOLE, ids=str)
def test_whole_layers_make_the_rows_of_blocks(tmp_path, monkeypatch, model):
    """By kernels over whole graphs alone, in any pieces, with threads."""
    params = TrainParams(**{"layers": 3, "fanouts": "all,all,all", "hidden": 16} | model)
    _, targets, shape, data = prepared(one_kind(tmp_path / "graph"), params)
    network = Network(shape, 1)
    (name,) = shape.head.node_sets
    nodes = np.arange(len(targets.classes))
    batch = sampler_of(shape, data, everything(3)).batch({name: nodes}, 0, 0, 0)
    network.eval()
    monkeypatch.setattr(run, "NeighborSampler", None)
    with torch.no_grad():
        wanted = network(batch, data.inputs)[name].numpy()
        found = [all_rows(network, data, each, lambda done, total, unit: None)[0][name] for each in (3, 1 << 20)]
    assert found[0] == pytest.approx(wanted, rel=1e-4, abs=1e-4 * float(np.abs(wanted).max()))
    assert found[0] == pytest.approx(found[1], rel=1e-5, abs=1e-5)


def test_multiplying_first_pays_where_rows_get_narrower_and_senders_are_not_many():
    assert multiplies_first(1000, 1000, 20_000, 256, 50)
    assert not multiplies_first(1000, 1000, 20_000, 50, 256)
    assert not multiplies_first(1000, 1000, 20_000, 256, 256)
    assert not multiplies_first(1_000_000, 10, 100, 256, 50)
