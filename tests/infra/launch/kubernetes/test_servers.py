"""The servers' manifests fit Kubernetes, are admitted by the shipped namespace, and hold no password."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from tests.infra.launch.kubernetes.pod_security import violations

FOLDER = Path(__file__).parents[4] / "infra" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
DOCUMENTS: list[dict[str, Any]] = [
    document for name in KUSTOMIZATION["resources"] for document in yaml.safe_load_all((FOLDER / name).read_text())
]
PODS = {each["metadata"]["name"]: each["spec"]["template"] for each in DOCUMENTS if each["kind"] == "Deployment"}
SECRETS = {
    "postgres": set(), "s3": set(),
    "superworkflow-servers": {
        "PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD",
        "MLFLOW_FLASK_SERVER_SECRET_KEY",
    },
}  # fmt: skip
"""Secrets that docs/kubernetes.md has users make, and their keys that manifests name."""


def _kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in DOCUMENTS if each["kind"] == kind]


def test_fit_the_schema() -> None:
    for document in DOCUMENTS:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_pods_are_admitted_probed_and_sized() -> None:
    assert set(PODS) == {"prefect", "mlflow", "worker", "dashboard"}
    (labels,) = [each["spec"]["podSelector"]["matchLabels"] for each in _kind("NetworkPolicy")
                 if each["metadata"]["name"] == "superworkflow-servers"]  # fmt: skip
    for name, pod in PODS.items():
        spec = pod["spec"]
        assert violations(spec) == [], name
        assert labels.items() <= pod["metadata"]["labels"].items()
        assert spec["automountServiceAccountToken"] == (name == "worker")
        assert spec["enableServiceLinks"] is False  # PREFECT_PORT and MLFLOW_PORT would be taken for settings
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
            assert container["securityContext"]["readOnlyRootFilesystem"]
        (container,) = spec["containers"]
        assert {"startupProbe", "livenessProbe"} <= container.keys()


def test_nothing_is_public_and_no_password_is_there() -> None:
    assert {each["kind"] for each in DOCUMENTS} == {
        "Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy",
        "ConfigMap", "Service", "Deployment",
    }  # fmt: skip
    assert {service["spec"].get("type", "ClusterIP") for service in _kind("Service")} == {"ClusterIP"}
    (config,) = _kind("ConfigMap")
    assert not any(word in json.dumps(config).upper() for word in ("PASSWORD", "SECRET_ACCESS", "AUTH_STRING"))


def test_references_lead_somewhere() -> None:
    """To Secrets and keys that the documentation has users make, to keys of the ConfigMap, to ports and accounts."""
    accounts = {each["metadata"]["name"] for each in _kind("ServiceAccount")}
    (config,) = _kind("ConfigMap")
    pool = yaml.safe_load((FOLDER / "pool.yaml").read_text())
    flow = pool["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["containers"][0]
    containers = [each for pod in PODS.values() for kind in ("containers", "initContainers")
                  for each in pod["spec"].get(kind, ())]  # fmt: skip
    variables = [entry["valueFrom"] for each in (*containers, flow) for entry in each.get("env", ())
                 if "valueFrom" in entry]  # fmt: skip
    named = [entry["secretKeyRef"] for entry in variables if "secretKeyRef" in entry]
    assert {entry["name"] for entry in named} == {"superworkflow-servers"}
    assert {entry["key"] for entry in named} == SECRETS["superworkflow-servers"]
    assert {e["configMapKeyRef"]["key"] for e in variables if "configMapKeyRef" in e} <= config["data"].keys()
    whole = {
        entry["secretRef"]["name"] for each in containers for entry in each.get("envFrom", ()) if "secretRef" in entry
    }
    assert whole == set(SECRETS)
    page = (FOLDER.parent.parent / "docs" / "kubernetes.md").read_text()
    assert all(f"create secret generic {name}" in page for name in SECRETS)
    assert all(f"--from-literal={key}=" in page for keys in SECRETS.values() for key in keys)
    assert {pod["spec"]["serviceAccountName"] for pod in PODS.values()} <= accounts
    for service in _kind("Service"):
        pod = PODS[service["metadata"]["name"]]
        assert service["spec"]["selector"] == pod["metadata"]["labels"]
        (port,) = pod["spec"]["containers"][0]["ports"]
        assert (port["name"], port["containerPort"]) == ("http", service["spec"]["ports"][0]["port"])
