"""The distribution's extras: complete, and named with their install line where a package of one is missing."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from superworkflow.infra.base.extras import EXTRAS, missing_package

ROOT = Path(__file__).parents[2]
ROOMS = ("dashboards", "flows", "infra", "superworkflow", "sweeps", "tasks")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = [Requirement(text) for text in PROJECT["dependencies"]]
OPTIONAL = {extra: [Requirement(text) for text in texts] for extra, texts in PROJECT["optional-dependencies"].items()}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _distributions(extra: str) -> set[str]:
    """Distributions that an extra installs, with the extras that it includes and the core."""
    found = {_normal(each.name) for each in CORE}
    for requirement in OPTIONAL[extra]:
        if requirement.name == PROJECT["name"]:
            found |= {name for included in requirement.extras for name in _distributions(included)}
        else:
            found.add(_normal(requirement.name))
    return found


def _imported() -> Iterator[tuple[str, str]]:
    """Every import of a package that is neither Python's nor ours, with the file that has it."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                for name in names:
                    package = name.partition(".")[0]
                    if package not in sys.stdlib_module_names and package not in ROOMS:
                        yield package, path.relative_to(ROOT).as_posix()


OF_USERS = ("dgl", "torch_geometric")
"""Libraries as whose objects batches are given to users who have them; nothing else needs them."""


def test_whatever_is_imported_belongs_to_the_core_or_an_extra() -> None:
    distributions = importlib.metadata.packages_distributions()
    core = {_normal(each.name) for each in CORE}
    wrong = set()
    for package, where in _imported():
        if package in OF_USERS:
            continue
        # Of a namespace, such as psycopg's, any distribution that has a part of it will do.
        names = {_normal(name) for name in distributions.get(package, [package])}
        if not names & (core | _distributions("all")):
            wrong.add(f"{where} imports {package}, which no extra has")
        if not names & core and not names & _distributions(EXTRAS.get(package, "all")):
            wrong.add(f"{package} is not in the extra {EXTRAS.get(package)}")
        if not names & core and package not in EXTRAS:
            wrong.add(f"superworkflow.infra.base.extras knows no extra of {package}, which {where} imports")
    assert wrong == set()


def test_all_is_all() -> None:
    everything = {name for extra in OPTIONAL for name in _distributions(extra)}
    assert _distributions("all") == everything
    assert set(EXTRAS.values()) <= OPTIONAL.keys()


def test_scheduler_works_with_what_the_extras_allow() -> None:
    """With SQLAlchemy 2.1 no schedule of Prefect's fires."""
    for extra in ("flow", "sweep", "all"):
        included = [extra, *(name for each in OPTIONAL[extra] for name in each.extras)]
        limits = [each.specifier for name in included for each in OPTIONAL[name] if each.name == "sqlalchemy"]
        assert limits
        assert not any("2.1.0" in limit for limit in limits)


def test_what_is_there_and_breaks_is_not_missing() -> None:
    assert missing_package(ModuleNotFoundError("no", name="duckdb.experimental")) is None
    assert missing_package(ModuleNotFoundError("no", name="never_heard_of")) is None
    assert missing_package(ImportError("broken", name="duckdb")) is None


@pytest.fixture
def without(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command line with a Python that sees the pinned packages, apart from some."""

    def run(hidden: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        site = tmp_path / "site"
        site.mkdir(exist_ok=True)
        (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,a\nc,d\n")
        # Modules of these names: an import of one fails as it does where there is none.
        (site / "sitecustomize.py").write_text(_hiding(hidden.split()))
        environment = {**os.environ, "PYTHONPATH": str(site)}
        return subprocess.run(
            [sys.executable, "-m", "superworkflow", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return run


def _hiding(names: list[str]) -> str:
    return (
        "import sys\nfrom importlib.machinery import PathFinder\n"
        "class Finder(PathFinder):\n"
        "    @classmethod\n    def find_spec(cls, name, path=None, target=None):\n"
        f"        return None if name.partition('.')[0] in {names!r} else PathFinder.find_spec(name, path, target)\n"
        "sys.meta_path = [Finder if each is PathFinder else each for each in sys.meta_path]\n"
    )


def test_run_without_a_late_stage_s_package_ends_before_the_first_stage(
    without: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Only evaluate needs scikit-learn."""
    done = without("sklearn", "run", "node2vec", "--edges", "edges.csv", "--no-tracking")
    assert "needs sklearn, which is not installed. Run `pip install 'superworkflow[cpu]'`." in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == 2
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize(
    ("hidden", "arguments", "extra"),
    [
        ("rich", "plan node2vec --edges edges.csv", "flow"),
        ("rich", "check", "flow"),
        ("prefect", "run node2vec --edges edges.csv --no-tracking", "flow"),
        ("mlflow", "run node2vec --edges edges.csv", "flow"),
        ("mlflow", "runs", "flow"),
        ("mlflow", "compare a b", "flow"),
        ("plotly", "dashboard", "flow"),
        ("flask", "dashboard", "dashboard"),
        ("prefect", "deploy node2vec --edges edges.csv --name nightly", "flow"),
        ("optuna", "sweep node2vec --edges edges.csv --trials 1", "sweep"),
        ("sqlalchemy", "sweep status study", "sweep"),
        ("psycopg", "sweep status study --storage postgresql://u@h/d", "postgres"),
        ("kubernetes_asyncio", "jobs", "kubernetes"),
        ("kubernetes_asyncio", "check", "kubernetes"),
        ("s3fs", "plan node2vec --edges edges.csv --store s3://bucket/prefix", "s3"),
        ("s3fs", "stage index --input edges=s3://bucket/edges.csv --output out", "s3"),
        ("duckdb", "stage index --input edges=edges.csv --output out", "cpu"),
        ("duckdb", "stage index --input edges=edges.csv --output out --events", "cpu"),
        ("pyspark", "stage index --input edges=edges.csv --output out --engine spark", "spark"),
    ],
)  # fmt: skip
def test_missing_extra_is_named_with_its_install_line(
    without: Callable[..., subprocess.CompletedProcess[str]], hidden: str, arguments: str, extra: str
) -> None:
    done = without(hidden, *arguments.split())
    said = done.stdout if "--events" in arguments else done.stderr
    assert f"pip install 'superworkflow[{extra}]'" in said.splitlines()[-1]
    assert hidden in said.splitlines()[-1]
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == 2
