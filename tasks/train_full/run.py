"""The work of stage `train_full`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import format_bytes
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.process.shutdown import saves_first
from superworkflow.infra.storage.dataset import Dataset, FileWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.checkpoint_stores import Folder
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.gnn.features import features_of
from superworkflow.tasks.lib.gnn.model.config import NETWORK_FILE, NetworkConfig
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.model.weights import WEIGHTS_FILE, write_weights
from superworkflow.tasks.lib.gnn.objective.base import Objective
from superworkflow.tasks.lib.gnn.objective.splits import SPLITS
from superworkflow.tasks.lib.gnn.precomputed_means import GCN, sums_of
from superworkflow.tasks.lib.gnn.tensor_tasks import MATRIX, Inputs, TensorFacts
from superworkflow.tasks.lib.gnn.torch_threads import torch_threads
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.huge_pages import keep_memory
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.train.data import shape_of
from superworkflow.tasks.train.loss_warnings import loss_warnings
from superworkflow.tasks.train.one_process import OneProcess
from superworkflow.tasks.train.params import ConcreteTrainParams
from superworkflow.tasks.train.run import task_of
from superworkflow.tasks.train_full.dropped import Dropout
from superworkflow.tasks.train_full.params import REAL, SYNC, TENSOR, TrainFullParams
from superworkflow.tasks.train_full.pipeline import Pipeline, wide_numbers
from superworkflow.tasks.train_full.sparse_inputs import AddUp, as_inputs
from superworkflow.tasks.train_full.timeline import TIMELINE_FILE, TimelineRow, shares_of_time, write_timeline
from superworkflow.tasks.train_full.trainer import IntervalLoss, WholeTrainer
from superworkflow.tasks.train_full.virtual_clock import NominalSeconds, VirtualClock
from superworkflow.tasks.train_full.weight_versions import WeightVersions
from superworkflow.tasks.train_full.whole_graph import WholeGraph
from superworkflow.tasks.train_full.whole_layers import layers_of
from superworkflow.tasks.train_full.whole_network import WholeNetwork

if TYPE_CHECKING:
    from superworkflow.tasks.train_full.graph_servers import GraphServer
    from superworkflow.tasks.train_full.tensor_pool import WorkerPool

load_kernels_fast()
_WORKER_BYTES, _CALL_BYTES, _COPIES = 144 << 20, 192 << 20, 3
"""Memory of a tensor worker without calls; three times the most bytes of a call; copies of a call's arrays."""
HISTORY_FILE = "history.parquet"


def run(job: StageRun[TrainFullParams]) -> Output:
    """Train a network; see `tasks.train_full`.

    Raises:
        UserError: labels or features cannot be used, or training diverged.
    """
    options, is_virtual = job.params, job.params.clock != REAL
    work = work_of(job.inputs["graph"], job.inputs.get("labels"), options)
    log_facts(job.progress, work)
    with one_thread(), saves_first() as shutdown:
        if is_virtual and options.virtual_servers > 1:
            check_roles(job)
            from superworkflow.tasks.train_full.virtual_servers import train_virtually

            first, rows, facts = train_virtually(job, work, shutdown)
            return Output(work.items, write_results(job.output, first, rows, job.progress) | facts)
        network = Network(work.shape, work.params.seed)
        kept, log = Folder(job.checkpoint), job.progress.log
        group = OneProcess(network, work.params, kept, job.save_checkpoint, log, shutdown)
        trainer = WholeTrainer(network, work.task, work.params, options, group, work.whole.intervals, job.progress)
        executed = whole_network(options, work, inputs_of(work, job.inputs.get("sums")), network)
        call_bytes = executed.call_bytes(trainer.weights())
        with tensor_pool(job, len(work.whole.intervals), executed.example(), call_bytes) as pool:
            timeline = train(trainer, executed, options, job.threads, pool)
    stats = write_results(job.output, trainer, timeline, job.progress)
    if pool is not None:
        stats |= pool.write(job.output)
    return Output(rows=work.items, stats=stats)


class Work(NamedTuple):
    """Graph and labels of a training, and what is to be trained.

    Args:
        graph: with features and labels.
        task: what is learned.
        params: course of training.
        shape: of the network.
        whole: arcs of the graph, or of a server's part.
        items: labelled nodes that are in a split.
    """

    graph: HeteroGraph
    task: Objective
    params: ConcreteTrainParams
    shape: NetworkConfig
    whole: WholeGraph
    items: int


def work_of(
    dataset: Dataset, labels: Dataset | None, options: TrainFullParams, servers: int = 1, server: int = 0
) -> Work:  # fmt: skip
    """Read graph and labels; of several graph servers one reads its own arcs.

    Raises:
        UserError: labels or features cannot be used, or there are more servers than intervals.
    """
    graph = HeteroGraph.open(dataset, labels)
    check_graph(graph)
    task = task_of(graph, options.concrete(1))
    counts = {split: len(task.items(split)) for split in SPLITS}
    check_items(counts)
    params = options.concrete(counts["train"])
    shape = shape_of(graph, task.head, params)
    rows = graph.rows(shape.relations[0].name)
    intervals = min(options.intervals_of(len(rows.indptr) - 1), len(rows.indptr) - 1)
    if servers > intervals:
        raise UserError(f"there are more graph servers than intervals of vertices, {intervals}",
                        where="resources.workers", value=servers,
                        remedy="Give fewer, or raise train_full.intervals")  # fmt: skip
    whole = WholeGraph.of_rows(rows, intervals, servers, server)
    return Work(graph, task, params, shape, whole, sum(counts.values()))


def log_facts(progress: Progress, work: Work) -> None:
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
    if features_of(graph, nodes) is None:
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


def inputs_of(work: Work, sums: Dataset | None, add_up: AddUp = lambda own: own) -> Inputs:
    """What the first layer reads, of the graph or of a server's part.

    Args:
        work: what is trained.
        sums: dataset of stage aggregate, if there is one.
        add_up: see `as_inputs`.

    Raises:
        UserError: the sums of features are of another graph, or missing.
    """
    graph, whole = work.graph, work.whole
    (name,) = graph.node_sets
    inputs: NDArray[Any] | None = features_of(graph, name)
    assert inputs is not None
    if work.shape.model == "gcn":
        if sums is None:
            raise UserError("gcn reads sums of neighbours' features", where="train_full", value="no input sums",
                            remedy="Give the output of stage aggregate with form=gcn")  # fmt: skip
        inputs = sums_of(sums, graph, 0, inputs.shape, GCN)
    return as_inputs(inputs[whole.first : whole.first + whole.count], add_up)


def whole_network(options: TrainFullParams, work: Work, inputs: Inputs, network: Network) -> WholeNetwork:
    """The tasks of the network; `inputs` are those of `inputs_of`."""
    shape, whole, task = network.shape, work.whole, work.task
    dropout, validated = Dropout(options.concrete(1).dropout, options.seed), bool(len(task.items("validation")))
    tail = IntervalLoss(network, task, whole.intervals)
    return WholeNetwork(
        whole, layers_of(shape, whole, options.precision), inputs, tail, dropout, shape.model == "gat", validated
    )


def check_roles(job: StageRun[TrainFullParams]) -> bool:
    """True if there may be tensor workers.

    Raises:
        UserError: the resources name another role, or tensor workers on a virtual clock.
    """
    workers, endpoints = job.resources.workers or {}, job.resources.endpoints or {}
    if other := [role for role in (*workers, *endpoints) if role != TENSOR]:
        raise UserError("full-graph training has workers of one role alone", where="resources",
                        value=other[0], remedy=f"Name {TENSOR}, or none")  # fmt: skip
    if not endpoints and not (workers and workers[TENSOR].count):
        return False
    if job.params.clock != REAL:
        raise UserError("the virtual clock has no tensor workers", where="train_full.clock", value=job.params.clock,
                        remedy=f"Choose {REAL}, or leave the role {TENSOR} out of the resources")  # fmt: skip
    return True


@contextlib.contextmanager
def tensor_pool(
    job: StageRun[TrainFullParams], intervals: int, example: TensorFacts, call_bytes: int
) -> Iterator[WorkerPool | None]:  # fmt: skip
    """The tensor workers that the stage's resources name, if any, while it trains.

    Raises:
        UserError: the resources name another role, or too little memory for a call.
    """
    if not check_roles(job):
        yield None
        return
    workers, endpoints = job.resources.workers or {}, job.resources.endpoints or {}
    memory = (endpoints[TENSOR] if endpoints else workers[TENSOR]).memory
    needed = min(_CALL_BYTES, memory - _WORKER_BYTES) // _COPIES
    if call_bytes > needed:
        raise UserError(f"a call of {format_bytes(call_bytes)} does not fit into a tensor worker: at most "
                        f"{format_bytes(max(0, needed))}", where="resources", value=format_bytes(memory),
                        remedy="Raise train_full.intervals, or the memory of the role")  # fmt: skip
    from superworkflow.tasks.train_full.tensor_pool import open_pool  # needs pyzmq

    with open_pool(job, intervals, example) as pool:
        yield pool


def train(
    trainer: WholeTrainer, executed: WholeNetwork, options: TrainFullParams, threads: int,
    pool: WorkerPool | None = None, server: GraphServer[Any] | None = None,
) -> Sequence[TimelineRow]:  # fmt: skip
    """Train to the end; the network has the best weights then. Returns the timeline of these epochs."""
    pipeline = pipeline_of(trainer, executed, options, threads, pool, server)
    if options.clock == REAL:
        pipeline.run()
    else:
        shapes = [layer[MATRIX].shape for layer in trainer.weights()]
        with wide_numbers():
            VirtualClock(options.virtual_threads).run([pipeline.machine(NominalSeconds(executed.graph, shapes))])
    take_best(trainer)
    return pipeline.timeline


def pipeline_of(
    trainer: WholeTrainer, executed: WholeNetwork, options: TrainFullParams, threads: int,
    pool: WorkerPool | None = None, server: GraphServer[Any] | None = None,
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
    warnings = loss_warnings(trainer.network.shape.head, trainer.position.epochs, 1)
    log_warnings(progress, warnings)
    network, task, position, weights = trainer.network, trainer.task, trainer.position, trainer.network.arrays()
    with output.file(WEIGHTS_FILE) as path:
        write_weights(path, weights)
    output.json(NETWORK_FILE, network.shape.document())
    task.save(output)
    with output.file(HISTORY_FILE) as path:
        names = list(position.epochs[0])
        rows = {name: np.array([row[name] for row in position.epochs]) for name in names}
        rows["epoch"] = rows["epoch"].astype(np.int32)
        pq.write_table(pa.table({name: column(each) for name, each in rows.items()}), path, compression="zstd")
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
