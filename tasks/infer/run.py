"""The work of stage `infer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset, FileWriter
from superworkflow.tasks.infer import InferParams
from superworkflow.tasks.infer.at_times import AtTimes
from superworkflow.tasks.infer.files import (
    CLASSES,
    FACTORS,
    PIECE,
    PREDICTIONS,
    PROBABILITIES,
    RELATIONS,
    ROW_GROUP,
    TARGET_VECTORS,
    VECTORS,
    write_probabilities,
    write_vectors,
)
from superworkflow.tasks.infer.multi_label import multi_label_columns
from superworkflow.tasks.infer.pair_results import write_edges, write_links
from superworkflow.tasks.infer.whole_rows import as_tensor, gathered, whole_layer
from superworkflow.tasks.lib.device import check_device
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.gnn.edge_features import check_edge_columns
from superworkflow.tasks.lib.gnn.learned_features import check_features, unread
from superworkflow.tasks.lib.gnn.model.config import LINKS, REGRESSION, NetworkConfig, read_shape
from superworkflow.tasks.lib.gnn.model.graph_inputs import Data, data_of
from superworkflow.tasks.lib.gnn.model.inner_rows import inner_rows
from superworkflow.tasks.lib.gnn.model.layers import SageLayer
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.model.weights import read_network
from superworkflow.tasks.lib.gnn.objective.labels import has_label, label_texts
from superworkflow.tasks.lib.gnn.objective.number_targets import label_numbers
from superworkflow.tasks.lib.gnn.objective.splits import SPLITS
from superworkflow.tasks.lib.gnn.sampler.kernels import ALL_NEIGHBORS
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.gnn.sampler.subgraph_sampler import SampledSubgraphs
from superworkflow.tasks.lib.gnn.torch_threads import torch_threads
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.huge_pages import keep_memory
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()
WHOLE = 1 << 27
"""Edges times width of hidden layers up to which a module of one's own reads the whole graph at once."""
READ = 40
"""Multiplications that a processor does in the time of one random read of a row's number."""
RowsByNodeSet = Mapping[str, NDArray[np.float32]]
"""Rows of nodes, by node set."""


def run(job: StageRun[InferParams]) -> Output:
    """Write predictions and embeddings; see `tasks.infer`.

    Raises:
        UserError: the device is missing, or the network belongs to another graph.
    """
    check_device(job.params)
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    graph, trained = HeteroGraph.open(job.inputs["graph"], job.inputs.get("labels")), job.inputs["network"]
    shape = shape_on(graph, trained)
    log_unread(job, graph, shape)
    data = data_of(graph, shape, None, False)
    with torch_threads(job.threads), torch.no_grad():
        network = read_network(trained, shape).to(job.params.device)
        files = inner_rows(shape) if job.params.inner_rows else {}
        rows, hidden = all_rows(
            network, data, job.params.batch, job.progress.update, partial(write_inner, job.output, files)
        )
        at_times = None
        if shape.times or "subgraphs" in job.inputs:
            given = job.inputs.get("subgraphs")
            subgraphs = None if given is None else SampledSubgraphs(given, graph)
            at_times = AtTimes(network, graph, data, job.params.batch, subgraphs)
    return write_results(job.output, graph, splits_of(job), network, rows, hidden, at_times)


def splits_of(job: StageRun[InferParams]) -> Dataset | None:
    """Dataset of stage train that has the nodes' splits: the given one, or the network's own on its own graph."""
    trained, graph = job.inputs["network"], job.inputs["graph"]
    learned = trained.manifest.inputs.get("graph")
    own = trained if learned is None or learned.digest == graph.digest else None
    return job.inputs.get("splits") or own


def write_inner(output: FileWriter, files: Mapping[tuple[int, str], str], layer: int, rows: RowsByNodeSet) -> None:
    """Write what a layer reads; see `inner_rows`."""
    for name, values in rows.items():
        if (layer, name) in files:
            output.array(files[layer, name], values)


def write_results(
    output: FileWriter,
    graph: HeteroGraph,
    judged_by: Dataset | None,
    network: Network,
    rows: RowsByNodeSet,
    hidden: RowsByNodeSet,
    at_times: AtTimes | None = None,
) -> Output:
    """Write predictions and embeddings.

    Args:
        output: the dataset.
        graph: graph of the nodes.
        judged_by: dataset of stage train that has the nodes' splits; None for no splits.
        network: the trained network.
        rows: outputs of the last layer for the nodes of its sets.
        hidden: inputs of the last layer for these nodes.
        at_times: computes the rows of seeds that have a time; None for a network whose seeds have none.
    """
    if network.shape.head.task == LINKS:
        return write_links(output, graph, network, rows, at_times)
    if network.shape.head.of_pairs:
        return write_edges(output, graph, network, rows)
    (target,) = network.shape.head.node_sets
    timed = {} if at_times is None else {"timed": at_times.fill(rows)}
    found = _write_nodes(output, graph, judged_by, network.shape, rows[target], hidden[target])
    return replace(found, stats={**found.stats, **timed})


def _write_nodes(
    output: FileWriter, graph: HeteroGraph, judged_by: Dataset | None, shape: NetworkConfig,
    scores: NDArray[np.float32], vectors: NDArray[np.float32],
) -> Output:  # fmt: skip
    """Write the predicted classes or numbers of all nodes, and the last layer's inputs."""
    (target,) = shape.head.node_sets
    names = graph.ids(target).combine_chunks()
    with output.file(VECTORS) as path:
        write_vectors(path, names, vectors)
    splits = judged_by.array("splits.npy", mmap=False) if judged_by else np.full(len(names), -1, np.int8)
    if judged_by and len(splits) != len(names):
        raise UserError("the splits are those of another graph", where=judged_by.uri, value=f"{len(splits)} nodes",
                        remedy="Give the splits of a network that was trained on this graph")  # fmt: skip
    if shape.head.task == REGRESSION:
        found, kinds = _number_columns(graph, shape, scores), {}
    else:
        found = multi_label_columns(graph, shape, scores) if shape.head.several else _columns(graph, shape, scores)
        kinds = {"classes": len(shape.head.classes)}
        write_probabilities(output, shape, scores)
    output.table(PREDICTIONS, pa.table({
        "node": names.cast(pa.string()),
        **found,
        "split": pa.array([None if each < 0 else SPLITS[each] for each in splits.tolist()], pa.string()),
    }), ROW_GROUP)  # fmt: skip
    count = len(names)
    return Output(rows=count, stats={"rows": count, "nodes": count, "dimensions": vectors.shape[1], **kinds})


def _number_columns(graph: HeteroGraph, shape: NetworkConfig, rows: NDArray[np.float32]) -> dict[str, pa.Array]:
    """Predicted number of each node, in the unit of the labels, and the node's own."""
    head, own = shape.head, np.full(len(rows), np.nan)
    if has_label(graph, head.label):
        own = label_numbers(graph, head.label)
    return {
        "predicted": column(rows[:, 0].astype(np.float64) * head.scale + head.mean),
        "label": pa.array(own, pa.float64(), from_pandas=True),
    }


def _columns(graph: HeteroGraph, shape: NetworkConfig, scores: NDArray[np.float32]) -> dict[str, pa.Array]:
    """Most probable class of each node, its probability, and the node's own class."""
    predicted, likely = np.empty(len(scores), np.int64), np.empty(len(scores), np.float32)
    for first in range(0, len(scores), PIECE):  # no second copy of the scores, which may be large
        piece = slice(first, first + PIECE)
        probabilities, classes = torch.softmax(torch.from_numpy(scores[piece]), 1).max(1)
        predicted[piece], likely[piece] = classes.numpy(), probabilities.numpy()
    return {
        "predicted": pa.array(shape.head.classes, pa.string()).take(column(predicted)),
        "probability": column(likely),
        "label": pa.array(_labels(graph, shape), pa.string()),
    }


def _labels(graph: HeteroGraph, shape: NetworkConfig) -> list[str | None]:
    """Label of each node; a graph that is only predicted need not have any."""
    if not has_label(graph, shape.head.label):
        return [None] * graph.node_sets[shape.head.node_sets[0]].count
    return label_texts(graph, shape.head.label)


def files_of(shape: NetworkConfig, params: InferParams) -> list[str]:
    """Names of the files of a network's predictions."""
    inner = list(inner_rows(shape).values()) if params.inner_rows else []
    if shape.head.task == REGRESSION:
        return [PREDICTIONS, VECTORS, *inner]
    if not shape.head.of_pairs:
        return [PREDICTIONS, VECTORS, PROBABILITIES, CLASSES, *inner]
    of_links = [FACTORS, RELATIONS] if shape.head.relations else [FACTORS]
    more = of_links if shape.head.task == LINKS else [PROBABILITIES, CLASSES] if shape.head.classes else []
    apart = len(shape.head.node_sets) > 1 or (shape.head.decoder == "complex" and not shape.head.relations)
    return [
        PREDICTIONS,
        VECTORS,
        *([TARGET_VECTORS] if apart else []),
        *more,
        *inner,
    ]


def shape_on(graph: HeteroGraph, trained: Dataset) -> NetworkConfig:
    """Configuration of a network on this graph; a network without embeddings reads graphs of any size.

    Raises:
        UserError: the graph's sets differ from those of training.
    """
    shape, where = read_shape(trained), trained.uri
    check_features(graph, shape, where)
    edge_sets = {each.name: (each.source, each.target) for each in graph.edge_sets.values()}
    same = all(edge_sets.get(each.name) == (each.receivers, each.senders) for each in shape.relations)
    sizes = all(graph.node_sets[name].count == shape.nodes[name] for name in shape.embedded())
    if not same or not sizes:
        raise UserError("the network was trained on another graph", where=where, value=graph.dataset.digest,
                        remedy="Give the graph that it was trained on")  # fmt: skip
    check_edge_columns(graph, shape.edge_columns, where)
    return replace(shape, nodes={name: graph.node_sets[name].count for name in shape.nodes})


def log_unread(job: StageRun[InferParams], graph: HeteroGraph, shape: NetworkConfig) -> None:
    """Say which features of the graph the network does not read."""
    for each in unread(graph, shape):
        job.progress.log(f"warning: {each}")


def _first_rows(network: Network, data: Data) -> dict[str, NDArray[Any]]:
    """Inputs of the first layer for all nodes."""
    rows: dict[str, NDArray[Any]] = {}
    for name in network.shape.levels()[0].senders:
        if name in network.embedded:
            table: torch.Tensor = network.embeddings[network.embedded[name]].weight  # type: ignore[assignment]
            rows[name] = table[: network.shape.nodes[name]].cpu().numpy()
        else:
            rows[name] = data.inputs.features[name]
    return rows


def all_rows(
    network: Network,
    data: Data,
    batch: int,
    report: Callable[[int, int, str], None],
    keep: Callable[[int, RowsByNodeSet], None] = lambda layer, rows: None,
) -> tuple[dict[str, NDArray[np.float32]], RowsByNodeSet]:
    """Outputs and inputs of the last layer for the nodes of its sets; with one layer the outputs twice.

    Args:
        network: the trained network.
        data: edges and inputs of all nodes.
        batch: nodes at a time.
        report: called with progress: nodes done, total, unit.
        keep: called with the number of each layer and what it reads of all nodes.
    """
    keep_memory()
    network.eval()
    if network.own is not None:
        scores = _own_rows(network, data, batch, report)
        return scores, scores
    made: dict[str, NDArray[np.float32]] = _first_rows(network, data)
    outputs: list[RowsByNodeSet] = []
    for number in range(network.shape.layers):
        read = made  # the only reference: rows of earlier layers are freed
        keep(number, read)
        made = layer(network, data, number, read, network.shape.nodes, batch, report)
        outputs.append(made if network.shape.joins else {})
    if network.shape.joins:
        return read_joined(network, outputs, batch)
    return made, read if network.shape.layers > 1 else made


def _own_rows(
    network: Network, data: Data, batch: int, report: Callable[[int, int, str], None]
) -> dict[str, NDArray[np.float32]]:
    """Outputs of a module of one's own, for all nodes at once unless the graph is large."""
    shape = network.shape
    levels = shape.levels()
    draws = Draws(levels, [ALL_NEIGHBORS] * len(levels), False, frozenset(), 0)
    sampler = NeighborSampler(data.rows, shape.nodes, draws)
    counts = {name: shape.nodes[name] for name in shape.head.node_sets}
    if sum(len(each.indices) for each in data.rows.values()) * shape.hidden <= WHOLE:
        batch = max(1, *counts.values())
    made = {name: np.empty((count, shape.head.width), np.float32) for name, count in counts.items()}
    done = 0
    for name, rows in made.items():
        for first in range(0, len(rows), batch):
            nodes = np.arange(first, min(len(rows), first + batch))
            rows[nodes] = network(sampler.batch({name: nodes}, 0, 0, 0), data.inputs)[name].cpu().numpy()
            done += len(nodes)
            report(done, sum(counts.values()), "nodes")
    return made


def layer(
    network: Network, data: Data, number: int, rows: RowsByNodeSet, counts: Mapping[str, int], batch: int,
    report: Callable[[int, int, str], None],
) -> dict[str, NDArray[np.float32]]:  # fmt: skip
    """Rows of nodes after a layer, computed for some of them at a time.

    Args:
        network: the trained network.
        data: edges of these nodes, and degrees.
        number: number of the layer, from 0.
        rows: inputs of these nodes, followed by those of further senders.
        counts: number of these nodes, by node set.
        batch: nodes at a time.
        report: called with progress: nodes done, total, unit.
    """
    shape = network.shape
    level = shape.levels()[number]
    inputs = replace(data.inputs, features=rows)
    made = {name: np.empty((counts[name], shape.width_out(number)), np.float32) for name in level.receivers}
    total = sum(map(len, made.values()))
    if (gather := whole_layer(network, data, number, rows, batch)) is not None:
        ((name, out),) = made.items()
        for own in gathered(gather, out, batch):
            values, places = {name: torch.from_numpy(out[own])}, {name: np.arange(own.start, own.stop)}
            out[own] = network.activated(number, values, places, partial(_own_part, rows, own))[name].numpy()
            report(number * total + own.stop, shape.layers * total, "nodes")
        return made
    direct = network.direct(number, inputs)
    products = {
        relation.number: multiplied(network, number, place, rows[relation.senders], batch)
        for place, relation in enumerate(level.relations)
        if relation.number in direct
        and multiplies_first(len(rows[relation.senders]), counts[relation.receivers],
                             len(data.rows[relation.number].indices), rows[relation.senders].shape[1],
                             shape.width_out(number))
    }  # fmt: skip
    inputs = replace(inputs, products=products)
    draws = Draws([level], [ALL_NEIGHBORS], False, frozenset(), 0, direct)
    sampler = NeighborSampler(data.rows, {name: len(each) for name, each in rows.items()}, draws)
    done = 0
    for name in made:
        for first in range(0, counts[name], batch):
            nodes = np.arange(first, min(counts[name], first + batch))
            block = sampler.batch({name: nodes}).blocks[0]
            names = [each for each in level.senders if not network.reads_table(block, inputs, each)]
            read = {each: torch.from_numpy(rows[each][block.senders[each]]) for each in names}
            given = {each: values.to(network.device).float() for each, values in read.items()}
            found = network.layer(number, block, given, inputs)[name]
            made[name][first : first + len(nodes)] = found.cpu().numpy()
            done += len(nodes)
            report(number * total + done, shape.layers * total, "nodes")
    return made


def _own_part(rows: RowsByNodeSet, own: slice, name: str) -> torch.Tensor:
    return as_tensor(rows[name][own])


def read_joined(
    network: Network, outputs: Sequence[RowsByNodeSet], batch: int
) -> tuple[dict[str, NDArray[np.float32]], RowsByNodeSet]:
    """Outputs of the head of jumping knowledge, and the joined rows that it reads, by node set.

    Args:
        network: the trained network.
        outputs: rows of some nodes after each layer; those of the head's node sets are read.
        batch: nodes at a time.
    """
    made, joined = dict[str, NDArray[np.float32]](), dict[str, NDArray[np.float32]]()
    for name in network.shape.head.node_sets:
        count = len(outputs[-1][name])
        joined[name] = np.empty((count, network.shape.joined_width), np.float32)
        made[name] = np.empty((count, network.shape.head.width), np.float32)
        for first in range(0, count, batch):
            piece = slice(first, first + batch)
            rows = network.join([torch.from_numpy(each[name][piece]).to(network.device) for each in outputs])
            joined[name][piece], made[name][piece] = rows.cpu().numpy(), network.read(rows).cpu().numpy()
    return made, joined


def multiplies_first(senders: int, receivers: int, edges: int, width: int, out: int) -> bool:
    """True if it is less work to multiply all senders' rows and read means of the products than to multiply means.

    Args:
        senders, receivers, edges: their numbers.
        width, out: widths of the rows before and after.
    """
    first = senders * width * out + READ * edges * out
    return first < receivers * width * out + READ * edges * width


def multiplied(network: Network, number: int, place: int, rows: NDArray[np.float32], batch: int) -> NDArray[np.float32]:
    """Rows of all senders times the matrix of the layer's relation at index `place`, `batch` at a time."""
    layer: SageLayer = network.layers[number]  # type: ignore[assignment]
    out = np.empty((len(rows), network.shape.width_out(number)), np.float32)
    for first in range(0, len(rows), batch):
        part = torch.from_numpy(np.array(rows[first : first + batch], np.float32)).to(network.device)
        out[first : first + batch] = layer.multiply(place, part, network.precision).cpu().numpy()
    return out
