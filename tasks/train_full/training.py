"""Training on a whole graph, wherever it runs: graph, labels and network of it, its epochs, its results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.storage.dataset import Dataset, FileWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.distributed.partition import NodePartition
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.gnn.features import features_of, width_of
from superworkflow.tasks.lib.gnn.model.config import NETWORK_FILE, NetworkConfig
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.model.weights import WEIGHTS_FILE, write_weights
from superworkflow.tasks.lib.gnn.objective.base import Objective
from superworkflow.tasks.lib.gnn.objective.splits import SPLITS
from superworkflow.tasks.lib.gnn.precomputed_means import GCN, sums_of
from superworkflow.tasks.lib.gnn.torch_threads import torch_threads
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.bfloat16 import BFLOAT16
from superworkflow.tasks.lib.kernels.huge_pages import keep_memory
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.train.data import shape_of
from superworkflow.tasks.train.loss_warnings import loss_warnings
from superworkflow.tasks.train.params import ConcreteTrainParams
from superworkflow.tasks.train.run import task_of
from superworkflow.tasks.train_full.dropped import Dropout
from superworkflow.tasks.train_full.params import SYNC, TrainFullParams
from superworkflow.tasks.train_full.partners import TensorPool
from superworkflow.tasks.train_full.pipeline import Pipeline
from superworkflow.tasks.train_full.sparse_inputs import AddUp, FirstInputs, ListedRows, as_inputs
from superworkflow.tasks.train_full.timeline import TIMELINE_FILE, TimelineRow, shares_of_time, write_timeline
from superworkflow.tasks.train_full.trainer import STEP, IntervalLoss, WholeTrainer
from superworkflow.tasks.train_full.vertex_order import Parts, VertexOrder, even_order, plain_order
from superworkflow.tasks.train_full.weight_versions import WeightVersions
from superworkflow.tasks.train_full.whole_graph import Places, WholeGraph
from superworkflow.tasks.train_full.whole_layers import layers_of
from superworkflow.tasks.train_full.whole_network import WholeNetwork

if TYPE_CHECKING:
    from superworkflow.tasks.train_full.graph_servers import GraphServer
    from superworkflow.tasks.train_full.tensor_pool import WorkerPool

load_kernels_fast()
HISTORY_FILE = "history.parquet"


@dataclass(frozen=True)
class LearnedTask:
    """Description of what is to be trained, without the graph's arcs.

    Args:
        graph: with features and labels.
        task: what is learned.
        params: course of training.
        shape: of the network.
        order: the graph's vertices in as many intervals as there are; as they are, or of a `FullGraphWork` evened out.
        items: labelled nodes that are in a split.
    """

    graph: HeteroGraph
    task: Objective
    params: ConcreteTrainParams
    shape: NetworkConfig
    order: VertexOrder
    items: int


@dataclass(frozen=True)
class FullGraphWork(LearnedTask):
    """A `LearnedTask` with arcs of the graph, or of a server's part."""

    whole: WholeGraph


def work_of(
    inputs: Mapping[str, Dataset], options: TrainFullParams, servers: int = 1, server: int = 0
) -> FullGraphWork:  # fmt: skip
    """Read graph, labels and parts; of several graph servers one reads its own arcs.

    Args:
        inputs: of the stage.
        options: its parameters.
        servers, server: number of graph servers, and which of them.

    Raises:
        UserError: see `learned_of`; or the parts are of another graph.
    """
    found, parts = learned_of(inputs, options, servers), None
    rows = found.graph.rows(found.shape.relations[0].name)
    if "parts" in inputs:
        divided = NodePartition.open(inputs["parts"], found.graph)
        (vertices,) = divided.orders.values()
        parts = Parts(vertices, divided.book[0])
    order = even_order(rows, len(found.order.intervals), parts)
    whole = WholeGraph.of_rows(rows, order, servers, server)
    return FullGraphWork(**vars(found) | {"order": order}, whole=whole)


def part_of(work: FullGraphWork, servers: int, server: int) -> FullGraphWork:
    """The same work with the arcs of one of several graph servers.

    Raises:
        UserError: there are more graph servers than intervals.
    """
    check_servers(servers, work.whole.order)
    rows = work.graph.rows(work.shape.relations[0].name)
    return replace(work, whole=WholeGraph.of_rows(rows, work.whole.order, servers, server))


def learned_of(inputs: Mapping[str, Dataset], options: TrainFullParams, servers: int = 1) -> LearnedTask:
    """Read labels.

    Args:
        inputs, options, servers: see `work_of`.

    Raises:
        UserError: labels or features cannot be used, or there are more graph servers than intervals.
    """
    graph = HeteroGraph.open(inputs["graph"], inputs.get("labels"))
    check_graph(graph)
    task = task_of(graph, options.concrete(1))
    counts = {split: len(task.items(split)) for split in SPLITS}
    check_items(counts)
    params = options.concrete(counts["train"])
    shape = shape_of(graph, task.head, params)
    vertices = len(graph.rows(shape.relations[0].name).indptr) - 1
    order = plain_order(vertices, options.intervals_of(vertices, "parts" in inputs))
    check_servers(servers, order)
    return LearnedTask(graph, task, params, shape, order, sum(counts.values()))


def check_servers(servers: int, order: VertexOrder) -> None:
    """Refuse more graph servers than intervals.

    Raises:
        UserError: says how many there are.
    """
    if servers > len(order.intervals):
        raise UserError(f"there are more graph servers than intervals of vertices, {len(order.intervals)}",
                        where="resources.workers", value=servers,
                        remedy="Give fewer, or raise train_full.intervals")  # fmt: skip


def log_facts(progress: Progress, work: FullGraphWork) -> None:
    """Log what is learned."""
    progress.log(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in work.task.facts().items()))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within the block each task uses one thread, as tasks of intervals are parallel; freed memory is kept."""
    nb.set_num_threads(1)
    keep_memory()
    with torch_threads(1), threadpool_limits(1, "blas"):
        yield


def check_graph(graph: HeteroGraph) -> None:
    """Refuse a graph that is not of one node set with features and one edge set.

    Raises:
        UserError: says what there is.
    """
    sets = len(graph.node_sets), len(graph.edge_sets)
    if sets != (1, 1):
        raise UserError("full-graph training takes a graph of one node set and one edge set", where=graph.dataset.uri,
                        value=f"{sets[0]} and {sets[1]}", remedy="Use the superworkflow gnn")  # fmt: skip
    (nodes,) = graph.node_sets
    if not width_of(graph, nodes):
        raise UserError("the nodes have no features, and full-graph training learns no embeddings of nodes",
                        where=graph.dataset.uri, value=nodes,
                        remedy="Give --features FILE, or use the superworkflow gnn")  # fmt: skip


def check_items(counts: dict[str, int]) -> None:
    """Refuse a split without nodes to train on.

    Raises:
        UserError: says how many nodes are in which split.
    """
    if not counts["train"]:
        found = ", ".join(f"{split}: {count}" for split, count in counts.items())
        raise UserError("no labelled node is in the split train", where="labels", value=found,
                        remedy="Put labelled nodes of each class into the split train")  # fmt: skip


def inputs_of(
    work: FullGraphWork, sums: Dataset | None, precision: str, add_up: AddUp = lambda own: own
) -> FirstInputs:  # fmt: skip
    """Rows that the first layer reads, of the graph or of a server's part.

    Args:
        work: what is trained.
        sums: dataset of stage aggregate, if there is one.
        precision: one of `bfloat16.DTYPES`.
        add_up: see `as_inputs`.

    Raises:
        UserError: the sums of features are of another graph, or missing.
    """
    graph, whole = work.graph, work.whole
    (name,) = graph.node_sets
    if work.shape.model == "gcn":
        if sums is None:
            raise UserError("gcn reads sums of neighbours' features", where="train_full", value="no input sums",
                            remedy="Give the output of stage aggregate with form=gcn")  # fmt: skip
        inputs: NDArray[Any] = sums_of(sums, graph, 0, (graph.node_sets[name].count, width_of(graph, name)), GCN)
    else:
        features = features_of(graph, name)
        assert features is not None
        inputs = features
    own = slice(whole.first, whole.first + whole.count)
    moved = whole.order.vertices
    return as_inputs(ListedRows(inputs, moved[own]) if len(moved) else inputs[own], precision == BFLOAT16, add_up)


def whole_network(
    options: TrainFullParams, work: FullGraphWork, inputs: FirstInputs, network: Network
) -> WholeNetwork:  # fmt: skip
    """The tasks of the network; `inputs` are those of `inputs_of`."""
    shape, whole, task = network.shape, work.whole, work.task
    dropout, tail = Dropout(work.params.dropout, options.seed), IntervalLoss(network, task, whole.order)
    layers, judged = layers_of(shape, whole, options.precision), judged_places(task, whole)
    return WholeNetwork(whole, layers, inputs, tail, dropout, shape.model == "gat", judged)


def judged_places(task: Objective, whole: WholeGraph) -> dict[int, Places] | None:
    """Places of the vertices that are validated on, by interval; None without any in the whole graph."""
    items, (name,) = task.items("validation"), task.head.node_sets
    if not len(items):
        return None
    nodes, order = task.example(items, STEP).nodes[name], whole.order
    places, numbers = (order.positions_of(nodes) - whole.first).astype(np.int32), order.numbers_of(nodes)
    return {number: read_only(places[numbers == number]) for number in whole.own}


def train(
    trainer: WholeTrainer, executed: WholeNetwork, options: TrainFullParams, threads: int,
    pool: WorkerPool | None = None, server: GraphServer[Any] | None = None,
) -> Sequence[TimelineRow]:  # fmt: skip
    """Train to the end; the network has the best weights then. Returns the timeline of these epochs."""
    pipeline = pipeline_of(trainer, executed, options, threads, pool, server)
    pipeline.run()
    take_best(trainer)
    return pipeline.timeline


def pipeline_of(
    trainer: WholeTrainer, executed: WholeNetwork, options: TrainFullParams, threads: int,
    pool: TensorPool | None = None, server: GraphServer[Any] | None = None,
) -> Pipeline:  # fmt: skip
    """The pipeline of the epochs that are left."""
    first, last = trainer.position.epoch, trainer.params.epochs
    if first:
        trainer.progress.log(f"resuming at epoch {first + 1}")
    trainer.scores = executed.scores
    if trainer.is_over:
        last = first
    staleness = None if options.staleness == SYNC else int(options.staleness)
    versions, epochs = WeightVersions(trainer.weights(), first), trainer if server is None else server
    return Pipeline(executed, versions, epochs, first, last, staleness, threads, pool, options.fusion, server)


def take_best(trainer: WholeTrainer) -> None:
    """Give the network the best weights."""
    if trainer.best.network:
        trainer.network.load_arrays(trainer.best.network)


def write_results(
    output: FileWriter, trainer: WholeTrainer, timeline: Sequence[TimelineRow], progress: Progress
) -> dict[str, Stat]:  # fmt: skip
    """Write the trained network and the course of training; stats of both."""
    warnings = loss_warnings(trainer.network.shape.head, trainer.position.epochs, 1, "train_full")
    log_warnings(progress, warnings)
    network, task, position, weights = trainer.network, trainer.task, trainer.position, trainer.network.arrays()
    with output.file(WEIGHTS_FILE) as path:
        write_weights(path, weights)
    output.json(NETWORK_FILE, network.shape.document())
    task.save(output)
    rows = {name: np.array([row[name] for row in position.epochs]) for name in position.epochs[0]}
    rows["epoch"] = rows["epoch"].astype(np.int32)
    output.table(HISTORY_FILE, pa.table({name: column(each) for name, each in rows.items()}))
    with output.file(TIMELINE_FILE) as path:
        write_timeline(path, timeline)
    best, shape = position.epochs[position.best - 1] if position.best else position.epochs[-1], network.shape
    seconds = max((row.end_s for row in timeline), default=0.0) - min((row.begin_s for row in timeline), default=0.0)
    epochs = len({row.epoch for row in timeline})
    return task.facts() | {
        "task": shape.head.task, "clock": trainer.options.clock,
        "hidden": shape.hidden, "layers": shape.layers, "epochs": len(position.epochs),
        "best_epoch": position.best or len(position.epochs), "loss": best["loss"], "model": shape.model,
        "parameters": sum(each.size for each in weights.values()), "tasks": len(timeline),
        "most_lead": max((row.lead for row in timeline), default=0),
        "oldest_read": max((row.epoch - row.oldest for row in timeline), default=0),
        "epoch_s": seconds / epochs if epochs else 0.0,
        **{f"share.{name}": share for name, share in shares_of_time(timeline).items()},
        **{name: value for name, value in best.items() if name == trainer.figure},
    } | warning_stats(warnings)  # fmt: skip
