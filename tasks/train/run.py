"""The work of stage `train`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.process.shutdown import saves_first
from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.checkpoint_stores import GROUP_NOTE, Folder
from superworkflow.tasks.lib.device import check_device
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.gnn.edge_features import shown
from superworkflow.tasks.lib.gnn.edge_weights import weights_of
from superworkflow.tasks.lib.gnn.features import left_out
from superworkflow.tasks.lib.gnn.model.config import NETWORK_FILE, NetworkConfig
from superworkflow.tasks.lib.gnn.model.graph_inputs import data_of
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.model.weights import WEIGHTS_FILE, write_weights
from superworkflow.tasks.lib.gnn.objective.base import Objective
from superworkflow.tasks.lib.gnn.objective.edge_labels import has_edge_labels, read_edge_labels
from superworkflow.tasks.lib.gnn.objective.edge_prediction import SHARE as EDGE_SHARE
from superworkflow.tasks.lib.gnn.objective.edge_prediction import EdgeClassification, EdgeRegression
from superworkflow.tasks.lib.gnn.objective.label_lists import ManyTargets
from superworkflow.tasks.lib.gnn.objective.link_prediction import LinkPrediction
from superworkflow.tasks.lib.gnn.objective.node_prediction import Classification, MultiLabel, Regression
from superworkflow.tasks.lib.gnn.objective.node_targets import node_targets_of
from superworkflow.tasks.lib.gnn.objective.number_targets import NumberTargets
from superworkflow.tasks.lib.gnn.objective.splits import SPLITS
from superworkflow.tasks.lib.gnn.objective.time_doubts import time_doubts, unused_times
from superworkflow.tasks.lib.gnn.objective.triple_prediction import TriplePrediction
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.gnn.sampler.links import has_links
from superworkflow.tasks.lib.gnn.sampler.look_ahead import LookAhead
from superworkflow.tasks.lib.gnn.sampler.negative_sampling import DEGREE, PAIRS, UNIFORM
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.gnn.sampler.subgraph_sampler import SampledBlocks, SampledSubgraphs
from superworkflow.tasks.lib.gnn.sampler.time_draws import times_of
from superworkflow.tasks.lib.gnn.sampler.triples import has_triples
from superworkflow.tasks.lib.gnn.torch_threads import torch_threads
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.seed_times import node_times
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.train.checkpoint import ANOTHERS
from superworkflow.tasks.train.data import shape_of, unused_edge_features
from superworkflow.tasks.train.defaults import AUTO, TrainingSchedule
from superworkflow.tasks.train.loss_warnings import loss_warnings
from superworkflow.tasks.train.one_process import LocalBatches, OneProcess
from superworkflow.tasks.train.params import ALL, ConcreteTrainParams, TrainParams
from superworkflow.tasks.train.trainer import Trainer

load_kernels_fast()
LOSSES_FILE, HISTORY_FILE = "losses.parquet", "history.json"


def run(job: StageRun[TrainParams]) -> Output:
    """Train a network; see `tasks.train`.

    Raises:
        UserError: the device is missing, labels or features cannot be used, or training diverged.
    """
    check_device(job.params)
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    graph = HeteroGraph.open(job.inputs["graph"], job.inputs.get("labels"))
    subgraphs = subgraphs_of(job, graph)
    task = task_of(graph, job.params)
    shape = shape_of(graph, task.head, job.params)
    params = concrete_params(job.params, task, shape)
    job.progress.log(describe(job.params, params))
    if shape.edge_columns:
        kinds = ", ".join(sorted({each["kind"] for each in shape.edge_scaling.values()}))
        job.progress.log(f"features of edges: {shown(shape.edge_columns)}; scaling: {kinds}")
    if unread := left_out(graph):
        job.progress.log(unread)
    outermost = shape.model == "gcn" and params.sizes[-1] < 0 and task.is_constant
    data = data_of(graph, shape, job.inputs.get("sums") if params.sums_features else None, outermost)
    counts = {split: len(task.items(split)) for split in SPLITS}
    facts = task.facts()
    job.progress.log(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()))
    drawn_by = params.weight if params.weighted == "draws" else ""
    weights = weights_of(graph, shape.levels()[0].relations, drawn_by) if drawn_by else {}
    times: Mapping[int, NDArray[np.int64]] = {}
    if params.sampler == "latest" or params.seed_time:
        times = times_of(graph, shape.levels()[0].relations, params.time)

    def sampler() -> NeighborSampler:
        if subgraphs is not None:
            return SampledBlocks(subgraphs, shape.levels(), params.seed)
        return NeighborSampler(data.rows, shape.nodes, draws, weights, times)

    with torch_threads(job.threads), saves_first() as shutdown:
        network = Network(shape, params.seed).to(params.device)
        summed = frozenset(data.inputs.sums or ())
        direct = network.direct(0, data.inputs) - summed
        how = params.sampler == "labor", summed, params.seed, direct, params.sampler == "latest"
        draws = Draws(shape.levels(), params.sizes, *how)
        ahead = LookAhead(sampler, max(1, job.threads - 1), params.lookahead)
        group = OneProcess(network, params, Folder(job.checkpoint), job.save_checkpoint, job.progress.log, shutdown)
        trainer = Trainer(network, task, params, LocalBatches(task, data.inputs, ahead), group, job.progress)
        if trainer.resume():
            job.progress.log(f"resuming at epoch {trainer.position.epoch + 1}, step {trainer.position.step + 1}")
        elif (job.checkpoint / GROUP_NOTE).is_file():
            job.progress.log(ANOTHERS)
        try:
            trainer.train()
            trainer.warnings += unused_edge_features(graph, job.params)
        finally:
            ahead.close()
    log_warnings(job.progress, trainer.warnings)
    return Output(rows=sum(counts.values()), stats=facts | write_results(job.output, trainer, network.arrays()))


def subgraphs_of(job: StageRun[TrainParams], graph: HeteroGraph) -> SampledSubgraphs | None:
    """Subgraphs to train on, whose seeds' splits become those of the graph's nodes; None for other samplers.

    Raises:
        UserError: the sampler or the input is there without the other, or links are predicted.
    """
    given, wanted = job.inputs.get("subgraphs"), job.params.sampler == "subgraphs"
    if (given is not None) != wanted:
        what = "there are no subgraphs to train on" if wanted else "subgraphs are given, and the sampler draws others"
        raise UserError(what, where="train.sampler", value=job.params.sampler,
                        remedy="Set train.sampler=subgraphs and give --subgraphs URI, or leave both out")  # fmt: skip
    if given is None:
        return None
    if has_links(graph.dataset):
        raise UserError("links are not learned from subgraphs", where="train.sampler", value=job.params.sampler,
                        remedy="Set train.sampler to neighbor, labor or latest")  # fmt: skip
    found = SampledSubgraphs(given, graph)
    graph.splits[found.node_set] = found.splits
    job.progress.log(
        f"{len(found.seeds)} subgraphs around nodes of {found.node_set}, whose splits are those of the seeds"
    )
    return found


def concrete_params(params: TrainParams, task: Objective, shape: NetworkConfig) -> ConcreteTrainParams:
    """Parameters with the defaults of the task and of the number of items."""
    head, items = task.head, len(task.items("train"))
    return params.concrete(head.of_pairs, items, task.most(), bool(shape.embedded()), bool(head.relations))


def describe(given: TrainParams, params: ConcreteTrainParams) -> str:
    """The values that are in place of `auto`, for the log."""
    names = [name for name in ("hidden", *TrainingSchedule._fields) if getattr(given, name) == AUTO]
    chosen = [f"{name}={getattr(params, name)}" for name in names]
    return f"by default for this task and size: {', '.join(chosen)}" if chosen else "no parameter is left to defaults"


FILES = (WEIGHTS_FILE, NETWORK_FILE, LOSSES_FILE, HISTORY_FILE)


def write_results(output: FileWriter, trainer: Trainer, weights: Mapping[str, NDArray[Any]]) -> dict[str, Stat]:
    """Write the trained network and the course of training; stats of both."""
    network, task, position = trainer.network, trainer.task, trainer.position
    with output.file(WEIGHTS_FILE) as path:
        write_weights(path, weights)
    output.json(NETWORK_FILE, network.shape.document())
    task.save(output)
    _write_losses(output, position.losses)
    output.json(HISTORY_FILE, position.epochs)
    best, shape = position.kept, network.shape
    return {
        "task": shape.head.task, "hidden": shape.hidden, "layers": shape.layers, "weighted": int(bool(shape.weight)),
        "epochs": len(position.epochs), "best_epoch": int(best["epoch"]),
        "steps": sum(map(len, position.losses)), "loss": best["loss"], "model": shape.model,
        "parameters": sum(each.size for each in weights.values()),
        **{f"chosen_{name}": getattr(trainer.params, name) for name in TrainingSchedule._fields},
        **{name: value for name, value in best.items() if name == f"validation_{task.figure}"},
        **warning_stats([*loss_warnings(shape.head, position.epochs, trainer.steps), *trainer.warnings]),
    }  # fmt: skip


def task_of(graph: HeteroGraph, params: TrainParams) -> Objective:
    """Objective of training: links where some were held out of the graph, else what nodes have.

    Raises:
        UserError: the graph has nothing to learn from, or a step would leave no edges that pass messages.
    """
    if has_edge_labels(graph.dataset):
        return _task_of_edges(graph, params)
    if params.of_edges:
        raise UserError("the graph's edges have no labels", where="train.task", value=params.task,
                        remedy="Give the output of stage holdout_edges, or another train.task")  # fmt: skip
    if not has_links(graph.dataset):
        found = _node_task_of(graph, params)
        (node_set,) = found.head.node_sets
        if params.seed_time:
            seeds = np.concatenate([found.items(split) for split in SPLITS])
            found.times = node_times(graph, node_set, params.seed_time, seeds)
            found.doubts = [*found.doubts, *time_doubts(graph, found.times[seeds], params.time)]
        else:
            found.doubts = [*found.doubts, *unused_times(graph, node_set, params.time)]
        return found
    _check_of_classes(params, "links are predicted")
    if has_triples(graph.dataset):
        return _task_of_triples(graph, params)
    by = {"pairs": PAIRS, "uniform": UNIFORM, "degree": DEGREE}[params.negatives_by]
    batch = 1 if params.batch == ALL else int(params.batch)
    task = LinkPrediction(graph, params.decoder, params.width(), params.pairs(), by, params.seed, batch)
    _check_batch(params, "links", task.most())
    if params.seed_time:
        if params.seed_time != params.time:
            raise UserError("the time of a link is that of its edges", where="train.seed_time", value=params.seed_time,
                            remedy=f"Set train.seed_time={params.time}, as train.time")  # fmt: skip
        number = graph.edge_number(task.head.edges)
        edges = graph.edge_sets[task.head.edges]
        relation = Relation(number, edges.name, edges.source, edges.target)
        task.set_times(times_of(graph, [relation], params.time)[number])
    return task


def _task_of_triples(graph: HeteroGraph, params: TrainParams) -> Objective:
    """Objective of links of all relations."""
    for name, fault in (("seed_time", bool(params.seed_time)), ("negatives_by", params.negatives_by != "pairs")):
        if fault:
            raise UserError("links of all relations are learned without it", where=f"train.{name}",
                            value=getattr(params, name), remedy="Leave it out, or set holdout_links.edges")  # fmt: skip
    task = TriplePrediction(graph, params.decoder, params.width, params.pairs(relations=True), params.seed)
    _check_batch(params, "triples", task.most())
    return task


def _task_of_edges(graph: HeteroGraph, params: TrainParams) -> Objective:
    """Objective of labelled edges."""
    if params.seed_time:
        raise UserError("labelled edges are predicted from all others, also from later ones", where="train.seed_time",
                        value=params.seed_time, remedy="Leave it out")  # fmt: skip
    labels = read_edge_labels(graph)
    _check_batch(params, "edges", len(labels.items("train")) // EDGE_SHARE)
    if labels.classes:
        balanced = params.class_weights == "balanced"
        return EdgeClassification(graph, labels, params.width(), balanced, params.label_smoothing)
    _check_of_classes(params, "numbers are predicted")
    return EdgeRegression(graph, labels, params.width())


def _check_batch(params: TrainParams, items: str, most: int) -> None:
    if params.batch == ALL:
        raise UserError(
            f"a step of all {items} leaves no edges that pass messages", where="train.batch", value=params.batch,
            remedy=f"Set train.batch to a number; a step has {most} of these {items} at most",
        )  # fmt: skip


def _node_task_of(graph: HeteroGraph, params: TrainParams) -> Classification | MultiLabel | Regression:
    """Objective of what nodes have."""
    targets = node_targets_of(graph, params)
    if isinstance(targets, NumberTargets):
        _check_of_classes(params, "numbers are predicted")
        return Regression(targets)
    if isinstance(targets, ManyTargets):
        _check_of_classes(params, "nodes have several labels")
        return MultiLabel(targets)
    certain, balanced = params.task == "classification", params.class_weights == "balanced"
    return Classification(targets, certain, balanced, params.label_smoothing)


def _check_of_classes(params: TrainParams, why: str) -> None:
    """Refuse what only a loss of one class for each node has."""
    for name, value, none in (("class_weights", params.class_weights, "none"),
                              ("label_smoothing", params.label_smoothing, 0.0)):  # fmt: skip
        if value != none:
            raise UserError(f"of classes, of which each node has one; here {why}", where=f"train.{name}", value=value,
                            remedy=f"Leave train.{name} out")  # fmt: skip


def _write_losses(output: FileWriter, losses: list[list[float]]) -> None:
    counts = np.array([len(each) for each in losses])
    epochs = np.repeat(np.arange(1, len(losses) + 1, dtype=np.int32), counts)
    steps = np.concatenate([np.arange(1, count + 1, dtype=np.int32) for count in counts])
    values = np.array([value for each in losses for value in each], np.float64)
    output.table(LOSSES_FILE, pa.table({"epoch": column(epochs), "step": column(steps), "loss": column(values)}))
