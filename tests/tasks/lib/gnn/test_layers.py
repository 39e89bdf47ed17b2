"""Layers on blocks equal dense networks written with plain matrices, and so do their gradients."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from superworkflow.tasks.lib.gnn.model import linear
from superworkflow.tasks.lib.gnn.model.config import ONE_KIND
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.gnn_graphs import adjacency, everything, one_kind, prepared, sampler_of, two_kinds

Weights = dict[str, torch.Tensor]
Rows = dict[str, torch.Tensor]


def mean(matrix: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return matrix @ values / matrix.sum(1, keepdim=True).clamp(min=1)


def after(
    shape, weights: Weights, number: int, place: int, made: torch.Tensor, rows: torch.Tensor, act: Callable = torch.relu
) -> torch.Tensor:
    """A layer's output after norm, activation and residual, if it is hidden."""
    if not shape.is_hidden(number):
        return made
    if shape.norm != "none":
        dim = 0 if shape.norm == "batch" else 1
        made = (made - made.mean(dim, keepdim=True)) / (made.var(dim, correction=0, keepdim=True) + 1e-5).sqrt()
        made = made * weights[f"norms.{number}.{place}.weight"] + weights[f"norms.{number}.{place}.bias"]
    made = act(made)
    if shape.residual:
        matrix = weights.get(f"shortcuts.{number}.{place}.weight")
        made = made + (rows if matrix is None else rows @ matrix.T)
    return made


def joined(shape, weights: Weights, rows: list[torch.Tensor]) -> torch.Tensor:
    """Output of a network from the rows of the targets after each layer."""
    if shape.jumping_knowledge == "none":
        return rows[-1]
    found = torch.cat(rows, 1) if shape.jumping_knowledge == "cat" else rows[-1]
    found = torch.maximum(*rows) if shape.jumping_knowledge == "max" else found
    return found @ weights["head.weight"].T + weights["head.bias"]


def dense_sage(graph: HeteroGraph, shape, weights: Weights, rows: Rows, pool: bool, bases: bool) -> torch.Tensor:
    kept = []
    for number, level in enumerate(shape.levels()):
        prefix = f"layers.{number}."
        made = {}
        for place, name in enumerate(level.receivers):
            own = weights[f"{prefix}own.{place}.weight"], weights[f"{prefix}own.{place}.bias"]
            made[name] = rows[name] @ own[0].T + own[1]
        for place, relation in enumerate(level.relations):
            matrix, values = adjacency(graph, relation.name), rows[relation.senders]
            if pool:
                key = f"{prefix}pools.{relation.number}."
                values = torch.relu(values @ weights[f"{key}weight"].T + weights[f"{key}bias"])
                message = torch.where(matrix[:, :, None] > 0, values[None], torch.zeros(())).amax(1)
            else:
                message = mean(matrix, values)
            weight = weights.get(f"{prefix}neighbours.{relation.number}.weight")
            if weight is None:
                weight = (weights[f"{prefix}parts"][place][:, None, None] * weights[f"{prefix}bases"]).sum(0)
            made[relation.receivers] = made[relation.receivers] + message @ weight.T
        places = list(level.receivers)
        rows = {name: after(shape, weights, number, places.index(name), made[name], rows[name]) for name in made}
        kept.append(rows[shape.head.node_sets[0]])
    return joined(shape, weights, kept)


def dense_gcn(graph: HeteroGraph, shape, weights: Weights, rows: Rows) -> torch.Tensor:
    matrix = adjacency(graph, "edge") + torch.eye(shape.nodes["node"])
    root = torch.diag(matrix.sum(1).rsqrt())
    values, kept = rows["node"], []
    for number in range(shape.layers):
        made = root @ matrix @ root @ values @ weights[f"layers.{number}.linear.weight"].T
        values = after(shape, weights, number, 0, made + weights[f"layers.{number}.linear.bias"], values)
        kept.append(values)
    return joined(shape, weights, kept)


def dense_gat(graph: HeteroGraph, shape, weights: Weights, rows: Rows) -> torch.Tensor:
    there = (adjacency(graph, "edge") + torch.eye(shape.nodes["node"])) > 0
    values, kept = rows["node"], []
    for number in range(shape.layers):
        prefix = f"layers.{number}."
        of_senders, of_receivers = weights[f"{prefix}of_senders"], weights[f"{prefix}of_receivers"]
        heads, width = of_senders.shape
        wide = (values @ weights[f"{prefix}linear.weight"].T).view(-1, heads, width)
        parts = []
        for head in range(heads):
            z = wide[:, head]
            scores = (z @ of_receivers[head])[:, None] + (z @ of_senders[head])[None]
            scores = torch.nn.functional.leaky_relu(scores, 0.2).masked_fill(~there, -torch.inf)
            parts.append(torch.softmax(scores, 1) @ z)
        made = torch.cat(parts, 1) + weights[f"{prefix}bias"]
        values = after(shape, weights, number, 0, made, values, torch.nn.functional.elu)
        kept.append(values)
    return joined(shape, weights, kept)


def attended(scores: torch.Tensor, there: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Sums of values by a softmax of scores [receivers, senders] where there is an edge; 0 without one."""
    scores = torch.nn.functional.leaky_relu(scores, 0.2) if scores.dim() == 2 else scores[0]
    powers = torch.where(there, scores, -torch.inf).exp()
    return powers @ values / powers.sum(1, keepdim=True).clamp(min=1e-30)


def dense_gatv2(graph: HeteroGraph, shape, weights: Weights, rows: Rows) -> torch.Tensor:
    there = (adjacency(graph, "edge") + torch.eye(shape.nodes["node"])) > 0
    values, kept = rows["node"], []
    for number in range(shape.layers):
        prefix = f"layers.{number}."
        ends = [
            (values @ weights[f"{prefix}{end}.weight"].T + weights[f"{prefix}{end}.bias"]).split(
                weights[f"{prefix}scores"].shape[1], 1
            )
            for end in ("of_senders", "of_receivers")
        ]
        parts = []
        for of_senders, of_receivers, vector in zip(*ends, weights[f"{prefix}scores"], strict=True):
            both = torch.nn.functional.leaky_relu(of_receivers[:, None] + of_senders[None], 0.2)
            parts.append(attended((both @ vector)[None], there, of_senders))
        made = torch.cat(parts, 1) + weights[f"{prefix}bias"]
        values = after(shape, weights, number, 0, made, values, torch.nn.functional.elu)
        kept.append(values)
    return joined(shape, weights, kept)


def dense_gin(graph: HeteroGraph, shape, weights: Weights, rows: Rows) -> torch.Tensor:
    matrix = adjacency(graph, "edge") + torch.eye(shape.nodes["node"])
    values, kept = rows["node"], []
    for number in range(shape.layers):
        prefix = f"layers.{number}."
        made = matrix @ values
        for name in ("first", "second"):
            if name == "second":
                norm = weights[f"{prefix}norm.weight"], weights[f"{prefix}norm.bias"]
                made = torch.relu(torch.nn.functional.layer_norm(made, made.shape[1:], *norm))
            made = made @ weights[f"{prefix}{name}.weight"].T + weights[f"{prefix}{name}.bias"]
        values = after(shape, weights, number, 0, made, values)
        kept.append(values)
    return joined(shape, weights, kept)


def dense_rgat(graph: HeteroGraph, shape, weights: Weights, rows: Rows) -> torch.Tensor:
    kept = []
    for number, level in enumerate(shape.levels()):
        made = {}
        for place, name in enumerate(level.receivers):
            prefix = f"layers.{number}.own.{place}."
            made[name] = rows[name] @ weights[f"{prefix}weight"].T + weights[f"{prefix}bias"]
        for relation in level.relations:
            prefix = f"layers.{number}.relations.{relation.number}."
            of_senders, of_receivers = weights[f"{prefix}of_senders"], weights[f"{prefix}of_receivers"]
            values = (rows[relation.senders] @ weights[f"{prefix}linear.weight"].T).split(of_senders.shape[1], 1)
            mine = (rows[relation.receivers] @ weights[f"{prefix}receiving.weight"].T).split(of_senders.shape[1], 1)
            there = adjacency(graph, relation.name) > 0
            parts = [
                attended((mine[head] @ of_receivers[head])[:, None] + (values[head] @ of_senders[head])[None], there,
                         values[head])
                for head in range(len(of_senders))
            ]  # fmt: skip
            made[relation.receivers] = made[relation.receivers] + torch.cat(parts, 1)
        act, places = torch.nn.functional.elu, list(level.receivers)
        rows = {name: after(shape, weights, number, places.index(name), made[name], rows[name], act) for name in made}
        kept.append(rows[shape.head.node_sets[0]])
    return joined(shape, weights, kept)


CASES = {
    "sage": {}, "pool": {"aggregator": "pool"}, "rgcn": {"model": "rgcn", "bases": 2}, "gcn": {"model": "gcn"},
    "gat": {"model": "gat", "heads": 4}, "deep": {"layers": 3, "fanouts": "all,all,all"},
    "learned": {"model": "rgcn", "bases": 1}, "norm": {"norm": "layer", "residual": True},
    "batch norm": {"norm": "batch", "residual": True, "jumping_knowledge": "cat"},
    "gcn, norm": {"model": "gcn", "norm": "batch", "jumping_knowledge": "last"},
    "gatv2": {"model": "gatv2", "heads": 4}, "gin": {"model": "gin"}, "rgat": {"model": "rgat", "heads": 4},
    "gin, norm": {"model": "gin", "norm": "layer", "residual": True},
    "gat, norm": {"model": "gat", "heads": 4, "norm": "layer", "residual": True, "jumping_knowledge": "max"},
}  # fmt: skip


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_layers_and_gradients(tmp_path, case, typed):
    if typed and CASES[case].get("model") in ONE_KIND:
        pytest.skip("takes graphs of one kind")
    made = two_kinds(tmp_path / "graph") if typed else one_kind(tmp_path / "graph", features=case != "learned")
    values = {"hidden": 8, "fanouts": "all,all", "label": "paper.venue" if typed else "", **CASES[case]}
    graph, targets, shape, data = prepared(made, TrainParams(**values))
    network = Network(shape, 3)
    some = 17 if shape.norm != "batch" else len(targets.classes)  # whose statistics would be of some nodes too
    nodes = np.sort(np.random.default_rng(0).permutation(len(targets.classes))[:some])
    batch = sampler_of(shape, data, everything(shape.layers)).batch({shape.head.node_sets[0]: nodes}, 0, 0, 0)
    (found,) = network(batch, data.inputs).values()
    weights = {name: each.detach().clone().requires_grad_() for name, each in network.named_parameters()}
    rows = {}
    for name in graph.node_sets:
        key = f"embeddings.{network.embedded.get(name)}.weight"
        rows[name] = weights[key] if key in weights else torch.from_numpy(np.array(data.inputs.features[name]))
    denses = {
        "gcn": dense_gcn, "gat": dense_gat, "gatv2": dense_gatv2, "gin": dense_gin, "rgat": dense_rgat,
    }  # fmt: skip
    dense: Callable = denses.get(
        shape.model, lambda *given: dense_sage(*given, pool=shape.aggregator == "pool", bases=shape.bases > 0)
    )
    wanted = dense(graph, shape, weights, rows)[nodes]
    assert found.detach().numpy() == pytest.approx(wanted.detach().numpy(), abs=1e-5)
    classes = torch.from_numpy(targets.classes[nodes])
    torch.nn.functional.cross_entropy(found, classes).backward()
    torch.nn.functional.cross_entropy(wanted, classes).backward()
    for name, parameter in network.named_parameters():
        gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
        assert gradient.numpy() == pytest.approx(weights[name].grad.numpy(), abs=1e-5), name


@pytest.mark.parametrize(("typed", "kind"), [(False, np.float16), (True, np.float32)])
def test_rows_of_tables_are_those_of_numbered_senders(tmp_path, typed, kind):
    """The same draws read from tables of all nodes: rows, gradients, and dropout; and by products of bfloat16."""
    made = two_kinds(tmp_path / "graph") if typed else one_kind(tmp_path / "graph")
    values = TrainParams(hidden=8, layers=3, fanouts="3,2,4", label="paper.venue" if typed else "")
    _, targets, shape, data = prepared(made, values)
    (name,) = shape.head.node_sets
    network, found = Network(shape, 3), []
    data.inputs.features = {each: table.astype(kind) for each, table in data.inputs.features.items()}
    direct = network.direct(0, data.inputs)
    assert direct
    for each in (frozenset(), direct):
        draws = Draws(shape.levels(), values.sizes, False, frozenset(), 1, each)
        batch = NeighborSampler(data.rows, shape.nodes, draws).batch({name: np.arange(17)}, 0, 0, 0)
        assert set(batch.blocks[0].direct) == each
        network.zero_grad()
        rows = network(batch, data.inputs, 0.5)[name]
        torch.nn.functional.cross_entropy(rows, torch.from_numpy(targets.classes[:17])).backward()
        gradients = [each.grad.to_dense() for each in network.parameters() if each.grad is not None]
        found.append(torch.cat([each.flatten() for each in (rows.detach(), *gradients)]).numpy())
    assert found[1] == pytest.approx(found[0], abs=1e-6)
    network.precision = "bfloat16"
    assert network(batch, data.inputs, 0.5)[name].detach().numpy() == pytest.approx(rows.detach().numpy(), abs=0.1)


@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("typed", [False, True])
def test_rows_and_gradients_by_products_of_bfloat16(tmp_path, monkeypatch, typed, dropout, tiles):
    """They are those of float32, but for rounding; the rows between the layers are bfloat16 themselves."""
    if tiles and not linear.by_tiles():
        pytest.skip("this processor has no tiles")
    monkeypatch.setattr(linear, "by_tiles", lambda: tiles)
    made = two_kinds(tmp_path / "graph") if typed else one_kind(tmp_path / "graph")
    values = TrainParams(hidden=24, layers=3, fanouts="3,2,4", label="paper.venue" if typed else "")
    _, targets, shape, data = prepared(made, values)
    (name,), network, found = shape.head.node_sets, Network(shape, 3), []
    draws = Draws(shape.levels(), values.sizes, False, frozenset(), 1, network.direct(0, data.inputs))
    batch = NeighborSampler(data.rows, shape.nodes, draws).batch({name: np.arange(17)}, 0, 0, 0)
    for network.precision in ("float32", "bfloat16"):
        network.zero_grad()
        inner = network.layer(0, batch.blocks[0], network.first_rows(batch.blocks[0], data.inputs), data.inputs)
        assert {str(each.dtype) for each in inner.values()} == {f"torch.{network.precision}"}
        rows = network(batch, data.inputs, dropout)[name]
        torch.nn.functional.cross_entropy(rows, torch.from_numpy(targets.classes[:17])).backward()
        assert rows.dtype == torch.float32
        assert all(each.grad.dtype == torch.float32 for each in network.parameters() if each.grad is not None)
        found.append({key: each.grad.to_dense() for key, each in network.named_parameters() if each.grad is not None})
        found[-1]["rows"] = rows.detach()
    assert found[0].keys() == found[1].keys()
    for key, wanted in found[0].items():
        assert (found[1][key] - wanted).norm() < 0.25 * wanted.norm() + 1e-3, key  # as units begin to fire, or cease


@pytest.mark.parametrize("model", ["sage", "rgcn", "gcn"])
def test_own_embeddings_are_dropped_whole(tmp_path, model):
    """Layers of `sage` and `rgcn` do so by node, whichever others are in the batch."""
    made = one_kind(tmp_path / "graph", features=False)
    _, targets, shape, data = prepared(made, TrainParams(model=model, hidden=8, fanouts="all,all"))
    network, lost = Network(shape, 3), []
    for nodes in (np.arange(len(targets.classes)), np.arange(0, len(targets.classes), 3)):
        block = sampler_of(shape, data, everything(2)).batch({"node": nodes}, 0, 0, 0).blocks[0]
        given = network.inputs(0, block, network.first_rows(block, data.inputs), data.inputs, 0.5)
        if model == "gcn":
            assert given.own == {}
            return
        (rows,) = network.layers[0].read(given).values()
        whole = (rows[:, :8] == 0).all(1).numpy()
        assert 0.3 < whole.mean() < 0.7
        assert (rows[:, 8:] == 0).all(1).numpy().mean() < 0.2, "those of neighbours are dropped by entries"
        lost.append(dict(zip(block.receivers["node"].tolist(), whole.tolist(), strict=True)))
    assert {node: lost[0][node] for node in lost[1]} == lost[1]
