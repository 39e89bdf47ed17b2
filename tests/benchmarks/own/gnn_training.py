"""Our mini-batches, steps and inference, through what the stages use, by one thread.

python -m tests.benchmarks.own.gnn_training FOLDER      a graph as gnn_graphs.py writes it
See peers/dgl_training.py for requests and answers; `params` are those of stage train. Fan-outs that end in `all` read
means as stage aggregate makes them.
{"work": "save", "params", "to"} -> {}                                    the first weights, in a file
{"work": "train_on", "params"} -> {"cpu_s": [...], "accuracy": [...]}     by stage train's loop: CPU seconds from its
                                  start to the end of each epoch, and accuracy on the nodes to validate on
"""

from __future__ import annotations

import io
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.process.shutdown import Shutdown
from superworkflow.tasks.infer.run import all_rows
from superworkflow.tasks.lib.checkpoint_stores import Folder
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.model.graph_inputs import Data
from superworkflow.tasks.lib.gnn.model.network import Network, NetworkInputs
from superworkflow.tasks.lib.gnn.objective.labels import Targets
from superworkflow.tasks.lib.gnn.objective.node_prediction import Classification
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.gnn.sampler.kernels import sum_edges
from superworkflow.tasks.lib.gnn.sampler.look_ahead import LookAhead
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.huge_pages import keep_memory
from superworkflow.tasks.train.one_process import LocalBatches, OneProcess
from superworkflow.tasks.train.params import TrainParams
from superworkflow.tasks.train.trainer import Prepared, Trainer
from tests.benchmarks.gnn_graphs import GRAPH, WIDTH
from tests.benchmarks.own.ready import ready
from tests.benchmarks.peers.serving import Clock, serve


@dataclass
class Graph:
    """A graph and the structures built from it.

    Args:
        nodes, relations, rows, features, task: of the graph.
        means: of neighbours' features, by number of the relation; filled when they are asked for.
        trainers: by the parameters of the requests that they answer, each with the batches that it has not trained on.
    """

    nodes: dict[str, int]
    relations: tuple[Relation, ...]
    rows: dict[int, CsrRows]
    features: dict[str, NDArray[np.float32]]
    task: Classification
    means: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    trainers: dict[str, tuple[Trainer, Iterator[Prepared]]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Graph:
        facts = json.loads((folder / GRAPH).read_text())
        relations = tuple(Relation(number, *each) for number, each in enumerate(facts["relations"]))
        rows = {
            each.number: CsrRows(*(np.load(folder / f"{part}-{each.number}.npy") for part in ("indptr", "indices")))
            for each in relations
        }
        features = {name: _features(folder / f"features-{name}.npy", count) for name, count in facts["nodes"].items()}
        labels, splits = np.load(folder / "labels.npy"), np.load(folder / "splits.npy")
        names = tuple(map(str, range(int(labels.max()) + 1)))
        target = facts["target"]
        task = Classification(Targets(target, f"{target}.label", names, splits, labels))
        return cls(facts["nodes"], relations, rows, features, task)

    def sums(self) -> dict[int, NDArray[np.float32]]:
        """As stage aggregate makes them."""
        for relation in self.relations if not self.means else ():
            indptr, indices = self.rows[relation.number]
            values = self.features[relation.senders]
            means = np.empty((len(indptr) - 1, values.shape[1]), np.float32)
            sum_edges(*map(read_only, (values, indptr, indices)), means)
            means /= np.maximum(np.diff(indptr), 1).astype(np.float32)[:, None]
            self.means[relation.number] = means
        return self.means

    def trainer(self, given: dict[str, Any], progress: Progress) -> Trainer:
        """As stage train makes it."""
        fixed = {"lookahead": 0, "weight_decay": 0.0, "patience": 0}  # those of the peers
        items = len(self.task.items("train"))
        params = TrainParams(**{**fixed, **given}).concrete(False, items, self.task.most(), False)
        widths = {name: values.shape[1] for name, values in self.features.items()}
        shape = NetworkConfig(params.model, params.aggregator, params.layers, params.hidden, params.heads, params.bases,
                      self.task.head, self.nodes, widths, self.relations)  # fmt: skip
        inputs = NetworkInputs(self.features, None, self.sums() if params.sums_features else None)
        network = Network(shape, params.seed)
        summed = frozenset(inputs.sums or ())
        draws = Draws(shape.levels(), params.sizes, False, summed, params.seed, network.direct(0, inputs) - summed)
        ahead = LookAhead(lambda: NeighborSampler(self.rows, shape.nodes, draws), 1, params.lookahead)
        kept = Folder(Path(made["kept"].name))
        group = OneProcess(network, params, kept, lambda: None, progress.log, Shutdown())
        return Trainer(network, self.task, params, LocalBatches(self.task, inputs, ahead), group, progress)

    def trainer_of(self, given: dict[str, Any]) -> tuple[Trainer, Iterator[Prepared]]:
        """The one that earlier requests with these parameters have trained, and its next batches, without end."""
        kind = json.dumps(given)
        if kind not in self.trainers:
            trainer = self.trainer({"dropout": 0.0, **given}, Progress("train", stream=io.StringIO()))
            self.trainers[kind] = trainer, itertools.chain.from_iterable(map(trainer.epoch, itertools.count()))
        return self.trainers[kind]


class Noted(Progress):
    """Notes CPU seconds and accuracy at the end of each epoch."""

    def __init__(self) -> None:
        super().__init__("train", stream=io.StringIO())
        self.cpu_s: list[float] = []
        self.accuracy: list[float] = []
        self._begun = time.process_time()

    def report(self, step: int, steps: int, value: float, **facts: float) -> None:
        self.cpu_s.append(time.process_time() - self._begun)
        self.accuracy.append(value)


def prepare() -> dict[str, Any]:
    nb.set_num_threads(1)
    torch.set_num_threads(1)
    keep_memory()  # as `Trainer.train` does
    made["graph"] = Graph.read(Path(sys.argv[1]))
    return {}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    graph: Graph = made["graph"]
    if request["work"] == "train_on":
        noted = Noted()
        graph.trainer(request["params"], noted).train()
        return {"cpu_s": noted.cpu_s, "accuracy": noted.accuracy}
    trainer, batches = graph.trainer_of(request["params"])
    if request["work"] == "judge":
        return {"accuracy": trainer.judge(np.array(request["nodes"]))[1]}
    if request["work"] == "save":
        np.savez(request["to"], **trainer.network.arrays())
        return {}
    if request["work"] == "infer":
        return infer(trainer, request)
    edges, loss = 0, None
    with Clock() as clock:
        for prepared in itertools.islice(batches, request["steps"]):
            if request["work"] == "train":
                loss = trainer.step(*prepared)
            elif request["work"] == "batches":
                ready(trainer.network, *prepared[1:])
            edges += sum(len(hop.positions) for block in prepared[1].blocks for hop in block.hops.values())
    return {"edges": edges, "loss": loss, **clock.seconds()}


@torch.no_grad()
def infer(trainer: Trainer, request: dict[str, Any]) -> dict[str, Any]:
    graph: Graph = made["graph"]
    data = Data(graph.rows, NetworkInputs(graph.features))
    with Clock() as clock:
        rows, _ = all_rows(trainer.network, data, request["batch"], lambda done, total, unit: None)
    if request.get("to"):
        (found,) = rows.values()
        np.save(request["to"], found)
    return clock.seconds()


def _features(path: Path, count: int) -> NDArray[np.float32]:
    if path.exists():
        return np.asarray(np.load(path))
    return np.random.default_rng(1).random((count, WIDTH), np.float32)


made: dict[str, Any] = {"kept": tempfile.TemporaryDirectory()}
serve(answer, prepare)
