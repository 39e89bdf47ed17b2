"""`plan` where members of an engine do the work, where GPUs are held, and where one is missing."""

import json
from pathlib import Path
from typing import Any

import pytest

from superworkflow.__main__ import main
from superworkflow.infra.config.prices import load_prices
from superworkflow.infra.config.usage import Holding, held
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.memory_history import Sizing
from superworkflow.infra.storage.location import Location
from superworkflow.tasks import load_stage

GIB = 1 << 30
PROFILE = """
launcher: kubernetes
kubernetes: {images: {cpu: a, torch: b, spark: c}, memory_cap: 64Gi}
default: {resources: {cpu: 2, memory: 2Gi}}
stages:
  walk: {engine: spark, resources: {cpu: 1, memory: 1Gi, executors: {count: 3, cpu: 4, memory: 4Gi}}}
  embed: {resources: {cpu: 2, memory: 2Gi, gpu: {count: 2, type: T4}}}
"""


def _plan(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    edges, profile = folder / "edges.csv", folder / "mine.yaml"
    if not edges.exists():
        edges.write_text("".join(f"{i},{(i * 7 + k) % 5000}\n" for i in range(5000) for k in (1, 2, 3)))
        profile.write_text(PROFILE)
    given = ["plan", "node2vec", "--edges", str(edges), "--profile", str(profile), "--store", str(folder / "store")]
    assert main([*given, "--set", "node2vec.link_prediction=false", *more]) == 0
    return capsys.readouterr().out


def test_by_engine_and_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages: dict[str, Any] = {each["name"]: each for each in json.loads(_plan(tmp_path, capsys, "--json"))}
    walk = stages["walk"]
    (executors,) = walk["groups"]
    assert (walk["engine"], walk["width"], walk["fits"], walk["memory_fits"]) == ("spark", 12, True, True)
    assert (executors["role"], executors["count"], executors["cpu"], executors["given_bytes"]) == (
        "executor", 3, 4, 4 * GIB,
    )  # fmt: skip
    assert 5 < walk["start_s"] < walk["seconds"]
    assert 0 < executors["cpu_s"] < walk["cpu_s"]
    size = Resources.model_validate(walk["resources"])
    assert 0 < executors["begin_s"] < walk["start_s"]  # the driver has to start before it asks for them
    own, members = held(size, walk["seconds"])
    later = members.model_copy(update={"begin_s": executors["begin_s"]})
    assert walk["cost_usd"] == pytest.approx(load_prices().price([own, later]))
    embed = stages["embed"]
    assert embed["gpu_s"] == pytest.approx(2 * embed["seconds"])
    assert (stages["index"]["gpu_s"], stages["index"]["groups"], stages["index"]["width"]) == (0, [], 2)


def test_the_table_names_groups_and_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = _plan(tmp_path, capsys)
    (line,) = (line for line in shown.splitlines() if "3 × executor" in line)
    assert "spark" in line
    assert "4.0 GiB" in line
    assert "GPU time" in shown
    (tmp_path / "mine.yaml").write_text(PROFILE.replace("memory: 4Gi}", "memory: 300Mi}"))
    small = _plan(tmp_path, capsys)
    assert "each executor of walk is expected to need" in " ".join(small.split())
    assert "walk is expected to need 3" not in small  # the driver has room
    (tmp_path / "mine.yaml").write_text(PROFILE.replace(", gpu: {count: 2, type: T4}", ""))
    assert "GPU time" not in _plan(tmp_path, capsys)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_what_run_would_refuse_on_this_machine_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (edges := tmp_path / "edges.csv").write_text("a,b\nb,c\nc,a\n")
    given = ["plan", "node2vec", "--edges", str(edges), "--store", str(tmp_path / "store"), "--json", "--set"]
    assert main([*given, "embed.device=cuda"]) == 0
    shown = capsys.readouterr()
    assert "`run` would refuse this: embed.device: no CUDA device" in shown.err
    assert {stage["state"] for stage in json.loads(shown.out)} == {"run"}
    assert main([*given, "embed.device=cpu"]) == 0
    assert "refuse" not in capsys.readouterr().err


def test_memory_that_driver_and_executors_needed_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Memory that a stage needed in process says nothing about its driver or executors."""
    _plan(tmp_path, capsys)
    sizing = Sizing(Location.of(tmp_path / "store"))
    (tmp_path / "store").mkdir(exist_ok=True)
    for key, memory in (("walk", 50 * GIB), ("walk.driver", 3 * GIB), ("walk.executor", 9 * GIB)):
        sizing.remember(key, 1 << 20, memory)
    stages = {each["name"]: each for each in json.loads(_plan(tmp_path, capsys, "--json"))}
    assert stages["walk"]["resources"]["memory"] == 3 * GIB
    assert stages["walk"]["groups"][0]["given_bytes"] == 9 * GIB


def test_a_holding_can_be_made_of_a_described_one() -> None:
    """The cost that `run --json` prints can be priced again."""
    (own,) = held(Resources(cpu=2), 10)
    assert Holding.model_validate(own.model_dump(mode="json", exclude_defaults=True)) == own


def test_estimates_on_other_engines_name_engines_that_the_stage_has() -> None:
    for name in ("index", "walk", "prepare"):
        stage = load_stage(name)
        assert stage.estimates.keys() <= stage.engines.keys()
