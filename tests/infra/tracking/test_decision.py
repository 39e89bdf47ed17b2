"""Gates, and whether figures allow a promotion: pure decisions."""

import math

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.contract.registration import Gate, Limit, Registration, check_gates, check_limits
from superworkflow.infra.tracking.decision import Decision, Scored, decide

F1 = Metric("judge", "f1", headline=True, uncertainty="f1_std")
LOSS = Metric("judge", "loss", "minimize", headline=True)
OTHER = Metric("judge", "auc")
UNSEEN = Metric("judge", "acc", headline=True, promotes=True)
RANKS = Metric("judge", "mrr", promotes="simple.mrr")


def judged(
    own: dict[str, float], champion: dict[str, float] | None, *declared: Metric, fault: str = "", **registration: object
) -> Decision:
    scored = None if champion is None else Scored(1, champion, "rescored", fault)
    return decide("m", 2, own, declared or (F1,), scored, parse_params(Registration, registration, "registration"))


@pytest.mark.parametrize(
    ("text", "metric", "comparison", "limit"),
    [
        ("judge.f1>=0.4", "judge.f1", ">=", 0.4),
        (" judge.f1@0.5 > 1e-3 ", "judge.f1@0.5", ">", 1e-3),
        ("a-b.loss<=-2", "a-b.loss", "<=", -2.0),
        ("a.loss<5", "a.loss", "<", 5.0),
    ],
)
def test_gates_are_parsed(text: str, metric: str, comparison: str, limit: float) -> None:
    gate = Gate.parse(text)
    assert gate == Gate(metric, comparison, limit)
    assert Gate.parse(str(gate)) == gate


@pytest.mark.parametrize("text", ["", "judge.f1", "f1>=1", "judge.f1=1", "judge.f1>=", "judge.f1>=high", "a.b>=nan"])
def test_what_is_no_gate(text: str) -> None:
    with pytest.raises(UserError, match="not a gate"):
        Gate.parse(text)
    with pytest.raises(UserError, match=r"registration\.gates: .*not a gate"):
        parse_params(Registration, {"gates": [text]}, "registration")


def test_gates_of_metrics_that_are_not_declared() -> None:
    check_gates(["judge.f1>=0.1", "judge.f1@0.9>=0.1"], (F1,))
    with pytest.raises(UserError, match=r"no such metric .got 'judge.f2>=1'.. Did you mean judge.f1\?"):
        check_gates(["judge.f2>=1"], (F1,))


@pytest.mark.parametrize(
    ("metrics", "passes"),
    [
        ({"judge.f1": 0.4}, True),
        ({"judge.f1": 0.39}, False),
        ({"judge.f1@0.1": 0.1, "judge.f1@0.5": 0.4, "judge.f1@0.9": 0.9}, True),
        ({"judge.f1": math.nan}, False),
        ({"judge.auc": 1.0}, False),
    ],
)
def test_gate_decides(metrics: dict[str, float], passes: bool) -> None:
    decision = judged(metrics, None, gates=["judge.f1>=0.4"])
    assert decision.verdict == ("promoted" if passes else "rejected")
    assert decision.gates == {"judge.f1>=0.4": passes}


@pytest.mark.parametrize(
    ("own", "champion", "declared", "verdict"),
    [
        ({"judge.f1": 0.5}, {"judge.f1": 0.5}, (F1,), "promoted"),
        ({"judge.f1": 0.49}, {"judge.f1": 0.5}, (F1,), "rejected"),
        ({"judge.f1": 0.49}, {"judge.f1": 0.5, "judge.f1_std": 0.02}, (F1,), "promoted"),
        ({"judge.f1": 0.47}, {"judge.f1": 0.5, "judge.f1_std": 0.02}, (F1,), "rejected"),
        # The challenger's own spread is no excuse.
        ({"judge.f1": 0.47, "judge.f1_std": 0.2}, {"judge.f1": 0.5, "judge.f1_std": 0.02}, (F1,), "rejected"),
        ({"judge.loss": 2.0}, {"judge.loss": 1.0}, (LOSS,), "rejected"),
        ({"judge.loss": 1.0}, {"judge.loss": 2.0}, (LOSS,), "promoted"),
        # The first headline that both have.
        ({"judge.f1": 0.1, "judge.loss": 1.0}, {"judge.loss": 2.0}, (F1, LOSS), "promoted"),
        ({"judge.loss": 1.0}, {"judge.f1": 0.5}, (F1, LOSS), "rejected"),
        # One that promotes comes before the headlines that are declared first.
        ({"judge.f1": 0.9, "judge.acc": 0.1}, {"judge.f1": 0.1, "judge.acc": 0.5}, (F1, UNSEEN), "rejected"),
        ({"judge.f1": 0.1, "judge.acc": 0.5}, {"judge.f1": 0.9, "judge.acc": 0.1}, (F1, UNSEEN), "promoted"),
        ({"judge.f1": 0.1}, {"judge.f1": 0.9, "judge.acc": 0.1}, (F1, UNSEEN), "rejected"),
        # One that promotes only with another figure of the run.
        ({"judge.acc": 0.9, "judge.mrr": 0.1}, {"judge.acc": 0.5, "judge.mrr": 0.5}, (UNSEEN, RANKS), "promoted"),
        ({"judge.acc": 0.9, "judge.mrr": 0.1, "simple.mrr": 0.1}, {"judge.acc": 0.5, "judge.mrr": 0.5},
         (UNSEEN, RANKS), "rejected"),
        ({"judge.acc": 0.9, "judge.mrr": 0.1, "simple.mrr": 0.1}, {"judge.acc": 0.5}, (UNSEEN, RANKS), "promoted"),
        ({}, {"judge.f1": 0.5}, (F1,), "rejected"),
        ({"judge.f1": math.nan}, {"judge.f1": 0.5}, (F1,), "rejected"),
        ({"judge.f1": 0.5}, {"judge.f1": math.nan}, (F1,), "rejected"),
        ({"judge.auc": 0.1}, {"judge.auc": 0.5}, (OTHER,), "promoted"),
        ({"judge.f1@0.5": 0.49}, {"judge.f1@0.5": 0.5, "judge.f1_std@0.5": 0.02}, (F1,), "promoted"),
    ],
)  # fmt: skip
def test_quality_against_the_champion(
    own: dict[str, float], champion: dict[str, float], declared: tuple[Metric, ...], verdict: str
) -> None:
    assert judged(own, champion, *declared).verdict == verdict


def test_tolerance_that_is_given_takes_the_place_of_the_spread() -> None:
    champion = {"judge.f1": 0.5, "judge.f1_std": 0.3}
    assert judged({"judge.f1": 0.45}, champion, tolerance=0.0).verdict == "rejected"
    assert judged({"judge.f1": 0.45}, champion, tolerance=0.1).verdict == "promoted"
    with pytest.raises(UserError, match=r"registration\.tolerance"):
        judged({}, champion, tolerance=-1)


def test_a_decision_says_why() -> None:
    decision = judged({"judge.f1": 0.3}, {"judge.f1": 0.5, "judge.f1_std": 0.02}, gates=["judge.f1>=0.4"])
    assert str(decision) == (
        "m version 2: rejected: gate judge.f1>=0.4: judge.f1 is 0.3000; "
        "judge.f1 0.3000 against 0.5000 of version 1 (scored again on the same data), tolerance 0.0200"
    )
    assert decision.figures == {"quality": 0.3, "champion_quality": 0.5, "tolerance": 0.02}
    lost = judged({"judge.f1": 0.9}, {}, fault="its dataset is gone")
    assert judged({}, None).why.startswith("promoted: the first model under this name; this run has none")
    lacking = "this run has none of the figures to compare by (judge.f1)"
    assert judged({}, {"judge.f1": 0.5}).why == f"rejected: {lacking}; a person may promote it"
    assert lost.why == "rejected: its dataset is gone; a person may promote it"


@pytest.mark.parametrize("name", ["a/b", "a'b", " a", "a\n", "a" + "`"])
def test_names_that_no_model_can_have(name: str) -> None:
    with pytest.raises(UserError, match="not a name that a model can have"):
        parse_params(Registration, {"name": name}, "registration")


@pytest.mark.parametrize("text", ["", "rows", "rows=", "rows=high", "rows=-1", "rows=nan", "rows>=1"])
def test_what_is_no_limit_of_drift(text: str) -> None:
    with pytest.raises(UserError, match="not a limit of drift"):
        Limit.parse(text)
    with pytest.raises(UserError, match=r"registration\.max_drift: .*not a limit of drift"):
        parse_params(Registration, {"max_drift": [text]}, "registration")


def test_limits_of_figures_that_no_stage_reports() -> None:
    check_limits(["rows=0.1", "rows@a=0.1"], ("rows",))
    with pytest.raises(UserError, match=r"no such figure of drift .got 'rowz=1'.. Did you mean rows\?"):
        check_limits(["rowz=1"], ("rows",))


@pytest.mark.parametrize(
    ("drift", "first", "why"),
    [
        ({"rows": 0.2}, False, ""),
        ({"rows": 0.3}, False, "limit of drift rows=0.25: rows is 0.3"),
        ({"rows": math.nan}, False, "limit of drift rows=0.25: rows is nan"),
        ({"rows@a": 0.1, "rows@b": 0.3}, False, "limit of drift rows=0.25: rows@b is 0.3"),
        ({}, False, "limit of drift rows=0.25: the run reports no rows"),
        ({}, True, ""),
        ({"rows": 0.3}, True, "limit of drift rows=0.25: rows is 0.3"),
    ],
)
def test_limits_of_drift(drift: dict[str, float], first: bool, why: str) -> None:
    registration = parse_params(Registration, {"max_drift": ["rows=0.25"]}, "registration")
    champion = None if first else Scored(1, {"judge.f1": 0.5}, "rescored")
    decision = decide("m", 2, {"judge.f1": 0.5}, (F1,), champion, registration, drift)
    assert decision.verdict == ("rejected" if why else "promoted")
    assert why in decision.why
    assert decision.gates == {"drift rows=0.25": not why}
