"""Link prediction: what is held out, what a step learns from, and what predictions are worth."""

from pathlib import Path

import numpy as np
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import aggregate, baselines_links, holdout_links, infer, predict_links, score_links
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.link_scores import LinkScores
from superworkflow.tasks.lib.gnn.model.graph_inputs import data_of
from superworkflow.tasks.lib.gnn.model.network import Network, NetworkInputs
from superworkflow.tasks.lib.gnn.objective.base import prepare
from superworkflow.tasks.lib.gnn.sampler.links import links_of, read_held_out, true_links_of
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.lib.metrics.ranks import filtered_ranks
from superworkflow.tasks.predict_links.panels import likeliest
from superworkflow.tasks.train import STAGE
from superworkflow.tasks.train.checkpoint import TrainingPosition
from superworkflow.tasks.train.data import shape_of
from superworkflow.tasks.train.loss_warnings import divergence, untrained
from superworkflow.tasks.train.params import TrainParams
from superworkflow.tasks.train.run import task_of
from tests.tasks.gnn_graphs import one_kind, two_kinds
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

SMALL = {"hidden": 16, "batch": 30, "epochs": 4, "fanouts": "4,all", "dropout": 0.0, "learning_rate": 0.01}


def held_out(graph: Dataset, folder: Path, **params) -> HeteroGraph:
    return HeteroGraph.open(run_stage(holdout_links.STAGE, params, {"graph": graph.uri}, folder))


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> HeteroGraph:
    folder = tmp_path_factory.mktemp("one")
    return held_out(one_kind(folder / "graph"), folder / "links", test_share=0.2, validation_share=0.1)


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> HeteroGraph:
    folder = tmp_path_factory.mktemp("two")
    return held_out(two_kinds(folder / "graph"), folder / "links", edges="writes", test_share=0.2)


def pairs_in(graph: HeteroGraph, edge_set: str) -> list[tuple[int, int]]:
    indptr, indices = graph.rows(edge_set)
    return list(zip(np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)).tolist(), indices.tolist(), strict=True))


@pytest.mark.parametrize("typed", [False, True])
def test_hidden_links_are_nowhere_in_the_graph(tmp_path, typed, one, two):
    whole = HeteroGraph.open((two_kinds if typed else one_kind)(tmp_path / "graph"))
    graph, name = (two, "writes") if typed else (one, "edge")
    found = read_held_out(graph)
    everything = links_of(whole.rows(name), not typed)
    hidden = np.concatenate([found.links["validation"], found.links["test"]])
    assert len(found.links["test"]) == int(0.2 * len(everything)) > 0
    left = {tuple(pair) for pair in links_of(graph.rows(name), not typed).tolist()}
    gone = {tuple(pair) for pair in hidden.tolist()}
    assert left | gone == {tuple(pair) for pair in everything.tolist()}
    assert not left & gone
    assert len(gone) == len(hidden)
    if typed:
        assert sorted((t, s) for s, t in pairs_in(graph, "written")) == sorted(left)
        assert pairs_in(graph, "cites") == pairs_in(whole, "cites")
        origin, forward = graph.origin("written"), pairs_in(graph, "writes")
        assert [forward[place][::-1] for place in origin] == pairs_in(graph, "written")
    others = np.concatenate([found.others["validation"], found.others["test"]])
    assert len({tuple(pair) for pair in others.tolist()}) == len(hidden)
    assert not {tuple(pair) for pair in others.tolist()} & (left | gone)
    for node_set in graph.node_sets:
        assert graph.ids(node_set).equals(whole.ids(node_set))


def _prepared(graph: HeteroGraph, sums: Dataset | None = None, **params):
    values = TrainParams(**{**SMALL, **params})
    task = task_of(graph, values)
    shape = shape_of(graph, task.head, values)
    data = data_of(graph, shape, sums, False)
    draws = Draws(shape.levels(), values.sizes, False, frozenset(data.inputs.sums or ()), values.seed)
    return task, Network(shape, 1), data, NeighborSampler(data.rows, shape.nodes, draws)


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_targets_pass_no_messages(tmp_path, typed, model, one, two):
    """A step gives what the network makes of a graph that has not the step's links, with and without means."""
    if typed and model == "gcn":
        pytest.skip("takes graphs of one kind")
    graph, name = (two, "writes") if typed else (one, "edge")
    params = {"fanouts": "all,all", "model": model, "decoder": "distmult"}
    given, sums = {"graph": graph.dataset.uri}, None
    if model == "sage":
        sums = run_stage(aggregate.STAGE, {}, given, tmp_path / "sums")
    task, network, data, sampler = _prepared(graph, sums, **params)
    items = task.items("train")[3:9]
    example, batch = prepare(task, sampler, items, (random_streams.TRAINING, 2, 5))
    found = task.loss(network, network(batch, data.inputs), example).item()
    links = {tuple(pair) for pair in links_of(graph.rows(name), not typed)[items].tolist()}
    less, degrees = {}, None
    for number, edges in enumerate(graph.edge_sets.values()):
        pairs = pairs_in(graph, edges.name)
        ways = [pair[::-1] if edges.name == "written" else pair for pair in pairs]
        kept = [pair for pair, way in zip(pairs, ways, strict=True)
                if edges.name == "cites" or not {way, way if typed else way[::-1]} & links]  # fmt: skip
        counts = np.bincount([s for s, _ in kept], minlength=graph.node_sets[edges.source].count)
        less[number] = CsrRows(np.concatenate([[0], np.cumsum(counts)]), np.array([t for _, t in kept], np.int32))
    if model == "gcn":
        degrees = np.diff(less[0].indptr).astype(np.float32)
    inputs, shape = NetworkInputs(data.inputs.features, degrees), network.shape
    plain = NeighborSampler(less, shape.nodes, Draws(shape.levels(), (-1, -1), False, frozenset(), 42))
    wanted = task.loss(network, network(plain.batch(example.nodes, 0, 0, 0), inputs), example).item()
    assert found == pytest.approx(wanted, abs=1e-5)
    assert example.wanted[2].all()
    assert len(example.wanted[0]) == len(items)
    again, batch = prepare(task, sampler, items, (random_streams.TRAINING, 2, 5))
    assert all((a == b).all() for a, b in zip(again.wanted, example.wanted, strict=True))
    other, _ = prepare(task, sampler, items, (random_streams.TRAINING, 2, 6))
    assert not np.array_equal(_ends_of_tiles(example, graph, name)[0], _ends_of_tiles(other, graph, name)[0])


def _ends_of_tiles(example, graph: HeteroGraph, name: str) -> list[np.ndarray]:
    """Sources and targets [tiles, negatives] by node."""
    edges = graph.edge_sets[name]
    ends = zip((edges.source, edges.target), example.wanted[3:5], strict=True)
    return [example.nodes[end][places] for end, places in ends]


@pytest.mark.parametrize("typed", [False, True])
def test_links_share_the_nodes_of_pairs(typed, one, two):
    """Tiles are the same for any links of a step, have no more nodes than one pair for each link, and no links."""
    graph, name = (two, "writes") if typed else (one, "edge")
    step, found = (random_streams.TRAINING, 1, 3), {}
    for negatives in (1, 4):
        task, *_ = _prepared(graph, negatives=negatives)
        size = min(SMALL["batch"], task.most())
        example = task.example(task.items("train")[:size], step)
        found[negatives] = _ends_of_tiles(example, graph, name)
        assert found[negatives][0].shape == (-(-size // negatives), negatives)
        again = task.example(task.items("train")[size : size + 2], step)
        for ends, same in zip(found[negatives], _ends_of_tiles(again, graph, name), strict=True):
            np.testing.assert_array_equal(ends, same)
    for ends, single in zip(found[4], found[1], strict=True):
        np.testing.assert_array_equal(ends.reshape(-1)[: len(single)], single[:, 0])
    linked = set(pairs_in(graph, name)) | ({(v, u) for u, v in pairs_in(graph, name)} if not typed else set())
    wrong = example.wanted[5]
    for tile, (sources, targets) in enumerate(zip(*found[4], strict=True)):
        for i, u in enumerate(sources.tolist()):
            for j, v in enumerate(targets.tolist()):
                assert wrong[tile, i, j] == ((u, v) in linked or (not typed and u == v))
    assert not wrong[:, range(4), range(4)].any()
    assert typed or wrong.any()


@pytest.mark.parametrize("decoder", ["distmult", "complex"])
@pytest.mark.parametrize("negatives", [1, 4])
def test_loss_of_tiles(negatives, decoder, one):
    """By enumeration: half of it of links, half of pairs, each of which weighs by the softmax among those of its tile
    that have each source and target once. With one pair it is plain cross entropy."""
    task, network, data, sampler = _prepared(one, negatives=negatives, decoder=decoder)
    example, batch = prepare(task, sampler, task.items("train")[:9], (random_streams.TRAINING, 0, 0))
    rows = network(batch, data.inputs)
    found = task.loss(network, rows, example).item()
    vectors, factors = rows["node"].detach().numpy().astype(float), network.factors.detach().numpy().astype(float)

    def score(u: int, v: int) -> float:
        if decoder == "distmult":
            return float((vectors[u] * factors * vectors[v]).sum())
        x, w, y = (each[:8] + 1j * each[8:] for each in (vectors[u], factors, vectors[v]))
        return float((x * w * y.conj()).sum().real)

    own = np.mean([np.log1p(np.exp(-score(u, v))) for u, v in zip(*example.wanted[:2], strict=True)])
    sources, targets, wrong = example.wanted[3:]
    groups = []
    for tile in range(len(sources)):
        for turn in range(negatives):
            pairs = [(i, (i + turn) % negatives) for i in range(negatives)]
            values = np.array([score(sources[tile, i], targets[tile, j]) for i, j in pairs if not wrong[tile, i, j]])
            shares = np.exp(values) / np.exp(values).sum()
            groups.append(float((shares * np.log1p(np.exp(values))).sum()))
    assert found == pytest.approx((own + np.mean(groups)) / 2, rel=1e-4)


@pytest.mark.parametrize(
    ("typed", "params"),
    [(False, {}), (True, {"decoder": "distmult", "negatives": 3, "negatives_by": "degree", "model": "rgcn"})],
)
def test_links_are_predicted(tmp_path, typed, params, one, two):
    graph = two if typed else one
    given = {"graph": graph.dataset.uri}
    network = run_stage(STAGE, {**SMALL, "epochs": 20, **params}, given, tmp_path / "train", cpu=1)
    given["network"] = network.uri
    found = run_stage(infer.STAGE, {"batch": 13}, given, tmp_path / "infer")
    del given["network"]
    given["predictions"] = found.uri
    scored = run_stage(score_links.STAGE, {"k": 3}, given, tmp_path / "score").json("metrics.json")
    assert network.json("history.json")[-1]["validation_auc"] > 0
    assert scored["auc@test"] > (0.35 if typed else 0.6)
    table = found.table("predictions.parquet")
    test = table.filter((np.array(table["split"]) == "test").tolist())
    score, linked = test["score"].to_numpy(), np.array(test["linked"].to_pylist())
    above = (score[linked][:, None] > score[~linked]).mean() + (score[linked][:, None] == score[~linked]).mean() / 2
    assert scored["auc@test"] == pytest.approx(above)
    assert 0 < scored["mrr@test"] <= 1
    assert scored["hits_at_k@test"] <= 1
    links = run_stage(predict_links.STAGE, {"k": 50}, given, tmp_path / "links").table(predict_links.LINKS)
    scores, joined = LinkScores(graph, read_held_out(graph), found), true_links_of(graph, read_held_out(graph))[0]
    names = [graph.ids(each).to_pylist() for each in (("author", "paper") if typed else ("node", "node"))]
    every = scores.rows(0, np.arange(len(names[0])), scores.targets)
    every[tuple(joined.T)] = -np.inf
    if not typed:
        every[tuple(joined[:, ::-1].T)] = every[np.diag_indices(len(every))] = -np.inf
    wanted = []
    for source, row in zip(names[0], every, strict=True):
        best = [place for place in np.argsort(-row, kind="stable")[:50] if row[place] > -np.inf]
        wanted += [(source, names[1][place], rank) for rank, place in enumerate(best, 1)]
    assert list(zip(*(links[name].to_pylist() for name in ("source", "target", "rank")), strict=True)) == wanted
    (part,) = likeliest({"predict_links": Dataset.open(str(tmp_path / "links"))})
    assert part.content["rows"][0][2] == pytest.approx(max(links["probability"].to_pylist()), abs=1e-4)
    assert len({frozenset(row[:2]) for row in part.content["rows"]}) == len(part.content["rows"]) == 20


def test_degrees_are_learned(tmp_path):
    """Defaults, where nothing but the degrees of both ends makes a link probable, lose little to their product."""
    rng = np.random.default_rng(4)
    share = np.arange(1, 301) ** -0.8
    pairs = np.argwhere(np.triu(rng.random((300, 300)) < np.minimum(1, 900 * np.outer(share, share) / share.sum()), 1))
    names = [f"n{i:03}" for i in range(300)]
    rows = sorted({(names[u], names[v]) for u, v in np.concatenate([pairs, pairs[:, ::-1]])})
    whole = write_heterograph(tmp_path / "graph", {"node": Nodes(names, {})}, {"edge": Edges("node", "node", rows)})
    given = {"graph": held_out(whole, tmp_path / "links", test_share=0.3).dataset.uri}
    network = run_stage(STAGE, {"hidden": 32, "epochs": 30}, given, tmp_path / "train", cpu=1)
    found = run_stage(infer.STAGE, {}, given | {"network": network.uri}, tmp_path / "infer", cpu=1)
    scored = run_stage(score_links.STAGE, {}, given | {"predictions": found.uri}, tmp_path / "score")
    simple = run_stage(baselines_links.STAGE, {}, given, tmp_path / "simple")
    own, degrees = scored.json("metrics.json")["auc@test"], simple.json("metrics.json")["degree_product_auc@test"]
    assert degrees > 0.75
    assert own > degrees - 0.03


def test_links_that_another_set_has_are_a_warning(tmp_path):
    """A set that is not described as the reverse keeps what is held out; without one no messages reach papers."""
    authors, papers = [f"a{i:02}" for i in range(15)], [f"p{i:02}" for i in range(40)]
    pairs = sorted({(authors[i * 7 % 15], papers[i * 3 % 40]) for i in range(300)})
    nodes = {"author": Nodes(authors), "paper": Nodes(papers)}
    turned = Edges("paper", "author", sorted((paper, author) for author, paper in pairs))
    for name, others, words in (
        ("turned", {"by": turned}, "edge set has the held-out links the other way round"),
        ("few", {"by": Edges("paper", "author", turned.rows[::2])}, ""),
        ("silent", {}, "no edge set starts at these nodes, so that no messages reach them"),
        ("right", {"by": Edges("paper", "author", reversed_of="writes")}, ""),
    ):
        graph = write_heterograph(tmp_path / name, nodes, {"writes": Edges("author", "paper", pairs), **others})
        stats = held_out(graph, tmp_path / f"held-{name}", edges="writes").dataset.stats
        warned = [str(value) for key, value in stats.items() if key.startswith("input_warning.")]
        assert len(warned) == bool(words), name
        assert all(words in each and "--reverse" in each for each in warned), name


def test_filtered_ranks():
    """By plain enumeration, within one node set and between two."""
    rng = np.random.default_rng(3)
    for one_set in (False, True):
        sources = rng.integers(-2, 3, (9, 2)).astype(np.float32)
        targets = sources if one_set else rng.integers(-2, 3, (7, 2)).astype(np.float32)
        edges = np.unique(rng.integers(0, [9, len(targets)], (25, 2)), axis=0)
        edges = edges[edges[:, 0] < edges[:, 1]] if one_set else edges
        links = edges[::3]
        there = {tuple(pair) for pair in edges.tolist()} | {(v, u) for u, v in edges.tolist() if one_set}
        for (u, v), rank in zip(links.tolist(), filtered_ranks(sources, targets, links, edges, one_set), strict=True):
            own = sources[u] @ targets[v]
            others = [
                sources[u] @ targets[t] for t in range(len(targets)) if (u, t) not in there and not (one_set and t == u)
            ]
            assert rank == 1 + sum(s > own for s in others) + sum(s == own for s in others) / 2


def _ring(folder: Path, nodes: int, steps: tuple[int, ...]) -> Dataset:
    names = [f"n{i:02}" for i in range(nodes)]
    rows = sorted({(names[i], names[(i + step) % nodes]) for i in range(nodes) for step in steps})
    given = {"features": np.ones((nodes, 2), np.float32)}
    return write_heterograph(folder, {"node": Nodes(names, given)}, {"edge": Edges("node", "node", rows)})


@pytest.mark.parametrize(
    ("steps", "params", "words"),
    [
        ((1, 11), {"edges": "eats"}, ["no such edge set", "'eats'", "edge"]),
        ((1,), {"test_share": 0.05}, ["too few links", "12"]),
        ((1,), {"validation_share": 0.02, "test_share": 0.2}, ["too few links to validate on", "12"]),
        (tuple(range(1, 12)), {"test_share": 0.5}, ["too few pairs of nodes without a link", "got 0"]),
    ],
)  # fmt: skip
def test_refused(tmp_path, steps, params, words):
    with pytest.raises(UserError) as refused:
        held_out(_ring(tmp_path / "graph", 12, steps), tmp_path / "links", **params)
    for word in words:
        assert word in str(refused.value)


def test_what_does_not_fit(tmp_path, one, two):
    with pytest.raises(UserError, match=r"several edge sets.*cites, writes, written"):
        held_out(two_kinds(tmp_path / "graph"), tmp_path / "links")
    with pytest.raises(UserError, match="held out of this graph before"):
        held_out(one.dataset, tmp_path / "again")
    with pytest.raises(UserError, match=r"train\.batch.*'all'"):
        task_of(one, TrainParams(**{**SMALL, "batch": "all"}))
    with pytest.raises(UserError, match="below 1 together"):
        held_out(one.dataset, tmp_path / "all", test_share=0.6, validation_share=0.4)


def test_training_that_diverges(tmp_path, one):
    """An earlier epoch that has learned something is kept with a warning; else nothing is made."""
    given = {"graph": one.dataset.uri}
    with pytest.raises(UserError, match=r"diverged.*Lower train\.learning_rate") as refused:
        run_stage(STAGE, {**SMALL, "epochs": 6, "learning_rate": 10}, given, tmp_path / "refused", cpu=1)
    assert "train.learning_rate" in str(refused.value)
    assert not list((tmp_path / "refused").glob("**/manifest.json"))


def test_first_weights_are_kept_where_no_epoch_is_better(tmp_path, one):
    given = {"graph": one.dataset.uri}
    params = {**SMALL, "epochs": 1, "learning_rate": 1e-9}
    made = run_stage(STAGE, params, given, tmp_path / "train", cpu=1)
    assert made.stats["best_epoch"] == 0
    assert any("the first weights rank links best" in str(value) for value in made.stats.values())
    course = TrainingPosition(epochs=[{"epoch": 1.0, "validation_auc": 0.7}], first={"validation_auc": 0.6}, best=1)
    assert course.kept["validation_auc"] == 0.7
    assert untrained(course, "validation_auc") == []


def _course(losses: list[float], figure: float, last: float) -> TrainingPosition:
    """A training whose figure is the same in all epochs but the last."""
    rows = [{"epoch": i + 1.0, "loss": 1.0, "validation_loss": loss, "validation_auc": figure}
            for i, loss in enumerate(losses)]  # fmt: skip
    rows[-1]["validation_auc"] = last
    return TrainingPosition(epoch=len(losses), epochs=rows, best=1)


@pytest.mark.parametrize(
    ("losses", "last", "warned"),
    [
        ([0.65, 0.98, 1.1, 1.42], 0.7, True),
        ([0.65, 0.98, 1.1, 1.42], 0.76, False),
        ([0.65, 0.98, 0.7, 1.42], 0.7, False),
        ([0.7, 0.6, 0.55], 0.7, False),
    ],
    ids=["rising", "ranked as well", "one epoch below", "falling"],
)
def test_a_rising_loss_is_a_warning_or_an_error(one, losses, last, warned):
    task = task_of(one, TrainParams(**SMALL))
    assert len(divergence(task, _course(losses, 0.78, last), 1000, 0.01)) == warned
    if warned:
        with pytest.raises(UserError, match="no epoch is better than guessing"):
            divergence(task, _course(losses, 0.51, 0.5), 1000, 0.01)


def test_predicted_nodes_are_bounded_by_work():
    """10,000 nodes of a million; fewer of ten, and no fewer than one."""
    found = [predict_links.most_queries(10_000, nodes, 256) for nodes in (1_000_000, 10_000_000, 1 << 60)]
    assert found[0] == 10_000
    assert 1_000 < found[1] < 10_000
    assert found[2] == 1
