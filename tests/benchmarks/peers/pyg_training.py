"""Mini-batches of GraphSAGE by torch_geometric's NeighborLoader, one thread: made ready, and trained on.

pyg_training.py FOLDER      a graph as gnn_graphs.py writes it; requests and answers are those of dgl_training.py:
                            batches, train and judge
"""

import json
import os
import sys
from itertools import pairwise
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from pyg_operator import load_operator
from serving import Clock, serve
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv

torch.set_num_threads(1)
made: dict = {"networks": {}, "waiting": {}}


class Sage(torch.nn.Module):
    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(SAGEConv(a, b, "mean") for a, b in pairwise(widths))

    def forward(self, rows: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            rows = layer(rows, edges)
            rows = torch.relu(rows) if number < len(self.layers) - 1 else rows
        return rows


def prepare() -> dict:
    load_operator()
    folder = Path(sys.argv[1])
    facts = json.loads((folder / "graph.json").read_text())
    indptr, indices = (np.load(folder / f"{part}-0.npy") for part in ("indptr", "indices"))
    ends = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    made["graph"] = Data(
        x=torch.from_numpy(np.load(folder / f"features-{facts['target']}.npy")),
        y=torch.from_numpy(np.load(folder / "labels.npy")),
        edge_index=torch.from_numpy(np.stack([indices.astype(np.int64), ends])),
    )
    made["train"] = torch.from_numpy(np.flatnonzero(np.load(folder / "splits.npy") == 0))
    return {}


def loader(params: dict, nodes: torch.Tensor, *, shuffle: bool) -> NeighborLoader:
    sizes = [-1 if size == "all" else int(size) for size in params["fanouts"].split(",")]
    return NeighborLoader(made["graph"], sizes, input_nodes=nodes, batch_size=params["batch"], shuffle=shuffle)


def without_end(params: dict):
    while True:
        yield from loader(params, made["train"], shuffle=True)


def network_of(params: dict) -> tuple:
    """The network and optimizer of these parameters."""
    kind = json.dumps(params)
    if kind not in made["networks"]:
        torch.manual_seed(0)
        width, classes = made["graph"].x.shape[1], int(made["graph"].y.max()) + 1
        network = Sage([width] + [params["hidden"]] * (params["layers"] - 1) + [classes])
        made["networks"][kind] = network, torch.optim.Adam(network.parameters(), lr=params.get("learning_rate", 0.01))
    return made["networks"][kind]


def answer(request: dict) -> dict:
    params = request["params"]
    kind = json.dumps(params)
    if request["work"] == "judge":
        return judge(network_of(params)[0], params, torch.tensor(request["nodes"]))
    if kind not in made["waiting"]:
        made["waiting"][kind] = without_end(params)
        next(made["waiting"][kind])  # the loader sorts the edges when it is made
    trains = request["work"] == "train"
    network, optimizer = network_of(params) if trains else (None, None)
    edges, loss = 0, None
    with Clock() as clock:
        for _ in range(request["steps"]):
            batch = next(made["waiting"][kind])
            edges += batch.num_edges
            if trains:
                wanted = batch.batch_size
                loss = cross_entropy(network(batch.x, batch.edge_index)[:wanted], batch.y[:wanted])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return {"edges": edges, "loss": None if loss is None else float(loss.detach()), **clock.seconds()}


@torch.no_grad()
def judge(network: torch.nn.Module, params: dict, nodes: torch.Tensor) -> dict:
    right = 0
    for batch in loader(params, nodes, shuffle=False):
        found = network(batch.x, batch.edge_index)[: batch.batch_size].argmax(1)
        right += int((found == batch.y[: batch.batch_size]).sum())
    return {"accuracy": right / len(nodes)}


serve(answer, prepare)
