"""Partition and shards: few edges cut, the same for every number of workers, and nothing of the graph is lost."""

import io
import json
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.contract.stage import Estimate, Progress, Resources
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks import holdout_links, partition, shard
from superworkflow.tasks.heterograph import STAGE as HETEROGRAPH
from superworkflow.tasks.lib.distributed.partition import NodePartition
from superworkflow.tasks.lib.distributed.shards import SHARDS_FILE, Shards
from superworkflow.tasks.lib.gnn.features import features_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.partition.clusters import divide
from superworkflow.tasks.partition.graph import Symmetric, binding, constraints_of, symmetric
from superworkflow.tasks.partition.metis import bisect
from superworkflow.tasks.partition.run import bisection_imbalance
from tests.tasks.gnn_graphs import one_kind, two_kinds
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage
from tests.tasks.planetoid import write_planetoid

GPMETIS = "/usr/bin/gpmetis"


@pytest.fixture(scope="module", params=[one_kind, two_kinds])
def graph(request, tmp_path_factory) -> Dataset:
    return request.param(tmp_path_factory.mktemp("partition") / "graph", weights=request.param is two_kinds)


def divided(graph: Dataset, folder: Path, parts: int | str = 4, **params) -> Dataset:
    given = {"graph": graph.uri}
    return run_stage(partition.STAGE, {"parts": parts, **params}, given, folder)


def sharded(graph: Dataset, parts: Dataset, folder: Path) -> Dataset:
    given = {"graph": graph, "partition": parts}
    return run_stage(shard.STAGE, {}, {name: each.uri for name, each in given.items()}, folder)


@pytest.mark.parametrize("method", ["metis", "contiguous"])
def test_one_order_serves_every_number_of_workers(graph: Dataset, method: str, tmp_path: Path):
    """Parts are contiguous; what is said of each level is what a plain count finds; the order can be inverted."""
    made = divided(graph, tmp_path / "one", 8, method=method)
    typed = HeteroGraph.open(graph)
    parts = NodePartition.open(made, typed)
    assert parts.count == 8
    part_of = {}
    for number, (name, order) in enumerate(parts.orders.items()):
        part_of[name] = np.empty(len(order), int)
        part_of[name][order] = np.repeat(np.arange(8), np.diff(parts.book[number]))
        assert sorted(order.tolist()) == list(range(typed.node_sets[name].count))
        assert all((np.diff(order[low:high]) > 0).all() for low, high in pairwise(parts.book[number]))
    document = made.json("partition.json")
    for level in document["levels"]:
        shift = 8 // level["parts"]
        cut, halo = 0, set()
        for edges in typed.edge_sets.values():
            indptr, indices = typed.rows(edges.name)
            sources = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
            ours, theirs = part_of[edges.source][sources] // shift, part_of[edges.target][indices] // shift
            cut += int((ours != theirs).sum())
            crossing = zip(ours[ours != theirs], indices[ours != theirs], strict=True)
            halo |= {(edges.target, *map(int, pair)) for pair in crossing}
        assert (level["cut"], level["halo"]) == (cut, len(halo))
    assert [level["parts"] for level in document["levels"]] == [1, 2, 4, 8]
    assert made.stats["cut.2"] == document["levels"][1]["cut"]
    again = divided(graph, tmp_path / "two", 8, method=method)
    assert {f.path: f.sha256 for f in made.manifest.files} == {f.path: f.sha256 for f in again.manifest.files}


def test_shards_have_the_whole_graph_once(graph: Dataset, tmp_path: Path):
    """Whatever range of parts is read: rows in their order, where they begin, and all features, in old numbers."""
    typed = HeteroGraph.open(graph)
    parts = divided(graph, tmp_path / "parts")
    shards = Shards(sharded(graph, parts, tmp_path / "shards"))
    orders = NodePartition.open(parts, typed).orders
    numbers_of = {
        name: {each.name: each.width for each in edges.features if each.dtype != "string" and not each.is_ragged}
        for name, edges in typed.edge_sets.items()
    }
    assert {each.name: dict(zip(each.features, each.widths, strict=True)) for each in shards.edge_sets} == numbers_of
    for workers in (1, 3, 4):
        seen = dict.fromkeys(typed.node_sets, 0)
        for first, last in pairwise(shards.bounds(workers).tolist()):
            piece = shards.piece(first, last)
            for name, numbers in piece.numbers.items():
                assert (numbers == orders[name][piece.low[name] : piece.high[name]]).all()
                assert (orders[name][piece.halo[name]] == piece.halo_numbers[name]).all()
                seen[name] += len(numbers)
                features = features_of(typed, name)
                assert (features is None) == (name not in piece.features)
                assert features is None or (piece.features[name] == features[numbers]).all()
            for number, edges in enumerate(typed.edge_sets.values()):
                indptr, indices = typed.rows(edges.name)
                rows, mine, target = piece.rows[number], piece.numbers[edges.source], edges.target
                assert (piece.first[number] == indptr[mine]).all()
                for row, old in enumerate(mine):
                    near = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
                    assert (orders[target][near] == indices[indptr[old] : indptr[old + 1]]).all()
                for name, width in numbers_of[edges.name].items():
                    found = shards.edge_feature(number, name, first, last, rows.indptr)
                    whole = typed.edge_feature(edges.name, name).reshape(-1, width)
                    wanted = [whole[indptr[old] : indptr[old + 1]] for old in mine]
                    assert found.dtype == np.float32
                    assert (found == np.concatenate(wanted).astype(np.float32)).all()
                ends = set(rows.indices.tolist())
                own = set(range(piece.low[target], piece.high[target]))
                assert ends <= own | set(piece.halo[target].tolist())
        assert seen == {name: each.count for name, each in typed.node_sets.items()}
    with pytest.raises(UserError, match="more workers than the graph's 4 parts"):
        shards.bounds(5)


@pytest.fixture(scope="module", params=["cora", "citeseer"])
def real(request, shared_data, tmp_path_factory) -> Dataset:
    folder = tmp_path_factory.mktemp(request.param)
    tables = write_planetoid(shared_data / "planetoid", request.param, folder / "tables")
    return run_stage(HETEROGRAPH, {}, {"graph": str(tables)}, folder / "graph")


@pytest.mark.skipif(not Path(GPMETIS).exists(), reason="Debian's package metis is not installed")
@pytest.mark.parametrize("parts", [2, 8])
def test_cuts_no_more_than_gpmetis(real: Dataset, parts: int, tmp_path: Path):
    """With the same constraints, by recursive bisection too; summed over three seeds, since each is luck."""
    typed = HeteroGraph.open(real)
    rows = symmetric(typed)
    used = binding(constraints_of(typed), parts, 1.05)
    weights = np.stack([each.weights["paper"] for each in used], axis=1)
    heavy = np.ones(len(rows.adjacency), int) if rows.weights is None else rows.weights
    lines = [f"{len(weights)} {len(rows.adjacency) // 2} 011 {len(used)}"]
    for v in range(len(weights)):
        near = range(int(rows.starts[v]), int(rows.starts[v + 1]))
        lines.append(" ".join(map(str, [*weights[v], *(x for e in near for x in (rows.adjacency[e] + 1, heavy[e]))])))
    (tmp_path / "graph").write_text("\n".join(lines) + "\n")
    ends = np.repeat(np.arange(len(weights)), np.diff(rows.starts))

    def cut_of(part_of: np.ndarray) -> int:
        return int(heavy[part_of[ends] != part_of[rows.adjacency]].sum())

    ours, theirs, each = 0, 0, bisection_imbalance(1.05, parts)
    for seed in (1, 2, 3):
        made = divided(real, tmp_path / f"ours-{seed}", parts, seed=seed)
        found = NodePartition.open(made, typed)
        part_of = np.empty(len(weights), int)
        part_of[found.orders["paper"]] = np.repeat(np.arange(parts), np.diff(found.book[0]))
        ours += cut_of(part_of)
        assert made.stats["imbalance"] < 1.07
        command = [GPMETIS, "-ptype=rb", f"-seed={seed}", f"-ubvec={' '.join([str(each)] * len(used))}"]
        subprocess.run([*command, "graph", str(parts)], cwd=tmp_path, check=True, capture_output=True)
        theirs += cut_of(np.loadtxt(tmp_path / f"graph.part.{parts}", dtype=int))
    assert ours <= 1.05 * theirs


@pytest.mark.parametrize("isolated", [0, 9000])
def test_clusters_of_a_large_graph_are_divided_and_evened_out(tmp_path: Path, isolated: int):
    """METIS is given a graph of clusters, and cuts no more than of the graph itself; parts are within their bounds.

    Nodes without edges, which are in no cluster, do not count.
    """
    rng = np.random.default_rng(3)
    nodes, communities, parts, pairs = 6000, 60, 8, 60_000
    one = rng.integers(0, nodes, pairs)
    near = one // (nodes // communities) * (nodes // communities) + rng.integers(0, nodes // communities, pairs)
    other = np.where(rng.random(pairs) < 0.8, near, rng.integers(0, nodes, pairs))
    ends = np.unique(np.concatenate([np.stack([one, other], 1), np.stack([other, one], 1)]), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    nodes += isolated
    starts = np.concatenate([[0], np.cumsum(np.bincount(ends[:, 0], minlength=nodes))])
    rows = Symmetric(starts, ends[:, 1].astype(np.int32), None)
    weights = np.stack([np.ones(nodes), rng.random(nodes) < 0.1, np.diff(starts)], 1).astype(np.int32)
    each, logged = bisection_imbalance(1.05, parts), io.StringIO()
    alone, by_clusters, again = (
        divide(rows, weights, parts, 1.05, each, 1, tmp_path, Progress("test", stream=logged), most)
        for most in (len(ends), 20_000, 20_000)
    )
    assert "clusters, " in logged.getvalue()
    assert by_clusters.tolist() == again.tolist()
    cuts = [(found[ends[:, 0]] != found[ends[:, 1]]).sum() for found in (alone, by_clusters)]
    assert cuts[1] <= 1.05 * cuts[0]
    loads = np.stack([np.bincount(by_clusters, weights[:, c], parts) for c in range(3)], 1)
    assert (loads <= 1.05 * weights.sum(0) / parts + 1).all()


def test_bisecting_returns_to_the_working_directory(tmp_path: Path):
    """METIS names the files in which large graphs wait by the working directory, which is the scratch folder then."""
    here, ring = Path.cwd(), np.arange(64)
    adjacency = np.stack([(ring - 1) % 64, (ring + 1) % 64], axis=1).astype(np.int32).reshape(-1)
    starts, ones = np.arange(0, 129, 2), np.ones((64, 1), np.int32)
    parts, cut = bisect(starts, adjacency, None, ones, 2, 1.05, 1, tmp_path)
    assert cut == 2
    assert np.bincount(parts).tolist() == [32, 32]
    assert Path.cwd() == here
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("parts", [0, 3, 2048, "many"])
def test_refuses_what_is_no_power_of_two(parts):
    with pytest.raises(UserError, match="parts"):
        parse_params(partition.PartitionParams, {"parts": parts}, "partition")


def test_parts_by_the_size_of_the_graph():
    params = partition.PartitionParams()
    assert [params.parts_of(nodes) for nodes in (1, 5, 60, 10**6, 10**9)] == [1, 4, 8, 32, 256]


def test_plans_count_the_entries_that_the_stage_counts(tmp_path: Path):
    """Edge sets with and without a reverse, an edge list, and the rest of a graph when links are held out."""
    rng = np.random.default_rng(4)
    pairs = sorted({(min(u, v), max(u, v)) for u, v in rng.integers(0, 60, (300, 2)).tolist() if u != v})
    names = [f"n{number:02}" for number in range(60)]
    cites = Edges("paper", "paper", [(names[u], names[v]) for u, v in pairs])
    papers, back = {"paper": Nodes(names)}, Edges("paper", "paper", reversed_of="cites")
    (tmp_path / "edges.csv").write_text("".join(f"{u},{v}\n" for u, v in pairs))
    graphs = {
        "one way": write_heterograph(tmp_path / "one-way", papers, {"cites": cites}),
        "both ways": write_heterograph(tmp_path / "both-ways", papers, {"cites": cites, "back": back}),
        "edge list": run_stage(HETEROGRAPH, {}, {"edges": str(tmp_path / "edges.csv")}, tmp_path / "list"),
    }
    for name in list(graphs):
        given = {"graph": graphs[name].uri}
        graphs[f"{name}, rest"] = run_stage(holdout_links.STAGE, {}, given, tmp_path / f"{name}-rest")
    for name, graph in graphs.items():
        entries = len(symmetric(HeteroGraph.open(graph)).adjacency)
        assert partition.entries_of(graph.stats) == entries, name
        whole = graphs[name.removesuffix(", rest")].stats
        planned = holdout_links.STAGE.estimate(holdout_links.HoldoutLinksParams(), {"graph": whole}, Resources()).stats
        assert "rest" not in name or partition.entries_of(planned) == pytest.approx(entries, abs=4), name


def test_plans_take_the_branch_that_the_stage_takes():
    """With six million edges one way METIS would have more entries than it is given; without that fact one an edge."""

    def estimated(**facts: int) -> Estimate:
        return partition.STAGE.estimate(partition.PartitionParams(), {"graph": {"nodes": 10**6, **facts}}, Resources())

    one_way = estimated(edges=6_000_000, reversed_edges=0)
    assert one_way == replace(estimated(edges=12_000_000, reversed_edges=6_000_000), cpu_s=one_way.cpu_s,
                              mapped_bytes=one_way.mapped_bytes, stats=one_way.stats)  # fmt: skip
    both_ways = estimated(edges=6_000_000, reversed_edges=3_000_000)
    assert both_ways.memory_bytes == estimated(edges=6_000_000).memory_bytes
    assert both_ways.memory_bytes > one_way.memory_bytes  # of METIS's graph, which is not of clusters


def test_refuses_more_parts_than_nodes(tmp_path: Path):
    with pytest.raises(UserError, match="more parts than the graph's 55 nodes"):
        divided(two_kinds(tmp_path / "graph"), tmp_path / "parts", 64)


def test_refuses_what_belongs_to_another_graph(tmp_path: Path):
    one, two = one_kind(tmp_path / "one"), two_kinds(tmp_path / "two")
    with pytest.raises(UserError, match="parts of another graph"):
        sharded(two, divided(one, tmp_path / "parts"), tmp_path / "shards")
    with pytest.raises(UserError, match=r"no shards\.json"):
        Shards(one)


def test_refuses_damaged_parts_and_shards(tmp_path: Path):
    """Files that match the manifest's sums may be wrong all the same: a writer to the store can write both."""
    graph = one_kind(tmp_path / "graph")
    typed = HeteroGraph.open(graph)
    parts = divided(graph, tmp_path / "parts")
    shards = sharded(graph, parts, tmp_path / "shards")
    order, book = parts.array("nodes-0-order.npy"), parts.array("book.npy")
    twice, swapped, short = order.copy(), order.copy(), book.copy()
    twice[0], swapped[[0, 1]], short[0, -1] = twice[1], swapped[[1, 0]], 1
    for name, values in (("nodes-0-order.npy", twice), ("nodes-0-order.npy", swapped), ("book.npy", short)):
        with pytest.raises(DatasetDamaged, match="do not fit each other"):
            NodePartition.open(_with(parts, name, values, tmp_path / "bad"), typed)
    first = "part-0001/edges-0-"
    lies = {f"{first}indices.npy": 90, f"{first}first.npy": -1, f"{first}indptr.npy": 7,
            "part-0001/nodes-0-halo.npy": 91, "part-0001/nodes-0-numbers.npy": -2}  # fmt: skip
    for name, value in lies.items():
        values = shards.array(name).copy()
        values[0] = value
        with pytest.raises(DatasetDamaged, match="do not fit each other"):
            Shards(_with(shards, name, values, tmp_path / "bad")).piece(0, 4)
    for key, value in {"format": 9, "node_sets": [{"name": "node", "count": -1, "width": 1}]}.items():
        made = _with(shards, SHARDS_FILE, {**shards.json(SHARDS_FILE), key: value}, tmp_path / "bad")
        with pytest.raises(DatasetDamaged, match="do not fit each other"):
            Shards(made)


def test_refuses_damaged_features_of_edges(tmp_path: Path):
    graph = one_kind(tmp_path / "graph", weights=True)
    made = sharded(graph, divided(graph, tmp_path / "parts"), tmp_path / "shards")
    name, document = "part-0001/edges-0-feature-0.npy", made.json(SHARDS_FILE)
    indptr = Shards(made).piece(0, 4).rows[0].indptr
    assert len(Shards(made).edge_feature(0, "weight", 0, 4, indptr)) == indptr[-1]
    with pytest.raises(DatasetDamaged, match="no such feature"):
        Shards(made).edge_feature(0, "length", 0, 4, indptr)
    values = made.array(name)
    for other in (values[:-1], values.astype(np.float64), values[:, 0]):
        with pytest.raises(DatasetDamaged, match="do not fit each other"):
            Shards(_with(made, name, other, tmp_path / "bad")).edge_feature(0, "weight", 0, 4, indptr)
    for lie in (None, "weight", [1], ["weight", "weight"]):
        (edges,) = document["edge_sets"]
        lying = {**document, "edge_sets": [{**edges, "features": lie}]}
        with pytest.raises(DatasetDamaged, match="features of edges have no names"):
            Shards(_with(made, SHARDS_FILE, lying, tmp_path / "bad"))
    for lie in (None, [], ["1"], [0], [1, 1], [True, 2]):
        lying = {**document, "edge_sets": [{**edges, "widths": lie}]}
        with pytest.raises(DatasetDamaged):
            Shards(_with(made, SHARDS_FILE, lying, tmp_path / "bad"))


def _with(dataset: Dataset, name: str, values: object, folder: Path) -> Dataset:
    """A copy in which one file holds something else, and the manifest its sum."""
    shutil.rmtree(folder, ignore_errors=True)
    writer = DatasetWriter(folder)
    for entry in dataset.manifest.files:
        with writer.file(entry.path) as path:
            if entry.path != name:
                shutil.copy(dataset.local(entry.path), path)
            elif isinstance(values, np.ndarray):
                np.save(path, values)
            else:
                path.write_text(json.dumps(values))
    made = dataset.manifest
    return writer.commit(stage=made.stage, version=made.version, params=made.params, inputs=made.inputs,
                         stats=made.stats, measured=made.measured, software=made.software)  # fmt: skip
