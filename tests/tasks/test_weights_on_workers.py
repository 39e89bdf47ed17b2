"""Weights of edges on worker groups of 1, 2 and 4: the blocks, losses and predictions of one process."""

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch.distributed as dist

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import holdout_links, infer
from superworkflow.tasks.infer.on_workers import infer as infer_together
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.kv_store import KVStore
from superworkflow.tasks.lib.distributed.shards import Shards
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.distributed.dist_sampler import BatchRequest, DistNeighborSampler
from superworkflow.tasks.lib.gnn.distributed.worker_partition import WorkerPartition
from superworkflow.tasks.lib.gnn.edge_weights import weights_of
from superworkflow.tasks.lib.gnn.relations import LayerSchema, Relation
from superworkflow.tasks.lib.gnn.sampler.block import Block, lost_of
from superworkflow.tasks.lib.gnn.sampler.kernels import ALL_NEIGHBORS
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.train import STAGE
from superworkflow.tasks.train.on_workers import train
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.gnn_graphs import one_kind, two_kinds
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage
from tests.tasks.worker_graphs import Made

WORKERS = (2,)
PARAMS = {"hidden": 16, "epochs": 2, "lookahead": 2, "dropout": 0.3, "weight": "weight"}
DRAWS, TYPED = {"weighted": "draws"}, {"label": "paper.venue", "batch": 7}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sage": ("one", {"fanouts": "3,4", "batch": 8}),
    "sage, all": ("one", {"fanouts": "all,all", "batch": 8}),
    "pool": ("one", {"fanouts": "3,all", "batch": 8, "aggregator": "pool"}),
    "gcn": ("one", {"model": "gcn", "fanouts": "3,4", "batch": 8}),
    "gcn, summed once": ("one", {"model": "gcn", "fanouts": "2,all", "batch": "all"}),
    "rgcn": ("two", {**TYPED, "model": "rgcn", "fanouts": "4,3", "bases": 2}),
    "sage, draws": ("one", {**DRAWS, "fanouts": "3,4", "batch": 8}),
    "gcn, draws": ("one", {**DRAWS, "model": "gcn", "fanouts": "3,4", "batch": 8}),
    "gat, draws": ("one", {**DRAWS, "model": "gat", "heads": 4, "fanouts": "3,3", "batch": 8}),
    "means, draws": ("one", {**DRAWS, "fanouts": "3,all", "batch": 8}),
    "rgcn, draws": ("two", {**TYPED, **DRAWS, "model": "rgcn", "fanouts": "2,3"}),
    "links": ("links", {"fanouts": "4,all", "batch": 40}),
    "links, gcn": ("links", {"model": "gcn", "fanouts": "4,3", "batch": 40, "decoder": "distmult"}),
    "links, typed": ("typed links", {"fanouts": "3,3", "batch": 9}),
    "links, draws": ("links", {**DRAWS, "fanouts": "4,3", "batch": 40}),
}
Groups = dict[int, Callable[..., list[Any]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Made]:
    folder = tmp_path_factory.mktemp("weights")
    return {
        "one": Made(folder / "one", one_kind, weights=True), "two": Made(folder / "two", two_kinds, weights=True),
        "links": Made(folder / "links", linked, base=one_kind),
        "typed links": Made(folder / "typed-links", linked, base=two_kinds, edges="writes"),
    }  # fmt: skip


def linked(folder: Path, base: Any, **params: Any) -> Dataset:
    whole = base(folder.with_name(f"{folder.name}-whole"), weights=True)
    given = {"graph": whole.uri}
    return run_stage(holdout_links.STAGE, {"test_share": 0.2, "validation_share": 0.1, **params}, given, folder)


@pytest.fixture(scope="module")
def groups(tmp_path_factory) -> Iterator[Groups]:
    folder = tmp_path_factory.mktemp("groups")
    with contextlib.ExitStack() as stack:
        found = {}
        for size in WORKERS:
            logs = folder / str(size)
            logs.mkdir()
            progress = Progress("train", stream=io.StringIO())
            group = local_group([Role("worker", size)], Checkpoint(logs / "checkpoint"), progress, logs)
            found[size] = stack.enter_context(group).run
        yield found


def relations_of(graph: HeteroGraph) -> tuple[Relation, ...]:
    return tuple(Relation(j, each.name, each.source, each.target) for j, each in enumerate(graph.edge_sets.values()))


def draws_of(graph: HeteroGraph, fanouts: list[int]) -> Draws:
    names = tuple(graph.node_sets)
    return Draws([LayerSchema(names, relations_of(graph), names)] * len(fanouts), fanouts, False, frozenset(), 42)


def blocks_of(
    worker: Worker, graph_uri: str, shards_uri: str, fanouts: list[int], by: str, steps: list[list[Any]]
) -> list[Any]:  # fmt: skip
    """Edges that each worker draws around those targets that it owns, in one window, with weights; and bytes sent."""
    graph = HeteroGraph.open(Dataset.open(graph_uri))
    mine = WorkerPartition(worker, Shards(Dataset.open(shards_uri)))
    owners, relations = KVStore(mine.book, Exchange(dist.group.WORLD)), relations_of(graph)
    given = {by: mine.weights(graph, relations, "weight")} if by else {}
    store = DistNeighborSampler(mine.piece, owners, draws_of(graph, fanouts), {}, False, frozenset(), **given)
    window = []
    for name, nodes, step, lost in steps:
        targets = np.array(nodes, np.int64)
        own = targets[mine.book.owners(name, targets) == worker.rank]
        gone = {
            each.number: lost_of(graph.rows(each.name), np.array(lost[str(each.number)], np.int64))
            for each in relations if str(each.number) in lost
        }  # fmt: skip
        window.append(BatchRequest({name: own}, tuple(step), gone, len(nodes)))
    drawn = [[edges_of(block, relations) for block in batch.blocks] for batch, _ in store.batches(window)]
    return [drawn, sum(owners.exchange.sent.values())]


def edges_of(block: Block, relations: tuple[Relation, ...], weights: Any = None) -> list[tuple[Any, ...]]:
    """Edge set, position, receiver, sender, degree and weight of each edge; -1 for none."""
    found: list[tuple[Any, ...]] = []
    for number, hop in block.hops.items():
        receivers, senders = block.receivers[relations[number].receivers], block.senders[relations[number].senders]
        own = hop.weights
        if weights is not None and number in weights:
            own = weights[number][hop.positions]
        heavy = np.full(len(hop.positions), -1.0) if own is None else own
        places = np.repeat(np.arange(len(hop.degrees)), np.diff(hop.starts))
        columns = hop.positions, receivers[places], senders[hop.senders], hop.degrees[places], heavy
        found += [(number, *row) for row in zip(*(each.tolist() for each in columns), strict=True)]
    return found


@pytest.mark.parametrize("fanouts", [[3, 4], [2, ALL_NEIGHBORS], [ALL_NEIGHBORS, ALL_NEIGHBORS]], ids=str)
@pytest.mark.parametrize("by", ["weights", "drawn_by"])
@pytest.mark.parametrize("kind", ["one", "two"])
def test_all_blocks_together_are_those_of_one_process(groups: Groups, made, kind: str, by: str, fanouts: list[int]):
    """Edge by edge, with their weights where messages are multiplied by them; in the last step some edges are lost."""
    source, target = made[kind], {"one": "node", "two": "paper"}[kind]
    graph = HeteroGraph.open(source.graph)
    relations = relations_of(graph)
    weights = weights_of(graph, relations, "weight")
    assert len(weights) == {"one": 1, "two": 2}[kind]
    rows = {each.number: graph.rows(each.name) for each in relations}
    sampler = NeighborSampler(rows, {name: each.count for name, each in graph.node_sets.items()},
                              draws_of(graph, fanouts), weights if by == "drawn_by" else {})  # fmt: skip
    lost = {str(each): list(range(0, len(rows[each].indices), 3)) for each in weights}
    steps: list[list[Any]] = [
        [target, [5], [random_streams.TRAINING, 0, 0], {}],
        [target, [1, 7, 30, 31], [random_streams.TRAINING, 0, 1], {}],
        [target, list(range(0, 40, 2)), [random_streams.TRAINING, 0, 2], lost],
    ]
    alone = []
    for name, nodes, step, gone in steps:
        missing = {int(number): np.array(edges, np.int64) for number, edges in gone.items()}
        batch = sampler.batch({name: np.array(nodes)}, *step, lost=missing)
        multiplied = weights if by == "weights" else None
        alone.append([sorted(edges_of(block, relations, multiplied)) for block in batch.blocks])
    if by == "drawn_by" and fanouts[0] != ALL_NEIGHBORS:
        zeros = {(number, int(edge)) for number, each in weights.items() for edge in np.flatnonzero(each == 0)}
        assert zeros.isdisjoint(edge[:2] for blocks in alone for edge in blocks[-1])
    for size in WORKERS:
        results = groups[size](blocks_of, source.graph.uri, source.shards.uri, fanouts, by, steps)
        for index, blocks in enumerate(alone):
            for depth, wanted in enumerate(blocks):
                # A receiver that several workers have drawn around is there once for each of them.
                found = {tuple(edge) for drawn, _ in results for edge in drawn[index][depth]}
                assert sorted(found) == wanted, (size, index, depth)


def test_weights_cross_only_where_messages_are_multiplied_by_them(groups: Groups, made):
    """Half a word for each remote edge; draws by weight send as much as uniform draws."""
    source = made["one"]
    steps = [["node", list(range(90)), [random_streams.TRAINING, 0, 0], {}]]
    sent = {}
    for by in ("", "weights", "drawn_by"):
        results = groups[2](blocks_of, source.graph.uri, source.shards.uri, [ALL_NEIGHBORS, ALL_NEIGHBORS], by, steps)
        sent[by] = sum(size for _, size in results)
    assert sent[""] == sent["drawn_by"] < sent["weights"] < 1.25 * sent[""]


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_one_process(groups: Groups, made, case: str, tmp_path: Path):
    """For any partitioning; without the weights the losses differ."""
    kind, more = CASES[case]
    source, params = made[kind], {**PARAMS, **more}
    given = source.inputs(sums=source.sums) if case == "means, draws" else source.inputs()
    alone = run_stage(STAGE, params, given, tmp_path / "alone", 1)
    losses = losses_of(alone.local("losses.parquet"))
    plain = run_stage(STAGE, {**params, "weight": ""}, source.inputs(), tmp_path / "plain", 1)
    assert np.abs(np.subtract(losses_of(plain.local("losses.parquet")), losses)).max() > 1e-3
    for size in WORKERS:
        output, whole = tmp_path / str(size), TrainParams(**params).model_dump(mode="json")
        sums = source.sums.uri if case == "means, draws" else ""
        results = groups[size](train, whole, source.graph.uri, source.shards.uri, sums, str(output))
        assert losses_of(output / "losses.parquet") == pytest.approx(losses, abs=2e-5), size
        assert results[0]["facts"].keys() == alone.stats.keys()


def losses_of(path: Path) -> list[float]:
    found: list[float] = pq.read_table(path)["loss"].to_pylist()
    return found


@pytest.mark.parametrize("case", ["sage, all", "pool", "gcn", "rgcn", "sage, draws"])
def test_predictions_are_those_of_one_process(groups: Groups, made, case: str, tmp_path: Path):
    kind, more = CASES[case]
    source = made[kind]
    network = run_stage(STAGE, {**PARAMS, **more, "epochs": 1}, source.inputs(), tmp_path / "train")
    alone = run_stage(infer.STAGE, {"batch": 7}, source.inputs(network=network), tmp_path / "alone")
    for size in WORKERS:
        output = tmp_path / str(size)
        given = [{"batch": 7}, source.graph.uri, network.uri, source.shards.uri, network.uri, str(output)]
        groups[size](infer_together, *given)
        for name, column in (("embeddings.parquet", "vector"), ("predictions.parquet", "probability")):
            one, other = alone.table(name), pq.read_table(output / name)
            assert one["node"].to_pylist() == other["node"].to_pylist()
            wanted = np.array(one[column].to_pylist())
            assert np.array(other[column].to_pylist()) == pytest.approx(wanted, abs=1e-5), size


@pytest.mark.parametrize(
    ("name", "lie", "words"),
    [
        pytest.param("length", None, "edges have no such feature.*They have: weight", marks=pytest.mark.slow),
        ("weight", np.nan, "n001 to n003: a weight is not negative, and finite"),
        pytest.param(
            "weight", 1e300, r"n001 to n003: a weight is not negative, and finite \(got inf\)", marks=pytest.mark.slow
        ),
        pytest.param("kind", None, r"a weight is one number for each edge \(got 'string", marks=pytest.mark.slow),
    ],
)
def test_what_is_no_weight_is_refused_as_in_one_process(tmp_path: Path, name: str, lie: float | None, words: str):
    """By the worker that owns the edge."""
    rows = [(f"n{u:03}", f"n{(u + step) % 12:03}") for u in range(12) for step in (1, 2, 5)]
    weights = np.ones(len(rows))
    if lie is not None:
        weights[rows.index(("n001", "n003"))] = lie

    def make(folder: Path) -> Dataset:
        features = {"weight": weights} | ({"kind": ["a"] * len(rows)} if name == "kind" else {})
        nodes = {"label": [f"k{u % 2}" for u in range(12)], "x": np.ones((12, 1), np.float32)}
        return write_heterograph(
            folder, {"node": Nodes([f"n{u:03}" for u in range(12)], nodes)},
            {"edge": Edges("node", "node", rows, features)},
        )  # fmt: skip

    source, given = Made(tmp_path / "made", make), {**PARAMS, "fanouts": "2,2", "weight": name}
    with pytest.raises(UserError, match=words):
        run_stage(STAGE, given, source.inputs(), tmp_path / "alone")
    resources = Resources.model_validate({"workers": {"count": 2, "cpu": 1, "memory": "1Gi"}})
    with pytest.raises(UserError, match=words):
        execute(STAGE, given, source.inputs(shards=source.shards), str(tmp_path / "workers"), resources,
                Progress("train", stream=io.StringIO()), "workers")  # fmt: skip
