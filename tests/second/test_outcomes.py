"""Outcomes as a superworkflow declares them: metrics by node, a model with code of its own, a picture."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from superworkflow.__main__ import main
from superworkflow.dashboards.report import attach_pictures
from superworkflow.flows import load_superworkflow
from superworkflow.flows.node2vec import SUPERWORKFLOW as NODE2VEC
from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.config.request import build_request
from superworkflow.infra.contract.diagram import Diagram, Node
from superworkflow.infra.contract.metrics import Figure, Metric, figures, headlines, metrics_text, read_metrics
from superworkflow.infra.contract.outcomes import Model, Picture, Rescoring
from superworkflow.infra.contract.superworkflow import Export
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord
from superworkflow.infra.tracking.registry import process_tracking_uri, register
from superworkflow.sweeps.objective import choose_quality, parse_objectives
from superworkflow.sweeps.setup import Wishes, set_up
from tests.second.conftest import Second
from tests.second.flows.second import SUPERWORKFLOW

MODEL = SUPERWORKFLOW.registered[0]


@pytest.fixture(scope="module")
def ran(second: Second) -> dict[str, Any]:
    """The document of a run."""
    return second(
        "run", "--set", "curved.degree=2", "--json", "--name", "both", "--register", "progression",
        "--gate", "choose.rmse<60",
    ).document  # fmt: skip


def test_two_nodes_of_a_stage_keep_their_metrics(ran: dict[str, Any]) -> None:
    metrics = ran["metrics"]
    assert set(metrics) == {f"{node}.{name}" for node in ("fit", "curved", "choose") for name in ("rmse", "rmse_std")}
    assert metrics["fit.rmse"] != metrics["curved.rmse"]
    assert metrics["choose.rmse"] == min(metrics["fit.rmse"], metrics["curved.rmse"])
    assert 50 < metrics["choose.rmse"] < 60, "as least squares has it on these patients"


def test_records(
    second: Second, ran: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = MlflowClient(f"sqlite:///{second.store}/mlflow/mlflow.db")
    run = client.get_run(ran["run_id"])
    assert {name: run.data.metrics[f"quality/{name}"] for name in ran["metrics"]} == ran["metrics"]
    assert read_metrics(run.data.tags["superworkflow.metrics"]) == SUPERWORKFLOW.metrics
    pictures = {file.path for file in client.list_artifacts(ran["run_id"], "pictures")}
    assert pictures == {"pictures/stages.png", "pictures/choose-residuals.png"}
    version = client.get_model_version_by_alias("progression", "current")
    assert f"`choose.rmse` **{ran['metrics']['choose.rmse']:.4f}**\n\npromoted: the first model" in version.description
    logged = client.get_logged_model(str(version.source).removeprefix("models:/"))
    found = {each.key: each.value for each in logged.metrics or ()}
    assert found == {"quality/choose.rmse": ran["metrics"]["choose.rmse"]}
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main(["runs", "--store", str(second.store)]) == 0
    (listed,) = [line for line in capsys.readouterr().out.splitlines() if "both" in line]
    assert f"choose.rmse {ran['metrics']['choose.rmse']:.3f}" in listed
    assert "fit.rmse" not in listed, "no headline"
    assert main(["compare", "both", "both", "--store", str(second.store)]) == 0
    compared = capsys.readouterr().out
    assert "curved.rmse" in compared
    assert "rmse_std" not in compared


def test_a_rejected_model_is_an_exit_status_of_its_own(second: Second, ran: dict[str, Any]) -> None:
    given = ["--set", "curved.degree=2", "--register", "strict", "--gate", "choose.rmse<1"]
    done = second("run", *given, "--json", expect=3)
    assert done.document["promotion"][0]["verdict"] == "rejected"
    assert "rejected: gate choose.rmse<1" in done.err


def _rows(folder: Path) -> pd.DataFrame:
    """Data of each patient, joined from the tables."""
    patients, practices, visits, resembles = (
        pd.read_csv(folder / f"{name}.csv", dtype=float) for name in ("patients", "practices", "visits", "resembles")
    )
    staff = visits.merge(practices, left_on="practice", right_on="id").set_index("patient")["staff"]
    alike = resembles.merge(patients, left_on="other", right_on="id").groupby("patient")["s5"].mean()
    return patients.set_index("id").assign(staff=staff, alike_s5=alike).reset_index(drop=True)


def test_the_model_answers_with_its_own_code(second: Second, ran: dict[str, Any], graph: Path) -> None:
    with process_tracking_uri(f"sqlite:///{second.store}/mlflow/mlflow.db"):
        model = mlflow.pyfunc.load_model(ran["model"])
        given = _rows(graph.parent)
        answer = model.predict(given.drop(columns="progression"), params={"digits": 1})
        error = ((answer["prediction"] - given["progression"]) ** 2).mean() ** 0.5
        assert error < ran["metrics"]["choose.rmse"] * 1.05
        with pytest.raises(MlflowException, match="a request needs the columns bmi"):
            model.predict(given.drop(columns=["progression", "bmi"]))
    assert ran["model"] == "models:/progression@current"
    assert model.metadata.metadata["rmse"] == ran["metrics"]["choose.rmse"]


@pytest.mark.slow
def test_a_sweep_minimizes_what_is_declared_so(second: Second, ran: dict[str, Any], tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("curved: {degree: [1, 2, 4], penalty: [0.01, 1.0]}\n")
    document = second(
        "sweep", "--space", str(space), "--sampler", "grid", "--objective", "curved.rmse", "--pruner", "none",
        "--no-tracking", "--json",
    ).document  # fmt: skip
    assert document["objectives"] == [{"name": "curved.rmse", "direction": "minimize"}]
    values = [trial["values"][0] for trial in document["trials"]]
    assert document["best"][0]["values"] == [min(values)]
    assert min(values) < max(values)
    assert document["computed"] == {"curved": 4}, "one was there, and another is what the node fit has made"
    assert "fit" not in document["trials"][0]["stages"]


def test_directions() -> None:
    declared = SUPERWORKFLOW.metrics
    quality = choose_quality(SUPERWORKFLOW, ["graph"])
    assert quality == declared[0]
    objectives = parse_objectives(["quality", "-fit.rmse", "fit.other", "-fit.another"], quality, declared)
    assert [(each.name, each.direction) for each in objectives] == [
        ("choose.rmse", "minimize"), ("fit.rmse", "minimize"), ("fit.other", "maximize"), ("fit.another", "minimize"),
    ]  # fmt: skip


def test_an_unknown_metric_is_refused_before_any_trial(graph: Path) -> None:
    request = build_request(SUPERWORKFLOW, sources={"graph": str(graph)})
    with pytest.raises(UserError, match=r"choose.rsme.*Did you mean choose.rmse\?"):
        set_up(request, Wishes(objectives=["choose.rsme"]))


def test_figures_for_people() -> None:
    declared = (Metric("judge", "f1", headline=True, uncertainty="f1_std"), Metric("fit", "loss", "minimize"))
    values = {"judge.f1@0.1": 0.1, "judge.f1_std@0.1": 0.01, "judge.f1@0.5": 0.5, "judge.auc@dot": 0.7, "fit.loss": 2.0}
    assert figures(values, declared) == [
        Figure("judge.f1@0.1", 0.1, 0.01), Figure("judge.f1@0.5", 0.5), Figure("judge.auc@dot", 0.7),
        Figure("fit.loss", 2.0),
    ]  # fmt: skip
    assert headlines(values, declared) == [Figure("judge.f1@0.1", 0.1)]
    assert str(Figure("judge.f1@0.1", 0.1, 0.01)) == "0.1000 ± 0.0100"


def test_figures_of_simpler_methods_are_shown_with_their_figure() -> None:
    declared = (Metric("judge", "f1@test", headline=True, baselines="simple"), Metric("judge", "f1@valid"))
    values = {"simple.mean_f1@test": 0.2, "simple.of_two_f1@test": 0.3, "simple.mean_f1@valid": 0.1, "judge.f1@test": 1}
    values["judge.f1@valid"] = 0.9
    own, other = Figure("simple.mean_f1@valid", 0.1), Figure("judge.f1@valid", 0.9)
    compared = Figure("judge.f1@test", 1, baselines={"mean": 0.2, "of_two": 0.3})
    assert figures(values, declared) == [own, compared, other]
    assert figures(values, read_metrics(metrics_text(declared))) == [own, compared, other]
    assert compared.baselines_text == "mean 0.2000, of two 0.3000"


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '[{"node": "a"}]', "null", json.dumps([{"direction": "up"}])])
def test_records_of_others_declare_nothing(text: str) -> None:
    assert read_metrics(text) == ()
    assert read_metrics(metrics_text(NODE2VEC.metrics))[0].full_name == "evaluate.macro_f1"


def test_declarations_of_a_night_with_a_champion_are_read_though_their_record_is_cut() -> None:
    own = load_superworkflow("gnn").metrics
    again = [replace(each, node=f"{who}-score") for who in ("champion", "challenger") for each in own]
    found = read_metrics(metrics_text([*own, *again])[:5000])
    assert [(each.full_name, each.headline) for each in found[: len(own)]] == [(e.full_name, e.headline) for e in own]
    assert len(found) > len(own) + 10


def _none(flow: Diagram, nodes: Mapping[str, Node], model: Mapping[str, Dataset]) -> None:
    """Scores nothing again."""


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Metric("curvd", "rmse"), r"metric curvd.rmse: the diagram has no such node .*Did you mean curved\?"),
        (Metric("fit", "rsme"), r"metric fit.rsme: stage fit has no such metric .got 'rsme'.. Did you mean rmse\?"),
        (Metric("fit", "rmse", uncertainty="std"), "metric fit.rmse: stage fit has no such metric .got 'std'"),
        (Metric("measurements", "rows"), "stage measurements has no such metric .*It has none"),
        (Metric("fit", "rmse", "smaller"), "metric fit.rmse: no such direction .got 'smaller'"),  # type: ignore[arg-type]
        (Metric("fit", "rmse", source="grahp"), r"metric fit.rmse: no such source .*Did you mean graph\?"),
        (Metric("fit", "rmse", options={"fast": True}), "metric fit.rmse: no such parameter .got 'second.fast'"),
        (Picture("fit", "tests.second.outcomes:drew", "a"), r"picture a: module .* does not define this .*mean draw\?"),
        (Picture("fit", "tests.second.pictures:draw", "a"), "picture a: no such module .got 'tests.second.pictures'"),
        (Picture("fit", "tests.second.outcomes:draw", "../a"), r"not a valid name .got '../a'"),
        (replace(MODEL, node="chose"), r"model: the diagram has no such node .*Did you mean choose\?"),
        (replace(MODEL, code="tests.second.server"), "model: no such module .got 'tests.second.server'"),
        (replace(MODEL, code="tests.second.outcomes"), "module tests.second.outcomes does not define this .got 'load'"),
        (replace(MODEL, card="tests.second.outcomes:cart"), r"model: .*Did you mean card\?"),
        (replace(MODEL, rescore=Rescoring("chose", (), _none)), "rescore: no metric is declared .*got 'chose'"),
        (replace(MODEL, name="a/b"), "model: name: not a valid name .got 'a/b'"),
        (replace(MODEL, title="weights"), "output or model: declared twice .got 'weights'"),
    ],
)  # fmt: skip
def test_wrong_declarations_are_refused_before_any_stage(graph: Path, outcome: Any, message: str) -> None:
    wrong = replace(SUPERWORKFLOW, outcomes=(outcome,))
    with pytest.raises(UserError, match=f"^superworkflow second: .*{message}"):
        build_request(wrong, sources={"graph": str(graph)})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"outputs": {"weights": ("chosen", "weights.npy")}}, "output weights: the diagram has no such node"),
        ({"exports": {"text": Export("choose", "tests.second.outcomes:text", "txt")}}, "export text: module .* does"),
        ({"outcomes": (Metric("fit", "rmse"), Metric("fit", "rmse"))}, "metric: declared twice .got 'fit.rmse'"),
    ],
)  # fmt: skip
def test_other_declarations(graph: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_request(replace(SUPERWORKFLOW, **more), sources={"graph": str(graph)})


def test_a_node_that_diagrams_may_do_without(graph: Path) -> None:
    wishful = replace(SUPERWORKFLOW, outcomes=(Metric("judge", "f1", optional=True),))
    assert build_request(wishful, sources={"graph": str(graph)}).superworkflow.metrics


class _Keeps(Tracker):
    """Keeps the names of the pictures."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def picture(self, path: Path) -> None:
        self.names.append(path.name)


def test_a_picture_that_fails_ends_no_run(
    ran: dict[str, Any], second: Second, caplog: pytest.LogCaptureFixture
) -> None:
    run = RunRecord("", "", str(second.store), "both", "second")
    run.stages = [_Row(stage) for stage in ran["stages"]]  # type: ignore[misc]
    kept = _Keeps()
    functions = {"none": "tests.second.outcomes:card", "all": "tests.second.outcomes:draw"}
    attach_pictures(run, kept, [Picture("fit", function, name) for name, function in functions.items()])
    assert kept.names == ["stages.png", "fit-all.png"]
    assert "tests.second.outcomes:card drew no picture of fit: TypeError" in caplog.text


class _Row:
    """One stage of a run's document as its record."""

    def __init__(self, stage: dict[str, Any]):
        vars(self).update(stage)


def test_a_card_that_fails_says_so(second: Second, ran: dict[str, Any]) -> None:
    (stage,) = [each for each in ran["stages"] if each["name"] == "measurements"]
    other = Dataset.open(stage["output"])
    uri = f"sqlite:///{second.store}/mlflow/mlflow.db"
    with pytest.raises(SuperworkflowError, match=r"tests.second.outcomes:card failed for .*KeyError: 'degree'"):
        register(other, MODEL, name="x", run_id=ran["run_id"], tracking_uri=uri)


def test_node2vec_declares_as_before() -> None:
    assert [metric.full_name for metric in NODE2VEC.metrics if metric.headline] == [
        "evaluate.macro_f1", "evaluate.micro_f1", "evaluate.link_auc@hadamard",
    ]  # fmt: skip
    (model,) = NODE2VEC.registered
    assert isinstance(model, Model)
    assert model.name == "node2vec-embeddings"
    assert model.rescore is not None
