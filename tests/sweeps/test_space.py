"""Search spaces: declared ranges, space files, and what is wrong with bad ones."""

import warnings
from pathlib import Path

import pytest

from superworkflow.flows import load_superworkflow
from superworkflow.infra.base.errors import UserError
from superworkflow.sweeps.space import Dimension, Space, build_space
from superworkflow.sweeps.study import distribution

MODELS = load_superworkflow("node2vec").models()


def _build(tmp_path: Path, text: str, fixed: frozenset[str] = frozenset()) -> Space:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return build_space(MODELS, file=str(path), fixed=fixed)


def test_declared_space() -> None:
    space = build_space(MODELS)
    assert [dimension.name for dimension in space.dimensions] == [
        "walk.num_walks", "walk.walk_length", "walk.p", "walk.q", "prepare.min_count", "embed.dimensions",
        "embed.window", "embed.negative", "embed.epochs", "embed.learning_rate", "embed.optimizer",
    ]  # fmt: skip
    assert Space.from_document(space.document()) == space
    for dimension in space.dimensions:
        distribution(dimension)  # Optuna takes each


def test_set_parameters_are_not_searched() -> None:
    names = [dimension.name for dimension in build_space(MODELS, fixed=frozenset({"walk.p"})).dimensions]
    assert "walk.p" not in names
    assert "walk.q" in names


def test_file_replaces_and_narrows(tmp_path: Path) -> None:
    text = "walk: {p: [0.25, 4], num_walks: default}\nembed: {window: {high: 4}, learning_rate: {low: 0.02}}\n"
    space = _build(tmp_path, text)
    assert space.document() == {
        "walk.num_walks": {"type": "int", "low": 5, "high": 20},
        "walk.p": {"type": "categorical", "choices": [0.25, 4.0]},
        "embed.window": {"type": "int", "low": 2, "high": 4},
        "embed.learning_rate": {"type": "float", "low": 0.02, "high": 0.2, "log": True},
    }
    kept = _build(tmp_path, "extends: default\nembed.optimizer: false\nprepare: {power: default}\n")
    names = [dimension.name for dimension in kept.dimensions]
    assert "embed.optimizer" not in names
    assert {"walk.q", "prepare.power"} <= set(names)


def test_range_without_declaration(tmp_path: Path) -> None:
    (dimension,) = _build(tmp_path, "embed: {block: {low: 32, high: 128, step: 32}}").dimensions
    assert dimension.kind == "int"
    assert dimension.grid() == [32, 64, 96, 128]


def test_range_ends_at_its_last_step(tmp_path: Path) -> None:
    text = "embed: {window: {low: 1, high: 20, step: 4}, learning_rate: {low: 0.1, high: 0.45, step: 0.1}}"
    window, rate = _build(tmp_path, text).dimensions
    assert (window.high, rate.high) == (17, 0.4)
    for each in (window, rate):
        with warnings.catch_warnings(action="error"):
            assert each.grid()[-1] == pytest.approx(distribution(each).high)


def test_grid(tmp_path: Path) -> None:
    grid = _build(tmp_path, "walk: {p: [0.5, 2]}\nembed: {window: {low: 2, high: 4}}").grid()
    assert [(point["walk.p"], point["embed.window"]) for point in grid] == [
        (0.5, 2), (0.5, 3), (0.5, 4), (2, 2), (2, 3), (2, 4),
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"embed.learning_rate: this range has no grid"):
        _build(tmp_path, "embed: {learning_rate: default}").grid()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("walk: {pp: [1]}", r"space.yaml: walk.pp: unknown parameter. Did you mean walk.p\?"),
        ("wlak: {p: [1]}", r"space.yaml: wlak.p: unknown parameter"),
        ("walk: {p: [0.5, -1]}", r"space.yaml: walk.p: .*greater than or equal to 0.000001.*\(got -1\)"),
        ("walk: {p: 0.5}", r"space.yaml: walk.p: must be a list of choices or a range.*--set walk.p=0.5"),
        ("walk: {p: []}", r"space.yaml: walk.p: needs a list of choices"),
        ("walk: {p: [1, 1.0]}", r"space.yaml: walk.p: the same choice twice"),
        ("walk: {seed: default}", r"space.yaml: walk.seed: no range is declared"),
        ("walk: 3", r"space.yaml: walk: must be a mapping"),
        ("embed: {window: {low: 9, high: 3}}", r"space.yaml: embed.window: low is above high"),
        ("embed: {window: {low: 0, high: 3}}", r"space.yaml: embed.window.low: .*greater than or equal to 1"),
        ("embed: {window: {low: 1.5, high: 3}}", r"space.yaml: embed.window.low: must be a whole number"),
        ("embed: {window: {lo: 1}}", r"space.yaml: embed.window.lo: unknown key. Did you mean low\?"),
        ("embed: {window: {step: 0}}", r"space.yaml: embed.window.step: must be a number above 0"),
        ("embed: {window: {step: 0.5}}", r"space.yaml: embed.window.step: must be a whole number.*\(got 0.5\)"),
        ("embed: {window: {type: float, low: 1, high: 9}}", r"embed.window.type: this parameter is a whole number"),
        ("embed: {learning_rate: {log: true, step: 0.01}}", r"space.yaml: embed.learning_rate: a range has a step or"),
        ("embed: {window: {type: integer, low: 1, high: 2}}", r"space.yaml: embed.window.type: unknown type"),
        ("embed: {optimizer: [sgd, adam]}", r"space.yaml: embed.optimizer: .*'adam'"),
        ("embed: {optimizer: {low: 1, high: 2}}", r"space.yaml: embed.optimizer: needs choices"),
        ("extends: all", r"space.yaml: extends: must be `default`"),
        ("walk: {q: [1, 2]}", r"space.yaml: walk.q: this parameter is set to one value already"),
        ("{}", r"nothing to search"),
    ],
)
def test_bad_space_names_the_entry(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _build(tmp_path, text, fixed=frozenset({"walk.q"}))


def test_values_of_a_dimension() -> None:
    reals = Dimension("embed.learning_rate", "float", low=0.01, high=0.2, log=True)
    steps = Dimension("embed.block", "int", low=32, high=128, step=32)
    choices = Dimension("train.model", "categorical", choices=("sage", "gcn"))
    assert [reals.holds(value) for value in (0.01, 0.025, 1, "auto", None, True)] == [True, True, *[False] * 4]
    assert [steps.holds(value) for value in (64, 65, 160)] == [True, False, False]
    assert [choices.holds(value) for value in ("gcn", "gat")] == [True, False]
