"""The distribution's extras: complete, and named with their install line where a package of one is missing."""

import functools
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
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


@functools.cache
def _distributions(extra: str) -> set[str]:
    """Distributions that an extra installs, with the extras that it includes and the core."""
    found = {_normal(each.name) for each in CORE}
    for requirement in OPTIONAL[extra]:
        if requirement.name == PROJECT["name"]:
            found |= {name for included in requirement.extras for name in _distributions(included)}
        else:
            found.add(_normal(requirement.name))
    return found


OF_USERS = ("IPython", "dgl", "polars", "torch_geometric")
"""Libraries as whose objects batches and tables are given to users who have them; nothing else needs them."""


def misplaced(imports: Iterable[tuple[str, str]]) -> set[str]:
    """Faults of imports that neither the core nor an extra installs: pairs of a package and the file that has it."""
    distributions = importlib.metadata.packages_distributions()
    core = {_normal(each.name) for each in CORE}
    wrong = set()
    for package, where in imports:
        if package in OF_USERS or package in sys.stdlib_module_names or package in ROOMS:
            continue
        # Of a namespace, such as psycopg's, any distribution that has a part of it will do.
        names = {_normal(name) for name in distributions.get(package, [package])}
        if not names & (core | _distributions("all")):
            wrong.add(f"{where} imports {package}, which no extra has")
        if not names & core and not names & _distributions(EXTRAS.get(package, "all")):
            wrong.add(f"{package} is not in the extra {EXTRAS.get(package)}")
        if not names & core and package not in EXTRAS:
            wrong.add(f"superworkflow.infra.base.extras knows no extra of {package}, which {where} imports")
    return wrong


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


MISSING = [
    ("rich", "plan node2vec --edges edges.csv", "flow"),
    ("rich", "check", "flow"),
    ("prefect", "run node2vec --edges edges.csv --no-tracking", "flow"),
    ("mlflow", "run node2vec --edges edges.csv", "flow"),
    ("mlflow", "models", "flow"),
    ("mlflow", "prune --keep 30d", "flow"),
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
]  # fmt: skip
"""Packages that are missing, each with a command that needs it and the extra that has it."""
LATE = ("sklearn", "run node2vec --edges edges.csv --no-tracking")
"""Only evaluate, a late stage, needs scikit-learn."""

EACH = """
import json, os, sys
from importlib.machinery import PathFinder
from pathlib import Path

import superworkflow.arguments  # what all commands import
from superworkflow.__main__ import main

for number, (hidden, arguments) in enumerate(json.loads(sys.argv[1])):
    if os.fork() > 0:
        os.wait()
        continue
    assert hidden not in sys.modules

    class Finder(PathFinder):
        @classmethod
        def find_spec(cls, name, path=None, target=None):
            return None if name.partition(".")[0] == hidden else PathFinder.find_spec(name, path, target)

    sys.meta_path = [Finder if each is PathFinder else each for each in sys.meta_path]
    Path(str(number)).mkdir()
    os.chdir(str(number))
    Path("edges.csv").write_text("a,b\\nb,c\\nc,a\\nc,d\\n")
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.argv[1:] = arguments.split()
    try:
        status = main(sys.argv[1:])
    except SystemExit as error:
        status = error.code
    Path("status").write_text(str(status))
    sys.exit(status)
"""


@dataclass(frozen=True)
class Ended:
    """End of a command in a process that lacks a package."""

    returncode: int
    stdout: str
    stderr: str
    folder: Path


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Ended]:
    """Each command with its package hidden: processes forked from one that has imported what commands share."""
    folder = tmp_path_factory.mktemp("missing")
    cases = [LATE, *((hidden, arguments) for hidden, arguments, _ in MISSING)]
    done = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps(cases)], cwd=folder, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {}
    for number, case in enumerate(cases):
        own = folder / str(number)
        out, err = ((own / name).read_text() for name in ("stdout", "stderr"))
        assert (own / "status").exists(), err
        found[case] = Ended(int((own / "status").read_text()), out, err, own)
    return found


def test_run_without_a_late_stage_s_package_ends_before_the_first_stage(
    ended: dict[tuple[str, str], Ended],
) -> None:
    done = ended[LATE]
    assert "needs sklearn, which is not installed. Run `pip install 'superworkflow[cpu]'`." in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == 2
    assert not list(done.folder.rglob("manifest.json"))


@pytest.mark.parametrize(("hidden", "arguments", "extra"), MISSING)
def test_missing_extra_is_named_with_its_install_line(
    ended: dict[tuple[str, str], Ended], hidden: str, arguments: str, extra: str
) -> None:
    done = ended[hidden, arguments]
    said = done.stdout if "--events" in arguments else done.stderr
    assert f"pip install 'superworkflow[{extra}]'" in said.splitlines()[-1]
    assert hidden in said.splitlines()[-1]
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == 2
