"""Mini-batches of GraphSAGE by DGL, one thread: made ready (blocks drawn, features gathered), and trained on.

dgl_training.py FOLDER    indptr, indices, features, labels and train as rows_gnn.py writes them
{"work": "batches", "fanouts", "batch", "steps", "seed"} -> {"edges", "wall_s", "cpu_s"}
{"work": "train", …} -> the same, "loss"; the first call makes the network of these fan-outs, later ones go on
{"work": "judge", "fanouts", "nodes"} -> {"accuracy"}
"""

import os
import sys
from itertools import pairwise
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "DGLBACKEND": "pytorch"}  # unset, DGL says on standard output what it takes

import dgl
import numpy as np
import torch
from dgl.nn import SAGEConv
from serving import Clock, serve
from torch.nn.functional import cross_entropy

torch.set_num_threads(1)
HIDDEN = 256
made: dict = {"trained": {}}


class Sage(torch.nn.Module):
    def __init__(self, width: int, classes: int, layers: int) -> None:
        super().__init__()
        widths = [width] + [HIDDEN] * (layers - 1) + [classes]
        self.layers = torch.nn.ModuleList(SAGEConv(a, b, "mean") for a, b in pairwise(widths))

    def forward(self, blocks: list, rows: torch.Tensor) -> torch.Tensor:
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            rows = layer(block, rows)
            if number < len(self.layers) - 1:
                rows = torch.relu(rows)
        return rows


def prepare() -> dict:
    folder = Path(sys.argv[1])
    read = {name: np.load(folder / f"{name}.npy") for name in ("indptr", "indices", "features", "labels", "train")}
    # 64-bit numbers: with 32-bit ones DGL 1.1.3 on torch 2.13 draws fewer edges in each step, and crashes.
    receivers = np.repeat(np.arange(len(read["indptr"]) - 1), np.diff(read["indptr"]))
    ends = torch.from_numpy(read["indices"].astype(np.int64)), torch.from_numpy(receivers)
    made["graph"] = dgl.graph(ends, num_nodes=len(read["features"])).formats(["csc"])
    made["graph"].create_formats_()
    made["features"] = torch.from_numpy(read["features"])
    made["labels"], made["train"] = torch.from_numpy(read["labels"]), torch.from_numpy(read["train"])
    return {}


def ready(sampler: dgl.dataloading.NeighborSampler, nodes: torch.Tensor) -> tuple:
    inputs, _, blocks = sampler.sample_blocks(made["graph"], nodes)
    return blocks, made["features"].index_select(0, inputs)


def answer(request: dict) -> dict:
    # DGL names fan-outs from the first layer on.
    sampler = dgl.dataloading.NeighborSampler(request["fanouts"][::-1])
    if request["work"] == "judge":
        return judge(sampler, torch.tensor(request["nodes"]))
    dgl.seed(request["seed"])
    order = torch.randperm(len(made["train"]), generator=torch.Generator().manual_seed(request["seed"]))
    trains = request["work"] == "train"
    made["network"], made["optimizer"] = made["trained"].get(str(request["fanouts"]), (None, None))
    if trains and made["network"] is None:
        torch.manual_seed(request["seed"])
        classes = int(made["labels"].max()) + 1
        made["network"] = Sage(made["features"].shape[1], classes, len(request["fanouts"]))
        made["optimizer"] = torch.optim.Adam(made["network"].parameters(), lr=request["learning_rate"])
        made["trained"][str(request["fanouts"])] = made["network"], made["optimizer"]
    edges, loss = 0, None
    with Clock() as clock:
        for step in range(request["steps"]):
            places = torch.arange(step * request["batch"], (step + 1) * request["batch"]) % len(order)
            nodes = made["train"][order[places]]
            blocks, rows = ready(sampler, nodes)
            edges += sum(block.num_edges() for block in blocks)
            if trains:
                loss = cross_entropy(made["network"](blocks, rows), made["labels"][nodes])
                made["optimizer"].zero_grad()
                loss.backward()
                made["optimizer"].step()
    return {"edges": edges, "loss": None if loss is None else float(loss.detach()), **clock.seconds()}


@torch.no_grad()
def judge(sampler: dgl.dataloading.NeighborSampler, nodes: torch.Tensor) -> dict:
    dgl.seed(1)
    right = 0
    for part in nodes.split(1024):
        found = made["network"](*ready(sampler, part)).argmax(1)
        right += int((found == made["labels"][part]).sum())
    return {"accuracy": right / len(nodes)}


serve(answer, prepare)
