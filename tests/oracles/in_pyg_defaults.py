"""In PyG's environment: its example trainings `gcn.py` and `gat.py`, and `gcn.py` with SAGEConv, on any graph.

in_pyg_defaults.py GRAPH MODEL OUT    GRAPH has edges, classes, possibly features, and a row of splits for each seed

OUT gets `theirs`, the test accuracy of the epoch with the best validation accuracy for seeds 0, 1, …, and `their_cpu`,
CPU seconds. Nodes without features have one-hot ones.
"""

import json
import sys
import time

import numpy as np
import torch
from torch.nn.functional import cross_entropy, dropout, elu, relu
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.utils import to_undirected

EPOCHS = 200


class Net(torch.nn.Module):
    """Two layers, with the examples' sizes."""

    def __init__(self, model: str, width: int, classes: int):
        super().__init__()
        self.model, self.drop = model, 0.6 if model == "gat" else 0.5
        if model == "gat":
            self.first = GATConv(width, 8, 8, dropout=0.6)
            self.second = GATConv(64, classes, heads=1, concat=False, dropout=0.6)
        else:
            layer = {"gcn": GCNConv, "sage": SAGEConv}[model]
            self.first, self.second = layer(width, 16), layer(16, classes)

    def forward(self, features: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        hidden = self.first(dropout(features, self.drop, self.training), edges)
        hidden = elu(hidden) if self.model == "gat" else relu(hidden)
        return self.second(dropout(hidden, self.drop, self.training), edges)


def trained(model: str, features, edges, classes, splits, seed: int) -> float:
    """Test accuracy of one training."""
    torch.manual_seed(seed)
    net = Net(model, features.shape[1], int(classes.max()) + 1)
    groups = [{"params": net.first.parameters(), "weight_decay": 5e-4}]
    groups.append({"params": net.second.parameters(), "weight_decay": 5e-4 if model == "gat" else 0})
    steps = torch.optim.Adam(groups, lr=0.005 if model == "gat" else 0.01)
    train, validation, test = (torch.from_numpy(np.flatnonzero(splits == each)) for each in range(3))
    best = (-1.0, 0.0)
    for _ in range(EPOCHS):
        net.train()
        steps.zero_grad()
        cross_entropy(net(features, edges)[train], classes[train]).backward()
        steps.step()
        net.eval()
        with torch.no_grad():
            right = (net(features, edges).argmax(1) == classes).float()
        found = float(right[validation].mean()), float(right[test].mean())
        if found[0] > best[0]:
            best = found
    return best[1]


if __name__ == "__main__":
    torch.set_num_threads(1)
    graph, model = np.load(sys.argv[1]), sys.argv[2]
    count = len(graph["classes"])
    features = torch.from_numpy(graph["features"]) if "features" in graph else torch.eye(count)
    if (features >= 0).all():
        features = features / features.sum(1, keepdim=True).clamp(min=1e-9)  # as T.NormalizeFeatures
    edges = to_undirected(torch.from_numpy(graph["edges"]), num_nodes=count)
    given = features, edges, torch.from_numpy(graph["classes"])
    found: dict[str, list[float]] = {"theirs": [], "their_cpu": []}
    for seed, splits in enumerate(graph["splits"]):
        start = time.process_time()
        found["theirs"].append(trained(model, *given, splits, seed))
        found["their_cpu"].append(round(time.process_time() - start, 1))
    with open(sys.argv[3], "w") as file:
        json.dump(found, file)
