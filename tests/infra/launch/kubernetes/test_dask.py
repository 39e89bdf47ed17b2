"""The pods of a stage on Dask, as manifests, and who may talk to them."""

from typing import Any, cast

import kubernetes_validate
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.engines.dask.session import security
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.kubernetes.api import KubernetesApi
from superworkflow.infra.launch.kubernetes.engines.base import engine_on_cluster
from superworkflow.infra.launch.kubernetes.engines.dask import DaskWorkerPods, new_certificate
from superworkflow.infra.launch.kubernetes.job_manifest import job_manifest
from superworkflow.infra.launch.kubernetes.pod_group import FollowedJob
from tests.infra.launch.kubernetes.pod_security import violations

PLACED = Placement(
    engine="dask", resources=Resources.model_validate({"executors": {"count": 2, "cpu": 2.5, "memory": "1Gi"}})
)


def _settings(**env: str) -> KubernetesSettings:
    return KubernetesSettings.model_validate({"images": {"cpu": "cpu:1"}, "env": env})


def _job(settings: KubernetesSettings) -> Any:
    call = StageCall("index", "index", {}, {}, "/store/index/" + "0" * 32, PLACED)
    return job_manifest(call, settings, PLACED.resources, launcher="here")


def test_workers_are_valid_pods_without_rights() -> None:
    """Only the Secret of their Job has the key of its certificate."""
    job, found = _job(_settings()), engine_on_cluster("dask")
    name, template = job["metadata"]["name"], job["spec"]["template"]
    followed = FollowedJob(cast("KubernetesApi", None), _settings(), name, print)
    (pods,) = found.members(followed, PLACED.resources.groups)
    assert isinstance(pods, DaskWorkerPods)
    metadata = {"name": "own", "uid": "1", "labels": template["metadata"]["labels"]}
    pod = pods.pod({"metadata": metadata, "spec": template["spec"], "status": {"podIP": "10.0.0.1"}}, f"{name}-0")
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    assert violations(pod["spec"]) == []
    (container,), (own,) = pod["spec"]["containers"], template["spec"]["containers"]
    values = {each["name"]: each.get("value") for each in container["env"]}
    assert values.items() >= {
        "SUPERWORKFLOW_DASK_HOST": "10.0.0.1", "SUPERWORKFLOW_DASK_CORES": "2", "OMP_NUM_THREADS": "1",
        "SUPERWORKFLOW_DASK_MEMORY": str(1 << 30),
    }.items()  # fmt: skip
    for each in (container, own):
        read = {one["name"]: one["valueFrom"]["secretKeyRef"]["name"] for one in each["env"]
                if "secretKeyRef" in one.get("valueFrom", {})}  # fmt: skip
        assert read == dict.fromkeys(found.secret(), name)


def test_a_scheduler_elsewhere_and_executors_exclude_each_other() -> None:
    with pytest.raises(UserError, match=r"kubernetes\.env\.DASK_SCHEDULER_ADDRESS: .* has executors of its own"):
        _job(_settings(DASK_SCHEDULER_ADDRESS="tcp://there:8786"))


def test_only_those_who_have_the_key_are_heard() -> None:
    from distributed import Client, LocalCluster

    own, other = (security(*new_certificate()) for _ in range(2))
    with LocalCluster(n_workers=0, dashboard_address=None, security=own, silence_logs="CRITICAL") as cluster:
        address = cluster.scheduler_address
        with Client(address, security=own, timeout=20) as client:
            assert client.nthreads() == {}
        for stranger, url in ((other, address), (None, address.replace("tls:", "tcp:"))):
            with pytest.raises(OSError, match=r"certificate|closed"):
                Client(url, security=stranger, timeout=1)
