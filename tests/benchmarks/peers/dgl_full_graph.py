"""GCN and GAT by DGL, one thread: training on the whole graph, or on batches of sampled neighbours.

dgl_full_graph.py GRAPH    an npz with edges int64 [2, arcs], features, classes, splits: 0 train, 1 validation, 2 test
{"model", "hidden", "heads", "dropout", "learning_rate", "weight_decay", "epochs", "seed", "fanouts": null or numbers,
"batch"} -> {"cpu_s": of training alone, after each epoch, "validation", "test": accuracies after it}

Nodes are judged on the whole graph, off the clock. Arcs are there both ways, and from each node to itself. "sage" is
DGL's own example of sampling: the mean of neighbours and the node itself, each with a matrix.
"""

import os
import sys
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "DGLBACKEND": "pytorch"}

import dgl
import numpy as np
import torch
from dgl.nn import GATConv, GraphConv, SAGEConv
from serving import Clock, serve
from torch.nn.functional import cross_entropy, dropout, elu, relu

torch.set_num_threads(1)
made: dict[str, Any] = {}


class Network(torch.nn.Module):
    """Two layers, as DGL's examples gcn, gat and graphsage have them."""

    def __init__(self, width: int, classes: int, given: dict[str, Any]):
        super().__init__()
        self.is_gat, self.share, hidden, heads = (
            given["model"] == "gat",
            given["dropout"],
            given["hidden"],
            given["heads"],
        )
        if self.is_gat:
            drops = {"feat_drop": self.share, "attn_drop": self.share}
            self.first = GATConv(width, hidden // heads, heads, activation=elu, **drops)
            self.second = GATConv(hidden, classes, 1, **drops)
        elif given["model"] == "sage":
            self.first = SAGEConv(width, hidden, "mean", activation=relu)
            self.second = SAGEConv(hidden, classes, "mean")
        else:
            self.first, self.second = GraphConv(width, hidden, activation=relu), GraphConv(hidden, classes)

    def forward(self, first: Any, second: Any, rows: torch.Tensor) -> torch.Tensor:
        if self.is_gat:
            return self.second(second, self.first(first, rows).flatten(1)).mean(1)
        hidden = self.first(first, dropout(rows, self.share, self.training))
        return self.second(second, dropout(hidden, self.share, self.training))


def prepare() -> dict[str, Any]:
    given = np.load(sys.argv[1])
    features, edges = torch.from_numpy(given["features"]), torch.from_numpy(given["edges"])
    graph = dgl.add_self_loop(dgl.graph((edges[0], edges[1]), num_nodes=len(features)))
    made.update(graph=graph.formats(["coo", "csr", "csc"]), features=features)
    made["graph"].create_formats_()
    made["classes"] = torch.from_numpy(given["classes"])
    made["splits"] = [torch.from_numpy(np.flatnonzero(given["splits"] == each)) for each in range(3)]
    return {}


def answer(given: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(given["seed"])
    dgl.seed(given["seed"])
    graph, features, classes, (train, *judged) = (made[name] for name in ("graph", "features", "classes", "splits"))
    network = Network(features.shape[1], int(classes.max()) + 1, given)
    steps = torch.optim.Adam(network.parameters(), given["learning_rate"], weight_decay=given["weight_decay"])
    sampler = given["fanouts"] and dgl.dataloading.NeighborSampler(given["fanouts"])
    found: dict[str, Any] = {"cpu_s": [], "validation": [], "test": []}
    spent = 0.0
    for _ in range(given["epochs"]):
        with Clock() as clock:
            network.train()
            for nodes in torch.randperm(len(train)).split(given["batch"]) if sampler else [None]:
                if nodes is None:
                    scores, wanted = network(graph, graph, features)[train], classes[train]
                else:
                    inputs, outputs, blocks = sampler.sample_blocks(graph, train[nodes])
                    scores, wanted = network(*blocks, features[inputs]), classes[outputs]
                steps.zero_grad()
                cross_entropy(scores, wanted).backward()
                steps.step()
        spent += clock.cpu_s
        network.eval()
        with torch.no_grad():
            right = (network(graph, graph, features).argmax(1) == classes).float()
        found["cpu_s"].append(spent)
        for name, nodes in zip(("validation", "test"), judged, strict=True):
            found[name].append(float(right[nodes].mean()))
    return found


serve(answer, prepare)
