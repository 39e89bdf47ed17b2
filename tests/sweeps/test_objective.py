"""Objectives: their names, their values, what a trial must compute for them; samplers and pruners by default."""

from pathlib import Path

import pytest

from superworkflow.flows import load_superworkflow
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.request import Request, build_request
from superworkflow.infra.contract.metrics import Metric, find_metric
from superworkflow.sweeps.objective import choose_quality, needed_nodes, parse_objectives
from superworkflow.sweeps.sampling import choose_pruner, choose_sampler, trial_seed
from superworkflow.sweeps.setup import Wishes, set_up
from superworkflow.sweeps.summary import TrialRow, best_rows
from superworkflow.sweeps.trial import shared_profile

NODE2VEC = load_superworkflow("node2vec")


def _request(graph_files: tuple[Path, Path], *assignments: str) -> Request:
    sources = {"edges": str(graph_files[0]), "labels": str(graph_files[1])}
    return build_request(NODE2VEC, sources=sources, assignments=assignments)


def test_quality_by_sources() -> None:
    with_labels = choose_quality(NODE2VEC, ["edges", "labels"])
    assert [each.name for each in parse_objectives(["quality", "cost"], with_labels)] == ["evaluate.macro_f1", "cost"]
    alone = choose_quality(NODE2VEC, ["edges"])
    assert [each.name for each in parse_objectives(["quality"], alone)] == ["evaluate.link_auc@hadamard"]
    loss, cost = parse_objectives(["-embed.loss", "cost"], None)
    assert (loss.maximize, cost.maximize) == (False, False)


@pytest.mark.parametrize("texts", [["quality"], ["f1"], ["cost", "cost"], ["evaluate.f1", ""]])
def test_bad_objectives(texts: list[str]) -> None:
    with pytest.raises(UserError):
        parse_objectives(texts, None)


def test_metric_of_several_settings() -> None:
    metrics = {"f1@0.1": 1, "f1@0.5": 2, "f1@0.9": 3, "auc@hadamard": 4, "loss": 5, "rmse@a": 6, "rmse@b": 7}
    assert find_metric("f1", metrics) == "f1@0.5"
    assert find_metric("f1@0.9", metrics) == "f1@0.9"
    assert find_metric("loss", metrics) == "loss"
    assert find_metric("auc", metrics) == "auc@hadamard"
    assert find_metric("rmse", metrics) is None
    assert find_metric("au", metrics) is None
    (auc, rmse, none) = parse_objectives(["evaluate.auc", "evaluate.rmse", "evaluate.mae"], None)
    assert auc.value(metrics, 1.0, 1.0) == 4
    with pytest.raises(UserError, match=r"several settings.*rmse@a, rmse@b"):
        rmse.value(metrics, 1.0, 1.0)
    with pytest.raises(UserError, match="no stage reports this figure"):
        none.value(metrics, 1.0, 1.0)


def test_metric_that_is_declared_at_words_alone() -> None:
    """Before a trial runs: one word stands for its figure, of several one must be named."""
    one = (Metric("fit", "loss@validation", "minimize"),)
    assert [each.maximize for each in parse_objectives(["fit.loss"], None, one)] == [False]
    both = (*one, Metric("fit", "loss@test", "minimize"))
    with pytest.raises(UserError, match=r"several settings.*fit\.loss@test, fit\.loss@validation"):
        parse_objectives(["fit.loss"], None, both)
    assert [each.name for each in parse_objectives(["fit.loss@test"], None, both)] == ["fit.loss@test"]


def test_trials_compute_no_more_than_their_objective_needs(graph_files: tuple[Path, Path]) -> None:
    request = _request(graph_files)
    setup = set_up(request, Wishes())
    needed = needed_nodes(setup.request.diagram, parse_objectives(["evaluate.macro_f1"], None))
    assert needed == ["index", "label", "walk", "prepare", "embed", "evaluate"]
    requested = set_up(
        _request(graph_files, "node2vec.link_prediction=true"), Wishes(fixed=frozenset({"node2vec.link_prediction"}))
    )
    assert "holdout-embed" in requested.request.diagram.nodes
    with pytest.raises(UserError, match=r"evalute.*Did you mean evaluate\?"):
        needed_nodes(request.diagram, parse_objectives(["evalute.micro_f1"], None))
    with pytest.raises(UserError, match=r"evaluate.micr_f1.*Did you mean evaluate.micro_f1\?"):
        needed_nodes(request.diagram, parse_objectives(["evaluate.micr_f1"], None))


def test_groups(graph_files: tuple[Path, Path]) -> None:
    spec = set_up(_request(graph_files), Wishes(group=("walk", 4))).spec
    assert spec.shared == ["walk.num_walks", "walk.walk_length", "walk.p", "walk.q"]
    with pytest.raises(UserError, match="every one of the searched parameters"):
        set_up(_request(graph_files), Wishes(group=("evaluate", 4)))
    with pytest.raises(UserError, match="no such stage"):
        set_up(_request(graph_files), Wishes(group=("wlak", 4)))


def test_name_of_a_study(graph_files: tuple[Path, Path]) -> None:
    names = [
        set_up(_request(graph_files), wishes).spec.name()
        for wishes in (Wishes(), Wishes(trials=300, seed=7), Wishes(objectives=["evaluate.micro_f1"]))
    ]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    ("requested", "trials", "objectives", "expected"),
    [(None, 8, 1, "random"), (None, 40, 1, "tpe"), (None, 40, 2, "tpe"), (None, 200, 2, "nsga2"), ("gp", 8, 1, "gp")],
)
def test_default_sampler(requested: str | None, trials: int, objectives: int, expected: str) -> None:
    choice = choose_sampler(requested, trials, objectives)
    assert choice.name == expected
    assert choice.reason


def test_default_pruner() -> None:
    assert choose_pruner(None, 1, 2).name == "median"
    assert choose_pruner(None, 2, 2).name == choose_pruner(None, 1, 1).name == "none"
    assert choose_pruner("none", 1, 0).name == "none"
    with pytest.raises(UserError, match="several objectives"):
        choose_pruner("median", 2, 9)
    with pytest.raises(UserError, match=r"--pruner: .*no stage of this objective reports more than one"):
        choose_pruner("hyperband", 1, 1)


def test_trial_seeds_differ() -> None:
    assert len({trial_seed(seed, number) for seed in range(3) for number in range(100)}) == 300


@pytest.mark.parametrize(("parallel", "cores"), [(1, 4), (2, 4), (3, 4), (4, 4), (9, 4), (2, 1)])
def test_threads_never_exceed_the_cores(graph_files: tuple[Path, Path], parallel: int, cores: int) -> None:
    request = _request(graph_files)
    profile, at_once = shared_profile(request.profile, parallel, cores)
    most = max(
        profile.placement(node.name, node.stage.name).resources.threads for node in request.diagram.nodes.values()
    )
    assert at_once <= parallel
    assert most * at_once * profile.concurrency <= cores


def _row(number: int, values: tuple[float, ...] | None, feasible: bool = True) -> TrialRow:
    return TrialRow(number, "complete", {}, values, 0.0, 0.0, 0.0, 0.0, "", feasible)


def test_best_trials() -> None:
    quality, cost = parse_objectives(["evaluate.f1", "cost"], None)
    rows = [_row(0, (0.5, 1.0)), _row(1, (0.7, 2.0)), _row(2, (0.6, 3.0)), _row(3, (0.9, 1.0), False), _row(4, None)]
    rows.append(_row(5, (0.5, 1.0)))
    assert [row.number for row in best_rows(rows, [quality, cost])] == [1, 0]
    single = [_row(0, (0.5,)), _row(1, (0.7,)), _row(2, (0.7,)), _row(3, (0.9,), False)]
    assert [row.number for row in best_rows(single, [quality])] == [1]
