"""Stage `baselines_links`: figures of networkx and scikit-learn on the same held-out pairs."""

import io

import networkx as nx
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from superworkflow.tasks import baselines_links, holdout_links, infer, score_links, train
from superworkflow.tasks.baselines_links import paths
from superworkflow.tasks.lib.baseline_warnings import link_warnings
from superworkflow.tasks.lib.gnn.sampler.links import HELD_OUT, links_of, read_held_out
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.gnn_graphs import one_kind, two_kinds
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage


def paths_of_three(graph: nx.Graph, source: int, target: int, power: float = 0.5) -> float:
    return sum(
        (graph.degree(u) * graph.degree(v)) ** -power
        for u in graph[source] for v in graph[u] if target in graph[v]
    )  # fmt: skip


def short_walks(graph: nx.Graph, source: int, target: int) -> float:
    shared = sum(1 / graph.degree(u) for u in graph[source] if target in graph[u])
    return shared + paths_of_three(graph, source, target, 1.0)


@pytest.mark.parametrize("directed", [False, True], ids=["both-ways", "one-way"])
def test_figures_are_those_of_networkx(tmp_path, directed):
    """Within one set a link has no direction, however its edges are stored."""
    graph = one_kind(tmp_path / "graph")
    if directed:
        names = [f"n{i:03}" for i in range(90)]
        rows = HeteroGraph.open(graph).rows("edge")
        pairs = links_of(rows, True)
        turned = [(names[u], names[v]) if (u + v) % 2 else (names[v], names[u]) for u, v in pairs.tolist()]
        graph = write_heterograph(
            tmp_path / "one-way", {"node": Nodes(names)}, {"edge": Edges("node", "node", sorted(turned))}
        )
    params = {"validation_share": 0.1, "test_share": 0.2}
    held = run_stage(holdout_links.STAGE, params, {"graph": graph.uri}, tmp_path / "held")
    found = run_stage(baselines_links.STAGE, {}, {"graph": held.uri}, tmp_path / "baselines").metrics
    opened = HeteroGraph.open(held)
    out = read_held_out(opened)
    learned = nx.Graph(links_of(opened.rows("edge"), True).tolist())
    learned.add_nodes_from(range(90))
    for split in HELD_OUT:
        pairs = [tuple(each) for each in np.concatenate([out.links[split], out.others[split]]).tolist()]
        truth = np.arange(len(pairs)) < len(out.links[split])
        scores = {
            "degree_product": [p for _, _, p in nx.preferential_attachment(learned, pairs)],
            "common_neighbors": [len(list(nx.common_neighbors(learned, u, v))) for u, v in pairs],
            "adamic_adar": [p for _, _, p in nx.adamic_adar_index(learned, pairs)],
            "paths_of_length_3": [paths_of_three(learned, u, v) for u, v in pairs],
            "short_walks": [short_walks(learned, u, v) for u, v in pairs],
        }
        for name, values in scores.items():
            assert found[f"{name}_auc@{split}"] == pytest.approx(roc_auc_score(truth, values), abs=1e-12)
            assert found[f"{name}_ap@{split}"] == pytest.approx(average_precision_score(truth, values), abs=1e-12)


def test_nodes_of_two_sets_have_no_neighbours_in_common(tmp_path):
    graph, log = two_kinds(tmp_path / "graph"), io.StringIO()
    given = {"graph": graph.uri}
    held = run_stage(holdout_links.STAGE, {"edges": "writes", "validation_share": 0.1}, given, tmp_path / "held")
    given = {"graph": held.uri}
    found = run_stage(baselines_links.STAGE, {}, given, tmp_path / "baselines", log=log).metrics
    opened = HeteroGraph.open(held)
    out, links = read_held_out(opened), links_of(opened.rows("writes"), False)
    authors, papers = np.bincount(links[:, 0], minlength=15), np.bincount(links[:, 1], minlength=40)
    pairs = np.concatenate([out.links["test"], out.others["test"]])
    truth = np.arange(len(pairs)) < len(out.links["test"])
    wanted = roc_auc_score(truth, authors[pairs[:, 0]] * papers[pairs[:, 1]])
    assert found["degree_product_auc@test"] == pytest.approx(wanted, abs=1e-12)
    methods = {each for each in baselines_links.METHODS if f"{each}_auc@test" in found}
    assert methods == {"degree_product", "paths_of_length_3", "short_walks"}
    learned = nx.Graph([(("author", u), ("paper", v)) for u, v in links.tolist()])
    learned.add_nodes_from(("author", u) for u in range(15))
    learned.add_nodes_from(("paper", v) for v in range(40))
    paths = [paths_of_three(learned, ("author", u), ("paper", v)) for u, v in pairs.tolist()]
    assert found["paths_of_length_3_auc@test"] == pytest.approx(roc_auc_score(truth, paths), abs=1e-12)
    assert "common neighbours are left out" in log.getvalue()
    whole = links_of(HeteroGraph.open(graph).rows("writes"), False)
    ranks = {"degree_product": [], "paths_of_length_3": [], "short_walks": []}
    for author, paper in out.links["test"].tolist():
        for pairs in ([(author, each) for each in range(40)], [(each, paper) for each in range(15)]):
            left = [each for each in pairs if each == (author, paper) or each not in set(map(tuple, whole.tolist()))]
            for name, score in (
                ("degree_product", lambda u, v: authors[u] * papers[v]),
                ("paths_of_length_3", lambda u, v: paths_of_three(learned, ("author", u), ("paper", v))),
                ("short_walks", lambda u, v: short_walks(learned, ("author", u), ("paper", v))),
            ):
                ranks[name].append(rank_of([score(*each) for each in left], left.index((author, paper))))
    for name, each in ranks.items():
        assert found[f"{name}_mrr@test"] == pytest.approx((1 / np.array(each)).mean(), abs=1e-12)
        assert found[f"{name}_hits_at_k@test"] == np.mean(np.array(each) <= 10)


def rank_of(scores: list[float], own: int) -> float:
    others = np.delete(scores, own)
    equal = np.isclose(others, scores[own], rtol=1e-9)
    return 1 + (~equal & (others > scores[own])).sum() + equal.sum() / 2


@pytest.mark.parametrize("directed", [False, True])
def test_ranks_are_among_the_nodes_that_the_network_ranks_among(tmp_path, directed):
    """By plain enumeration: without links, held out or not, and without the node itself."""
    given = {"graph": one_kind(tmp_path / "graph").uri}
    params = {"validation_share": 0.1, "test_share": 0.2, "directed": directed}
    held = run_stage(holdout_links.STAGE, params, given, tmp_path / "held")
    log = io.StringIO()
    found = run_stage(baselines_links.STAGE, {}, {"graph": held.uri}, tmp_path / "baselines", log=log).metrics
    opened = HeteroGraph.open(held)
    out, rows = read_held_out(opened), opened.rows("edge")
    learned = nx.Graph(links_of(rows, True).tolist())
    learned.add_nodes_from(range(90))
    arcs = np.concatenate([links_of(rows, not directed), *out.links.values()])
    there = set(map(tuple, arcs.tolist())) | set(map(tuple, arcs[:, ::-1].tolist() if not directed else []))
    own, ranks = links_of(rows, False), {"degree_product": [], "common_neighbors": [], "adamic_adar": []}
    away, towards = (np.bincount(own[:, side], minlength=90) for side in (0, 1))
    for ends in out.links["test"].tolist():
        for side in (0, 1):
            pairs = [(each, ends[1]) if side else (ends[0], each) for each in range(90)]
            left = [each for each in pairs if each == tuple(ends) or (each not in there and each[0] != each[1])]
            scores = {
                "degree_product": [float(away[u] * towards[v]) for u, v in left],
                "common_neighbors": [len(list(nx.common_neighbors(learned, u, v))) for u, v in left],
                "adamic_adar": [p for _, _, p in nx.adamic_adar_index(learned, left)],
            }
            for name, each in scores.items():
                ranks[name].append(rank_of(each, left.index(tuple(ends))))
    for name, each in ranks.items():
        assert found[f"{name}_mrr@test"] == pytest.approx((1 / np.array(each)).mean(), abs=1e-12), name
        assert f"{name}_mrr@validation" not in found
        assert f"mrr {found[f'{name}_mrr@test']:.4f} (test)" in log.getvalue()


def test_no_ranks_where_hubs_make_them_too_much_work(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "MOST_STEPS", 1000)
    given, log = {"graph": one_kind(tmp_path / "graph").uri}, io.StringIO()
    held = run_stage(holdout_links.STAGE, {"test_share": 0.2}, given, tmp_path / "held")
    found = run_stage(baselines_links.STAGE, {}, {"graph": held.uri}, tmp_path / "baselines", log=log).metrics
    assert not [name for name in found if "mrr" in name]
    assert "links are not ranked by simpler methods" in log.getvalue()


def test_a_network_that_is_worse_is_a_warning(tmp_path):
    """One for all scores that are better than vectors without a sense; none for a network that beats them."""
    graph = run_stage(
        holdout_links.STAGE, {"test_share": 0.2}, {"graph": str(one_kind(tmp_path / "graph").location.local_path)},
        tmp_path / "held",
    )  # fmt: skip
    given = {"graph": graph.uri}
    network = run_stage(train.STAGE, {"epochs": 1, "hidden": 4, "batch": 64, "fanouts": "2,2"}, given, tmp_path / "n")
    found = run_stage(infer.STAGE, {}, {**given, "network": network.uri}, tmp_path / "infer")
    simple = run_stage(baselines_links.STAGE, {}, given, tmp_path / "baselines")
    scored = run_stage(
        score_links.STAGE, {},
        {**given, "predictions": found.uri, "baselines": simple.uri},
        tmp_path / "score",
    )  # fmt: skip
    own, others = scored.metrics, simple.metrics
    better = [name for name in baselines_links.METHODS if others[f"{name}_auc@test"] > own["auc@test"] + 0.005]
    warnings = [str(value) for name, value in scored.stats.items() if name.startswith("input_warning.")]
    predicted = [each for each in warnings if "predicted better" in each]
    assert len(predicted) == bool(better)
    assert all(name.replace("_", " ") in each for each in predicted for name in better)
    higher = any(others[f"{name}_mrr@test"] > own["mrr@test"] + 0.01 for name in baselines_links.METHODS)
    assert len(warnings) == len(predicted) + higher
    assert link_warnings({"auc@test": 0.7}, {"degree_product_auc@test": 0.704}) == []
    (only,) = link_warnings({"auc@test": 0.7}, {"degree_product_auc@test": 0.8, "adamic_adar_auc@test": 0.6})
    assert "got 0.7000, degree product 0.8000)" in str(only)
    found = {"auc@test": 0.9, "mrr@test": 0.2}
    assert link_warnings(found, {"short_walks_auc@test": 0.9, "short_walks_mrr@test": 0.209}) == []
    (only,) = link_warnings(found, {"short_walks_auc@test": 0.9, "short_walks_mrr@test": 0.22})
    assert "ranked better" in str(only)
    assert "got 0.2000, short walks 0.2200)" in str(only)
