"""The whole superworkflow on the shipped graph with a stage on Spark, whose files its own tests compare."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from superworkflow.flows.node2vec import SUPERWORKFLOW as NODE2VEC
from superworkflow.infra.config.profile import FOLDER, load_profile
from superworkflow.infra.storage.dataset import Dataset
from tests.flows.command_line import CommandLine
from tests.spark import needs_spark

DATA = Path(__file__).parents[2] / "flows" / "data"
ON_SPARK = {"index", "walk", "prepare", "holdout-walk", "holdout-prepare"}
SMALL = ["walk.num_walks=2", "walk.walk_length=20", "walk.p=0.5", "embed.dimensions=8", "embed.epochs=1",
         "node2vec.link_prediction=false"]  # fmt: skip


@pytest.fixture
def profile(tmp_path: Path) -> str:
    """A laptop's, with one of the stages on Spark; each stage's own tests hold its files against those in process."""
    small = {"engine": "spark", "resources": {"cpu": 2, "memory": "1Gi"}}
    laptop = yaml.safe_load((FOLDER / "laptop.yaml").read_text())
    (tmp_path / "small-spark.yaml").write_text(yaml.safe_dump({**laptop, "stages": {"prepare": small}}))
    return str(tmp_path / "small-spark.yaml")


def _run(command_line: CommandLine, store: Path, profile: str) -> dict[str, dict[str, Any]]:
    edges, labels = DATA / "email-eu-core.txt.gz", DATA / "email-eu-core-department-labels.txt.gz"
    given = CommandLine(store, edges, labels, command_line.environment, SMALL)
    document = given("run", "--json", "--profile", profile).document
    return {stage["name"]: stage for stage in document["stages"]}


def test_stages_that_the_shipped_profile_puts_on_spark() -> None:
    placed = load_profile("laptop-spark", NODE2VEC.variants).stages
    assert {name for name, placement in placed.items() if placement.engine == "spark"} == ON_SPARK


@pytest.mark.slow
@needs_spark
def test_datasets_of_spark_serve_runs_without_it(command_line: CommandLine, profile: str, tmp_path: Path) -> None:
    there = _run(command_line, tmp_path / "store", profile)
    assert {stage["state"] for stage in there.values()} == {"ran"}
    assert Dataset.open(there["prepare"]["output"]).manifest.engine == "spark"
    here = _run(command_line, tmp_path / "store", "laptop")
    assert {stage["state"] for stage in here.values()} == {"cached"}
    assert {name: stage["output"] for name, stage in here.items()} == {
        name: stage["output"] for name, stage in there.items()
    }
