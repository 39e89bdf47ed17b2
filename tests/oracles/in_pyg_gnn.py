"""In the environment of PyG and DGL: layers, gradients, losses, weights, scores and draws of `gnn` against theirs.

in_pyg_gnn.py FOLDER    where to make small graphs
"""

import sys
from itertools import combinations
from pathlib import Path

import dgl
import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch.nn.functional import cross_entropy
from torch_geometric.metrics import LinkPredHitRatio, LinkPredMRR
from torch_geometric.nn import (
    GAT,
    GCN,
    MLP,
    BatchNorm,
    DeepGCNLayer,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphSAGE,
    HeteroConv,
    LayerNorm,
    SAGEConv,
)

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.formats.safetensors import read_tensors
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.relations import LayerSchema, Relation
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler, order_of
from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.metrics.figures import area_under_curve, average_precision
from superworkflow.tasks.lib.metrics.ranks import filtered_ranks
from superworkflow.tasks.train.export import pyg_weights, write_pyg
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.edge_feature_graphs import graph_of
from tests.tasks.gnn_graphs import edges_of, everything, one_kind, prepared, sampler_of, two_kinds
from tests.tasks.inclusion import inclusion_p_value
from tests.tasks.index_helpers import run_stage

CLOSE, LOSS = 1e-5, 1e-4
HEADS_MEAN = ("gat", "gatv2")
"""Models whose last layer is the mean of equal heads in PyG."""
HIDDEN, STEPS, DRAWS, P_VALUE = 16, 50, 10_000, 1e-4
MODELS = {
    "sage": {}, "pool": {"aggregator": "pool"}, "gcn": {"model": "gcn"}, "gat": {"model": "gat", "heads": 4},
    "gatv2": {"model": "gatv2", "heads": 4},
    "sage, batch norm": {"norm": "batch", "jumping_knowledge": "cat"},
    "gcn, layer norm": {"model": "gcn", "norm": "layer", "jumping_knowledge": "last"},
    "gat, layer norm": {"model": "gat", "heads": 4, "norm": "layer", "jumping_knowledge": "max"},
}  # fmt: skip


def theirs(name: str, shape, weights: dict) -> torch.nn.Module:
    """PyG's model with our weights: every name and shape is its own."""
    sizes = shape.widths["node"], HIDDEN, shape.layers, shape.head.width
    norm = {"none": None, "batch": BatchNorm(HIDDEN), "layer": LayerNorm(HIDDEN, mode="node")}[shape.norm]
    more = {"norm": norm, "jk": None if shape.jumping_knowledge == "none" else shape.jumping_knowledge}
    made = {
        "sage": lambda: GraphSAGE(*sizes, **more), "pool": lambda: GraphSAGE(*sizes, aggr="max", project=True),
        "gcn": lambda: GCN(*sizes, **more), "gat": lambda: GAT(*sizes, heads=4, act="elu", **more),
        "gatv2": lambda: GAT(*sizes, v2=True, heads=4, act="elu"),
    }[name.split(",")[0]]()  # fmt: skip
    made.load_state_dict({key: torch.from_numpy(np.array(each)) for key, each in weights.items()}, strict=True)
    return made


def check_models(dataset: Dataset) -> None:
    """Rows of all nodes and gradients of the weights, by all neighbours."""
    for name, params in MODELS.items():
        values = TrainParams(hidden=HIDDEN, fanouts="all,all", **params)
        graph, targets, shape, data = prepared(dataset, values)
        network = Network(shape, 5)
        nodes = np.arange(len(targets.classes))
        batch = sampler_of(shape, data, everything(2)).batch({"node": nodes}, 0, 0, 0)
        (own,) = network(batch, data.inputs).values()
        model = theirs(name, shape, pyg_weights(network.arrays(), shape))
        features = torch.from_numpy(np.array(data.inputs.features["node"]))
        other = model(features, edges_of(graph))
        assert (own - other).abs().max() < CLOSE, name
        classes = torch.from_numpy(targets.classes)
        cross_entropy(own, classes).backward()
        cross_entropy(other, classes).backward()
        mine = pyg_weights({key: each.grad.numpy() for key, each in network.named_parameters()}, shape)
        for key, each in model.named_parameters():
            wanted = each.grad.numpy()
            if name in HEADS_MEAN and key.startswith("convs.1.") and key != "convs.1.bias":
                wanted = wanted * 4  # of four equal heads each has a quarter
            assert np.abs(mine[key] - wanted).max() < CLOSE, (name, key)
        print(f"{name}: rows and gradients are those of PyG's model with the same weights, loaded strictly")


def check_blocks(dataset: Dataset) -> None:
    """Layers on drawn blocks, by PyG's and DGL's convolutions."""
    for name in ("sage", "gat"):
        values = TrainParams(hidden=HIDDEN, fanouts="3,2", **MODELS[name])
        _, targets, shape, data = prepared(dataset, values)
        network = Network(shape, 6)
        weights = {key: torch.from_numpy(each) for key, each in pyg_weights(network.arrays(), shape).items()}
        nodes = targets.nodes("train")
        block = sampler_of(shape, data, (3, 2)).batch({"node": nodes}, 0, 1, 2).blocks[0]
        features = torch.from_numpy(data.inputs.features["node"][block.senders["node"]])
        hop, count = block.hops[0], len(block.receivers["node"])
        receivers = torch.from_numpy(np.repeat(np.arange(count), np.diff(hop.starts)))
        senders = torch.from_numpy(hop.senders.astype(np.int64))
        width, ends = features.shape[1], (features, features[:count])
        own = network.layer(0, block, {"node": features}, data.inputs)["node"]
        parts = {key.removeprefix("convs.0."): each for key, each in weights.items() if key.startswith("convs.0.")}
        if name == "sage":
            conv, act = SAGEConv(width, HIDDEN), torch.relu
            in_dgl = dgl.nn.SAGEConv(width, HIDDEN, "mean")
            state = {"fc_neigh.weight": parts["lin_l.weight"], "fc_self.weight": parts["lin_r.weight"]}
            state |= {"fc_self.bias": parts["lin_l.bias"]}
            drawn = dgl.create_block((senders, receivers), num_src_nodes=len(features), num_dst_nodes=count)
        else:
            conv, act = GATConv(width, HIDDEN // 4, heads=4), torch.nn.functional.elu
            in_dgl = dgl.nn.GATConv(width, HIDDEN // 4, 4)
            state = {"fc.weight": parts["lin.weight"], "attn_l": parts["att_src"], "attn_r": parts["att_dst"]}
            state |= {"bias": parts["bias"]}
            selves = torch.arange(count)
            pairs = torch.cat([senders, selves]), torch.cat([receivers, selves])
            drawn = dgl.create_block(pairs, num_src_nodes=len(features), num_dst_nodes=count)
        conv.load_state_dict(parts, strict=True)
        in_dgl.load_state_dict(state, strict=True)
        wanted = act(conv(ends, torch.stack([senders, receivers])))
        by_dgl = act(in_dgl(drawn, ends).flatten(1))
        assert (own - wanted).abs().max() < CLOSE, name
        assert (own - by_dgl).abs().max() < CLOSE, name
        print(f"{name}: a layer on a drawn block is that of PyG and of DGL")


def check_residual(dataset: Dataset) -> None:
    """A hidden layer with norm and residual, by PyG's `DeepGCNLayer`."""
    params = {"model": "gcn", "norm": "layer", "residual": True, "layers": 3}
    graph, targets, shape, data = prepared(dataset, TrainParams(hidden=HIDDEN, fanouts="all,all,all", **params))
    network = Network(shape, 8)
    nodes = np.arange(len(targets.classes))
    block = sampler_of(shape, data, everything(3)).batch({"node": nodes}, 0, 0, 0).blocks[1]
    rows = torch.randn(len(nodes), HIDDEN, generator=torch.Generator().manual_seed(1))
    own = network.layer(1, block, {"node": rows}, data.inputs)["node"]
    conv = GCNConv(HIDDEN, HIDDEN)
    linear = network.layers[1].linear
    conv.load_state_dict({"lin.weight": linear.weight, "bias": linear.bias}, strict=True)
    layer = DeepGCNLayer(conv, LayerNorm(HIDDEN, mode="node"), torch.nn.ReLU(), block="res", dropout=0.0)
    assert (own - layer(rows, edges_of(graph))).abs().max() < CLOSE
    print("residual: a hidden layer is PyG's DeepGCNLayer")


def check_gin(dataset: Dataset) -> None:
    """Rows and gradients of GIN, by PyG's `GINConv` of an `MLP`."""
    graph, targets, shape, data = prepared(dataset, TrainParams(hidden=HIDDEN, fanouts="all,all", model="gin"))
    network, nodes = Network(shape, 9), np.arange(len(targets.classes))
    batch = sampler_of(shape, data, everything(2)).batch({"node": nodes}, 0, 0, 0)
    (own,) = network(batch, data.inputs).values()
    rows, mlps = torch.from_numpy(np.array(data.inputs.features["node"])), []
    for number, layer in enumerate(network.layers):
        sizes = [shape.width_in(number, "node"), HIDDEN, shape.width_out(number)]
        mlps.append(MLP(sizes, norm=LayerNorm(HIDDEN, mode="node")))
        names = {"first": "lins.0", "norm": "norms.0", "second": "lins.1"}
        state = {f"{names[key.split('.')[0]]}.{key.split('.')[1]}": each for key, each in layer.state_dict().items()}
        conv = GINConv(mlps[-1])  # which initializes the weights
        mlps[-1].load_state_dict(state, strict=True)
        rows = conv(rows, edges_of(graph))
        rows = torch.relu(rows) if number == 0 else rows
    assert (own - rows).abs().max() < CLOSE
    classes = torch.from_numpy(targets.classes)
    cross_entropy(own, classes).backward()
    cross_entropy(rows, classes).backward()
    for layer, mlp in zip(network.layers, mlps, strict=True):
        for end, lin in (("first", mlp.lins[0]), ("norm", mlp.norms[0]), ("second", mlp.lins[1])):
            assert (getattr(layer, end).weight.grad - lin.weight.grad).abs().max() < CLOSE, end
    print("gin: rows and gradients are those of PyG's GINConv")


def check_edge_features(dataset: Dataset) -> None:
    """A hidden layer that reads features of edges, and its gradients, by PyG's layers with `edge_dim`."""
    for name in ("gat", "gatv2", "gin"):
        params = {"model": name, "heads": 4} if name != "gin" else {"model": name}
        values = TrainParams(hidden=HIDDEN, fanouts="all,all", label="node.label", **params)
        graph, targets, shape, data = prepared(dataset, values)
        network, nodes = Network(shape, 7), np.arange(len(targets.classes))
        block = sampler_of(shape, data, everything(2)).batch({"node": nodes}, 0, 0, 0).blocks[0]
        rows = torch.from_numpy(np.array(data.inputs.features["node"]))
        own, layer = network.layer(0, block, {"node": rows}, data.inputs)["node"], network.layers[0]
        width, features = rows.shape[1], torch.from_numpy(data.inputs.edge_features[0])
        if name == "gin":
            mlp = MLP([width, HIDDEN, HIDDEN], norm=LayerNorm(HIDDEN, mode="node"))
            conv, act = GINEConv(mlp, edge_dim=features.shape[1]), torch.relu
            parts = {"first": mlp.lins[0], "norm": mlp.norms[0], "second": mlp.lins[1], "of_edges": conv.lin}
            for part, theirs in parts.items():
                theirs.load_state_dict(getattr(layer, part).state_dict(), strict=True)
            pairs = [(getattr(layer, part).weight, theirs.weight) for part, theirs in parts.items()]
        else:
            kind = GATConv if name == "gat" else GATv2Conv
            conv, act = kind(width, HIDDEN // 4, heads=4, edge_dim=features.shape[1]), torch.nn.functional.elu
            found = pyg_weights(network.arrays(), shape)
            state = {key.removeprefix("convs.0."): each for key, each in found.items() if key.startswith("convs.0.")}
            conv.load_state_dict({key: torch.from_numpy(np.array(each)) for key, each in state.items()}, strict=True)
            pairs = [(layer.edges.weight, conv.lin_edge.weight), (layer.bias, conv.bias)]
        wanted = act(conv(rows, edges_of(graph), features))
        assert (own - wanted).abs().max() < CLOSE, name
        for made in (own, wanted):
            cross_entropy(made, torch.from_numpy(targets.classes)).backward()
        assert all((mine.grad - theirs.grad).abs().max() < CLOSE for mine, theirs in pairs), name
        print(f"{name}: rows and gradients with features of edges are those of PyG's layer")


def check_typed(dataset: Dataset) -> None:
    """The last layer of R-GCN without bases, by a convolution of PyG's for each edge set."""
    values = TrainParams(hidden=HIDDEN, fanouts="all", layers=1, model="rgcn", label="paper.venue")
    graph, targets, shape, data = prepared(dataset, values)
    network = Network(shape, 7)
    nodes = np.arange(len(targets.classes))
    batch = sampler_of(shape, data, everything(1)).batch({"paper": nodes}, 0, 0, 0)
    (own,) = network(batch, data.inputs).values()
    rows = {"paper": torch.from_numpy(np.array(data.inputs.features["paper"]))}
    rows["author"] = network.embeddings[network.embedded["author"]].weight
    convs, edges = {}, {}
    layer = network.layers[0]
    for place, relation in enumerate(layer.level.relations):
        conv = SAGEConv((rows[relation.senders].shape[1], rows["paper"].shape[1]), 2, root_weight=place == 0)
        root = layer.own["0"]
        state = {"lin_l.weight": layer.neighbours[str(relation.number)].weight}
        state["lin_l.bias"] = root.bias if place == 0 else torch.zeros_like(root.bias)
        conv.load_state_dict(state | ({"lin_r.weight": root.weight} if place == 0 else {}), strict=True)
        key = relation.senders, relation.name, "paper"
        convs[key], edges[key] = conv, edges_of(graph, relation.name)
    wanted = HeteroConv(convs, aggr="sum")(rows, edges)["paper"]
    assert (own - wanted).abs().max() < CLOSE
    print("rgcn: rows are those of PyG's HeteroConv")


def check_typed_attention(dataset: Dataset) -> None:
    """A hidden layer of R-GAT with four heads, by a `GATConv` of PyG's for each edge set and a matrix of the node's."""
    params = {"model": "rgat", "heads": 4, "label": "paper.venue"}
    graph, targets, shape, data = prepared(dataset, TrainParams(hidden=HIDDEN, fanouts="all,all", **params))
    network = Network(shape, 7)
    nodes = np.arange(len(targets.classes))
    block = sampler_of(shape, data, everything(2)).batch({"paper": nodes}, 0, 0, 0).blocks[0]
    assert all(len(block.senders[name]) == each.count for name, each in graph.node_sets.items())
    table = network.embeddings[network.embedded["author"]].weight
    rows = {"paper": torch.from_numpy(np.array(data.inputs.features["paper"])), "author": table}
    given = {name: rows[name][torch.from_numpy(block.senders[name])] for name in rows}
    own, layer = network.layer(0, block, given, data.inputs), network.layers[0]
    convs, edges = {}, {}
    for relation in layer.level.relations:
        widths, mine = (rows[relation.senders].shape[1], rows[relation.receivers].shape[1]), layer.relations
        conv = GATConv(widths, HIDDEN // 4, heads=4, add_self_loops=False, bias=False)
        part = mine[str(relation.number)]
        conv.load_state_dict(
            {"lin_src.weight": part.linear.weight, "lin_dst.weight": part.receiving.weight,
             "att_src": part.of_senders[None], "att_dst": part.of_receivers[None]}, strict=True,
        )  # fmt: skip
        key = relation.senders, relation.name, relation.receivers
        convs[key], edges[key] = conv, edges_of(graph, relation.name)
    found = HeteroConv(convs, aggr="sum")(rows, edges)
    for name, key in layer.sets.items():
        receivers = torch.from_numpy(block.receivers[name])
        wanted = torch.nn.functional.elu(found[name] + layer.own[key](rows[name]))[receivers]
        assert (own[name] - wanted).abs().max() < CLOSE, name
    print("rgat: rows are those of PyG's HeteroConv of GATConv")


def check_losses(dataset: Dataset, folder: Path) -> None:
    """Batches of all neighbours without dropout, and what was trained is exported and predicts the same."""
    for name, params in MODELS.items():
        given = {"graph": str(dataset.location.local_path)}
        params = {"hidden": HIDDEN, "fanouts": "all,all", "dropout": 0.0, "batch": 3, "epochs": 5, **params}
        params |= {"weight_decay": 0.0, "learning_rate": 0.01}
        made = run_stage(load_stage("train"), params, given, folder / f"train-{name}", cpu=1)
        with made.parquet("losses.parquet") as file:
            found = file.read(["loss"])["loss"].to_pylist()[:STEPS]
        graph, targets, shape, data = prepared(dataset, TrainParams(**params))
        model = theirs(name, shape, pyg_weights(Network(shape, 42).arrays(), shape))
        features, edges = torch.from_numpy(np.array(data.inputs.features["node"])), edges_of(graph)
        classes, steps = torch.from_numpy(targets.classes), []
        if name not in HEADS_MEAN and shape.norm != "batch":  # batches of a few nodes; and models whose last layer has
            # four equal heads there, which Adam moves as one
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            for epoch in range(5):
                order = order_of(targets.nodes("train"), 42, epoch)
                for first in range(0, len(order), 3):
                    nodes = order[first : first + 3]
                    loss = cross_entropy(model(features, edges)[nodes], classes[nodes])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    steps.append(loss.item())
            worst = np.abs(np.array(found) - steps[: len(found)]).max()
            assert len(found) == STEPS
            assert worst < LOSS, (name, worst)
            print(f"{name}: {STEPS} losses are those of a plain loop of PyG's, within {worst:.1e}")
        path = folder / f"{name}.safetensors"
        write_pyg(made, path)
        model = theirs(name, shape, read_tensors(path)).eval()
        given["network"] = str(made.location.local_path)
        ours = run_stage(load_stage("infer"), {}, given, folder / f"infer-{name}", cpu=1)
        with ours.parquet("predictions.parquet") as file:
            table = file.read(["predicted", "probability"])
        with torch.no_grad():
            likely, best = torch.softmax(model(features, edges), 1).max(1)
        assert np.abs(table["probability"].to_numpy() - likely.numpy()).max() < CLOSE
        assert table["predicted"].to_pylist() == [targets.names[each] for each in best]
        print(f"{name}: exported weights predict the same in PyG's model")


def check_scores() -> None:
    """AUC and average precision are scikit-learn's, filtered ranks give PyG's MRR and hit ratio."""
    rng = np.random.default_rng(1)
    for digits in (1, 6):  # with ties, and without
        linked, others = (rng.normal(shift, size=400).round(digits).astype(np.float32) for shift in (0.5, 0))
        labels = np.arange(800) < 400
        both = np.concatenate([linked, others])
        assert abs(area_under_curve(linked, others) - roc_auc_score(labels, both)) < 1e-12
        assert abs(average_precision(linked, others) - average_precision_score(labels, both)) < 1e-12
    sources, targets = (rng.normal(size=(count, 8)).astype(np.float32) for count in (40, 60))
    links = np.stack([np.arange(40), rng.integers(0, 60, 40)], 1)
    existing = np.unique(np.concatenate([links, rng.integers(0, [40, 60], (300, 2))]), axis=0)
    ranks = filtered_ranks(sources, targets, links, existing, False)
    scores = torch.from_numpy(sources @ targets.T)
    own = scores[links[:, 0], links[:, 1]].clone()
    scores[existing[:, 0], existing[:, 1]] = -torch.inf
    scores[links[:, 0], links[:, 1]] = own
    order, truth = scores.argsort(1, descending=True), torch.from_numpy(links.T.copy())
    for metric, mine in ((LinkPredMRR(60), (1 / ranks).mean()), (LinkPredHitRatio(5), (ranks <= 5).mean())):
        metric.update(order[:, : metric.k], truth)
        assert abs(float(metric.compute()) - mine) < 1e-6
    print("AUC and average precision are scikit-learn's, MRR and hits PyG's")


def check_draws() -> None:
    """Our draws and DGL's pass one test: all pairs of a node's seven neighbours are as probable."""
    rows = {0: CsrRows(np.array([0, 7, *[7] * 7]), np.arange(1, 8, dtype=np.int32))}
    level = LayerSchema(("n",), (Relation(0, "e", "n", "n"),), ("n",))
    sampler = NeighborSampler(rows, {"n": 8}, Draws([level], [2], False, frozenset(), 9))
    whole = dgl.graph((torch.arange(1, 8), torch.zeros(7, dtype=torch.int64)), num_nodes=8)
    expected = {frozenset(("e", edge) for edge in pair): 1 / 21 for pair in combinations(range(7), 2)}
    dgl.seed(2)
    mine, other = [], []
    for step in range(DRAWS):
        hop = sampler.batch({"n": np.zeros(1, np.int64)}, 0, 0, step).blocks[0].hops[0]
        mine.append(frozenset(("e", int(edge)) for edge in hop.positions))
        drawn = dgl.sampling.sample_neighbors(whole, torch.tensor([0]), 2)
        other.append(frozenset(("e", int(edge)) for edge in drawn.edata[dgl.EID]))
    for name, draws in (("ours", mine), ("DGL's", other)):
        p_value = inclusion_p_value(draws, expected)
        assert p_value > P_VALUE, (name, p_value)
        print(f"single edges and pairs in {DRAWS} draws, {name}: p = {p_value:.3f}")


if __name__ == "__main__":
    where = Path(sys.argv[1])
    plain = one_kind(where / "one")
    check_models(plain)
    check_blocks(plain)
    check_residual(plain)
    check_gin(plain)
    check_edge_features(graph_of(where / "edges"))
    typed = two_kinds(where / "two")
    check_typed(typed)
    check_typed_attention(typed)
    check_scores()
    check_draws()
    check_losses(plain, where)
