"""Helpers for tests of Spark on a cluster: Java for pods, the size of executors, and a look at them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.kubernetes.api import Json
from superworkflow.infra.launch.kubernetes.pod_group import MEMBER_OF

if TYPE_CHECKING:
    from tests.cluster.conftest import Cluster


def java_home() -> Path:
    found = shutil.which("java")
    assert found is not None
    return Path(found).resolve().parent.parent


def java_volumes() -> list[dict[str, Any]]:
    """Folders outside of its own to which Java's links lead, such as Debian's /etc/java-17-openjdk."""
    links = [path.readlink() for path in java_home().rglob("*") if path.is_symlink()]
    folders = {Path(*link.parts[:3]) for link in links if link.parts[:2] == ("/", "etc")}
    return [{"mount_path": str(each), "host_path": str(each), "read_only": True} for each in sorted(folders)]


def placement(count: int = 2, memory: str = "832Mi", engine: str = "spark") -> Placement:
    size = {"count": count, "cpu": 0.25, "memory": memory}
    resources = Resources.model_validate({"cpu": 0.25, "memory": "1Gi", "executors": size})
    return Placement(engine=engine, resources=resources)


def executors_of(cluster: Cluster) -> list[Json]:
    return cluster.do(lambda api: api.items(api.pods, labelSelector=MEMBER_OF))


def running(cluster: Cluster, count: int) -> list[Json]:
    """The executors, as soon as this many run."""
    for _ in range(600):
        found = [pod for pod in executors_of(cluster) if pod["status"].get("phase") == "Running"]
        if len(found) >= count:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{len(found)} of {count} executors run")
