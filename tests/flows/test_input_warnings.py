"""Warnings about a doubtful edge list: in the run's output, in `plan`, in MLflow, and on the run's page."""

import json
from pathlib import Path

from superworkflow.dashboards.web.report import write_run_report
from superworkflow.infra.tracking.run_reader import RunReader
from tests.flows.command_line import CommandLine

WARNING = "a column of Unix times is not used"
REMEDY = "Set index.time=3 and index.from_time or index.until"


def test_warnings_are_shown_wherever_a_run_is(command_line: CommandLine, tmp_path: Path) -> None:
    command_line.edges = tmp_path / "messages.txt"
    command_line.edges.write_text(
        "".join(f"{a} {b} {1_082_040_961 + 77 * a + b}\n" for a in range(30) for b in range(a + 1, 30, 3))
    )
    given = ("--set", "node2vec.link_prediction=false")
    before = _text(command_line("plan", *given, labels=False).out)
    assert WARNING in before
    assert REMEDY in before
    first = _text(command_line("run", "--name", "times", *given, labels=False).err)
    assert first.count(WARNING) == 2  # in the stage's log, and with the result
    assert REMEDY in first
    assert _text(command_line("run", "--name", "again", *given, labels=False).err).count(WARNING) == 1

    listed = json.loads(command_line("plan", *given, "--json", labels=False).out)
    planned = {each["name"]: each for each in listed}
    (warning,) = planned["index"]["warnings"]
    assert WARNING in warning
    assert "2004-04-15" in warning
    assert planned["walk"]["warnings"] == []
    assert WARNING in _text(command_line("plan", *given, labels=False).out)

    reader = RunReader(f"sqlite:///{command_line.store}/mlflow/mlflow.db")
    for run in reader.runs(10):  # the one that made the dataset, and the one that found it
        stages = reader.stages(run)
        assert {stage.name: stage.warnings for stage in stages if stage.warnings} == {"index": (warning,)}
        write_run_report(run, stages, tmp_path / "report.html")
        assert warning.replace("'", "&#39;") in (tmp_path / "report.html").read_text()


def test_a_plan_says_what_will_be_refused(command_line: CommandLine, tmp_path: Path) -> None:
    command_line.edges = tmp_path / "graph.txt"
    command_line.edges.write_text("(1, 2)\n(2, 3)\n(3, 1)\n")
    assert "index: will be refused:" in (said := _text(command_line("plan", labels=False).out))
    assert "edges in brackets" in said


def _text(out: str) -> str:
    """Output without the line breaks of a terminal."""
    return " ".join(out.split())
