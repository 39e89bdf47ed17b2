"""Mini-batches of GraphSAGE and R-GCN by DGL, one thread: made ready (blocks drawn, features gathered), and trained on;
and inference of all nodes.

dgl_training.py FOLDER      a graph as gnn_graphs.py writes it
{"work": "batches", "params", "steps", "seed"} -> {"edges", "wall_s", "cpu_s"}
{"work": "train", …} -> the same, "loss"; the first call makes the network of these parameters, later ones continue
{"work": "judge", "params", "nodes"} -> {"accuracy"}
{"work": "load", "params", "from"} -> {}             the network gets our weights
{"work": "infer", "params", "how", "batch", "to"} -> {"wall_s", "cpu_s"}; the rows go to the file `to`, if there is one
`params` are those of stage train, of which this reads model, layers, fanouts, hidden, bases, batch and learning_rate.
`how` is `whole`, each layer on the whole graph, or `batches`, on blocks around `batch` nodes at a time.

R-GCN is that of DGL's example rgcn-hetero: GraphConv of each relation, matrices of bases, and a matrix of the node's
own row, here one of each node set as in ours. GraphConv multiplies first where that makes rows narrower.
"""

import json
import os
import sys
from itertools import pairwise
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "DGLBACKEND": "pytorch"}  # unset, DGL says on standard output what it takes

import dgl
import numpy as np
import torch
from dgl.nn import GraphConv, HeteroGraphConv, SAGEConv, WeightBasis
from serving import Clock, serve
from torch.nn.functional import cross_entropy

torch.set_num_threads(1)
made: dict = {"networks": {}, "waiting": []}
Rows = dict[str, torch.Tensor]


class Sage(torch.nn.Module):
    def __init__(self, target: str, widths: list[int]) -> None:
        super().__init__()
        self.target = target
        self.layers = torch.nn.ModuleList(SAGEConv(a, b, "mean") for a, b in pairwise(widths))

    def layer(self, number: int, block: dgl.DGLGraph, rows: Rows) -> Rows:
        found = self.layers[number](block, rows[self.target])
        return {self.target: torch.relu(found) if number < len(self.layers) - 1 else found}

    def load(self, weights: dict[str, torch.Tensor]) -> None:
        for number, layer in enumerate(self.layers):
            layer.load_state_dict({
                "fc_self.weight": weights[f"layers.{number}.own.0.weight"],
                "fc_neigh.weight": weights[f"layers.{number}.neighbours.0.weight"],
                "fc_self.bias": weights[f"layers.{number}.own.0.bias"],
            })  # fmt: skip


class Rgcn(torch.nn.Module):
    def __init__(self, target: str, widths: list[int], bases: int) -> None:
        super().__init__()
        self.levels, receivers = [], {target}
        for _ in range(len(widths) - 1):
            used = [each for each in made["relations"] if each[1] in receivers]
            self.levels.insert(0, (sorted(receivers), used))
            receivers = receivers | {each[2] for each in used}
        self.convs, self.bases, self.own = (torch.nn.ModuleList() for _ in range(3))
        for (sets, used), (a, b) in zip(self.levels, pairwise(widths), strict=True):
            convs = {name: GraphConv(a, b, norm="right", weight=False, bias=False) for name, _, _ in used}
            self.convs.append(HeteroGraphConv(convs, aggregate="sum"))
            self.bases.append(WeightBasis((a, b), bases, len(used)))
            self.own.append(torch.nn.ModuleDict({name: torch.nn.Linear(a, b) for name in sets}))

    def layer(self, number: int, block: dgl.DGLGraph, rows: Rows) -> Rows:
        sets, used = self.levels[number]
        weights = self.bases[number]()
        given = {name: {"weight": weights[place]} for place, (name, _, _) in enumerate(used)}
        receivers = {name: rows[name][: block.num_dst_nodes(name)] for name in sets}  # and no relations of others
        messages = self.convs[number](block, (rows, receivers), mod_kwargs=given)
        found = {name: self.own[number][name](each) for name, each in receivers.items()}
        found = {name: values + messages[name] if name in messages else values for name, values in found.items()}
        return {name: torch.relu(each) for name, each in found.items()} if number < len(self.levels) - 1 else found

    def load(self, weights: dict[str, torch.Tensor]) -> None:
        for number, (sets, _) in enumerate(self.levels):
            prefix = f"layers.{number}."
            basis = self.bases[number]
            basis.weight.data = weights[f"{prefix}bases"].transpose(1, 2).reshape(basis.weight.shape).contiguous()
            basis.w_comp.data = weights[f"{prefix}parts"]
            for place, name in enumerate(sets):
                own = {key: weights[f"{prefix}own.{place}.{key}"] for key in ("weight", "bias")}
                self.own[number][name].load_state_dict(own)


def prepare() -> dict:
    folder = Path(sys.argv[1])
    facts = json.loads((folder / "graph.json").read_text())
    edges = {}
    for number, (name, receivers, senders) in enumerate(facts["relations"]):
        indptr, indices = (np.load(folder / f"{part}-{number}.npy") for part in ("indptr", "indices"))
        # 64-bit numbers: with 32-bit ones DGL 1.1.3 on torch 2.13 draws fewer edges in each step, and crashes.
        ends = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        edges[senders, name, receivers] = torch.from_numpy(indices.astype(np.int64)), torch.from_numpy(ends)
    made["graph"] = dgl.heterograph(edges, num_nodes_dict=facts["nodes"]).formats(["csc"])
    made["graph"].create_formats_()
    made["relations"], made["target"] = facts["relations"], facts["target"]
    made["features"] = {name: torch.from_numpy(np.load(folder / f"features-{name}.npy")) for name in facts["nodes"]}
    made["labels"] = torch.from_numpy(np.load(folder / "labels.npy"))
    made["train"] = torch.from_numpy(np.flatnonzero(np.load(folder / "splits.npy") == 0))
    return {}


def network_of(params: dict) -> tuple:
    """The network and optimizer of these parameters."""
    kind = json.dumps(params)
    if kind not in made["networks"]:
        torch.manual_seed(0)
        width, classes = made["features"][made["target"]].shape[1], int(made["labels"].max()) + 1
        widths = [width] + [params["hidden"]] * (params["layers"] - 1) + [classes]
        shape = (made["target"], widths)
        network = Sage(*shape) if params["model"] == "sage" else Rgcn(*shape, params["bases"])
        made["networks"][kind] = network, torch.optim.Adam(network.parameters(), lr=params.get("learning_rate", 0.01))
    return made["networks"][kind]


def ready(sampler: dgl.dataloading.NeighborSampler, nodes: torch.Tensor) -> tuple:
    inputs, _, blocks = sampler.sample_blocks(made["graph"], {made["target"]: nodes})
    inputs = inputs if isinstance(inputs, dict) else {made["target"]: inputs}
    return blocks, {name: made["features"][name].index_select(0, each) for name, each in inputs.items()}


def scores(network: torch.nn.Module, blocks: list, rows: Rows) -> torch.Tensor:
    for number, block in enumerate(blocks):
        rows = network.layer(number, block, rows)
    return rows[made["target"]]


def answer(request: dict) -> dict:
    params = request["params"]
    if request["work"] == "load":
        weights = np.load(request["from"])
        network_of(params)[0].load({name: torch.from_numpy(weights[name]) for name in weights})
        return {}
    if request["work"] == "infer":
        return infer(network_of(params)[0], request)
    # DGL names fan-outs from the first layer on.
    sizes = [-1 if size == "all" else int(size) for size in params["fanouts"].split(",")]
    sampler = dgl.dataloading.NeighborSampler(sizes[::-1])
    if request["work"] == "judge":
        return judge(network_of(params)[0], sampler, torch.tensor(request["nodes"]))
    dgl.seed(request["seed"])
    trains = request["work"] == "train"
    network, optimizer = network_of(params) if trains else (None, None)
    edges, loss, waiting = 0, None, made["waiting"]
    with Clock() as clock:
        for _ in range(request["steps"]):
            if not waiting:
                waiting += torch.randperm(len(made["train"])).split(params["batch"])
            nodes = made["train"][waiting.pop(0)]
            blocks, rows = ready(sampler, nodes)
            edges += sum(block.num_edges() for block in blocks)
            if trains:
                loss = cross_entropy(scores(network, blocks, rows), made["labels"][nodes])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return {"edges": edges, "loss": None if loss is None else float(loss.detach()), **clock.seconds()}


@torch.no_grad()
def judge(network: torch.nn.Module, sampler: dgl.dataloading.NeighborSampler, nodes: torch.Tensor) -> dict:
    dgl.seed(1)
    right = 0
    for part in nodes.split(4096):
        right += int((scores(network, *ready(sampler, part)).argmax(1) == made["labels"][part]).sum())
    return {"accuracy": right / len(nodes)}


@torch.no_grad()
def infer(network: torch.nn.Module, request: dict) -> dict:
    """Layer by layer, with all neighbours, as DGL's examples do."""
    count = len(network.layers) if isinstance(network, Sage) else len(network.levels)
    with Clock() as clock:
        rows = made["features"]
        for number in range(count):
            if request["how"] == "whole":
                rows = network.layer(number, made["graph"], rows)
            else:
                rows = by_blocks(network, number, rows, request["batch"])
    if request.get("to"):
        np.save(request["to"], rows[made["target"]].numpy())
    return clock.seconds()


def by_blocks(network: torch.nn.Module, number: int, rows: Rows, batch: int) -> Rows:
    graph, sampler = made["graph"], dgl.dataloading.MultiLayerFullNeighborSampler(1)
    sets = [made["target"]] if isinstance(network, Sage) else network.levels[number][0]
    nodes = {name: torch.arange(graph.num_nodes(name)) for name in sets}
    found: Rows = {}
    for inputs, outputs, (block,) in dgl.dataloading.DataLoader(
        graph, nodes, sampler, batch_size=batch, shuffle=False, drop_last=False
    ):
        inputs, outputs = (each if isinstance(each, dict) else {made["target"]: each} for each in (inputs, outputs))
        given = {name: rows[name][each] for name, each in inputs.items()}
        for name, values in network.layer(number, block, given).items():
            if name not in found:
                found[name] = torch.empty(graph.num_nodes(name), values.shape[1])
            if name in outputs:  # a batch need not have nodes of all sets
                found[name][outputs[name]] = values
    return found


serve(answer, prepare)
