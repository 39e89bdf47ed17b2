"""Scores of links corrected by short paths: the fit, the correction against its formula, and a served model."""

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Input, Output, Stage, StageParams, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import (
    correct_links,
    heterograph,
    holdout_links,
    infer,
    predict_links,
    publish_predictions,
    score_links,
    train,
)
from superworkflow.tasks.correct_links.fit import fitted, gains, log_likelihoods, odds
from superworkflow.tasks.lib.gnn.link_scores import LINK_CORRECTION, LinkPaths, LinkScores, read_correction
from superworkflow.tasks.lib.gnn.sampler.links import HELD_OUT, read_held_out, sides_of_nodes, true_links_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.publish.serving import load
from tests.tasks.index_helpers import run_stage

GROUPS, OF_GROUP = 60, 6


def test_weights_are_those_that_links_were_drawn_by() -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(4000, 21, 3)) * [2.0, 0.5, 1.0]
    columns[:, -1] = np.nan
    wanted = np.array([0.7, -2.0, 0.0])
    chances = columns[:, :-1] @ wanted + rng.gumbel(size=(4000, 20))
    first = chances.argmax(axis=1)
    rows = np.arange(4000)
    columns[rows, 0], columns[rows, first] = columns[rows, first], columns[rows, 0].copy()
    weights = fitted(columns)
    np.testing.assert_allclose(weights, wanted, atol=0.06)
    exponentials = np.exp(columns[:, :-1] @ weights)
    np.testing.assert_allclose(log_likelihoods(columns, weights), np.log(exponentials[:, 0] / exponentials.sum(1)))
    alone, both = gains(columns)
    assert both.mean() > alone.mean() + 0.1
    alone, both = gains(columns[..., [0, 2]])
    assert abs(both.mean() - alone.mean()) < 0.01
    chosen = rng.random(20_000) < 1 / (1 + np.exp(-(0.5 * (scores := rng.normal(size=20_000)) - 1)))
    np.testing.assert_allclose(odds(scores[chosen], scores[~chosen]), (0.5, -1), atol=0.1)


def _edges(kind: str) -> str:
    """Cliques, each with an edge to the next; or two sides, of which each node has most edges to one group."""
    rng = np.random.default_rng(3)
    rows = []
    for group in range(GROUPS):
        own = [group * OF_GROUP + each for each in range(OF_GROUP)]
        if kind == "random":
            rows += [f"n{u:03},n{v:03}" for u in own for v in rng.integers(0, GROUPS * OF_GROUP, 3) if u != v]
        elif kind == "sides":
            rows += [f"p{u:03},q{v:03}" for u in own for v in own if rng.random() < 0.7]
        else:
            rows += [f"n{u:03},n{v:03}" for u, v in itertools.combinations(own, 2) if rng.random() < 0.8]
            rows.append(f"n{own[0]:03},n{(own[-1] + 1) % (GROUPS * OF_GROUP):03}")
    return "\n".join(rng.permutation(rows))


def _made(folder: Path, kind: str, **params: Any) -> dict[str, str]:
    """Graph without its held-out links, network and predictions."""
    folder.mkdir(exist_ok=True)
    (folder / "edges.csv").write_text(_edges(kind))
    reading = {"directed": True} if kind == "directed" else {}
    graph = run_stage(heterograph.STAGE, reading, {"edges": str(folder / "edges.csv")}, folder / "whole").uri
    graph = run_stage(holdout_links.STAGE, params, {"graph": graph}, folder / "graph").uri
    learning = {"hidden": 8, "epochs": 4, "dropout": 0.0, "seed": 1, "fanouts": "4,4"}
    network = run_stage(train.STAGE, learning, {"graph": graph}, folder / "train").uri
    predictions = run_stage(infer.STAGE, {}, {"graph": graph, "network": network}, folder / "infer").uri
    return {"graph": graph, "network": network, "predictions": predictions}


@pytest.fixture(scope="module", params=["groups", "directed", "sides"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp(request.param)
    sources = _made(folder, request.param)
    given = {name: sources[name] for name in ("graph", "predictions")}
    return sources | {"corrected": run_stage(correct_links.STAGE, {}, given, folder / "corrected").uri}


def _pairs(graph: HeteroGraph) -> NDArray[np.int64]:
    found = read_held_out(graph)
    return np.concatenate([each for split in HELD_OUT for each in (found.links[split], found.others[split])])


def test_scores_are_the_formula_and_better(made: dict[str, str], tmp_path: Path) -> None:
    graph, corrected = HeteroGraph.open(Dataset.open(made["graph"])), Dataset.open(made["corrected"])
    predictions, found = Dataset.open(made["predictions"]), read_held_out(graph)
    by, there, pairs = read_correction(corrected), LinkPaths.of(graph, found), _pairs(graph)
    assert by is not None
    own = LinkScores(graph, found, predictions).of_pairs(pairs)
    degrees, nodes = there.paths.degrees, len(there.paths.degrees)
    linked = np.zeros((nodes, nodes))
    linked[np.repeat(np.arange(nodes), np.diff(there.paths.indptr)), there.paths.indices] = 1
    walk = linked / np.maximum(degrees, 1)
    numbers = there.numbers(pairs)
    joined = linked[tuple(numbers.T)] > 0
    two, three = ((matrix @ linked)[tuple(numbers.T)] for matrix in (walk, walk @ walk))
    wanted = by.network * own + by.two * np.log1p(two / by.unit_two) + by.three * np.log1p(three / by.unit_three)
    wanted += by.degrees * np.log1p(degrees[numbers]).sum(1) + by.constant
    table = corrected.table("predictions.parquet").to_pandas()
    np.testing.assert_allclose(table["score"][~joined], wanted[~joined], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(table["probability"], 1 / (1 + np.exp(-table["score"])), rtol=1e-5, atol=1e-6)
    before = predictions.table("predictions.parquet").to_pandas()
    pd.testing.assert_frame_equal(
        table.drop(columns=["score", "probability"]), before.drop(columns=["score", "probability"])
    )
    scores = LinkScores(graph, found, predictions).corrected(by, there)
    for side, others in enumerate((scores.targets, scores.sources)):
        rows = scores.rows(side, pairs[:, side], others)[np.arange(len(pairs)), pairs[:, 1 - side]]
        np.testing.assert_allclose(rows, scores.of_pairs(pairs), rtol=1e-5, atol=1e-5)
    alone = {name: made[name] for name in ("graph", "predictions")}
    figures, network = (
        run_stage(score_links.STAGE, {}, inputs, tmp_path / f"score{len(inputs)}").json("metrics.json")
        for inputs in (alone | {"corrected": made["corrected"]}, alone)
    )
    assert {name: value for name, value in figures.items() if name.startswith("network_")} == {
        f"network_{name}": value for name, value in network.items()
    }
    assert figures["mrr@test"] > network["mrr@test"] + 0.05
    assert figures["auc@test"] > network["auc@test"]


def test_a_served_model_answers_with_corrected_scores(made: dict[str, str], tmp_path: Path) -> None:
    """Also of a new node that has the neighbours of one of the graph, whose embedding is the mean of theirs."""
    bundle = run_stage(publish_predictions.STAGE, {}, made, tmp_path / "bundle")
    model = load(Path(bundle.uri))
    graph = HeteroGraph.open(Dataset.open(made["graph"]))
    edges = graph.edge_sets[read_held_out(graph).edges]
    ids, rows = graph.ids(edges.source).to_pylist(), graph.rows(edges.name)
    counts = np.diff(rows.indptr)
    of_node = int(counts.argmax())
    near = [ids[each] for each in rows.indices[rows.indptr[of_node] : rows.indptr[of_node + 1]]]
    far = next(name for name in reversed(ids) if name not in near and name != ids[of_node])
    question = pd.DataFrame({"source": ["new"], "target": [far], "source_neighbors": [{edges.name: near}]})
    less = question.assign(source_neighbors=[{edges.name: near[:1]}])
    answer, lonely = (model.predict(each, {}).iloc[0] for each in (question, less))
    assert answer["error"] == lonely["error"] == ""
    assert np.isfinite(answer["score"])
    assert answer["score"] != lonely["score"]


def test_predicted_links_are_the_best_that_the_model_answers(made: dict[str, str], tmp_path: Path) -> None:
    """All pairs, of which no link is among the predicted ones, nor a pair within a side; and fewer nodes and links."""
    given = {name: made[name] for name in ("graph", "predictions", "corrected")}
    table = run_stage(predict_links.STAGE, {}, given, tmp_path / "links").table(predict_links.LINKS).to_pandas()
    whole = HeteroGraph.open(Dataset.open(made["graph"]))
    edges = whole.edge_sets[read_held_out(whole).edges]
    links, no_order = true_links_of(whole, read_held_out(whole))
    names = np.array(whole.ids(edges.source).to_pylist())
    sides = sides_of_nodes(whole, edges)
    joined = {(u, u) for u in names} | {tuple(pair) for pair in names[links].tolist()}
    joined |= {(v, u) for u, v in joined} if no_order else set()
    if len(sides):
        joined |= {(names[u], names[v]) for u, v in np.argwhere(sides[:, None] == sides).tolist()}
    pairs = [pair for pair in itertools.product(names, names) if pair not in joined]
    model = load(Path(run_stage(publish_predictions.STAGE, {}, made, tmp_path / "bundle").uri))
    every = model.predict(pd.DataFrame(pairs, columns=["source", "target"]), {})
    every = every.sort_values(["source", "score"], ascending=[True, False]).groupby("source").head(10)
    assert sorted(table["source"].unique()) == sorted(names)
    assert (table["rank"] == table.groupby("source").cumcount() + 1).all()
    ordered = table.sort_values(["source", "rank"])
    np.testing.assert_allclose(ordered["score"], every["score"], rtol=1e-4, atol=1e-4)
    both = ordered.merge(every, on=["source", "target"], suffixes=("", "_answered"))
    assert len(both) > 0.9 * len(table)  # but for equal scores
    np.testing.assert_allclose(both["score"], both["score_answered"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(both["probability"], both["probability_answered"], rtol=1e-4, atol=1e-4)
    assert not joined & {*zip(table["source"], table["target"], strict=True)}
    log = io.StringIO()
    few = run_stage(predict_links.STAGE, {"k": 3, "nodes": 7}, given, tmp_path / "few", cpu=1, log=log)
    assert f"links are predicted of 7 nodes of {len(names)}, those with most links" in log.getvalue()
    chosen = few.table(predict_links.LINKS).to_pandas()
    degrees = pd.Series(names[links if no_order else links[:, 0]].ravel()).value_counts()
    assert degrees[chosen["source"].unique()].min() >= degrees.drop(chosen["source"].unique()).max()
    wanted = table[table["source"].isin(chosen["source"]) & (table["rank"] <= 3)].reset_index(drop=True)
    pd.testing.assert_frame_equal(chosen, wanted)


def with_other_tests(job: StageRun[StageParams]) -> Output:
    """A graph with other links to test and other pairs without one."""
    graph = job.inputs["graph"]
    for name in graph.files():
        if name.endswith("links-test.npy"):
            job.output.array(name, (graph.array(name) + 7) % (GROUPS * OF_GROUP))
        else:
            job.output.copy(name, graph.local(name))
    return Output(rows=1, stats=dict(graph.stats))


def test_links_to_test_are_not_read(tmp_path: Path) -> None:
    """Other links to test, and other pairs without one, leave the correction as it is; so do the number of threads."""
    sources = _made(tmp_path / "made", "groups")
    given = {name: sources[name] for name in ("graph", "predictions")}
    first = run_stage(correct_links.STAGE, {}, given, tmp_path / "first", cpu=1)
    other = Stage(name="other", version="1", params=StageParams, inputs={"graph": Input("a graph")},
                  run="tests.tasks.test_correct_links:with_other_tests")  # fmt: skip
    given["graph"] = run_stage(other, {}, {"graph": sources["graph"]}, tmp_path / "other").uri
    second = run_stage(correct_links.STAGE, {}, given, tmp_path / "second", cpu=2)
    assert first.json(LINK_CORRECTION) == second.json(LINK_CORRECTION)


@pytest.mark.parametrize(("kind", "share", "why"), [
    ("groups", 0.01, "links to validate on, and weights need"),
    ("random", 0.05, "do not make the links to validate on more likely"),
])  # fmt: skip
def test_scores_that_stay_as_they_are(kind: str, share: float, why: str, tmp_path: Path) -> None:
    """Few links to validate on, and links at random."""
    log = io.StringIO()
    sources = _made(tmp_path / "made", kind, validation_share=share)
    given = {name: sources[name] for name in ("graph", "predictions")}
    made = run_stage(correct_links.STAGE, {}, given, tmp_path / "corrected", log=log)
    assert why in log.getvalue()
    assert LINK_CORRECTION not in made
    assert made.table("predictions.parquet").equals(Dataset.open(given["predictions"]).table("predictions.parquet"))
    figures = run_stage(score_links.STAGE, {}, given | {"corrected": made.uri}, tmp_path / "score").json("metrics.json")
    assert not any(name.startswith("network_") for name in figures)
