"""The servers' manifests, applied to the cluster with the overlay that docs/kubernetes.md shows.

To save time only MLflow's server starts; in test_deployment.py a worker has the account that the worker has here.
"""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import httpx
import psycopg
import pytest
import yaml
from psycopg import sql

from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from tests.cluster.conftest import NAMESPACE, ROOT, Cluster, Settings, node_address
from tests.sweeps.conftest import Postgres, running_postgres

PASSWORD = "p@ss:/%?#$(x)w'd &\""
"""Of everybody; no part of a URL, so that any character will do."""
PUBLIC = "https://mlflow.example.com"
"""Where browsers find MLflow."""
DELETED = "$patch: delete\napiVersion: v1\nkind: any\nmetadata: {name: any}\n"
OVERLAY = re.compile(r"```yaml\n(apiVersion: kustomize.*?)```", re.DOTALL)


@dataclass
class Servers:
    """The applied servers, and the address of MLflow."""

    namespace: str
    mlflow: str


@pytest.fixture
def postgres(cluster: Cluster) -> Iterator[Postgres]:
    """A server that pods reach, with a user who may make databases."""
    with running_postgres(cluster.do(node_address)) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE ROLE team LOGIN CREATEDB PASSWORD {}").format(PASSWORD))
        yield server


@pytest.fixture
def servers(cluster: Cluster, postgres: Postgres, bucket: str, settings: Settings, tmp_path: Path) -> Iterator[Servers]:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl")
    namespace = f"{NAMESPACE}-{uuid.uuid4().hex[:8]}"
    (overlay := tmp_path / "overlay").mkdir()
    _write_overlay(overlay, namespace, postgres, bucket, settings)
    try:
        _kubectl("apply", "-k", str(overlay))
        _kubectl("-n", namespace, "rollout", "status", "deployment/mlflow", "--timeout=500s")
        pods = json.loads(_kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]
        (address,) = [pod["status"]["podIP"] for pod in pods]
        yield Servers(namespace, f"http://{address}:5000")
    finally:
        _kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")


def _write_overlay(folder: Path, namespace: str, postgres: Postgres, bucket: str, settings: Settings) -> None:
    """That of the documentation, with pods that see Python and the project through the node, and with Secrets."""
    found = OVERLAY.search((ROOT / "docs" / "kubernetes.md").read_text())
    assert found is not None
    overlay: dict[str, Any] = yaml.safe_load(found[1])
    config = yaml.safe_load(overlay["patches"][0]["patch"])
    config["data"] |= {
        "MLFLOW_ARTIFACTS_DESTINATION": f"{bucket}/mlflow", "MLFLOW_SERVER_ALLOWED_HOSTS": "*",
        "SUPERWORKFLOW_MLFLOW_URL": PUBLIC,
        **{name: os.environ[name] for name in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION")},
    }  # fmt: skip
    volumes = [each for each in settings().volumes if each.read_only]
    pod = [{"op": "add", "path": "/spec/template/spec/volumes/-",
            "value": {"name": f"v{number}", "hostPath": {"path": each.host_path}}}
           for number, each in enumerate(volumes)]  # fmt: skip
    for container in ("containers", "initContainers"):
        path = f"/spec/template/spec/{container}/0"
        pod += [{"op": "add", "path": f"{path}/volumeMounts/-",
                 "value": {"name": f"v{number}", "mountPath": each.mount_path, "readOnly": True}}
                for number, each in enumerate(volumes)]  # fmt: skip
        pod.append({"op": "replace", "path": f"{path}/command/0", "value": sys.executable})
    workers = "/spec/template/spec/containers/0/command/6"
    pod += [
        {"op": "test", "path": workers, "value": "--workers=2"},
        {"op": "replace", "path": workers, "value": "--workers=1"},
    ]
    literals = {
        "postgres": {
            "PGHOST": postgres.address, "PGPORT": str(postgres.port), "PGUSER": "team", "PGPASSWORD": PASSWORD,
            "PYTHONPATH": str(ROOT),  # where the project is not installed
        },
        "s3": {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")},
        "superworkflow-servers": {
            "PREFECT_API_AUTH_STRING": f"team:{PASSWORD}", "MLFLOW_TRACKING_USERNAME": "team",
            "MLFLOW_TRACKING_PASSWORD": PASSWORD, "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(16),
        },
    }  # fmt: skip
    resources = [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
                  "stringData": data} for name, data in literals.items()]  # fmt: skip
    (folder / "secrets.yaml").write_text(yaml.safe_dump_all(resources))
    overlay |= {
        "namespace": namespace,
        "resources": [os.path.relpath(ROOT / "infra" / "kubernetes", folder.resolve()), "secrets.yaml"],
        "images": [overlay["images"][0] | {"newName": "localhost/busybox", "newTag": "1"}],
        "patches": [
            {"patch": yaml.safe_dump(config)},
            {"target": {"kind": "ClusterRole|ClusterRoleBinding"}, "patch": DELETED},
            {"target": {"kind": "Deployment", "name": "mlflow"}, "patch": yaml.safe_dump(pod)},
        ],
        "replicas": [{"name": name, "count": 0} for name in ("prefect", "worker", "dashboard")],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))


def _kubectl(*arguments: str) -> str:
    done = subprocess.run(["kubectl", *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


RIGHTS: dict[str, dict[tuple[str, str], bool]] = {
    "superworkflow-worker": {
        ("create", "jobs"): True, ("watch", "jobs"): True, ("delete", "jobs"): True, ("list", "pods"): True,
        ("patch", "jobs"): False, ("create", "pods"): False, ("get", "secrets"): False,
        ("list", "secrets"): False, ("create", "rolebindings"): False,
    },
    "superworkflow-servers": {("list", "pods"): False, ("get", "secrets"): False, ("create", "jobs"): False},
}  # fmt: skip
"""Accounts, and whether they may do this to that."""


def test_what_is_applied_runs_with_passwords_and_few_rights(
    servers: Servers, postgres: Postgres, bucket: str, cluster: Cluster
) -> None:
    search = f"{servers.mlflow}/api/2.0/mlflow/experiments/search?max_results=1"
    assert httpx.get(search).status_code == 401
    with httpx.Client(auth=("team", PASSWORD), timeout=60) as team:
        team.get(search).raise_for_status()
        runs = f"{servers.mlflow}/ajax-api/2.0/mlflow/runs/search"
        answered = [team.post(runs, json={"experiment_ids": ["0"]}, headers={"Origin": origin}).status_code
                 for origin in (PUBLIC, "https://elsewhere.example.com")]  # fmt: skip
        assert answered == [200, 403]
        file = f"{servers.mlflow}/api/2.0/mlflow-artifacts/artifacts/1/hello.txt"
        team.put(file, content=b"hello").raise_for_status()
    assert fsspec.filesystem("s3").cat(f"{bucket}/mlflow/1/hello.txt") == b"hello"
    with psycopg.connect(postgres.url) as connection:
        owned = "SELECT datname FROM pg_database WHERE pg_get_userbyid(datdba) = 'team'"
        assert connection.execute(owned).fetchall() == [("mlflow",)]
    pods = json.loads(_kubectl("-n", servers.namespace, "get", "pods", "-o", "json"))["items"]
    assert PASSWORD not in json.dumps(pods)
    assert cluster.do(lambda api: _rights(api, servers.namespace)) == RIGHTS


async def _rights(api: KubernetesApi, namespace: str) -> dict[str, dict[tuple[str, str], bool]]:
    groups = {"jobs": "batch", "rolebindings": "rbac.authorization.k8s.io"}
    found: dict[str, dict[tuple[str, str], bool]] = {}
    for account, questions in RIGHTS.items():
        for verb, resource in questions:
            what = {"namespace": namespace, "verb": verb, "resource": resource, "group": groups.get(resource, "")}
            spec = {"user": f"system:serviceaccount:{namespace}:{account}", "resourceAttributes": what}
            review: Json = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
            answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
            found.setdefault(account, {})[verb, resource] = bool(answer["status"].get("allowed"))
    return found
