"""Edge weights and float16 features: sums and draws, from an edge list to predictions."""

import itertools

import numpy as np
import pytest
import torch

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks import aggregate, heterograph, infer
from superworkflow.tasks.lib.gnn.edge_weights import weights_of
from superworkflow.tasks.lib.gnn.model.config import read_shape
from superworkflow.tasks.lib.gnn.model.graph_inputs import data_of
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.model.weights import read_network
from superworkflow.tasks.lib.gnn.relations import LayerSchema, Relation
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.train import STAGE
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.gnn_graphs import adjacency, everything, prepared, sampler_of
from tests.tasks.index_helpers import run_stage

NODES, WIDTH = 40, 6


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A graph with weights, which rows of the same edge add up to."""
    folder, rng = tmp_path_factory.mktemp("weights"), np.random.default_rng(3)
    pairs = {(int(u), int(v)) for u, v in rng.integers(0, NODES, (160, 2)) if u < v}
    lines = [f"n{u:02},n{v:02},{rng.random() + 0.1:.4f}\n" for u, v in sorted(pairs)]
    (folder / "edges.csv").write_text("source,target,weight\n" + "".join(lines) + lines[0])
    values = rng.normal(size=(NODES, WIDTH)) + (np.arange(NODES) % 2)[:, None]
    rows = [",".join([f"n{i:02}", *(f"{x:.5f}" for x in row)]) for i, row in enumerate(values)]
    (folder / "features.csv").write_text("node," + ",".join("abcdef") + "\n" + "\n".join(rows))
    (folder / "labels.csv").write_text("".join(f"n{i:02},{i % 2}\n" for i in range(NODES)))
    return {name: str(folder / f"{name}.csv") for name in ("edges", "features", "labels")}


@pytest.fixture(scope="module")
def graph(sources, tmp_path_factory):
    return run_stage(heterograph.STAGE, {}, sources, tmp_path_factory.mktemp("graph") / "made")


def dense_weights(graph: HeteroGraph, sources: dict[str, str]) -> torch.Tensor:
    """Weights by the edge list itself."""
    matrix = torch.zeros(NODES, NODES)
    with open(sources["edges"]) as stream:
        for line in list(stream)[1:]:
            u, v, weight = line.split(",")
            for a, b in ((int(u[1:]), int(v[1:])), (int(v[1:]), int(u[1:]))):
                matrix[a, b] += float(weight)
    assert ((matrix > 0) == (adjacency(graph, "edge") > 0)).all()
    return matrix


@pytest.mark.parametrize("case", ["sage", "pool", "gcn", "gcn, sums"])
def test_layers_and_gradients(graph, sources, case):
    """GCN's are those of torch_geometric's GCNConv with edge_weight, means those of its GraphConv."""
    kind = {"model": "gcn"} if "gcn" in case else {"aggregator": "pool"} if case == "pool" else {}
    params = TrainParams(hidden=5, layers=1, fanouts="all", weight="weight", **kind)
    opened, _, shape, data = prepared(graph, params)
    matrix = dense_weights(opened, sources)
    network, nodes = Network(shape, 3), np.arange(0, NODES, 3)
    batch = sampler_of(shape, data, everything(1)).batch({"node": nodes}, 0, 0, 0)
    inputs = data.inputs
    if case == "gcn, sums":
        inputs = data_of(opened, shape, None, True).inputs
        draws = Draws(shape.levels(), (-1,), False, frozenset([0]), 0)
        batch = NeighborSampler(data.rows, shape.nodes, draws).batch({"node": nodes}, 0, 0, 0)
        assert not batch.blocks[0].hops
    (found,) = network(batch, inputs).values()
    values = torch.from_numpy(np.array(data.inputs.features["node"]))
    own = {name: each.detach().clone().requires_grad_() for name, each in network.named_parameters()}
    if "gcn" in case:
        whole = matrix + torch.eye(NODES)
        root = torch.diag(whole.sum(1).rsqrt())
        wanted = root @ whole @ root @ values @ own["layers.0.linear.weight"].T + own["layers.0.linear.bias"]
    else:
        if case == "pool":
            key = "layers.0.pools.0."
            pooled = torch.relu(values @ own[f"{key}weight"].T + own[f"{key}bias"])
            message = (matrix[:, :, None] * pooled[None]).amax(1)
        else:
            message = matrix @ values / (matrix > 0).sum(1, keepdim=True).clamp(min=1)
        wanted = values @ own["layers.0.own.0.weight"].T + own["layers.0.own.0.bias"]
        wanted = wanted + message @ own["layers.0.neighbours.0.weight"].T
    assert found.detach().numpy() == pytest.approx(wanted[nodes].detach().numpy(), abs=1e-5)
    found.square().sum().backward()
    wanted[nodes].square().sum().backward()
    for name, each in network.named_parameters():
        assert each.grad.numpy() == pytest.approx(own[name].grad.numpy(), abs=1e-4)


def test_draws_have_the_probabilities_of_one_after_the_other():
    """Two of 5 weighted edges, one of weight 0, over 3,000 steps: frequencies as enumerated; chi-square."""
    weights = np.array([1, 2, 0, 2, 5], np.float32)
    chance = {}
    for pair in itertools.combinations([0, 1, 3, 4], 2):
        chance[pair] = sum(weights[a] / 10 * weights[b] / (10 - weights[a]) for a, b in (pair, pair[::-1]))
    level = LayerSchema(("node",), (Relation(0, "edge", "node", "node"),), ("node",))
    rows = CsrRows(np.array([0, 5, 5, 5, 5, 5, 5]), np.arange(1, 6, dtype=np.int32))
    sampler = NeighborSampler({0: rows}, {"node": 6}, Draws([level], [2], False, frozenset(), 1), {0: weights})
    drawn = [
        tuple(sampler.batch({"node": np.array([0])}, 0, 0, step).blocks[0].hops[0].positions) for step in range(3000)
    ]
    assert set(drawn) <= chance.keys()
    spread = sum((drawn.count(pair) - 3000 * share) ** 2 / (3000 * share) for pair, share in chance.items())
    assert spread < 20.5  # 0.1%, 5 degrees


@pytest.mark.parametrize("params", [{"model": "gcn"}, {"weighted": "draws", "fanouts": "2,2"}])
def test_from_an_edge_list_to_predictions(graph, tmp_path, params):
    given = {"hidden": 8, "fanouts": "all,all", "epochs": 2, "weight": "weight", **params}
    sources = {"graph": graph.uri}
    made = run_stage(STAGE, given, sources, tmp_path / "train")
    found = run_stage(infer.STAGE, {"batch": 7}, {**sources, "network": made.uri}, tmp_path / "infer")
    shape = read_shape(made)
    assert shape.weight == ("" if "weighted" in params else "weight")
    data = prepared(graph, TrainParams(**given))[-1]
    batch = sampler_of(shape, data, everything(2)).batch({"node": np.arange(NODES)}, 0, 0, 0)
    with torch.no_grad():
        likely = torch.softmax(read_network(made, shape)(batch, data.inputs)["node"], 1).amax(1)
    assert found.table("predictions.parquet")["probability"].to_numpy() == pytest.approx(likely.numpy(), abs=1e-5)


def test_what_is_no_weight_is_refused(graph):
    opened = HeteroGraph.open(graph)
    with pytest.raises(UserError, match="They have: weight"):
        weights_of(opened, [Relation(0, "edge", "node", "node")], "length")
    with pytest.raises(ValueError, match="gat learns what an edge counts"):
        TrainParams(model="gat", weight="weight")


def test_float16_takes_half_the_bytes_and_gives_the_same_rows(graph, sources, tmp_path):
    half = run_stage(heterograph.STAGE, {"precision": "float16"}, sources, tmp_path / "half")
    stored = HeteroGraph.open(half).node_feature("node", "features")
    whole = HeteroGraph.open(graph).node_feature("node", "features")
    assert (stored.dtype, stored.nbytes) == (np.float16, whole.nbytes // 2)
    assert stored == pytest.approx(whole, rel=1e-3, abs=1e-6)
    means = []
    for made in (graph, half):
        given = {"graph": made.uri}
        means.append(run_stage(aggregate.STAGE, {}, given, tmp_path / f"means-{len(means)}"))
    assert means[1].array("means-0.npy") == pytest.approx(means[0].array("means-0.npy"), abs=2e-3)
    given = {"graph": half.uri, "sums": means[1].uri}
    made = run_stage(STAGE, {"hidden": 8, "epochs": 2, "fanouts": "2,all"}, given, tmp_path / "train")
    given = {"graph": half.uri, "network": made.uri}
    assert run_stage(infer.STAGE, {}, given, tmp_path / "infer").stats["rows"] == NODES


def test_what_float16_does_not_hold_is_refused(sources, tmp_path):
    rows = [f"n{i:02},{70000 if i == 7 else i}\n" for i in range(NODES)]
    (tmp_path / "features.csv").write_text("node,a\n" + "".join(rows))
    given = {"edges": sources["edges"], "features": str(tmp_path / "features.csv")}
    with pytest.raises(UserError, match=r"beyond float16's 65504 \(got 70000.0\)"):
        run_stage(heterograph.STAGE, {"precision": "float16", "scaling": "none"}, given, tmp_path / "made")
