"""The superworkflow `subgraphs` end to end: from tables to records, and what its options change."""

import json
from pathlib import Path
from typing import Any

import pytest

from superworkflow.__main__ import build_parser, main
from superworkflow.arguments import assignments_of, tables_from
from superworkflow.flows import load_superworkflow
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.config_files import parse_assignments
from superworkflow.infra.config.profile_names import node_names
from superworkflow.infra.config.request import build_request
from superworkflow.infra.storage.table_access import VARIABLE
from superworkflow.parser import Parser
from superworkflow.tasks.lib.generators.mag import generate_mag
from tests.flows.command_line import run_document

STAGES = ["heterograph", "sample", "records", "probe"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate_mag(0.001, tmp_path_factory.mktemp("subgraphs") / "mag", 3)


def _given(graph: Path, store: Path, *more: str) -> list[str]:
    spec = ["--spec", str(graph / "spec.pbtxt"), "--set", "sample.sizes={paper->field_of_study: 2, author->paper: 2}"]
    return ["subgraphs", "--graph", str(graph), *spec, "--store", str(store), *more]


def test_run_then_cached(graph: Path, tmp_path: Path, prefect_api: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = _given(graph, tmp_path / "store", "--label", "paper.labels")
    assert main(["plan", *given, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [(stage["name"], stage["state"]) for stage in planned] == [(name, "run") for name in STAGES]
    first = run_document(given, prefect_api)
    assert [stage["name"] for stage in first["stages"]] == STAGES
    rows = {stage["name"]: stage["rows"] for stage in first["stages"]}
    assert rows["sample"] == rows["records"] == 736
    assert {"probe.accuracy@validation", "probe.macro_f1@test"} <= first["metrics"].keys()
    records = Path(first["records"]).parent
    assert {path.name.partition("-")[0] for path in records.glob("*-of-*")} == {"train", "validation", "test"}
    assert Path(first["schema"]).read_text().count("node_sets {") == 4
    assert main(["explain", *given]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["cached" in line for line in lines if line.split()[0] in STAGES] == [True] * 4
    other = _given(graph, tmp_path / "store", "--set", "records.compression=gzip")
    assert main(["plan", *other, "--json"]) == 0
    states = {stage["name"]: stage["state"] for stage in json.loads(capsys.readouterr().out)}
    assert main(["plan", *other, "--profile", "laptop-spark", "--json"]) == 0
    engines = {stage["name"]: stage["engine"] for stage in json.loads(capsys.readouterr().out)}
    assert engines["records"] == "spark"
    assert states == {"heterograph": "cached", "sample": "cached", "records": "run"}


def test_a_label_that_is_no_feature_is_refused_before_anything_runs(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *_given(graph, tmp_path / "store", "--label", "paper.labelz")]) == 2
    said = capsys.readouterr().err
    assert "no such feature of nodes (got 'paper.labelz'). Give --label SET.FEATURE, of paper." in said
    assert "paper.labels" in said
    assert not (tmp_path / "store").exists()
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    edges = ["--edges", str(tmp_path / "edges.csv"), "--spec", str(graph / "spec.pbtxt"), "--label", "node.label"]
    assert main(["plan", "subgraphs", *edges]) == 2
    assert "Give --labels FILE and --label node.label" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('edge_set_name: "writes"', 'edge_set_name: "write"', "no such edge set (got 'write'). Did you mean writes?"),
        ('node_set_name: "paper"', 'node_set_name: "author"', "input op 'seed' does not lead there"),
        ("seed_op {", "seed {", "a SamplingSpec has no such field (got 'seed')"),
    ],
)
def test_a_spec_that_does_not_fit_is_refused_before_anything_runs(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], right: str, wrong: str, message: str
) -> None:
    text = (graph / "spec.pbtxt").read_text()
    assert right in text
    (tmp_path / "spec.pbtxt").write_text(text.replace(right, wrong))
    given = [
        "subgraphs",
        "--graph",
        str(graph),
        "--spec",
        str(tmp_path / "spec.pbtxt"),
        "--store",
        str(tmp_path / "store"),
    ]
    assert [main([command, *given]) for command in ("plan", "run")] == [2, 2]
    assert capsys.readouterr().err.count(message) == 2
    assert not (tmp_path / "store").exists()


def test_flags_take_texts_and_profiles_may_name_what_they_bring_in() -> None:
    chosen = load_superworkflow("subgraphs")
    assert node_names(chosen) == {*STAGES, "set_drift"}
    parser = Parser(prog="superworkflow")
    for name, flag in chosen.flags.items():
        parser.add_argument(f"--{name}", metavar=flag.metavar)
    for text in ("paper.labels", "12.5", "[a, b]", 'a "b": c', "é"):
        parsed = parser.parse_args(["--label", text])
        parsed.set = []
        assert parse_assignments(assignments_of(chosen, parsed)) == {"probe": {"label": text}}


def test_who_may_name_tables_elsewhere(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema of this machine that a command is given may name any table; one that a deployment is given may not."""
    monkeypatch.delenv(VARIABLE, raising=False)
    schema = tmp_path / "schema.pbtxt"
    schema.write_text((graph / "schema.pbtxt").read_text().replace('filename: "', f'filename: "{graph}/'))
    sources = {"graph": str(schema), "spec": str(graph / "spec.pbtxt")}
    chosen = load_superworkflow("subgraphs")

    def digest(**more: Any) -> str:
        return (
            build_request(chosen, sources=sources, store=str(tmp_path / "store"), **more).diagram.nodes["sample"].digest
        )

    with pytest.raises(UserError, match="a table lies elsewhere than this description") as raised:
        digest(deployed=True)
    assert str(raised.value.value).startswith(f"{graph}/")
    assert digest() == digest(deployed=True, tables_from=[str(graph)])
    monkeypatch.setenv(VARIABLE, str(graph))
    assert digest() == digest(deployed=True)
    arguments = ["deploy", *_given(graph, tmp_path / "store", "--name", "nightly", "--tables-from", str(graph))]
    parser = build_parser(arguments)
    assert tables_from(parser.parse_args(arguments)) == [str(graph)]
