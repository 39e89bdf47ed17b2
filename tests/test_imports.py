"""Imports point one way: flows, sweeps, dashboards → tasks → infra; and each layer is light enough for its image."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from superworkflow.flows import load_superworkflow, superworkflow_names
from superworkflow.infra.import_strings import module_file
from superworkflow.tasks import stage_names

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "infra": {"infra"},
    "tasks": {"infra", "tasks"},
    "flows": {"infra", "tasks", "flows"},
    "sweeps": {"infra", "tasks", "flows", "sweeps"},
    "dashboards": {"infra", "tasks", "dashboards"},
    "superworkflow": {"infra", "tasks", "flows", "sweeps", "dashboards", "superworkflow"},
}
ORCHESTRATION = {"prefect", "mlflow", "optuna", "kubernetes"}
HEAVY = {"numba", "torch", "duckdb", "fugue", "sklearn", "scipy", "pandas", "matplotlib", "pyspark"}


def _modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def _imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import in a file, at the top or inside functions, also by `importlib`."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = "." * node.level + (node.module or "")
            yield node.lineno, importlib.util.resolve_name(name, package) if node.level else name
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def _plain(name: str) -> str:
    """A dotted name without the distribution's own package in front of a room's."""
    head, _, rest = name.partition(".")
    return rest if head == "superworkflow" and rest.partition(".")[0] in ALLOWED else name


def _offences(room: str, forbidden: set[str], apart_from: str = "") -> list[str]:
    found = []
    for path in _modules(room):
        where = path.relative_to(ROOT).as_posix()
        if apart_from and where.startswith(apart_from):
            continue
        found += [
            f"{where}:{line} imports {name}"
            for line, name in _imported(path)
            if _plain(name).partition(".")[0] in forbidden
        ]
    return found


@pytest.mark.parametrize("room", ALLOWED)
def test_direction(room: str) -> None:
    assert _modules(room)
    assert _offences(room, set(ALLOWED) - ALLOWED[room] | {"tests"}) == []


def test_stages_know_no_orchestrator_tracker_or_cluster() -> None:
    assert _offences("tasks", ORCHESTRATION) == []


def test_only_their_own_corner_knows_prefect_and_mlflow() -> None:
    assert _offences("infra", {"prefect"}, "infra/orchestration/") == []
    assert _offences("infra", {"mlflow"}, "infra/tracking/") == []
    for room in ("flows", "sweeps", "dashboards"):
        assert _offences(room, {"prefect", "mlflow"}) == []


def test_what_is_kept_with_a_model_needs_no_project() -> None:
    """It runs where only its requirements are installed."""
    served = [ROOT / "infra" / "tracking" / "served_model.py"]
    for name in superworkflow_names():
        served += [path for model in load_superworkflow(name).registered if (path := module_file(model.code))]
    assert len(served) > 1
    for path in served:
        packages = {name.partition(".")[0] for _, name in _imported(path)}
        assert packages - sys.stdlib_module_names <= {"mlflow", "numpy", "pandas"}, path


def test_the_check_sees_every_kind_of_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "tasks" / "stroll").mkdir(parents=True)
    (tmp_path / "tasks" / "stroll" / "run.py").write_text(
        "import prefect.flows as f\n"
        "def late():\n    from mlflow.entities import Run\n"
        "import importlib\nm = importlib.import_module('optuna.samplers')\n"
        "from . import kernel\nfrom ..other import thing\nfrom infra import lock\n"
    )
    found = [_plain(name) for _, name in _imported(tmp_path / "tasks" / "stroll" / "run.py")]
    assert sorted(found) == [
        "importlib", "infra", "mlflow.entities", "optuna.samplers", "prefect.flows", "tasks.other", "tasks.stroll",
    ]  # fmt: skip
    assert len(_offences("tasks", ORCHESTRATION)) == 3


def _loaded_by(code: str, watched: set[str]) -> set[str]:
    """Which of the watched packages a fresh interpreter has loaded after `code`."""
    script = f"import sys\n{code}\nprint('loaded', *(set(sys.modules) & {watched!r}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_definitions_of_stages_are_light() -> None:
    """Plans and flows need the definitions only; the work's libraries are in the stages' images."""
    assert stage_names()
    found = {}
    for name in stage_names():
        found[name] = _loaded_by(f"import superworkflow.tasks.{name}", HEAVY | ORCHESTRATION)
    assert found == {name: set() for name in stage_names()}


@pytest.mark.parametrize(
    "code",
    [
        "from superworkflow.__main__ import main\ntry: main(['stage', '--help'])\nexcept SystemExit: pass",
        "from superworkflow.__main__ import main\nmain(['stage', 'walk', '--output', '/nowhere/x'])",
    ],
    ids=["help", "bad-call"],
)
def test_a_stage_needs_no_orchestrator(code: str) -> None:
    assert _loaded_by(code, ORCHESTRATION | {"torch"}) == set()


def test_planning_needs_no_orchestrator() -> None:
    modules = (
        "superworkflow.flows.node2vec",
        "superworkflow.infra.plan.planning",
        "superworkflow.infra.explaining",
        "superworkflow.infra.execution.execute",
    )
    assert _loaded_by(f"import {', '.join(modules)}", HEAVY | ORCHESTRATION) == set()


def test_no_engine_is_loaded_before_it_is_used() -> None:
    code = "from superworkflow.infra.engines import engines\nimport superworkflow.infra.profile\nengines()"
    assert _loaded_by(code, HEAVY | ORCHESTRATION | {"zmq"}) == set()


def test_the_orchestrator_needs_no_torch() -> None:
    assert (
        _loaded_by(
            "import superworkflow.infra.orchestration.flow, superworkflow.infra.tracking.mlflow_tracker",
            {"torch", "numba"},
        )
        == set()
    )
