"""The commands that look into a cluster, and a whole run on one."""

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient

from tests import warm
from tests.cluster.conftest import ROOT, Cluster, Pods, Settings
from tests.flows.command_line import SMALL, STAGES
from tests.launcher_cases import calling
from tests.second.conftest import SITE, write_graph
from tests.second.test_own import OUTLIERS


def _profile(folder: Path, settings: Settings, more: dict[str, Any] | None = None, **changed: Any) -> str:
    values = {
        "launcher": "kubernetes",
        "concurrency": 2,
        "kubernetes": settings(**changed).model_dump(),
        "default": {"resources": {"cpu": 0.5, "memory": "1Gi"}},
        **(more or {}),
    }
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def _ended(*arguments: str, timeout: float, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm.run(arguments, timeout=timeout, env=os.environ | environment)


def _command(*arguments: str, expect: int = 0, **environment: str) -> str:
    done = _ended(*arguments, timeout=500, **environment)
    assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _checks(*arguments: str, expect: int) -> dict[str, tuple[bool | None, str]]:
    found = json.loads(_command("check", "--json", *arguments, expect=expect))
    return {each["name"]: (each["ok"], each["detail"]) for each in found}


def test_check_of_a_good_profile(settings: Settings, shared_folder: Path, tmp_path: Path, cluster: Cluster) -> None:
    store = f"{shared_folder}/store"
    checks = _checks("--profile", _profile(tmp_path, settings), "--store", store, expect=0)
    assert checks["cluster"][0]
    assert {name for name in checks if name.startswith("right: ")} == {
        "right: jobs", "right: pods", "right: pods/log", "right: events",
    }  # fmt: skip
    assert checks["size: default"] == (True, "0.5 CPU, 1.0 GiB")
    assert "writes to the store" in checks["image: localhost/busybox:1"][1]
    assert all(ok for ok, _ in checks.values())


@pytest.mark.slow
def test_check_names_each_fault(settings: Settings, shared_folder: Path, tmp_path: Path, cluster: Cluster) -> None:
    stages = {
        "embed": {"resources": {"gpu": {"count": 1, "type": "T4"}}},
        "walk": {"resources": {"memory": "9Ti", "cpu": 900}},
    }
    images = {"cpu": "localhost/none:1", "torch": "localhost/busybox:1"}
    locked = shared_folder / "locked"
    locked.mkdir(exist_ok=True)
    locked.chmod(0o755)
    profile = _profile(tmp_path, settings, {"stages": stages}, images=images, start_patience_s=2)
    checks = _checks("--profile", profile, "--store", str(locked), expect=1)
    assert checks["size: default"][0] is True
    assert "nvidia.com/gpu 1 of 0" in checks["size: embed"][1]
    assert "memory 9.0 TiB of" in checks["size: walk"][1]
    assert "cannot be pulled" in checks["image: localhost/none:1"][1]
    ok, detail = checks["image: localhost/busybox:1"]
    assert ok is False
    assert f"{locked}: the store cannot be written: PermissionError" in detail
    checks = _checks("--profile", profile, "--store", str(tmp_path), expect=1)
    assert "this folder is not visible to pods" in checks["store"][1]


def test_check_without_rights(settings: Settings, shared_folder: Path, tmp_path: Path, cluster: Cluster) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "nobody"}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    done = _ended("check", "--profile", _profile(tmp_path, settings), timeout=60, KUBECONFIG=f"{tmp_path}/kubeconfig")
    assert done.returncode == 1
    assert "Kubernetes answered 401" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_jobs_of_a_killed_run_are_listed_and_removed(
    settings: Settings, ground: Pods, gate: Path, cluster: Cluster, tmp_path: Path
) -> None:
    with calling(ground.caller(ground.call(gate))):
        pass
    profile = _profile(tmp_path, settings)
    (job,) = json.loads(_command("jobs", "--profile", profile, "--json"))
    assert (job["node"], job["state"], job["attempt"], job["flow_run"]) == (
        "my-gated", "running", "1", "tests",
    )  # fmt: skip
    assert json.loads(_command("jobs", "--profile", profile, "--json", "--flow-run", "another")) == []
    assert "1 deleted" in _command("jobs", "--profile", profile, "--clean")
    while cluster.jobs():
        pass
    assert "no Jobs" in _command("jobs", "--profile", profile)


def test_no_cluster(tmp_path: Path, settings: Settings) -> None:
    done = _ended("jobs", "--profile", _profile(tmp_path, settings), timeout=60, KUBECONFIG=f"{tmp_path}/none")
    assert done.returncode == 2
    assert "no Kubernetes cluster is configured" in done.stderr


@pytest.fixture(scope="module")
def flow_store(shared_folder: Path) -> Path:
    """A store for a run and for a sweep, which needs what the run makes first; either makes it alone."""
    store = shared_folder / "flow"
    store.mkdir()
    store.chmod(0o777)  # pods write as another user than the one who runs the flow
    return store


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_run_is_as_on_this_machine(
    settings: Settings, flow_store: Path, tmp_path: Path, graph_files: tuple[Path, Path], prefect_api: str
) -> None:
    edges, labels = graph_files
    arguments = [
        "run", "node2vec", "--edges", str(edges), "--labels", str(labels), "--json", "--name", "x",
        "--set", *SMALL, "node2vec.link_prediction=false",
    ]  # fmt: skip
    environment = {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    profile = _profile(tmp_path, settings)
    one = json.loads(_command(*arguments, "--profile", profile, "--store", str(flow_store), **environment))
    here = tmp_path / "here.yaml"
    here.write_text("default: {resources: {cpu: 0.5, memory: 1Gi}}")
    two = json.loads(_command(*arguments, "--profile", str(here), "--store", f"{tmp_path}/store", **environment))
    assert one["metrics"] == two["metrics"]
    assert [stage["digest"] for stage in one["stages"]] == [stage["digest"] for stage in two["stages"]]
    assert [stage["name"] for stage in one["stages"]] == [name for name in STAGES if "holdout" not in name]
    for stage in one["stages"]:
        assert stage["image"].startswith("localhost/busybox:1@sha256:")
        assert stage["figures"]["container_peak_memory_bytes"] > 0
        assert stage["figures"]["container_cpu_s"] > 0
        assert [attempt["reason"] for attempt in stage["attempts"]] == [None]
        assert stage["cost_usd"] == pytest.approx(sum(attempt["cost_usd"] for attempt in stage["attempts"]))
    client = MlflowClient(environment["MLFLOW_TRACKING_URI"])
    (experiment,) = client.search_experiments(filter_string="name = 'superworkflow'")
    runs = client.search_runs([experiment.experiment_id], "tags.`superworkflow.stage` = 'walk'")
    images = {run.data.tags["superworkflow.image"] for run in runs if "superworkflow.image" in run.data.tags}
    figures = [run.data.metrics for run in runs if "container_cpu_s" in run.data.metrics]
    assert len(images) == len(figures) == 1
    assert figures[0].keys() >= {"schedule_s", "start_s", "pull_s", "used_memory_share", "requested_memory_bytes"}


@pytest.mark.usefixtures("cluster")
def test_a_file_of_the_user_runs_in_jobs(
    settings: Settings, shared_folder: Path, tmp_path: Path, prefect_api: str
) -> None:
    """Its own stage by the copy in the store, those that it takes from a package by their entry points."""
    file, store = tmp_path / "mine.py", shared_folder / "own"
    file.write_text(OUTLIERS.read_text())
    store.mkdir()
    store.chmod(0o777)
    path = os.pathsep.join([str(SITE), str(ROOT)])
    profile = _profile(tmp_path, settings, env={"PYTHONPATH": path})
    arguments = ["run", str(file), "--graph", str(write_graph(tmp_path)), "--profile", profile, "--store", str(store)]
    environment = {"PREFECT_API_URL": prefect_api, "PYTHONPATH": path}
    done = json.loads(_command(*arguments, "--no-tracking", "--json", **environment))
    assert [(stage["name"], stage["state"]) for stage in done["stages"]] == [
        ("measurements", "ran"), ("fit", "ran"), ("outliers", "ran"),
    ]  # fmt: skip
    assert all(stage["image"].startswith("localhost/busybox:1@sha256:") for stage in done["stages"])
    manifest = json.loads((Path(done["stages"][2]["output"]) / "manifest.json").read_text())
    assert manifest["inputs"]["code"]["digest"] == hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_trials_of_a_sweep_are_jobs(
    settings: Settings, flow_store: Path, tmp_path: Path, graph_files: tuple[Path, Path], prefect_api: str
) -> None:
    edges, labels = graph_files
    space = tmp_path / "space.yaml"
    space.write_text("embed: {window: [2, 4]}\n")
    arguments = [
        "sweep", "node2vec", "--edges", str(edges), "--labels", str(labels), "--set", *SMALL[:-1],
        "--space", str(space), "--sampler", "grid", "--parallel", "2", "--pruner", "none", "--no-tracking", "--json",
        "--study", "in-jobs", "--profile", _profile(tmp_path, settings), "--store", str(flow_store),
    ]  # fmt: skip
    found = json.loads(_command(*arguments, PREFECT_API_URL=prefect_api, MLFLOW_TRACKING_URI=""))
    assert [trial["state"] for trial in found["trials"]] == ["complete", "complete"]
    stages = ("index", "walk", "embed")
    made = {name: len(list((flow_store / name).glob("*/manifest.json"))) for name in stages}
    assert made == {"index": 1, "walk": 1, "embed": 2}
