"""In PyG's environment: the loader's own tests that need PyG or DGL, and a GCN of PyG's trained on our loader.

in_pyg.py [GRAPH SPEC SEEDS]    heterograph, spec and seeds of a citation graph: there two GCNs are compared
"""

import sys

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv

from superworkflow.loader import Subgraphs
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph

EPOCHS, RUNS, POINT = 200, 5, 0.01


class Net(torch.nn.Module):
    """Two layers of Kipf & Welling's, as they trained it on these graphs."""

    def __init__(self, width: int, labels: int):
        super().__init__()
        self.first, self.second = GCNConv(width, 16), GCNConv(16, labels)

    def forward(self, features: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        drop = torch.nn.functional.dropout
        hidden = self.first(drop(features, 0.5, self.training), edges).relu()
        return self.second(drop(hidden, 0.5, self.training), edges)


def accuracy(net: Net, graph: dict, seeds: torch.Tensor) -> float:
    net.eval()
    with torch.no_grad():
        found = net(graph["x"], graph["edges"])[seeds].argmax(1)
    return float((found == graph["y"][seeds]).float().mean())


def trained(batches, width: int, labels: int) -> Net:
    """A GCN after `EPOCHS`; `batches(epoch)` gives (features, edges, seeds, labels of seeds)."""
    net = Net(width, labels)
    steps = torch.optim.Adam([
        {"params": net.first.parameters(), "weight_decay": 5e-4}, {"params": net.second.parameters()}
    ], lr=0.01)  # fmt: skip
    for epoch in range(EPOCHS):
        net.train()
        for features, edges, seeds, wanted in batches(epoch):
            steps.zero_grad()
            torch.nn.functional.cross_entropy(net(features, edges)[seeds], wanted).backward()
            steps.step()
    return net


def compare(folder: str, spec: str, seeds: str) -> None:
    """Both are judged on the whole graph's test nodes; what differs is what they were trained on."""
    live = {
        split: Subgraphs.live(folder, spec, seeds=seeds, split=split, features={"paper": ["feat", "label"]})
        for split in ("train", "test")
    }
    graph = HeteroGraph.open(live["train"].source.graph.dataset)
    rows = graph.rows("cites")
    sources = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    whole = {
        "x": torch.from_numpy(np.array(graph.node_feature("paper", "feat"))),
        "y": torch.from_numpy(np.array(graph.node_feature("paper", "label"))).long(),
        # Messages go from a paper to whom it was reached from: both ways, as citations are here.
        "edges": torch.from_numpy(np.stack([rows.indices.astype(np.int64), sources])),
    }
    width, labels = whole["x"].shape[1], int(whole["y"].max()) + 1
    train, test = (torch.from_numpy(live[split].seeds().astype(np.int64)) for split in ("train", "test"))

    def full(epoch: int):
        yield whole["x"], whole["edges"], train, whole["y"][train]

    def sampled(epoch: int):
        for batch in live["train"].batches(len(train), seed=0, epoch=epoch):
            data = batch.to_pyg()
            assert data.validate()
            papers, cites = data["paper"], data["paper", "cites", "paper"]
            places = papers.seed_index
            yield papers.feat, cites.edge_index.flip(0), places, papers.label[places].long()

    found = {}
    for name, batches in (("full batch", full), ("our loader", sampled)):
        values = []
        for run in range(RUNS):
            torch.manual_seed(run)
            values.append(accuracy(trained(batches, width, labels), whole, test))
        found[name] = float(np.mean(values))
        print(f"GCN, {name}: accuracy on test {found[name]:.4f}, {RUNS} runs of {min(values):.4f} to {max(values):.4f}")
    assert found["our loader"] > found["full batch"] - POINT, found


if __name__ == "__main__":  # workers of PyG's loader start from this file as well
    if code := pytest.main(
        ["-q", "-p", "no:cacheprovider", "tests/superworkflow/loader/test_loader.py", "-k", "pyg or dgl"]
    ):
        sys.exit(int(code))
    if len(sys.argv) > 1:
        compare(*sys.argv[1:])
