"""Layers that read features of edges equal sums over single edges, written as torch_geometric's layers have them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional
from torch.nn.functional import leaky_relu, relu

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import heterograph, infer, train
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.sampler.block import Block
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.edge_feature_graphs import graph_of
from tests.tasks.gnn_graphs import prepared, sampler_of
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage
from tests.tasks.test_new_nodes import check_answers, neighbours_of, published, served

FAST = {"epochs": 2, "hidden": 8, "batch": 16, "fanouts": "3,2"}


def linear(layer: Any, rows: torch.Tensor) -> torch.Tensor:
    return functional.linear(rows, layer.weight, layer.bias)


def attention(part: Any, rows: torch.Tensor, i: int, senders: list[int], values: torch.Tensor, loop: bool) -> Any:
    """A receiver's row by GAT or GATv2 with `edge_dim`: its own edge has the mean of its edges' features."""
    if loop:
        mean = values.mean(0, keepdim=True) if len(senders) else torch.zeros(1, values.shape[1])
        senders, values = [*senders, i], torch.cat([values, mean])
    if not senders:
        return torch.zeros(part.of_senders.numel())
    of_edges = linear(part.edges, values)
    if isinstance(part.of_senders, torch.nn.Linear):
        heads, width = part.scores.shape
        near = linear(part.of_senders, rows[senders]).view(-1, heads, width)
        both = near + (linear(part.of_receivers, rows[i]) + of_edges).view(-1, heads, width)
        scores = (leaky_relu(both, 0.2) * part.scores).sum(-1)
    else:
        heads, width = part.of_senders.shape
        near = linear(part.linear, rows[senders]).view(-1, heads, width)
        own = linear(getattr(part, "receiving", part.linear), rows[i]).view(heads, width)
        scores = (near * part.of_senders).sum(-1) + (own * part.of_receivers).sum(-1)
        scores = leaky_relu(scores + (of_edges.view(-1, heads, width) * part.of_edges).sum(-1), 0.2)
    return (torch.softmax(scores, 0)[:, :, None] * near).sum(0).flatten()


def wanted_rows(network: Network, number: int, block: Block, rows: torch.Tensor, tables: Any) -> torch.Tensor:
    """Rows of a layer, from one receiver and edge after the other."""
    layer, model, out = network.layers[number], network.shape.model, []
    for i in range(len(block.receivers["node"])):
        parts = []
        for edge_set, hop in sorted(block.hops.items()):
            drawn = slice(hop.starts[i], hop.starts[i + 1])
            senders = hop.senders[drawn].tolist()
            values = torch.from_numpy(tables[edge_set][hop.positions[drawn]])
            if model == "gin":
                message = relu(rows[senders] + linear(layer.of_edges, values)).sum(0)
                total = rows[i] + message * (int(hop.degrees[i]) / max(1, len(senders)))
                parts.append(linear(layer.second, relu(layer.norm(linear(layer.first, total)))))
            else:
                part = layer.relations[str(edge_set)] if model == "rgat" else layer
                parts.append(attention(part, rows, i, senders, values, model != "rgat"))
        made = torch.stack(parts).sum(0)
        out.append(made + (linear(layer.own["0"], rows[i]) if model == "rgat" else 0 if model == "gin" else layer.bias))
    return torch.stack(out)


@pytest.mark.parametrize("model", ["gat", "gatv2", "gin", "rgat"])
def test_rows_and_gradients(tmp_path, model):
    params = TrainParams(model=model, hidden=8, heads=2, fanouts="3,2", label="node.label")
    _, targets, shape, data = prepared(graph_of(tmp_path, typed=model == "rgat"), params)
    assert {name: sum(width for _, width in each) for name, each in shape.edge_columns.items()} == {
        name.name: 3 for name in shape.relations
    }
    assert all(np.abs(table[:, 0].mean()) < 1e-5 for table in data.inputs.edge_features.values())  # is standardized
    network = Network(shape, 3)
    batch = sampler_of(shape, data, params.sizes).batch({"node": np.arange(11)}, 0, 0, 0)
    found = network(batch, data.inputs)["node"]
    classes = torch.from_numpy(targets.classes[:11])
    torch.nn.functional.cross_entropy(found, classes).backward()
    own = {name: each.grad.clone() for name, each in network.named_parameters()}
    network.zero_grad()
    rows = torch.from_numpy(data.inputs.features["node"][batch.blocks[0].senders["node"]])
    for number, block in enumerate(batch.blocks):
        rows = wanted_rows(network, number, block, rows, data.inputs.edge_features)
        rows = rows if number else (relu if model == "gin" else torch.nn.functional.elu)(rows)
    assert found.detach().numpy() == pytest.approx(rows.detach().numpy(), abs=1e-5)
    torch.nn.functional.cross_entropy(rows, classes).backward()
    for name, each in network.named_parameters():
        assert own[name].numpy() == pytest.approx(each.grad.numpy(), abs=1e-5), name
    assert any("edges" in name for name in own)


def trained(graph: Dataset, folder: Path, log: io.StringIO | None = None, **params: Any) -> Dataset:
    given = {"label": "node.label", **FAST, **params}
    return run_stage(train.STAGE, given, {"graph": graph.uri}, folder, log=log)


def test_train_and_infer(tmp_path):
    """Edges of another graph get the scaling of the network; others are refused by the names that they lack."""
    graph, log = graph_of(tmp_path / "graph"), io.StringIO()
    network = trained(graph, tmp_path / "train", log, model="gatv2", heads=2, edge_features="kind,distance")
    assert "features of edges: edge: kind, distance; scaling: standard" in log.getvalue()
    document = network.json("network.json")
    assert document["edge_columns"] == {"edge": [["kind", 2], ["distance", 1]]}
    other = graph_of(tmp_path / "other", seed=2)
    found = run_stage(infer.STAGE, {}, {
        "graph": other.uri, "network": network.uri,
    }, tmp_path / "infer")  # fmt: skip
    assert found.stats["nodes"] == 30
    nodes = Nodes(["a", "b"], {"label": ["k0", "k1"], "features": np.zeros((2, 5), np.float32)})
    bare = write_heterograph(tmp_path / "bare", {"node": nodes}, {"edge": Edges("node", "node", [("a", "b")])})
    given = {"graph": bare.uri, "network": network.uri}
    with pytest.raises(UserError, match="other features of edge"):
        run_stage(infer.STAGE, {}, given, tmp_path / "refused")


def test_models_without_a_place_for_them_say_so(tmp_path):
    graph, log = graph_of(tmp_path / "graph"), io.StringIO()
    trained(graph, tmp_path / "sage", log, model="sage")
    assert "features of edges are not used: sage has no place for them" in log.getvalue()
    log = io.StringIO()
    trained(graph, tmp_path / "none", log, model="sage", edge_features="none")
    assert "features of edges" not in log.getvalue()


@pytest.mark.parametrize(("weights", "params", "said"), [
    ((1, 4215), {}, True), ((2, 2), {}, False), ((1, 4), {"weight": "weight"}, False),
])  # fmt: skip
def test_weights_that_are_not_read_are_named(tmp_path, weights, params, said):
    rows = "".join(f"{i} {(i + 1) % 12} {weights[i % 2]}\n" for i in range(12))
    (tmp_path / "edges.txt").write_text(rows)
    (tmp_path / "labels.csv").write_text("node,label\n" + "".join(f"{i},{i % 2}\n" for i in range(12)))
    given = {each.split(".")[0]: str(tmp_path / each) for each in ("edges.txt", "labels.csv")}
    graph, log = run_stage(heterograph.STAGE, {}, given, tmp_path / "graph"), io.StringIO()
    network = run_stage(train.STAGE, {**FAST, **params}, {"graph": graph.uri}, tmp_path / "train", log=log)
    assert ("weights of edges are not read" in log.getvalue()) == said
    assert any("(got 1 to 4215). Set train.weight=weight" in str(each) for each in network.stats.values()) == said


@pytest.mark.parametrize(("params", "text"), [
    ({"edge_features": "text"}, "no such feature of numbers"), ({}, "not a finite number"),
])  # fmt: skip
def test_refusals(tmp_path, params, text):
    with pytest.raises(UserError, match=text):
        trained(graph_of(tmp_path / "graph", bad=not params), tmp_path / "train", model="gin", **params)


@pytest.mark.parametrize("model", ["gat", "gatv2", "gin", "rgat"])
def test_a_registered_model_reads_them_of_new_nodes(tmp_path, model):
    """A known node that comes as a new one, with its edges' features, has the answer of stage infer."""
    made = graph_of(tmp_path / "graph", typed=model == "rgat")
    params = {"label": "node.label", **FAST, "model": model, "heads": 2}
    found, bundle = published(made, tmp_path, params)
    graph, rows = HeteroGraph.open(made), [3, 0, 29]
    near: dict[str, list[Any]] = {"neighbors": [], "edge_features": []}
    for row in rows:
        names, features = {}, {}
        for name in graph.edge_sets:
            span = slice(*graph.rows(name).indptr[row : row + 2].tolist())
            distance, kind = (graph.edge_feature(name, each)[span].tolist() for each in ("distance", "kind"))
            names[name] = neighbours_of(graph, name, row)[0]
            features[name] = [{"kind": each, "distance": far} for each, far in zip(kind, distance, strict=True)]
        near["neighbors"].append(names)
        near["edge_features"].append(features)
    values = np.asarray(graph.node_feature("node", "features"))[rows].tolist()
    table = pd.DataFrame({"node": ["x", "y", "z"], "features": values, **near})
    check_answers(served(bundle).predict(table, {}), found, rows, ["x", "y", "z"])
    answer = served(bundle).predict(table.drop(columns="edge_features"), {})
    assert all("needs edge_features: of each edge 3 numbers (distance, 2 of kind)" in each for each in answer["error"])
