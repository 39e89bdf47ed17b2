"""The end of a run on the terminal: where this run is to be seen, once."""

from types import SimpleNamespace

import pytest

from superworkflow.dashboards import terminal
from superworkflow.dashboards.comparison import Comparison, print_comparison
from superworkflow.dashboards.terminal import RunDisplay, print_run
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.tracking.links import DASHBOARD_VARIABLE
from superworkflow.infra.tracking.records import RunRecord, StageRecord

RUN, FLOW_RUN = "6f" * 16, "0190-flow-run"


def _shown(capsys: pytest.CaptureFixture[str], page: str, uri: str | None, tracking_page: str | None) -> list[str]:
    print_run(RunRecord(RUN, FLOW_RUN, "/data/my store", "calm-fox", "hubs", page=page), uri, tracking_page)
    said = capsys.readouterr()
    assert said.out == ""
    return said.err.partition("View this run:\n")[2].splitlines()


def test_on_servers_that_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DASHBOARD_VARIABLE, "https://me:hidden@dash.example/team/")
    prefect, mlflow = f"http://prefect:4200/runs/flow-run/{FLOW_RUN}", f"http://mlflow:5000/#/experiments/1/runs/{RUN}"
    lines = _shown(capsys, prefect, "http://me:hidden@mlflow:5000", mlflow)
    assert [line.split()[0] for line in lines] == [prefect, mlflow, f"https://dash.example/team/run/{RUN}"]
    assert not any("server" in line or "hidden" in line for line in lines)


def test_without_servers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DASHBOARD_VARIABLE, raising=False)
    page = f"http://127.0.0.1:5000/#/experiments/1/runs/{RUN}"
    prefect, mlflow, dashboard = _shown(capsys, "", "sqlite:////data/mlflow.db", page)
    assert "prefect server start    # then http://127.0.0.1:4200/runs/flow-run/" in prefect
    assert prefect.endswith(FLOW_RUN)
    assert "mlflow server --backend-store-uri sqlite:////data/mlflow.db    # then" in mlflow
    assert mlflow.endswith(page)
    assert "dashboard --store '/data/my store'    # then" in dashboard
    assert dashboard.endswith(f"http://127.0.0.1:8060/run/{RUN}")


def test_what_is_not_recorded_has_no_address(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = _shown(capsys, "", None, None)
    assert "prefect server start" in line


def test_baselines_are_shown_with_the_figure(capsys: pytest.CaptureFixture[str]) -> None:
    stats = {"metrics.majority_f1@test": 0.25, "metrics.f1@test": 0.75}
    stages = [
        StageRecord(name, name, "0" * 32, "cached", Resources(), 0, 0, 0, 0, 0, 0, 1, 1, "", stats={key: stats[key]})
        for name, key in (("simple", "metrics.majority_f1@test"), ("judge", "metrics.f1@test"))
    ]
    declared = (
        Metric("judge", "f1@test", baselines="simple"),
        Metric("simple", "spread"),
        Metric("simple", "r", optional=True),
    )
    print_run(RunRecord(RUN, FLOW_RUN, "/data", "calm-fox", "hubs", stages=stages, declared=declared), None, None)
    said = capsys.readouterr().err.splitlines()
    lacking = "simple: the stage has not reported its metric simple.spread"
    assert [line for line in said if "not reported" in line] == [lacking]
    (line,) = [line for line in said if "judge.f1@test" in line]
    assert line.split("│")[1:4] == [" judge.f1@test ", "0.7500 ".rjust(8), " majority 0.2500 "]


def test_progress_in_a_file_is_a_line_a_minute_with_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage that resumes at step 50 has made 10 in the first minute."""
    now = 0.0
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now))
    diagram, superworkflow = SimpleNamespace(nodes={"train": None}), SimpleNamespace(name="gnn")
    display = RunDisplay(SimpleNamespace(diagram=diagram, store=SimpleNamespace(uri="s"), superworkflow=superworkflow))
    display("train", {"event": "begin"})
    for step in range(50, 71):
        facts = {"loss": 0.5, "validation_accuracy": 0.8}
        display("train", {"event": "progress", "done": step, "total": 100, "unit": "steps", "facts": facts})
        now += 6.0
    lines = [line for line in capsys.readouterr().err.splitlines() if "%" in line]
    assert len(lines) == 2
    assert lines[0].endswith("60%  60/100 steps  loss 0.5  validation_accuracy 0.8  4 m 00 s left"), lines
    assert lines[1].endswith("3 m 00 s left"), lines


def test_log_lines_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Ids with colons were shown as pictures: `noun:dog:` of coem."""
    diagram, superworkflow = SimpleNamespace(nodes={"coem": None}), SimpleNamespace(name="coem")
    display = RunDisplay(SimpleNamespace(diagram=diagram, store=SimpleNamespace(uri="s"), superworkflow=superworkflow))
    display("coem", {"event": "log", "message": "noun:dog:1 [red]x[/red]"})
    assert capsys.readouterr().err.splitlines()[-1].endswith(" noun:dog:1 [red]x[/red]")


def test_mlflow_prints_none_of_its_own() -> None:
    """It would print two lines for each stage, into the JSON of `run --json`, with the password of a server's URL."""
    from mlflow.environment_variables import MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT

    import superworkflow.infra.tracking.mlflow_tracker  # noqa: F401

    assert MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT.get()


def test_names_of_compared_metrics_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"baselines.label_propagation_accuracy@{split}" for split in ("validation", "test")]
    title, empty = "gnn 2026-11-30 10:02:28 (3902c746)", dict[str, tuple[float | None, float | None]]()
    pairs: dict[str, tuple[float | None, float | None]] = dict.fromkeys(names, (0.5, 0.25))
    print_comparison(Comparison(title, title, {}, pairs, empty, empty, empty, {}))
    said = capsys.readouterr().out
    assert "…" not in said
    first = [line.split("│")[1].strip() for line in said.splitlines() if line.count("│") == 5]
    assert all(name in "".join(first) for name in names)
