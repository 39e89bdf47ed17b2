"""Seeds with times: no edge that is later than a seed passes messages towards it, in training and in prediction."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import heterograph, holdout_links, infer, node_labels, score, score_links
from superworkflow.tasks.lib.gnn.relations import LayerSchema, Relation
from superworkflow.tasks.lib.gnn.sampler.block import Block
from superworkflow.tasks.lib.gnn.sampler.kernels import ALL_NEIGHBORS
from superworkflow.tasks.lib.gnn.sampler.links import link_times, links_of, read_held_out
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.train import STAGE
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

SMALL: dict[str, Any] = {"hidden": 16, "batch": 32, "layers": 2, "fanouts": "5,5", "time": "timestamp"}
NODES, ITEMS, NOW = 240, 20, 100


def rows_of(rng: np.random.Generator, receivers: int, senders: int, most: int) -> CsrRows:
    lists = [np.sort(rng.integers(0, senders, rng.integers(0, most + 1))) for _ in range(receivers)]
    return CsrRows(np.cumsum([0, *map(len, lists)]), np.concatenate([*lists, np.empty(0)]).astype(np.int32))


def copies_of(block: Block, ends: str, limits: Mapping[str, np.ndarray]) -> dict[str, list[tuple[int, int]]]:
    return {name: list(zip(nodes.tolist(), limits[name].tolist(), strict=True))
            for name, nodes in getattr(block, ends).items()}  # fmt: skip


@given(
    seed=st.integers(0, 2**32), latest=st.booleans(), kinds=st.sampled_from([1, 3, 40]),
    fanouts=st.sampled_from([(2, 3), (ALL_NEIGHBORS, 2), (1, ALL_NEIGHBORS)]), lose=st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None, print_blob=True)
def test_blocks_are_those_of_a_plain_loop(
    seed: int, latest: bool, kinds: int, fanouts: tuple[int, int], lose: bool
) -> None:
    """Two node sets; edges of set 0 and 1 have times, those of set 2 have none, and all of them pass messages."""
    rng = np.random.default_rng(seed)
    counts = {"a": 9, "b": 7}
    relations = (Relation(0, "x", "a", "a"), Relation(1, "y", "a", "b"), Relation(2, "z", "b", "a"))
    rows = {each.number: rows_of(rng, counts[each.receivers], counts[each.senders], 8) for each in relations}
    times = {number: rng.integers(0, kinds, len(rows[number].indices)) for number in (0, 1)}
    inner = LayerSchema(("a", "b"), relations, ("a", "b"))
    outer = LayerSchema(("a",), relations[:2], ("a", "b"))
    draws = Draws([inner, outer], fanouts, False, frozenset(), seed, latest=latest)
    sampler = NeighborSampler(rows, counts, draws, times=times)
    seeds = np.unique(np.stack([rng.integers(0, 9, 6), rng.integers(-1, kinds + 1, 6)], 1), axis=0)
    gone = np.flatnonzero(rng.random(len(rows[0].indices)) < 0.3) if lose else np.empty(0, np.int64)
    lost = {0: gone} if lose else {}
    batch = sampler.batch({"a": seeds[:, 0].copy()}, 0, 0, 0, lost=lost, limits={"a": seeds[:, 1].copy()})
    assert batch.targets["a"].tolist() == seeds[:, 0].tolist()
    reached: dict[str, list[tuple[int, int]]] = {"a": [tuple(each) for each in seeds.tolist()], "b": []}
    for hop, block in enumerate(reversed(batch.blocks)):
        wanted: dict[str, list[tuple[int, int]]] = {name: list(each) for name, each in reached.items()}
        for number, edges in block.hops.items():
            relation, (indptr, indices) = relations[number], rows[number]
            senders = block.senders[relation.senders]
            for i, (node, limit) in enumerate(reached[relation.receivers]):
                row = [p for p in range(indptr[node], indptr[node + 1]) if number or p not in gone]
                free = [p for p in row if number not in times or times[number][p] <= limit]
                drawn = edges.positions[edges.starts[i] : edges.starts[i + 1]].tolist()
                assert edges.degrees[i] == len(free)
                assert set(drawn) <= set(free)
                assert (
                    len(set(drawn)) == len(drawn) == (len(free) if fanouts[hop] < 0 else min(len(free), fanouts[hop]))
                )
                if latest and number in times:
                    newest = sorted(free, key=lambda p: (times[number][p], p))[len(free) - len(drawn) :]
                    assert drawn == sorted(newest)
                places = edges.senders[edges.starts[i] : edges.starts[i + 1]]
                assert senders[places].tolist() == indices[drawn].tolist()
                for place, sender in zip(places.tolist(), indices[drawn].tolist(), strict=True):
                    if (sender, limit) not in wanted[relation.senders]:
                        wanted[relation.senders].append((sender, limit))
                    assert wanted[relation.senders][place] == (sender, limit)
        for name, each in block.receivers.items():
            assert each.tolist() == [node for node, _ in reached[name]]
        for name, each in block.senders.items():
            assert each.tolist() == [node for node, _ in wanted[name]]
        reached = wanted


@given(seed=st.integers(0, 2**32), one_set=st.booleans())
@settings(max_examples=20, deadline=None)
def test_a_link_has_the_time_of_its_earliest_edge(seed: int, one_set: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = rows_of(rng, 6, 6, 5)
    times = rng.integers(0, 9, len(rows.indices))
    links = links_of(rows, one_set)
    ends = [(u, int(rows.indices[p])) for u in range(6) for p in range(rows.indptr[u], rows.indptr[u + 1])]
    wanted = [min(int(times[p]) for p, pair in enumerate(ends)
                  if pair == (u, v) or (one_set and pair == (v, u))) for u, v in links.tolist()]  # fmt: skip
    assert link_times(rows, one_set, times, links).tolist() == wanted


def leaking(folder: Path, more: Mapping[str, Any] = {}) -> Dataset:
    """People, half of each kind, at time 100; only later do edges join them with items of their own kind."""
    rng = np.random.default_rng(4)
    kind, of_item = rng.integers(0, 2, NODES), np.arange(ITEMS) % 2
    names = [*(f"p{i:03}" for i in range(NODES)), *(f"q{i:03}" for i in range(ITEMS))]
    features = np.concatenate([rng.normal(size=(NODES, 4)), np.where(of_item, 1, -1)[:, None] * np.ones((ITEMS, 4))])
    early = [
        (person, NODES + rng.integers(0, ITEMS), rng.integers(0, NOW)) for person in range(NODES) for _ in range(4)
    ]
    late = [(person, NODES + rng.choice(np.flatnonzero(of_item == kind[person])), NOW + rng.integers(1, 50))
            for person in range(NODES) for _ in range(8)]  # fmt: skip
    both = [(*pair, time) for u, v, time in early + late for pair in ((u, v), (v, u))]
    labels = [*(f"k{each}" for each in kind), *([""] * ITEMS)]
    nodes = {
        "label": labels, "features": features.astype(np.float32), "time": np.full(len(names), NOW), **more,
        "split": [*(("train", "validation", "test")[i % 3] for i in range(NODES)), *([""] * ITEMS)],
    }  # fmt: skip
    edges = Edges(
        "node", "node", [(names[u], names[v]) for u, v, _ in both], {"timestamp": np.array([t for *_, t in both])}
    )
    return write_heterograph(folder, {"node": Nodes(names, nodes)}, {"edge": edges})


def trained(graph: Dataset, folder: Path, **params: Any) -> Dataset:
    return run_stage(STAGE, SMALL | params, {"graph": graph.uri}, folder)


@pytest.mark.parametrize("sampler", ["neighbor", "latest"])
def test_labels_that_leak_through_later_edges(tmp_path: Path, sampler: str) -> None:
    """With the seeds' times test accuracy is that of chance; without them it is nearly 1."""
    graph = leaking(tmp_path / "graph")
    found = {}
    for seed_time in ("", "time"):
        folder = tmp_path / f"by-{seed_time}"
        network = trained(graph, folder / "network", sampler=sampler, seed_time=seed_time, epochs=40, patience=0)
        inputs = {"graph": graph.uri, "network": network.uri}
        predicted = run_stage(infer.STAGE, {}, inputs, folder / "predicted")
        scored = run_stage(score.STAGE, {}, {"predictions": predicted.uri}, folder / "scored")
        found[seed_time] = scored.json("metrics.json")["accuracy@test"]
    assert found[""] > 0.9
    assert found["time"] < 0.5 + 4 * np.sqrt(0.25 / (NODES / 3))


def test_predictions_are_those_on_a_graph_that_ends_with_the_seed(tmp_path: Path) -> None:
    """All neighbours: a node's row at its time is its row by all edges up to then, which a cut graph has alone."""
    rng = np.random.default_rng(8)
    names, cut = [f"n{i:02}" for i in range(40)], 5
    rows = [(names[u], names[v]) for u, v in rng.integers(0, 40, (300, 2))]
    times, features = rng.integers(0, 10, len(rows)), rng.normal(size=(40, 4)).astype(np.float32)
    early = np.flatnonzero(times <= cut)
    seeds_at = np.where(np.arange(40) % 2, cut, 9)
    labels = {"label": [f"k{i % 3}" for i in range(40)], "features": features, "time": seeds_at}
    whole, short = (
        write_heterograph(tmp_path / name, {"node": Nodes(names, labels)}, {"edge": Edges(
            "node", "node", [rows[row] for row in kept], {"timestamp": times[kept]})})
        for name, kept in (("whole", np.arange(len(rows))), ("short", early))
    )  # fmt: skip
    network = trained(whole, tmp_path / "network", seed_time="time", fanouts="all,all", epochs=2)
    found = {}
    for name, graph in (("whole", whole), ("short", short)):
        inputs = {"graph": graph.uri, "network": network.uri}
        predicted = run_stage(infer.STAGE, {"batch": 7}, inputs, tmp_path / f"predicted-{name}")
        assert predicted.stats["timed"] == 40
        found[name] = predicted.array("probabilities.npy")
    odd = np.arange(40) % 2 == 1
    np.testing.assert_allclose(found["whole"][odd], found["short"][odd], rtol=1e-6)
    assert np.abs(found["whole"][~odd] - found["short"][~odd]).max() > 1e-3


def leaking_links(folder: Path) -> Dataset:
    """People are linked at random; later, both ends of a link have an edge to the same item, of many."""
    rng = np.random.default_rng(6)
    pairs = np.array(sorted({(min(u, v), max(u, v)) for u, v in rng.integers(0, 400, (400, 2)).tolist() if u != v}))
    people, items = [f"n{i:03}" for i in range(400)], [f"i{i:03}" for i in range(len(pairs))]
    met = rng.permutation(len(pairs))
    joins = [(people[a], people[b]) for u, v in pairs for a, b in ((u, v), (v, u))]
    shares = [(people[each], items[i]) for i, pair in enumerate(pairs) for each in pair]
    nodes = {
        "person": Nodes(people, {"features": np.ones((len(people), 2), np.float32)}),
        "item": Nodes(items, {"features": rng.normal(size=(len(items), 16)).astype(np.float32)}),
    }
    edges = {
        "joins": Edges("person", "person", joins, {"timestamp": np.repeat(met, 2)}),
        "shares": Edges("person", "item", shares, {"timestamp": 1000 + np.repeat(met, 2)}),
        "shared": Edges("item", "person", reversed_of="shares"),
    }
    return write_heterograph(folder, nodes, edges)


def test_links_that_leak_through_later_edges(tmp_path: Path) -> None:
    graph, split = leaking_links(tmp_path / "graph"), {"edges": "joins", "by": "time", "test_share": 0.3}
    given = {"graph": graph.uri}
    held = run_stage(holdout_links.STAGE, split, given, tmp_path / "held")
    opened = HeteroGraph.open(held)
    out, rest = read_held_out(opened), opened.edge_feature("joins", "timestamp")
    assert rest.max() < out.times["validation"].min() <= out.times["validation"].max() < out.times["test"].min()
    found = {}
    for seed_time in ("", "timestamp"):
        folder = tmp_path / f"by-{seed_time}"
        network = trained(
            held, folder / "network", seed_time=seed_time, fanouts="8", layers=1, dropout=0.0, decoder="dot"
        )
        inputs = {"graph": held.uri, "network": network.uri}
        predicted = run_stage(infer.STAGE, {}, inputs, folder / "predicted")
        inputs = {"graph": held.uri, "predictions": predicted.uri}
        found[seed_time] = run_stage(score_links.STAGE, {}, inputs, folder / "scored").json("metrics.json")
    assert found[""]["auc@test"] > 0.7, found
    assert found["timestamp"]["auc@test"] < 0.6, found
    assert "mrr@test" in found[""]
    assert "mrr@test" not in found["timestamp"]


def test_labels_have_times(tmp_path: Path) -> None:
    """From files: a column of times of the labels, as dates or numbers."""
    (tmp_path / "edges.csv").write_text("source,target,date\na,b,1970-01-02\nb,c,1970-01-03\nc,d,1970-01-04\n")
    graph = run_stage(heterograph.STAGE, {"time": "date"}, {"edges": str(tmp_path / "edges.csv")}, tmp_path / "graph")
    text = "node,label,date,split\na,x,1970-01-02,train\nb,y,1970-01-03,train\nc,x,1970-01-04,validation\n"
    (tmp_path / "labels.csv").write_text(text)
    given = {"graph": graph.uri, "labels": str(tmp_path / "labels.csv")}
    labels = run_stage(node_labels.STAGE, {}, given, tmp_path / "labels")
    opened = HeteroGraph.open(graph, labels)
    least = np.iinfo(np.int64).min
    assert opened.node_feature("node", "time").tolist() == [86400, 172800, 259200, least]
    inputs = {"graph": graph.uri, "labels": labels.uri}
    network = run_stage(STAGE, SMALL | {"seed_time": "time", "epochs": 1}, inputs, tmp_path / "network")
    assert "input_warning.1" not in network.stats
    unused = run_stage(STAGE, SMALL | {"epochs": 1}, inputs, tmp_path / "unused")
    assert "Set train.seed_time=time" in unused.stats["input_warning.1"]
    assert network.json("network.json")["times"]["feature"] == "time"
    (tmp_path / "labels.csv").write_text(text + "d,y,soon,train\n")
    with pytest.raises(UserError, match=r"labels.csv:5.*neither a number nor a date.*soon"):
        run_stage(node_labels.STAGE, {}, given, tmp_path / "soon")
    (tmp_path / "labels.csv").write_text(text + "c,x,1970-01-05,\n")
    with pytest.raises(UserError, match=r"labels.csv:5.*'c' has a second time"):
        run_stage(node_labels.STAGE, {}, given, tmp_path / "second")
    (tmp_path / "labels.csv").write_text(text + "d,y,,train\n")
    labels = run_stage(node_labels.STAGE, {}, given, tmp_path / "none")
    inputs["labels"] = labels.uri
    with pytest.raises(UserError, match=r"1 of 4 labelled nodes have no time.*'d'"):
        run_stage(STAGE, SMALL | {"seed_time": "time"}, inputs, tmp_path / "refused")


def test_refusals(tmp_path: Path) -> None:
    graph = leaking(tmp_path / "graph")
    with pytest.raises(UserError, match=r"train.seed_time: nodes of node have no such feature.*'at'.*time"):
        trained(graph, tmp_path / "seed", seed_time="at")
    with pytest.raises(UserError, match=r"train.time: edges have no such feature .*'at'.*timestamp"):
        trained(graph, tmp_path / "edges", seed_time="time", time="at")
    for fault in ({"sampler": "labor"}, {"model": "gcn"}, {"weight": "timestamp", "weighted": "draws"}):
        with pytest.raises(ValueError, match="seed_time does not go with"):
            TrainParams(seed_time="time", fanouts="5,5", **fault)
    before = {"time": np.zeros(NODES + ITEMS, np.int64) - 1}
    with pytest.raises(UserError, match=r"all edges are later than all seeds.*same unit"):
        trained(leaking(tmp_path / "before", before), tmp_path / "unit", seed_time="time")
    held = run_stage(holdout_links.STAGE, {}, {"graph": graph.uri}, tmp_path / "held")
    with pytest.raises(UserError, match=r"the time of a link is that of its edges"):
        trained(held, tmp_path / "links", seed_time="time")
    with pytest.raises(UserError, match=r"holdout_links.time.*no times to split by|no times to split by"):
        run_stage(holdout_links.STAGE, {"by": "time", "time": "at"}, {"graph": graph.uri},
                  tmp_path / "no-times")  # fmt: skip
