"""`superworkflow check` names each fault of a profile, found on the real cluster."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import NAMESPACE, Cluster, Settings
from tests.cluster.test_commands import _checks, _profile

IMAGE = "image: localhost/busybox:1"


@pytest.fixture
def store(shared_folder: Path) -> str:
    return f"{shared_folder}/store"


@pytest.mark.slow
def test_sizes_that_follow_from_the_graph(settings: Settings, store: str, tmp_path: Path, cluster: Cluster) -> None:
    """Too large a cap is no fault: a small graph asks for little."""
    auto = {"default": {"resources": {"cpu": "auto", "memory": "auto"}}}
    small = {"cpu_cap": 1, "memory_cap": "1Gi"}
    path = _profile(tmp_path, settings, auto, **small)
    found = _checks("--profile", path, "--store", store, expect=0)
    assert found["size: default"] == (True, "chosen from the graph's size; the caps fit")
    path = _profile(tmp_path, settings, auto, cpu_cap=900)
    ok, detail = _checks("--profile", path, "--store", store, expect=0)["size: default"]
    assert ok is None
    assert "see `plan`" in detail
    assert "cpu 900 of" in detail
    auto = {"default": {"resources": {"cpu": 901, "memory": "auto"}}}
    ok, detail = _checks("--profile", _profile(tmp_path, settings, auto), "--store", store, expect=1)["size: default"]
    assert ok is False
    assert "cpu 901 of" in detail


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"env_secrets": ["none-such"], "start_patience_s": 2}, 'secret "none-such" not found'),
        ({"service_account": "none-such", "start_patience_s": 2}, 'serviceaccount "none-such" not found'),
        ({"node_selector": {"pool": "none-such"}, "schedule_patience_s": 1}, "no node can take it"),
        ({"image_pull_policy": "Always", "start_patience_s": 5}, "cannot be pulled"),
        ({"command": ["/none-such"]}, "none-such"),
    ],
)
def test_pods_that_cannot_start(
    settings: Settings, store: str, tmp_path: Path, cluster: Cluster, changed: dict[str, Any], message: str
) -> None:
    path = _profile(tmp_path, settings, **changed)
    found = _checks("--profile", path, "--store", store, expect=1)
    ok, detail = found[IMAGE]
    assert ok is False
    assert message in detail
    assert found["cluster"][0]


def test_read_only_store(settings: Settings, shared_folder: Path, store: str, tmp_path: Path, cluster: Cluster) -> None:
    volumes = [volume.model_dump(exclude_none=True) for volume in settings().volumes]
    for volume in volumes:
        volume["read_only"] = True
    path = _profile(tmp_path, settings, volumes=volumes)
    ok, detail = _checks("--profile", path, "--store", store, expect=1)[IMAGE]
    assert ok is False
    assert "the store cannot be written" in detail
    assert "Read-only file system" in detail


@pytest.mark.slow
def test_quotas_and_nodes_of_each_stage(settings: Settings, store: str, tmp_path: Path, cluster: Cluster) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.memory": "3Gi", "limits.cpu": "100"}}}
    stages = {
        "walk": {"resources": {"cpu": 0.1, "memory": "4Gi"}},
        "prepare": {"resources": {"cpu": 0.1, "memory": "1Gi"}, "node_selector": {"pool": "none-such"}},
        "embed": {"resources": {"gpu": {"count": 1, "type": "A100"}}},
    }
    selectors = {"gpu_selectors": {"A100": {"accelerator": "a100"}}}
    cluster.do(lambda api: api.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **quota}))
    try:
        profile = _profile(tmp_path, settings, {"stages": stages}, **selectors)
        without = _checks("--profile", profile, "--store", store, expect=1)
        limited = _profile(tmp_path, settings, {"stages": stages}, cpu_limit=1, **selectors)
        found = _checks("--profile", limited, "--store", store, expect=1)
    finally:
        cluster.do(lambda api: api.delete(f"{path}/q"))
    assert "set `kubernetes.cpu_limit`" in without["quotas: prepare"][1]
    assert found["quotas: prepare"][0] is True
    assert found["quotas: walk"] == (False, "requests.memory 4.0 GiB of 3.0 GiB in quota q")
    assert found["size: walk"][0] is True
    assert found["size: prepare"] == (False, "no node has the labels {'pool': 'none-such'}")
    assert found["size: embed"] == (False, "no node has the labels {'accelerator': 'a100'}")


def test_an_image_that_no_stage_runs_may_be_missing(
    settings: Settings, store: str, tmp_path: Path, cluster: Cluster
) -> None:
    missing = {"spark": "localhost/none:1", "torch-cuda": "localhost/none:2", "flow": "localhost/none:3"}
    images = {"cpu": "localhost/busybox:1", "torch": "localhost/busybox:1"}
    path = _profile(tmp_path, settings, images=images | missing, start_patience_s=2)
    found = _checks("--profile", path, "--store", store, expect=0)
    assert found[IMAGE][0] is True
    assert {name for name in found if name.startswith("image: ")} == {f"image: {image}" for image in images.values()}
