"""Our mini-batches of GraphSAGE, through what the stage uses, by one thread.

python -m tests.benchmarks.own.gnn_training FOLDER
See peers/dgl_training.py for requests and answers; `fanouts` that end in -1 read means as stage aggregate makes them,
and `products` is the parameter of the stage.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import torch

from superworkflow.infra.progress import Progress
from superworkflow.tasks._gnn import streams
from superworkflow.tasks._gnn.batches import Batch, Draws, LookAhead, Sampler
from superworkflow.tasks._gnn.classification import Classification
from superworkflow.tasks._gnn.kernels import read_only, sum_edges
from superworkflow.tasks._gnn.network import Known, Network
from superworkflow.tasks._gnn.shape import Relation, Shape
from superworkflow.tasks._gnn.targets import Targets
from superworkflow.tasks._heterograph import Rows
from superworkflow.tasks._pages import keep_memory
from superworkflow.tasks.train import ALL, TrainParams
from superworkflow.tasks.train.checkpoint import Folder
from superworkflow.tasks.train.loop import Trainer
from tests.benchmarks.peers.serving import Clock, serve

made: dict[str, Any] = {}
HIDDEN = 256


def prepare() -> dict[str, Any]:
    nb.set_num_threads(1)
    torch.set_num_threads(1)
    keep_memory()  # as `Trainer.train` does
    folder = Path(sys.argv[1])
    made.update(
        {name: np.load(folder / f"{name}.npy") for name in ("indptr", "indices", "features", "labels", "train")}
    )
    splits = np.full(len(made["labels"]), 2, np.int8)
    splits[made["train"]] = 0
    names = tuple(map(str, range(int(made["labels"].max()) + 1)))
    made["task"] = Classification(Targets("node", "node.label", names, splits, made["labels"]))
    return {}


def means() -> np.ndarray:
    """As stage aggregate makes them."""
    if "means" not in made:
        made["means"] = np.empty_like(made["features"])
        arrays = [read_only(made[name]) for name in ("features", "indptr", "indices")]
        sum_edges(*arrays, made["means"])
        made["means"] /= np.maximum(np.diff(made["indptr"]), 1).astype(np.float32)[:, None]
    return made["means"]


def trainer_of(request: dict[str, Any]) -> Trainer:
    kind = (str(request["fanouts"]), request["batch"], request.get("products"))
    if kind not in made:
        sizes = ",".join(ALL if size < 0 else str(size) for size in request["fanouts"])
        params = TrainParams(
            layers=len(request["fanouts"]), fanouts=sizes, hidden=HIDDEN, batch=request["batch"], dropout=0.0,
            epochs=100_000, lookahead=0, learning_rate=request.get("learning_rate", 0.01),
            **({"products": request["products"]} if request.get("products") else {}),
        )  # fmt: skip
        nodes, width = made["features"].shape
        relation = Relation(0, "edge", "node", "node")
        shape = Shape(
            "sage",
            "mean",
            params.layers,
            HIDDEN,
            1,
            0,
            made["task"].head,
            {"node": nodes},
            {"node": width},
            (relation,),
        )
        sums = {0: means()} if params.sums_features else None
        known = Known({"node": made["features"]}, None, sums)
        network = Network(shape, params.seed)
        network.precision = params.products
        summed = frozenset(sums or ())
        direct = network.direct(0, known) - summed
        draws = Draws(shape.levels(), params.sizes, False, summed, params.seed, direct)
        rows = {0: Rows(made["indptr"], made["indices"])}
        ahead = LookAhead(lambda: Sampler(rows, shape.nodes, draws), 1, 0)
        kept = Folder(Path(sys.argv[1]) / "none")
        made[kind] = Trainer(
            network,
            known,
            made["task"],
            params,
            ahead,
            kept,
            lambda: None,
            Progress("train"),
        )
    found: Trainer = made[kind]
    return found


def answer(request: dict[str, Any]) -> dict[str, Any]:
    trainer = trainer_of(request)
    if request["work"] == "judge":
        return judge(trainer, np.array(request["nodes"]))
    edges, loss, left = 0, None, request["steps"]
    with Clock() as clock:
        while left:
            trainer.position.epoch += 1
            for example, batch, known in trainer._prepared(trainer._schedule(trainer.position.epoch, 0)):
                if request["work"] == "train":
                    loss = trainer._step(example, batch, known)
                else:
                    ready(trainer.network, batch, known)
                edges += sum(len(hop.positions) for block in batch.blocks for hop in block.hops.values())
                left -= 1
                if not left:
                    break
    return {"edges": edges, "loss": loss, **clock.seconds()}


@torch.no_grad()
def ready(network: Network, batch: Batch, known: Known) -> None:
    """What the first layer's product reads, which is more than the peer's rows: neighbours' means are taken."""
    block = batch.blocks[0]
    network.layers[0].read(network.inputs(0, block, network.first_rows(block, known), known))  # type: ignore[operator]


@torch.no_grad()
def judge(trainer: Trainer, nodes: np.ndarray) -> dict[str, Any]:
    right, parts = 0.0, np.split(nodes, range(1024, len(nodes), 1024))
    for example, batch, known in trainer._prepared([(np.sort(part), (streams.VALIDATION, 0, number))
                                                    for number, part in enumerate(parts)]):  # fmt: skip
        right += trainer.task.judge(trainer.network, trainer.network(batch, known), example).figure
    return {"accuracy": right / len(nodes)}


serve(answer, prepare)
