"""Training on subgraphs that stage sample has drawn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import baselines, infer, sample
from superworkflow.tasks.lib.gnn.relations import LayerSchema, Relation
from superworkflow.tasks.lib.gnn.sampler.block import Block
from superworkflow.tasks.lib.gnn.sampler.subgraph_sampler import SampledBlocks, SampledSubgraphs
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock, read_blocks
from superworkflow.tasks.train import STAGE
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.gnn_graphs import one_kind, two_kinds
from tests.tasks.index_helpers import run_stage

TYPED = """seed_op { op_name: "seed" node_set_name: "paper" }
sampling_ops { op_name: "cited" input_op_names: "seed" edge_set_name: "cites" sample_size: 3 strategy: RANDOM_UNIFORM }
sampling_ops { op_name: "by" input_op_names: ["seed", "cited"] edge_set_name: "written" sample_size: 2
               strategy: RANDOM_UNIFORM }
sampling_ops { op_name: "also" input_op_names: "by" edge_set_name: "writes" sample_size: 2 strategy: RANDOM_UNIFORM }
"""
EVERY = """seed_op { op_name: "seed" node_set_name: "node" }
sampling_ops { op_name: "near" input_op_names: "seed" edge_set_name: "edge" sample_size: 1000 strategy: TOP_K }
sampling_ops { op_name: "far" input_op_names: "near" edge_set_name: "edge" sample_size: 1000 strategy: TOP_K }
"""
SMALL: dict[str, Any] = {"hidden": 16, "batch": 8, "epochs": 4, "fanouts": "all,all", "dropout": 0.0}


def sampled(graph: Dataset, folder: Path, spec: str, splits: list[str], **params: Any) -> Dataset:
    folder.mkdir()
    (folder / "spec.pbtxt").write_text(spec)
    inputs = {"graph": graph.uri, "spec": str(folder / "spec.pbtxt")}
    if splits:
        ids = next(iter(HeteroGraph.open(graph).node_sets))
        names = HeteroGraph.open(graph).ids(ids).to_pylist()
        rows = [f"{name},{split}\n" for name, split in zip(names, splits, strict=True) if split]
        (folder / "seeds.csv").write_text("id,split\n" + "".join(rows))
        inputs["seeds"] = str(folder / "seeds.csv")
    return run_stage(sample.STAGE, params, inputs, folder / "drawn")


Tree = tuple[int, list[tuple[int, int, Any]]]


def of_subgraph(
    block: SubgraphBlock, item: int, relations: list[Relation], sets: list[str], name: str, place: int, depth: int
) -> Tree:  # fmt: skip
    """All that a node of a subgraph has received after some layers: edge set, position and the sender's own."""
    node = int(block.nodes[sets.index(name)][block.node_starts[sets.index(name)][item] + place])
    found = []
    for each in relations if depth else ():
        first, last = block.edge_starts[each.number][item : item + 2] if each.receivers == name else (0, 0)
        for e in range(first, last):
            if block.sources[each.number][e] == place:
                sender = int(block.targets[each.number][e])
                tree = of_subgraph(block, item, relations, sets, each.senders, sender, depth - 1)
                found.append((each.number, int(block.positions[each.number][e]), tree))
    return node, found


def of_blocks(blocks: tuple[Block, ...], relations: list[Relation], name: str, place: int) -> Tree:
    """The same of a receiver of the last block."""
    if not blocks:
        raise AssertionError("no block has this node among its receivers")
    block, found = blocks[-1], []
    for each in relations:
        if each.receivers == name and each.number in block.hops:
            hop = block.hops[each.number]
            for e in range(hop.starts[place], hop.starts[place + 1]):
                sender = int(hop.senders[e])
                tree = (int(block.senders[each.senders][sender]), [])
                if len(blocks) > 1:
                    tree = of_blocks(blocks[:-1], relations, each.senders, sender)
                found.append((each.number, int(hop.positions[e]), tree))
    return int(block.receivers[name][place]), found


def test_blocks_hold_each_seeds_own_subgraph(tmp_path: Path) -> None:
    graph = two_kinds(tmp_path / "graph")
    drawn = sampled(graph, tmp_path / "sampled", TYPED, [], repeats=2)
    opened = HeteroGraph.open(graph)
    given = SampledSubgraphs(drawn, opened)
    relations = [Relation(j, e.name, e.source, e.target) for j, e in enumerate(opened.edge_sets.values())]
    sets = list(opened.node_sets)
    levels = [LayerSchema(tuple(sets), tuple(relations), tuple(sets))] * 3
    wanted: dict[int, list[Tree]] = {}
    for split in ("train", "validation", "test"):
        for block in read_blocks(drawn, split):
            for item, seed in enumerate(block.seeds.tolist()):
                wanted.setdefault(seed, []).append(of_subgraph(block, item, relations, sets, "paper", 0, 3))
    assert {len(each) for each in wanted.values()} == {2}
    assert any(one != other for one, other in wanted.values())
    sampler = SampledBlocks(given, levels, 1)
    seeds = np.array([9, 3, 30, 12, 4])
    for turn in range(3):
        batch = sampler.batch({"paper": seeds}, 0, turn, 5)
        assert batch.targets["paper"].tolist() == [3, 4, 9, 12, 30]
        for place, seed in enumerate(batch.targets["paper"].tolist()):
            assert of_blocks(batch.blocks, relations, "paper", place) == wanted[seed][turn % 2]


def test_whole_neighbourhoods_train_like_the_graph(tmp_path: Path) -> None:
    """Subgraphs with all edges of two hops give the losses of all neighbours; splits are those of the seeds."""
    graph = one_kind(tmp_path / "graph")
    opened = HeteroGraph.open(graph)
    splits = [each.decode() for each in opened.node_feature("node", "split").to_pylist()]
    drawn = sampled(graph, tmp_path / "sampled", EVERY, splits)
    params = {**SMALL, "sampler": "subgraphs"}
    found = run_stage(STAGE, params, {"graph": graph.uri, "subgraphs": drawn.uri}, tmp_path / "found")
    wanted = run_stage(STAGE, SMALL, {"graph": graph.uri}, tmp_path / "wanted")
    losses = [each.table("losses.parquet")["loss"].to_pylist() for each in (found, wanted)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    inputs = {"graph": graph.uri, "network": found.uri}
    by_subgraph = run_stage(infer.STAGE, {}, inputs | {"subgraphs": drawn.uri}, tmp_path / "by-subgraph")
    by_graph = run_stage(infer.STAGE, {}, inputs, tmp_path / "by-graph")
    assert by_subgraph.stats["timed"] == 90
    np.testing.assert_allclose(by_subgraph.array("probabilities.npy"), by_graph.array("probabilities.npy"), atol=1e-5)
    other = ["test" if split == "train" else "train" if split == "test" else "" for split in splits]
    turned = sampled(graph, tmp_path / "turned", EVERY.replace("1000", "2"), other)
    inputs = {"graph": graph.uri, "subgraphs": turned.uri}
    network = run_stage(STAGE, params, inputs, tmp_path / "network")
    assert (network.stats["train_nodes"], network.stats["validation_nodes"], network.stats["test_nodes"]) == (30, 0, 30)
    assert (network.array("splits.npy") == 0).tolist() == [split == "test" for split in splits]
    judged = run_stage(baselines.STAGE, {}, inputs, tmp_path / "judged").json("metrics.json")
    assert {name.partition("@")[2] for name in judged} == {"test"}


def test_refusals(tmp_path: Path) -> None:
    graph, other = one_kind(tmp_path / "graph"), one_kind(tmp_path / "other", seed=5)
    drawn = sampled(graph, tmp_path / "sampled", EVERY, [])
    given = {"graph": graph.uri, "subgraphs": drawn.uri}
    for inputs, params, words in (
        ({"graph": graph.uri}, {"sampler": "subgraphs"}, "there are no subgraphs to train on"),
        (given, {}, "subgraphs are given, and the sampler draws others"),
        ({**given, "graph": other.uri}, {"sampler": "subgraphs"}, "sampled from another graph"),
        ({**given, "subgraphs": other.uri}, {"sampler": "subgraphs"}, "it holds no sampled subgraphs"),
    ):
        with pytest.raises(UserError, match=words):
            run_stage(STAGE, SMALL | params, inputs, tmp_path / "refused")
    for fault in ({"model": "gcn"}, {"seed_time": "time"}):
        with pytest.raises(ValueError, match="does not go with the sampler subgraphs"):
            TrainParams(sampler="subgraphs", **fault)
