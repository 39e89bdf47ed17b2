"""Imports point one way, through the packages of each layer too, without a cycle; layers are light enough for images.

`docs/architecture.md` has the picture. Every import counts: in functions, for type checkers, and by `import_module`.
"""

import ast
import functools
import graphlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from superworkflow.flows import load_superworkflow, superworkflow_names
from superworkflow.infra.base.import_strings import module_file
from superworkflow.tasks import stage_names
from tests.superworkflow.test_extras import misplaced

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "infra": {"infra"},
    "tasks": {"infra", "tasks"},
    "flows": {"infra", "tasks", "flows"},
    "sweeps": {"infra", "tasks", "flows", "sweeps"},
    "dashboards": {"infra", "tasks", "dashboards"},
    "superworkflow": {"infra", "tasks", "flows", "sweeps", "dashboards", "superworkflow"},
}
INFRA = (
    "base", "process", "storage", "contract", "engines", "config", "launch", "planning", "tracking", "orchestration",
)  # fmt: skip
"""Packages of `infra/` from the ground up: each imports itself and those before it."""
LIB = (
    "kernels", "formats", "in_parts", "graph", "metrics", "generators", "edge_list", "importers", "subgraphs",
    "distributed", "vertex", "gnn", "panels",
)  # fmt: skip
"""Packages of `tasks/lib/`, likewise; its own modules may use all of them."""
GNN = ("whole_graph", "sampler", "model", "objective", "distributed")
"""Packages of `tasks/lib/gnn/`, likewise; its own modules are below all of them."""
ORCHESTRATION = {"prefect", "mlflow", "optuna", "kubernetes"}
HEAVY = {"numba", "torch", "duckdb", "sklearn", "scipy", "pandas", "matplotlib", "pyspark"}


def _modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@functools.cache
def _imported(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and dotted name of every import in a file; see `_imports`."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import in a file, at the top or inside functions, also by `importlib`."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = "." * node.level + (node.module or "")
            name = importlib.util.resolve_name(name, package) if node.level else name
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)
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


def test_whatever_is_imported_belongs_to_the_core_or_an_extra() -> None:
    files = [path for room in ALLOWED for path in _modules(room)]
    assert misplaced((name.partition(".")[0], str(path.relative_to(ROOT)))
                     for path in files for _, name in _imported(path)) == set()  # fmt: skip


@functools.cache
def _graph() -> dict[str, set[str]]:
    """Modules that each module of the product imports, as dotted names without the distribution's package."""
    files = {path: _dotted(path) for room in ALLOWED for path in _modules(room)}
    names = set(files.values())
    return {
        name: {found for _, each in _imported(path) if (found := _module(_plain(each), names)) not in (None, name)}
        for path, name in files.items()
    }


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _module(name: str, names: set[str]) -> str | None:
    """The module of the product that an import names, itself or by a definition in it."""
    while name and name not in names:
        name = name.rpartition(".")[0]
    return name or None


def _upward(graph: dict[str, set[str]], package: str, order: tuple[str, ...]) -> list[str]:
    """Imports from one package below `package` to one that comes after it in `order`."""

    def floor(module: str) -> int | None:
        head, _, _ = module.removeprefix(f"{package}.").partition(".")
        return order.index(head) if module.startswith(f"{package}.") and head in order else None

    return [
        f"{module} imports {other}"
        for module, others in sorted(graph.items())
        for other in sorted(others)
        if (here := floor(module)) is not None and (there := floor(other)) is not None and there > here
    ]


@pytest.mark.parametrize(("package", "order"), [("infra", INFRA), ("tasks.lib", LIB), ("tasks.lib.gnn", GNN)])
def test_packages_import_only_those_below(package: str, order: tuple[str, ...]) -> None:
    folder = ROOT.joinpath(*package.split("."))
    packages = {path.name for path in folder.iterdir() if (path / "__init__.py").is_file()}
    assert packages == set(order)
    assert _upward(_graph(), package, order) == []


def test_library_of_stages_imports_no_stage() -> None:
    found = {
        f"{module} imports {other}"
        for module, others in _graph().items()
        for other in others
        if module.startswith("tasks.lib") and other.startswith("tasks.") and not other.startswith("tasks.lib")
    }
    assert found == set()


def test_distributed_data_structures_know_no_network() -> None:
    graph = _graph()
    modules = [module for module in graph if module.startswith("tasks.lib.distributed")]
    assert len(modules) > 3
    assert [other for module in modules for other in graph[module] if other.startswith("tasks.lib.gnn")] == []


def test_no_cycle() -> None:
    graph = _graph()
    assert len(graph) > 500
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_stages_know_no_orchestrator_tracker_or_cluster() -> None:
    assert _offences("tasks", ORCHESTRATION) == []


def test_only_their_own_corner_knows_prefect_and_mlflow() -> None:
    assert _offences("infra", {"prefect"}, "infra/orchestration/") == []
    assert _offences("infra", {"mlflow"}, "infra/tracking/") == []
    for room in ("flows", "sweeps", "dashboards"):
        assert _offences(room, {"prefect", "mlflow"}) == []


def _package(path: Path) -> list[Path]:
    """Modules of the package of this `__init__.py`."""
    return sorted(path.parent.glob("*.py"))


def test_what_is_kept_with_a_model_needs_no_project() -> None:
    """It runs where only its requirements are installed."""
    served = [ROOT / "infra" / "tracking" / "served_model.py"]
    for name in superworkflow_names():
        served += [path for model in load_superworkflow(name).registered if (path := module_file(model.code))]
    assert len(served) > 1
    for path in [each for found in served for each in ([found] if found.name != "__init__.py" else _package(found))]:
        own = ".".join(path.relative_to(ROOT).parent.parts) if path.parent.joinpath("__init__.py") in served else " "
        packages = {name.partition(".")[0] for _, name in _imported(path) if not name.startswith(f"{own}.")}
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
        "importlib", "infra.lock", "mlflow.entities.Run", "optuna.samplers", "prefect.flows", "tasks.other.thing",
        "tasks.stroll.kernel",
    ]  # fmt: skip
    assert len(_offences("tasks", ORCHESTRATION)) == 3
    assert _upward({"infra.base.a": {"infra.launch.b", "infra.base.c"}}, "infra", INFRA) == [
        "infra.base.a imports infra.launch.b"
    ]


def _loaded_by(code: str, watched: set[str]) -> set[str]:
    """The watched packages that a fresh interpreter has loaded after `code`."""
    script = f"import sys\n{code}\nprint('loaded', *(set(sys.modules) & {watched!r}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_definitions_of_stages_are_light() -> None:
    """Plans and flows need the definitions only; the work's libraries are in the stages' images."""
    code = {name: f"import superworkflow.tasks.{name}" for name in stage_names()}
    assert code
    if _loaded_by("\n".join(code.values()), HEAVY | ORCHESTRATION):
        found = {name: _loaded_by(each, HEAVY | ORCHESTRATION) for name, each in code.items()}
        assert found == {name: set() for name in code}


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
        "superworkflow.infra.planning.plan",
        "superworkflow.infra.planning.explain",
        "superworkflow.infra.launch.run_stage",
    )
    assert _loaded_by(f"import {', '.join(modules)}", HEAVY | ORCHESTRATION) == set()


def test_no_engine_is_loaded_before_it_is_used() -> None:
    code = "from superworkflow.infra.engines import engines\nimport superworkflow.infra.config.profile\nengines()"
    assert _loaded_by(code, HEAVY | ORCHESTRATION | {"zmq"}) == set()


def test_the_orchestrator_needs_no_torch() -> None:
    assert (
        _loaded_by(
            "import superworkflow.infra.orchestration.flow, superworkflow.infra.tracking.mlflow_tracker",
            {"torch", "numba"},
        )
        == set()
    )
