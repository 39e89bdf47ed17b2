"""From a profile to the pod in which a deployed flow runs: values for the variables of `pool.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.config_files import read_yaml
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.launch.kubernetes.pod_spec import cpu_quantity, volumes_and_mounts

IMAGE_KIND = "flow"
FLOW_CPU = 0.25
"""vCPUs that a flow's own pod requests, the default of `cpu_request` in `pool.yaml`."""


def pool_template() -> dict[str, Any]:
    """Base job template of the work pools for deployed flows."""
    return read_yaml(Path(__file__).parents[2] / "kubernetes" / "pool.yaml")


def flow_pod_variables(settings: KubernetesSettings, image: str | None = None) -> dict[str, Any]:
    """Variables of the flow's pod: it sees the same Secrets, volumes and nodes as the pods of stages.

    Args:
        settings: the profile's `kubernetes` part.
        image: image of the flow; the profile's image of the kind `flow` otherwise.

    Raises:
        UserError: no image is named.
    """
    image = image or settings.images.get(IMAGE_KIND)
    if image is None:
        raise UserError(
            "no image for the flow itself", where="profile: kubernetes.images",
            remedy="Give --image, or name one: `kubernetes: {images: {flow: REGISTRY/flow:TAG}}`",
        )  # fmt: skip
    volumes, mounts = volumes_and_mounts(settings)
    values: dict[str, Any] = {
        "image": image,
        "image_pull_policy": settings.image_pull_policy,
        "namespace": settings.namespace,
        "user": settings.user,
        # Here rather than in the template, where the worker's own setting would win.
        "env": {"PREFECT_HOME": "/tmp/prefect", **settings.env},
        "env_from": [{"secretRef": {"name": name}} for name in settings.env_secrets],
        "image_pull_secrets": [{"name": name} for name in settings.image_pull_secrets],
        "node_selector": settings.node_selector,
        "tolerations": [toleration.manifest() for toleration in settings.tolerations],
        "affinity": settings.affinity,
        "priority_class": settings.priority_class,
        "cpu_limit": cpu_quantity(FLOW_CPU * settings.cpu_limit) if settings.cpu_limit else None,
        "labels": settings.labels,
        "annotations": settings.annotations,
        "volumes": volumes,
        "volume_mounts": mounts,
    }
    return {name: value for name, value in values.items() if value}
