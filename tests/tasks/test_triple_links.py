"""Link prediction over all relations: triples are held out, ranked without other true ones, and served."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import (
    baselines_links,
    heterograph,
    holdout_links,
    infer,
    predict_links,
    publish_predictions,
    score_links,
    train,
)
from superworkflow.tasks.lib.gnn.objective import triple_prediction
from superworkflow.tasks.lib.gnn.sampler.triples import (
    loop_free,
    queries,
    read_triples,
    triple_ranks,
    triple_scores,
    triples_of,
)
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.metrics.ranks import ranks_among
from superworkflow.tasks.publish import serving
from tests.tasks.index_helpers import run_stage

NODES = 24
STEPS = {"next": 1, "after next": 2, "before": -1, "rare": 7}


def slow_ranks(
    scores: np.ndarray, triples: np.ndarray, true_triples: set[tuple[int, int, int]], free: np.ndarray
) -> np.ndarray:
    """Filtered ranks of tails and heads, by scores [relations, heads, tails]: one triple after the other.

    A node is not ranked with itself in relations that are `free` of loops, whose loops rank last.
    """
    ranks = []
    for head, relation, tail in triples.tolist():
        own, both = scores[relation, head, tail], []
        for others in (
            [(head, relation, each) for each in range(scores.shape[2])],
            [(each, relation, tail) for each in range(scores.shape[1])],
        ):
            if free[relation] and head == tail:
                both.append(len(others))
                continue
            values = [
                scores[r, h, t] for h, r, t in others if (h, r, t) not in true_triples and not (free[r] and h == t)
            ]
            above, equal = sum(each > own for each in values), sum(each == own for each in values)
            both.append(np.mean([1 + above + place for place in range(equal + 1)]))
        ranks.append(both)
    return np.array(ranks)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["distmult", "complex"]), st.integers(1, 6), st.integers(1, 6))
def test_ranks_are_those_of_a_plain_loop(seed: int, decoder: str, heads: int, tails: int) -> None:
    """Ranks of two node sets, or of one where there are as many heads as tails."""
    rng = np.random.default_rng(seed)
    sources, targets, factors = (
        rng.integers(-1, 2, (count, 4)).astype(np.float32) for count in (heads, tails, 3)
    )  # small whole numbers: many equal scores
    every = np.stack(np.meshgrid(np.arange(heads), np.arange(3), np.arange(tails), indexing="ij"), -1).reshape(-1, 3)
    true_triples = every[rng.random(len(every)) < 0.5]
    true_triples = true_triples if len(true_triples) else every[:1]
    triples = true_triples[rng.random(len(true_triples)) < 0.5]
    scores = triple_scores(sources, targets, factors, decoder, every).reshape(heads, 3, tails).transpose(1, 0, 2)
    if decoder == "complex":
        own = (sources[:, :2] + 1j * sources[:, 2:]), (targets[:, :2] + 1j * targets[:, 2:])
        product = np.einsum("hc,rc,tc->rht", own[0], factors[:, :2] + 1j * factors[:, 2:], own[1].conj()).real
        np.testing.assert_array_equal(scores, product)
    free = loop_free(every[rng.random(len(every)) < 0.1], 3, heads == tails)
    wanted = slow_ranks(scores, triples, {*map(tuple, true_triples.tolist())}, free).reshape(-1, 2)
    found = triple_ranks(triples, true_triples, free, lambda relation: (
        (queries(sources, factors[relation], decoder, False), targets),
        (queries(targets, factors[relation], decoder, True), sources),
    ))  # fmt: skip
    np.testing.assert_array_equal(found, wanted)
    rows = [torch.from_numpy(each) for each in (sources, targets)]
    of_relation = torch.from_numpy(factors)[triples[:, 1]]
    for side in (0, 1):
        kept, others = (2, 0) if side else (0, 2)
        of_kept = queries(rows[side][triples[:, kept]], of_relation, decoder, bool(side), torch.cat)
        there = triple_prediction.TrueTriples(true_triples, bool(side), (heads, tails))
        nodes = np.arange((tails, heads)[side])
        ranks = ranks_among(
            of_kept, rows[1 - side], partial(there.among, triples[:, kept], triples[:, 1], nodes, free),
            (of_kept * rows[1 - side][triples[:, others]]).sum(1),
        )  # fmt: skip
        loops = free[triples[:, 1]] & (triples[:, 0] == triples[:, 2])
        np.testing.assert_array_equal(ranks[~loops], wanted[~loops, side])


def test_relations_without_loops() -> None:
    triples = np.array([[0, 0, 1], [2, 1, 2], [1, 1, 0]])
    np.testing.assert_array_equal(loop_free(triples, 3, True), [True, False, True])
    assert not loop_free(triples, 3, False).any()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Nodes in a circle, and relations that are steps on it; one has three triples."""
    folder = tmp_path_factory.mktemp("circle")
    rows = [
        (f"n{i:02}", name, f"n{(i + step) % NODES:02}")
        for name, step in STEPS.items() for i in range(NODES) if name != "rare" or i < 3
    ]  # fmt: skip
    (folder / "kg.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    return run_stage(heterograph.STAGE, {"format": "triples"}, {"edges": str(folder / "kg.tsv")}, folder / "graph")


def test_each_relation_gives_its_share_and_none_is_lost(whole: Dataset, tmp_path: Path) -> None:
    held = run_stage(holdout_links.STAGE, {"validation_share": 0.1}, {"graph": whole.uri}, tmp_path / "held")
    graph = HeteroGraph.open(held)
    held_out = read_triples(graph)
    assert held_out.relations == ("after_next", "before", "next", "rare")
    for split in ("validation", "test"):
        assert np.bincount(held_out.triples[split][:, 1], minlength=4).tolist() == [2, 2, 2, 0]
    every = {*map(tuple, triples_of(HeteroGraph.open(whole), held_out.relations).tolist())}
    parts = [triples_of(graph, held_out.relations), *held_out.triples.values()]
    assert sorted(every) == sorted(tuple(each) for part in parts for each in part.tolist())
    others = np.concatenate([*held_out.others.values()])
    assert others[:, 1].tolist() == np.concatenate([*held_out.triples.values()])[:, 1].tolist()
    assert not {*map(tuple, others.tolist())} & every
    for head, number, tail in np.concatenate([*held_out.triples.values()]).tolist():
        indptr, indices = graph.rows(f"reverse_{held_out.relations[number]}")
        assert head not in indices[indptr[tail] : indptr[tail + 1]]
    assert "relations have too few triples" in str(held.stats)


def test_too_few_triples_and_other_bad_input(whole: Dataset, tmp_path: Path) -> None:
    graph = {"graph": whole.uri}
    with pytest.raises(UserError, match="no relation has triples enough to hide one for test"):
        run_stage(holdout_links.STAGE, {"test_share": 0.01}, graph, tmp_path / "few")
    with pytest.raises(UserError, match="of one relation alone"):
        run_stage(holdout_links.STAGE, {"by": "time"}, graph, tmp_path / "time")
    links = tmp_path / "links.csv"
    for rows, message in (
        ("n00,hates,n01,test\n", "relations that are not in the graph: 'hates' in row 1"),
        ("n00,next,n01,validation\n", "no triples to test"),
        ("n00,next,n01,test\nn00,next,n01,validation\n", "in two splits"),
        ("n00,next,n05,train\nn00,next,n01,test\n", "train are not in the graph"),
    ):
        links.write_text("source,relation,target,split\n" + rows)
        with pytest.raises(UserError, match=message):
            run_stage(holdout_links.STAGE, {}, graph | {"links": str(links)}, tmp_path / "given")
    links.write_text("source,relation,target,split\nn00,after next,n02,test\nn03,next,n09,test\n")
    held = run_stage(holdout_links.STAGE, {}, graph | {"links": str(links)}, tmp_path / "held")
    assert sorted(read_triples(HeteroGraph.open(held)).triples["test"].tolist()) == [[0, 0, 2], [3, 2, 9]]
    with pytest.raises(UserError, match="scores all relations alike"):
        run_stage(train.STAGE, {"decoder": "dot"}, {"graph": held.uri}, tmp_path / "train")


def test_learned_ranked_and_served(whole: Dataset, tmp_path: Path) -> None:
    held = run_stage(holdout_links.STAGE, {"test_share": 0.2, "edges": "all"}, {"graph": whole.uri}, tmp_path / "held")
    given = {"graph": held.uri}
    params = {"hidden": 16, "epochs": 30, "negatives": 16}
    trained = run_stage(train.STAGE, params, given, tmp_path / "train")
    given["network"] = trained.uri
    found = run_stage(infer.STAGE, {}, given, tmp_path / "infer")
    simple = run_stage(baselines_links.STAGE, {}, {"graph": held.uri}, tmp_path / "simple")
    judged = {"graph": held.uri, "predictions": found.uri, "baselines": simple.uri}
    scored = run_stage(score_links.STAGE, {}, judged, tmp_path / "score")
    metrics = scored.json("metrics.json")
    table = scored.table("relations.parquet").to_pandas()
    test = table[table["split"] == "test"]
    assert test["ranked"].sum() == held.stats["test_links"]
    assert np.average(test["mrr"].fillna(0), weights=test["ranked"]) == pytest.approx(metrics["mrr@test"])
    assert metrics["mrr@test"] > simple.json("metrics.json")["relation_frequency_mrr@test"]
    validated = trained.json("history.json")[trained.stats["best_epoch"] - 1]["validation_mrr"]
    assert validated <= metrics["mrr@validation"]  # with triples to test left out too, ranks can only fall
    bundle = run_stage(publish_predictions.STAGE, {}, given | {"predictions": found.uri}, tmp_path / "bundle")
    rows = found.table("predictions.parquet").to_pandas()
    model = serving.load(Path(bundle.uri))
    answer = model.predict(rows[["source", "relation", "target"]], {})
    np.testing.assert_allclose(answer["score"], rows["score"], atol=1e-4)
    bad = model.predict(pd.DataFrame([{"source": "n00", "relation": "hates", "target": "n01"}]), {})
    assert "hates" in bad["error"][0]
    given = {"graph": held.uri, "predictions": found.uri}
    links = run_stage(predict_links.STAGE, {"k": 4}, given, tmp_path / "links").table(predict_links.LINKS).to_pandas()
    whole = read_triples(HeteroGraph.open(held))
    names = np.array(HeteroGraph.open(held).ids("node").to_pylist())
    true_triples = np.concatenate([triples_of(HeteroGraph.open(held), whole.relations), *whole.triples.values()])
    joined = {(names[h], whole.relations[r], names[t]) for h, r, t in true_triples.tolist()}
    every = pd.DataFrame([
        (head, relation, tail) for head, relation in sorted({each[:2] for each in joined}) for tail in names
        if (head, relation, tail) not in joined and tail != head
    ], columns=["source", "relation", "target"])  # fmt: skip
    every["score"] = model.predict(every, {})["score"].astype(float)
    best = every.sort_values(["source", "relation", "score"], ascending=[True, True, False])
    best = best.groupby(["source", "relation"]).head(4)
    ordered = links.sort_values(["source", "relation", "rank"])
    np.testing.assert_allclose(ordered["score"], best["score"], atol=1e-4)
    assert ordered[["source", "relation", "target"]].values.tolist() == best.iloc[:, :3].values.tolist()
    few = run_stage(predict_links.STAGE, {"nodes": 1}, given, tmp_path / "few").table(predict_links.LINKS)
    counts = pd.Series([each[:2] for each in joined]).value_counts()
    assert counts[few["source"][0].as_py(), few["relation"][0].as_py()] == counts.max()
