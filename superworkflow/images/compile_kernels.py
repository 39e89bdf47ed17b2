"""Compile the kernels of all stages by running each once on small graphs.

Run as `python -m superworkflow.images.compile_kernels`.

Numba caches them in `NUMBA_CACHE_DIR` or next to their modules, where later processes find them.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.heterograph import NODE_SET
from superworkflow.tasks.lib.distributed.kernels import copy_rows
from superworkflow.tasks.lib.distributed.kv_store import RemoteRows
from superworkflow.tasks.lib.gnn.distributed.edge_split import divided
from superworkflow.tasks.lib.gnn.distributed.kernels import place_edges, place_in_rows, rename
from superworkflow.tasks.lib.gnn.distributed.partial_sums import PartialSumSource
from superworkflow.tasks.lib.gnn.features import features_of
from superworkflow.tasks.lib.gnn.model.dropout import NOTHING
from superworkflow.tasks.lib.gnn.model.mean_kernels import (
    gather_means,
    gather_rows,
    mean_rows,
    spread_back,
    transpose,
)
from superworkflow.tasks.lib.gnn.model.remote_rows import RemoteRowsPart, SharedMeansPart
from superworkflow.tasks.lib.gnn.precomputed_means import GCN, sums_of
from superworkflow.tasks.lib.gnn.relations import LayerSchema, Relation
from superworkflow.tasks.lib.gnn.sampler.kernels import (
    Renumbered,
    count_draws,
    draw_edges,
    fill_masks,
    spread_edges,
    sum_edges,
)
from superworkflow.tasks.lib.gnn.sampler.links import links_of
from superworkflow.tasks.lib.gnn.sampler.negative_sampling import PAIRS, draw_negatives, edges_between
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler, order_of
from superworkflow.tasks.lib.gnn.sampler.weighted_draws import ByWeight
from superworkflow.tasks.lib.gnn.sampler.weighted_kernels import spread_weighted, sum_weighted
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.lib.graph.short_paths import ShortPaths
from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.bfloat16 import BFLOAT16, DTYPES, FLOAT32
from superworkflow.tasks.lib.kernels.float16 import as_read
from superworkflow.tasks.lib.kernels.largest import largest_of_rows
from superworkflow.tasks.lib.kernels.transposed_products import by_tiles, transposed_product
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.partitioned.members import EdgeRequest
from superworkflow.tasks.sample.partitioned.plan import Routes, plan_of
from superworkflow.tasks.sample.partitioned.requester import ShardRequest
from superworkflow.tasks.sample.partitioned.responder import answer, join
from superworkflow.tasks.sample.spec import parse_spec
from superworkflow.tasks.train_full.dropped import Dropout
from superworkflow.tasks.train_full.layer_tasks import IntervalState
from superworkflow.tasks.train_full.sparse_inputs import FirstInputs, as_inputs
from superworkflow.tasks.train_full.vertex_order import Interval, Parts, even_order
from superworkflow.tasks.train_full.whole_graph import WholeGraph
from superworkflow.tasks.train_full.whole_layers import WholeGat, WholeGcn, WholeLayer
from superworkflow.tasks.train_full.whole_network import WholeNetwork
from superworkflow.tasks.walk.kernels import edge_filter_size, triangles

_VERTICES = 200


def compile_for_walks(folder: Path) -> None:
    """Compile kernels of walks and embeddings, on graphs with and without weights that are made in this folder."""
    for weighted in (False, True):
        here = folder / ("weighted" if weighted else "unweighted")
        here.mkdir()
        edges = here / "edges.csv"
        pairs = [(u, (u + step * step) % _VERTICES, step) for u in range(_VERTICES) for step in range(1, 9)]
        edges.write_text("".join(f"v{u},v{v}" + f",{weight}" * weighted + "\n" for u, v, weight in pairs))
        graph = _make("index", {}, here / "index", edges=edges)
        holdout = _make("holdout", {}, here / "holdout", graph=graph)
        colours = _make("colour", {}, here / "colour", graph=graph)
        _make("components", {}, here / "components", graph=graph, colours=colours)
        walks = [_make("walk", {"q": q, "num_walks": 1}, here / f"walk-{q}", graph=graph) for q in (1.0, 2.0)]
        with _as_on_large_graphs():
            _make("walk", {"q": 2.0, "num_walks": 1}, here / "walk-large", graph=graph)
        vocabulary = _make("prepare", {}, here / "prepare", graph=graph, walks=walks[0])
        given = {"graph": graph, "walks": walks[0], "vocabulary": vocabulary}
        vectors = _make("embed", {"dimensions": 16}, here / "embed", **given)
        (rows := here / "labels.csv").write_text("node,label\n" + "".join(f"v{u},{u % 4}\n" for u in range(_VERTICES)))
        labels = _make("label", {}, here / "label", graph=graph, labels=rows)
        given = {"graph": graph, "embeddings": vectors, "labels": labels}
        _make("evaluate", {"shuffles": 1}, here / "evaluate", **given, holdout=holdout, holdout_embeddings=vectors)


def compile_for_typed_graphs(folder: Path) -> None:
    """Compile kernels of subgraphs and of training on graphs, which are made in this folder."""
    _make_subgraphs(folder / "subgraphs")
    _make_homogeneous(folder / "homogeneous")


@contextlib.contextmanager
def _as_on_large_graphs() -> Iterator[None]:
    """Within the block, walks have the tables, and so the kernels, that they have on more than some 20,000 vertices."""
    kept = edge_filter_size.MATRIX_BYTES, triangles.WORTH
    edge_filter_size.MATRIX_BYTES, triangles.WORTH = 0, 0.0
    try:
        yield
    finally:
        edge_filter_size.MATRIX_BYTES, triangles.WORTH = kept


def _make_subgraphs(folder: Path) -> None:
    """Subgraphs of a typed graph whose nodes have features of each kind, their records, and what they are worth."""
    folder.mkdir()
    edges = [f"v{u},v{(u + step * step) % _VERTICES}\n" for u in range(_VERTICES) for step in range(1, 9)]
    (folder / "edges.csv").write_text("source,target\n" + "".join(edges))
    (folder / "nodes.csv").write_text("id,x,y,z\n" + "".join(f"v{u},{u}.5,{u % 3},t{u}\n" for u in range(_VERTICES)))
    kinds = {"x": "FLOAT", "y": "INT64", "z": "STRING"}
    features = " ".join(f'features {{ key: "{name}" value {{ dtype: DT_{kind} }} }}' for name, kind in kinds.items())
    value = 'source: "node" target: "node" metadata { filename: "edges.csv" }'
    (folder / "schema.pbtxt").write_text(
        f'node_sets {{ key: "node" value {{ {features} metadata {{ filename: "nodes.csv" }} }} }}\n'
        f'edge_sets {{ key: "edge" value {{ {value} }} }}\n'
    )
    spec = folder / "spec.pbtxt"
    spec.write_text(
        'seed_op { op_name: "seed" node_set_name: "node" }\n'
        'sampling_ops { op_name: "hop" input_op_names: "seed" edge_set_name: "edge" sample_size: 2 '
        "strategy: RANDOM_UNIFORM }\n"
    )
    graph = _make("heterograph", {}, folder / "heterograph", graph=folder)
    subgraphs = _make("sample", {}, folder / "sample", graph=graph, spec=spec)
    _compile_parts(HeteroGraph.open(Dataset.open(graph)), spec, folder)
    _make("aggregate", {}, folder / "aggregate", graph=graph)
    _make("holdout_links", {}, folder / "holdout_links", graph=graph)
    divided = _make("partition", {"parts": 2}, folder / "partition", graph=graph)
    _make("shard", {}, folder / "shard", graph=graph, partition=divided)
    _compile_batches(HeteroGraph.open(Dataset.open(graph)))
    _make("records", {}, folder / "records", graph=graph, subgraphs=subgraphs)
    _make("probe", {"label": "node.y"}, folder / "probe", graph=graph, subgraphs=subgraphs)


def _make_homogeneous(folder: Path) -> None:
    """Heterographs of edge lists, with features and labels: names as text and as numbers, without and with weights."""
    for name, text, weighted in (("text", "v", False), ("numbers", "", False), ("weighted", "v", True)):
        (here := folder / name).mkdir(parents=True)
        pairs = [(u, (u + step * step) % _VERTICES, step) for u in range(_VERTICES) for step in range(1, 9)]
        header = "source,target" + ",weight" * weighted + "\n"
        rows = "".join(f"{text}{u},{text}{v}" + f",{weight}" * weighted + "\n" for u, v, weight in pairs)
        (edges := here / "edges.csv").write_text(header + rows)
        rows = "".join(f"{text}{u},{u}.5,{u % 7}\n" for u in range(_VERTICES))
        (features := here / "features.csv").write_text("node,x,y\n" + rows)
        rows = "".join(f"{text}{u},{u % 4}\n" for u in range(_VERTICES))
        (labels := here / "labels.csv").write_text("node,label\n" + rows)
        graph = _make("heterograph", {}, here / "graph", edges=edges, features=features, labels=labels)
        _make("baselines", {}, here / "baselines", graph=graph)
        _make("aggregate", {}, here / "aggregate", graph=graph)
    sums = _make("aggregate", {"form": "gcn"}, here / "sums", graph=graph)
    _compile_whole_graph(HeteroGraph.open(Dataset.open(graph)), Dataset.open(sums))


class _Squares:
    """A loss without labels."""

    def loss(self, interval: Interval, scores: NDArray[np.float32]) -> tuple[float, NDArray[np.float32]]:
        return float((scores**2).sum()), 2 * scores


def _compile_whole_graph(graph: HeteroGraph, sums: Dataset) -> None:
    """Kernels of full-graph training, without torch, which the compiling image lacks."""
    (edges,) = graph.edge_sets
    features = features_of(graph, NODE_SET)
    assert features is not None
    parts = Parts(np.arange(_VERTICES)[::-1], np.array([0, _VERTICES]))
    whole = WholeGraph.of_rows(graph.rows(edges), even_order(graph.rows(edges), 2, parts))
    width, halves = features.shape[1], read_only(features.astype(np.float16))
    layers: list[tuple[bool, FirstInputs, list[WholeLayer]]] = []
    for precision in DTYPES:
        short = precision == BFLOAT16
        gcn = as_inputs(sums_of(sums, graph, 0, features.shape, GCN), short)
        layers.append((False, gcn, [WholeGcn(whole, width, precision, number > 0) for number in range(2)]))
        layers += [
            (True, as_inputs(each, short), [WholeGat(whole, 1, width, precision) for _ in range(2)])
            for each in (read_only(features.astype(np.float32)), halves)
        ]
    few = as_inputs(np.zeros(features.shape, np.float32), False)
    layers.append((False, few, [WholeGcn(whole, width, FLOAT32, number > 0) for number in range(2)]))
    one, matrix = np.ones((1, width), np.float32), np.ones((width, width), np.float32)
    weights = {"linear.weight": matrix, "linear.bias": one[0], "bias": one[0], "of_senders": one, "of_receivers": one}
    for attends, inputs, made in layers:
        network = WholeNetwork(whole, made, inputs, _Squares(), Dropout(0.5, 0), attends, whole.all_places())
        states = [IntervalState() for _ in whole.intervals]
        for program in (network.training, network.validation):
            for task in program:
                for interval, state in zip(whole.intervals, states, strict=True):
                    network.execute(task, interval, 0, [weights, weights], state)


def _compile_parts(graph: HeteroGraph, spec: Path, folder: Path) -> None:
    """Kernels that tasks of a partitioned sample call, without their engine."""
    fitted = parse_spec(spec.read_text(), str(spec)).fitted(graph.node_sets, graph.edge_sets)
    plan = plan_of(graph, fitted, SampleParams(), TaskOutputs(str(folder)), str(folder / "rows"))
    plan = replace(plan, cuts=(np.array([0, _VERTICES]),))
    routes, nodes, count = Routes.shared([np.array([_VERTICES])], 1), np.arange(_VERTICES), np.array([_VERTICES])
    none, links = np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
    for _ in answer(plan, routes, 0, [ShardRequest(0, 0, np.zeros(1, np.uint64), none, links, count, nodes, none)]):
        pass
    for _ in join(plan, routes, 0, [EdgeRequest(0, links, count, nodes, count, nodes)]):
        pass


def _compile_batches(graph: HeteroGraph) -> None:
    """Kernels that training calls for a batch, without torch, which the compiling image lacks."""
    level = LayerSchema(("node",), (Relation(0, "edge", "node", "node"),), ("node",))
    sampler = NeighborSampler({0: graph.rows("edge")}, {"node": _VERTICES}, Draws([level], [2], False, frozenset(), 0))
    (block,) = sampler.batch({"node": order_of(np.arange(_VERTICES), 0, 0)}, 0, 0, 0).blocks
    starts, senders = read_only(block.hops[0].starts), read_only(block.hops[0].senders)
    rows, out = np.ones((len(block.senders["node"]), 1), np.float32), np.empty((_VERTICES, 1), np.float32)
    spread_edges(read_only(out), starts, senders, rows)
    weights = read_only(np.ones(len(senders), np.float32))
    sum_weighted(read_only(rows), starts, senders, weights, out)
    spread_weighted(read_only(out), starts, senders, weights, rows)
    by_weight = {0: np.ones(len(graph.rows("edge").indices), np.float32)}
    draws = Draws([level], [2], False, frozenset(), 0)
    NeighborSampler({0: graph.rows("edge")}, {"node": _VERTICES}, draws, by_weight).batch(
        {"node": np.arange(3)}, 0, 0, 0
    )
    fill_masks(block.senders["node"], 1, np.uint64(0), rows)
    indptr, indices = map(read_only, graph.rows("edge"))
    table, positions = read_only(rows), read_only(block.hops[0].positions)
    short_rows, short_out = np.zeros(rows.shape, np.int16), np.zeros(out.shape, np.int16)  # bits of bfloat16
    for values in (table, read_only(as_read(rows.astype(np.float16)))):
        sum_edges(values, starts, senders, out)
        for filled in (out, short_out):
            gather_rows(values, read_only(block.receivers["node"]), 0, np.uint64(0), filled, 0)
            gather_means(values, indices, positions, starts, 0, np.uint64(0), filled, 0)
    begins, receivers = np.zeros(len(rows) + 2, np.int64), np.empty(len(senders), np.int32)
    transpose(starts, senders, begins, receivers)
    by_sender = starts, read_only(begins), read_only(receivers)
    _compile_means(rows, out, starts, senders, by_sender)
    _compile_means(short_rows, short_out, starts, senders, by_sender)
    if by_tiles():
        transposed_product(short_rows, short_rows)
    order, nodes = read_only(np.arange(_VERTICES, dtype=np.int32)), np.arange(_VERTICES)
    starts, marks = np.empty(_VERTICES + 1, np.int64), np.zeros(_VERTICES, np.uint64)
    part, lost = Renumbered(order, read_only(indptr[:-1])), read_only(np.empty(0, np.int64))
    given = (2, False, np.uint64(0), lost, starts, part)
    count_draws(indptr, indices, nodes, *given)
    draw_edges(indptr, indices, nodes, read_only(nodes), *given, marks, np.empty(2 * _VERTICES, np.int64))
    of_part = nodes, read_only(nodes), 2, np.uint64(0), lost, starts, part
    ByWeight({0: graph.rows("edge")}, by_weight, [2]).positions(0, *of_part)
    _compile_parts_of_rows(indptr, indices, nodes)
    edges, ends, found = CsrRows(*map(read_only, graph.rows("edge"))), read_only(np.arange(2)), np.empty(2, np.int64)
    edges_between(*edges, ends, ends, found, found.copy())
    links = read_only(links_of(edges, True))
    pairs, sides = np.empty((2, 2), np.int64), read_only(np.empty(0, np.int8))
    draw_negatives(*edges, True, _VERTICES, links, PAIRS, ends, 1, np.uint64(0), pairs, sides)
    paths, worth = ShortPaths(links, _VERTICES), np.ones(_VERTICES)
    paths.of_pairs(worth, links)
    paths.from_nodes(worth, links[:1, 0])
    largest_of_rows(out, np.empty((_VERTICES, 1), np.int64))


def _compile_means(
    rows: NDArray[Any],
    out: NDArray[Any],
    starts: NDArray[Any],
    senders: NDArray[Any],
    by_sender: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
) -> None:
    mean_rows(read_only(rows), starts, senders, out, 0)
    spread_back(read_only(out), 0, 0, *by_sender, read_only(rows), False, rows.copy())


def _compile_parts_of_rows(indptr: NDArray[np.int64], indices: NDArray[Any], nodes: NDArray[np.int64]) -> None:
    """Kernels of a worker with a part: one of two that has the first half of the nodes."""
    table, half = np.ones((_VERTICES // 2, 1), np.float32), _VERTICES // 2
    numbers, starts, senders = np.arange(half, dtype=np.int32), indptr.copy(), np.arange(len(indices))
    place_in_rows(indptr, nodes, indptr[:-1], starts, senders.copy(), senders)
    rename(indices, senders)
    rename(read_only(np.arange(_VERTICES, dtype=np.int32)), senders)
    for values in (senders, np.ones(len(senders), np.float32)):
        place_edges(nodes, starts, read_only(values), values.copy())
    edges = divided("node", starts, senders, np.array([0, half, _VERTICES]), 0, np.empty)
    requested = read_only(np.array([~half]))
    sums = PartialSumSource(table, half, numbers, NOTHING)
    sums.write(requested, out := np.empty(1, np.float32))
    order, _ = edges.remote.route
    means = SharedMeansPart(table, numbers, edges.own_starts, edges.own, np.ones(len(order), np.float32),
                            edges.sum_starts, ~order, starts)  # fmt: skip
    means.fill(np.empty((_VERTICES, 1), np.float32), 0)
    copy_rows(read_only(table), nodes[:1].copy(), out)
    remote = RemoteRows(table, out, np.zeros(1, np.int64))
    remote.rows()
    RemoteRowsPart(remote, remote.where, NOTHING).fill(np.empty((1, 1), np.float32), 0)


def _make(stage: str, params: dict[str, Any], output: Path, **inputs: Path) -> Path:
    given = {name: str(path) for name, path in inputs.items()}
    execute(load_stage(stage), params, given, str(output), Resources(), Progress(stage, stream=sys.stdout))
    return output


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, ProcessPoolExecutor(2, get_context("spawn")) as processes:
        parts = [processes.submit(part, Path(made)) for part in (compile_for_typed_graphs, compile_for_walks)]
        for part in parts:
            part.result()
