"""In the environment of PyG and DGL: losses of full-graph training against PyG's GCNConv and GATConv.

in_pyg_full.py FOLDER    where to make a small graph
"""

import itertools
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy, elu
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.nn.conv import gat_conv

from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.sampler.kernels import fill_masks
from superworkflow.tasks.lib.gnn.tensor_tasks import drop_dense
from superworkflow.tasks.train_full.dropped import Dropout
from superworkflow.tasks.train_full.params import TrainFullParams
from tests.tasks.gnn_graphs import NODES, edges_of, one_kind, prepared
from tests.tasks.index_helpers import run_stage
from tests.tasks.test_train_full import history_of, trained

EPOCHS, LOSS = 20, 1e-5
CASES = {"hidden": 16, "heads": 4, "patience": 0, "intervals": 5, "learning_rate": 0.01, "weight_decay": 5e-4}


def convolutions(params: TrainFullParams, network: Network) -> list[torch.nn.Module]:
    """PyG's, with our first weights, by our names."""
    shape, made = network.shape, []
    for layer in range(shape.layers):
        width, out = shape.width_in(layer, "node"), shape.width_out(layer)
        own = {name.removeprefix(f"layers.{layer}."): torch.from_numpy(values.copy())
               for name, values in network.arrays().items() if name.startswith(f"layers.{layer}.")}  # fmt: skip
        if params.model == "gcn":
            conv = GCNConv(width, out)
            state = {"lin.weight": own["linear.weight"], "bias": own["linear.bias"]}
        else:
            heads = shape.heads if shape.is_hidden(layer) else 1
            conv = GATConv(width, out // heads, heads, dropout=params.dropout)
            state = {"lin.weight": own["linear.weight"], "bias": own["bias"],
                     "att_src": own["of_senders"][None], "att_dst": own["of_receivers"][None]}  # fmt: skip
        conv.load_state_dict(state, strict=True)
        made.append(conv)
    return made


def mask_of_arcs(drop, arcs: torch.Tensor, heads: int) -> torch.Tensor:
    """Factors of the attention of PyG's arcs: the given ones, then those of nodes to themselves."""
    keep = np.ones((NODES, NODES, heads), np.float32)
    if drop.share:
        for i, state in enumerate(drop.states_of(np.arange(NODES))):
            fill_masks(np.arange(NODES), drop.share, state, keep[i])
    selves = torch.arange(NODES)
    senders, receivers = torch.cat([arcs[0], selves]), torch.cat([arcs[1], selves])
    return torch.from_numpy(keep)[receivers, senders]


def losses_of(graph, params: TrainFullParams) -> list[float]:
    """Losses of PyG's network with the same masks."""
    typed, targets, shape, data = prepared(graph, params.concrete(1))
    network, arcs = Network(shape, params.seed), edges_of(typed)
    convs = torch.nn.ModuleList(convolutions(params, network))
    optimizer = torch.optim.Adam(convs.parameters(), params.learning_rate, weight_decay=params.weight_decay)
    features = torch.from_numpy(np.array(data.inputs.features["node"], np.float32))
    bare = GCNConv(features.shape[1], features.shape[1], bias=False)
    bare.lin.weight = torch.nn.Parameter(torch.eye(features.shape[1]), requires_grad=False)
    summed = bare(features, arcs)
    dropout, items = Dropout(params.dropout, params.seed), torch.from_numpy(targets.nodes("train"))
    wanted, losses, theirs = torch.from_numpy(targets.classes)[items], [], gat_conv.F.dropout
    everyone = np.arange(NODES, dtype=np.int32)
    for epoch in range(EPOCHS):
        rows = summed if params.model == "gcn" else features
        for layer, conv in enumerate(convs):
            rows = rows * torch.from_numpy(
                drop_dense(np.ones(rows.shape, np.float32), everyone, dropout.rows(epoch, layer))
            )
            if params.model == "gat":
                mask = mask_of_arcs(dropout.arcs(epoch, layer), arcs, conv.heads)
                gat_conv.F.dropout = lambda share, p, training, mask=mask: share * mask
                made = conv(rows, arcs)
            elif layer:
                made = conv(rows, arcs)
            else:  # after the gather
                made = conv.lin(rows) + conv.bias
            act = torch.relu if params.model == "gcn" else elu
            rows = act(made) if layer < len(convs) - 1 else made
        loss = cross_entropy(rows[items], wanted)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    gat_conv.F.dropout = theirs
    return losses


def main(folder: Path) -> None:
    graph = one_kind(folder / "graph")
    given = {"graph": str(graph.location.local_path)}
    sums = run_stage(load_stage("aggregate"), {"form": "gcn"}, given, folder / "sums")
    for model, dropout in itertools.product(("gcn", "gat"), (0.0, 0.5)):
        chosen = {**CASES, "model": model, "dropout": dropout}
        own = history_of(trained(graph, sums, folder / f"{model}-{dropout}", epochs=EPOCHS, **chosen))["loss"]
        wanted = losses_of(graph, TrainFullParams.model_validate(chosen))
        apart = max(abs(a - b) / b for a, b in zip(own, wanted, strict=True))
        assert apart < LOSS, (model, dropout, apart)
        print(f"{model}, dropout {dropout}: losses of {EPOCHS} epochs are those of PyG's layers to {apart:.1e}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
