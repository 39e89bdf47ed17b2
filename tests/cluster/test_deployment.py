"""A deployment on a Kubernetes pool: a real server, a real worker with the shipped rights, flows in pods."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient

from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from tests import warm
from tests.cluster.conftest import NAMESPACE, ROOT, Cluster, Settings
from tests.flows.command_line import SMALL, STAGES
from tests.flows.deployments import ask, assert_tasks, cancel_run, eventually, running_worker, start_run, wait_for_state

ACCOUNT, WORKER = "superworkflow", "superworkflow-worker"
POOL = "cluster-tests"
_CORE, _RBAC = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
_PATHS = {
    "ServiceAccount": f"{_CORE}/serviceaccounts",
    "Role": f"{_RBAC}/roles",
    "RoleBinding": f"{_RBAC}/rolebindings",
}


@pytest.fixture(scope="module")
def account(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kubeconfig of the shipped account of workers, with the shipped rights, in the namespace of these tests."""
    documents = list(yaml.safe_load_all((ROOT / "infra" / "kubernetes" / "rbac.yaml").read_text()))

    async def apply(api: KubernetesApi) -> str:
        for document in documents:
            if path := _PATHS.get(document["kind"]):
                document["metadata"]["namespace"] = NAMESPACE
                for subject in document.get("subjects", []):
                    subject["namespace"] = NAMESPACE
                await api.create(path, document)
        body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await api.create(f"{_PATHS['ServiceAccount']}/{WORKER}/token", body)
        return str(answer["status"]["token"])

    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": cluster.do(apply)}
    config["contexts"][0]["context"]["namespace"] = NAMESPACE
    path = tmp_path_factory.mktemp("account") / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def profile(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stages and flow by the project's own tree."""
    kinds = dict.fromkeys(("cpu", "torch", "flow"), "localhost/busybox:1")
    chosen = settings(images=kinds)
    path = tmp_path_factory.mktemp("profile") / "tests.yaml"
    values = {
        "launcher": "kubernetes", "concurrency": 2, "kubernetes": chosen.model_dump(),
        "default": {"resources": {"cpu": 0.1, "memory": "1Gi"}},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture(scope="module")
def store(shared_folder: Path) -> Path:
    """A store in which pods may write, with the graph in it; what one run makes is there for the next."""
    folder = shared_folder / "deployed"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture(scope="module")
def worker(prefect_api: str, account: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A real worker, which has no more rights than the shipped account."""
    environment = {
        "PREFECT_API_URL": prefect_api, "KUBECONFIG": str(account),
        "PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_NAMESPACES": NAMESPACE,
    }  # fmt: skip
    pool = {"name": POOL, "type": "kubernetes"}
    ask("POST", f"{prefect_api}/work_pools/", pool).raise_for_status()  # `--update-pool` gives it its template
    with running_worker(POOL, "kubernetes", tmp_path_factory.mktemp("worker") / "home", environment):
        yield


def _deploy(prefect_api: str, store: Path, profile: Path, graph: tuple[Path, Path], *more: str) -> str:
    """Register; the id of the deployment."""
    edges, labels = (store / path.name for path in graph)
    for source, path in zip(graph, (edges, labels), strict=True):
        path.write_text(source.read_text())
    arguments = [
        "deploy", "node2vec", "--name", "nightly", "--pool", POOL,
        "--update-pool", "--profile", str(profile), "--store", f"{store}/store", "--edges", str(edges),
        "--labels", str(labels), "--json", "--variable", "finished_job_ttl=0",
        "--variable", f"command={sys.executable} -P -m prefect flow-run execute", "--set", *SMALL, *more,
    ]  # fmt: skip
    environment = os.environ | {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": f"sqlite:///{store}/mlflow.db"}
    done = warm.run(arguments, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    subprocess.run(["chmod", "-R", "a+rwX", store], check=True)  # pods are another user
    return str(json.loads(done.stdout)["id"])


def _flow_jobs(cluster: Cluster, run: str) -> list[Json]:
    return cluster.do(lambda api: api.items(api.jobs, labelSelector=f"prefect.io/flow-run-id={run}"))


def _flow_pod(cluster: Cluster, run: str) -> Json | None:
    found = cluster.do(lambda api: api.items(api.pods, labelSelector=f"prefect.io/flow-run-id={run}"))
    return found[0] if found else None


@pytest.mark.usefixtures("worker")
def test_run_from_the_deployment(
    prefect_api: str, store: Path, profile: Path, graph_files: tuple[Path, Path], cluster: Cluster
) -> None:
    more = ["node2vec.link_prediction=false", "--cron", "0 2 * * *", "--timezone", "Europe/Paris", "--pause"]
    deployment = _deploy(prefect_api, store, profile, graph_files, *more)
    run = start_run(prefect_api, deployment)
    job = eventually(lambda: cluster.jobs(**{"flow-run": run}))[0]
    pod = _flow_pod(cluster, run)
    assert pod is not None
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", pod["metadata"]["uid"])
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["serviceAccountName"] == ACCOUNT
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["resources"]["limits"]["memory"]

    wait_for_state(prefect_api, run, "Completed")
    stages = [name for name in STAGES if "holdout" not in name]
    assert_tasks(prefect_api, run, dict.fromkeys(stages, "Completed"))
    filtered: dict[str, Any] = {"artifacts": {"flow_run_id": {"any_": [run]}}}
    keys = {each["key"] for each in ask("POST", f"{prefect_api}/artifacts/filter", filtered).json()}
    assert {"stages", "tracking-run"} <= keys
    client = MlflowClient(f"sqlite:///{store}/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'superworkflow'")
    runs = client.search_runs([experiment.experiment_id])
    (whole,) = [each for each in runs if each.data.tags.get("superworkflow.flow_run_id") == run]
    nested = {
        each.data.tags["superworkflow.stage"]: each.data.metrics
        for each in runs
        if each.data.tags.get("mlflow.parentRunId") == whole.info.run_id
    }
    assert set(nested) == set(stages)
    assert all(metrics["container_peak_memory_bytes"] > 0 for metrics in nested.values())
    eventually(lambda: not _flow_jobs(cluster, run))


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_cancelled_from_prefect(
    prefect_api: str, store: Path, profile: Path, graph_files: tuple[Path, Path], cluster: Cluster
) -> None:
    more = ["node2vec.link_prediction=false", "embed.epochs=10000", "embed.dimensions=512"]
    run = start_run(prefect_api, _deploy(prefect_api, store, profile, graph_files, *more))
    eventually(lambda: [j for j in cluster.jobs(node="embed") if (j.get("status") or {}).get("active")])
    cancel_run(prefect_api, run)
    eventually(lambda: not cluster.jobs() and not cluster.pods())
    wait_for_state(prefect_api, run, "Cancelled")
    eventually(lambda: not _flow_jobs(cluster, run))
