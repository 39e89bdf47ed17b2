"""Images hold what the project pins; those of the stages no orchestrator, that of the flow no engine."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
IMAGES = ROOT / "infra" / "images"
LISTS = {image: ["base.txt", f"{image}.txt"] for image in ("cpu", "torch-cpu", "spark", "flow")}
LISTS["worker"] = [*LISTS["flow"], "cpu.txt", "torch-cpu.txt"]
"""Images whose packages are installed without resolving, so that their lists must be complete."""


def _pins(path: Path) -> dict[str, str]:
    lines = [line.strip() for line in path.read_text().splitlines()]
    pairs = [line.split("==") for line in lines if line and not line.startswith(("#", "-"))]
    return {_name(name): version.partition("+")[0] for name, version in pairs}


def _name(text: str) -> str:
    return text.lower().replace("_", "-").replace(".", "-")


@pytest.mark.parametrize("file", ["base.txt", "cpu.txt", "torch-cpu.txt", "torch-cuda.txt", "spark.txt", "flow.txt"])
def test_pins_are_those_of_the_project(file: str) -> None:
    project = {k: v for name in ("", "-spark", "-dask") for k, v in _pins(ROOT / f"requirements{name}.txt").items()}
    found = _pins(IMAGES / file)
    assert found
    assert {name: project.get(name) for name in found} == found


def test_sqlalchemy_stays_below_2_1() -> None:
    """With 2.1 Prefect's scheduler cannot evaluate its own statements: no schedule fires, and nothing is reported."""
    pinned = {file.name: _pins(file).get("sqlalchemy") for file in [ROOT / "requirements.txt", *IMAGES.glob("*.txt")]}
    versions = {version for version in pinned.values() if version}
    assert pinned["requirements.txt"]
    assert pinned["flow.txt"]
    assert len(versions) == 1
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (requirement,) = (Requirement(text) for text in extras["flow"] if text.startswith("sqlalchemy"))
    assert "2.1" not in requirement.specifier
    assert versions <= set(requirement.specifier.filter(versions))


def test_worker_is_the_flow_with_stages_beside_it() -> None:
    text = (IMAGES / "worker.Dockerfile").read_text()
    assert "FROM ${FLOW}" in text
    assert "COPY infra/images/cpu.txt infra/images/torch-cpu.txt" in text
    assert text.rstrip().endswith("USER 1000")
    assert "latest" not in text


@pytest.mark.parametrize("image", LISTS)
def test_lists_are_complete(image: str) -> None:
    """Every package that one of them requires is among them."""
    pins = {name: version for file in LISTS[image] for name, version in _pins(IMAGES / file).items()}
    missing = set()
    for name in pins:
        for text in importlib.metadata.requires(name) or []:
            requirement = Requirement(text)
            needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if needed and _name(requirement.name) not in pins:
                missing.add(f"{name} needs {requirement.name}")
    assert missing == set()


@pytest.mark.parametrize("image", ["cpu", "torch-cpu", "torch-cuda", "spark", "flow"])
def test_nothing_unwanted_no_root_no_latest(image: str) -> None:
    text = (IMAGES / f"{image}.Dockerfile").read_text()
    assert "USER 1000" in text
    assert "latest" not in text
    lists = [line.rsplit("/", 1)[-1] for line in text.split() if line.startswith("infra/images/") and ".txt" in line]
    assert len(lists) == 2
    unwanted = {"prefect", "mlflow", "optuna", "kubernetes-asyncio", "torch" if image == "spark" else "pyspark"}
    if image == "flow":
        unwanted = {"torch", "pyspark", "duckdb"}
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        needed = {
            _name(Requirement(text).name)
            for extra in ("flow", "sweep", "dashboard", "kubernetes")
            for text in extras[extra]
        }
        assert needed - {"superworkflow"} <= {name for file in lists for name in _pins(IMAGES / file)}
        rooms = {path.name for path in (ROOT / "superworkflow").iterdir() if path.is_symlink()} | {"superworkflow"}
        copied = {line.split()[1] for line in text.splitlines() if line.startswith("COPY")}
        assert rooms == copied - {"infra/images/base.txt", "infra/images/flow.txt"}
        assert rooms <= {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().split()}
    for file in lists:
        assert not unwanted & set(_pins(IMAGES / file))
