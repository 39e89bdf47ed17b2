"""Parameters from all the places they may be set."""

from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.config_files import parse_assignments, read_yaml, resolve
from superworkflow.infra.contract.params import StageParams
from tests.toy_stages import TOY

MODELS = TOY.models()


def test_precedence() -> None:
    found = resolve(
        MODELS, {"scale": {"factor": 3, "seconds": 1}}, {"scale": {"factor": 4}, "toy": {"twice": True}}, "my.yaml"
    )
    assert found["count"].model_dump() == {"skip": 0}
    assert found["scale"].model_dump() == {"factor": 4.0, "seconds": 1.0, "end": "well"}
    assert found["toy"].model_dump() == {"twice": True}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("0.5", 0.5), ("true", True), ("null", None), ("[1, 2]", [1, 2]), ("two words", "two words"),
        ("1e-3", 0.001), ("1E6", 1e6), ("-2.5e+4", -25000.0), (".5e1", 5.0), ("", None), ("a=b", "a=b"),
        ("nan", "nan"), ("1_0e", "1_0e"), ("'7'", "7"), ("e3", "e3"),
    ],
)  # fmt: skip
def test_assignment_values(text: str, value: object) -> None:
    found = parse_assignments([f"scale.factor={text}"])["scale"]["factor"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["007", "0_0", "no", "1e3", "12:30", "2024-01-31", "0.50", "null", "[a]"])
def test_text_stays_as_it_is_written(text: str) -> None:
    class Params(StageParams):
        node: str = ""
        column: str | None = None
        factor: float = 1.0

    given = [f"a.node={text}", f"a.column={text}", "a.factor=2", "a.other=1"]
    column = None if text == "null" else text
    assert parse_assignments(given, {"a": Params}) == {"a": {"node": text, "column": column, "factor": 2, "other": 1}}
    assert parse_assignments(["a.node='7'"], {"a": Params}) == {"a": {"node": "7"}}


def test_last_assignment_wins() -> None:
    assert parse_assignments(["a.b=1", "a.c=2", "a.b=3"]) == {"a": {"b": 3, "c": 2}}


@pytest.mark.parametrize("text", ["scale.factor", "factor=2", "=2", ".factor=2", "scale.=2", ""])
def test_not_an_assignment(text: str) -> None:
    with pytest.raises(UserError, match=r"--set: not of the form stage.parameter=value \(got .*Write --set"):
        parse_assignments([text])


def test_assignment_that_is_no_yaml() -> None:
    with pytest.raises(UserError, match=r"--set scale.factor: the value cannot be read \(got '\[1, 2'\)"):
        parse_assignments(["scale.factor=[1, 2"])


@pytest.mark.parametrize(
    ("config", "assignments", "message"),
    [
        ({}, {"scale": {"facter": 2}}, "scale.facter: unknown parameter. Did you mean scale.factor?"),
        ({}, {"scal": {"factor": 2}}, "--set scal.factor: unknown parameter. Did you mean scale.factor?"),
        ({"scal": {"factor": 2}}, {}, "my.yaml scal.factor: unknown parameter. Did you mean scale.factor?"),
        ({"scal": 2}, {}, "my.yaml scal: unknown parameter."),
        ({"scale": 2}, {}, "my.yaml scale: must be a mapping of parameters (got 2). Write `scale: {parameter: value}`"),
        ({"scale": None}, {}, "my.yaml scale: must be a mapping of parameters (got None)"),
        ({"scale": {"factor": 0}}, {}, "scale.factor: input should be greater than 0 (got 0)"),
        ({"scale": {"factor": 0}}, {"scale": {"factor": -1}}, "scale.factor: input should be greater than 0 (got -1)"),
        ({"toy": {"twise": 1}}, {}, "toy.twise: unknown parameter. Did you mean toy.twice?"),
    ],
)  # fmt: skip
def test_errors(config: dict[str, Any], assignments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        resolve(MODELS, config, assignments, "my.yaml")
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("text", ["1e-3", "0.001"])
def test_exponent_in_a_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "my.yaml").write_text(f"scale: {{factor: {text}}}")
    assert resolve(MODELS, read_yaml(tmp_path / "my.yaml"), {})["scale"].model_dump()["factor"] == 0.001


class TestReadYaml:
    """Configuration files."""

    def test_empty_file_is_no_settings(self, tmp_path: Path) -> None:
        (tmp_path / "my.yaml").write_text("# nothing\n")
        assert read_yaml(tmp_path / "my.yaml") == {}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"walk:\n  p: [1\n  q: 2\n", r"my.yaml:3: not valid YAML"),
            (b"walk: {p: 1}\n\tq: 2\n", r"my.yaml:2: not valid YAML: .*\. Correct the syntax"),
            (b"- 1\n", r"my.yaml: must be a mapping \(got 'list'\). Write lines such as"),
            (b"word", r"my.yaml: must be a mapping \(got 'str'\)"),
            (b"\x89PNG\x00\xff", r"my.yaml: not a text file in UTF-8"),
            (b"a: \x07", r"my.yaml: not valid YAML"),
            (b"!!python/object:os.system {}", r"my.yaml:1: not valid YAML"),
        ],
    )
    def test_bad_file(self, tmp_path: Path, content: bytes, message: str) -> None:
        (tmp_path / "my.yaml").write_bytes(content)
        with pytest.raises(UserError, match=message):
            read_yaml(tmp_path / "my.yaml")

    def test_missing_file_or_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"none.yaml: cannot be read: No such file"):
            read_yaml(tmp_path / "none.yaml")
        with pytest.raises(UserError, match=r"cannot be read: Is a directory"):
            read_yaml(tmp_path)
