"""Settings of stages as Kubernetes Jobs: the part `kubernetes:` of a profile. Never in a digest."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import Bytes
from superworkflow.infra.storage.table_access import is_below

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]


class Volume(BaseModel, frozen=True, extra="forbid"):
    """A folder that every pod sees, such as a store on shared storage: of the node, or a volume claim."""

    mount_path: str = Field(pattern="^/.+", description="Where pods see it.")
    host_path: str | None = Field(
        default=None,
        pattern="^/",
        description="Folder of the node; refused where pods are restricted, as in rbac.yaml.",
    )
    claim: Name | None = Field(default=None, description="Name of a PersistentVolumeClaim.")
    read_only: bool = Field(default=False, description="Mount it read-only.")

    @model_validator(mode="after")
    def _one_kind(self) -> Volume:
        if (self.host_path is None) == (self.claim is None):
            raise ValueError("needs either host_path or claim")
        return self


class Toleration(BaseModel, frozen=True, extra="forbid"):
    """A taint that the pods tolerate, as in Kubernetes."""

    key: str | None = Field(default=None, description="Key of the taint; all taints when not given.")
    operator: Literal["Equal", "Exists"] = Field(default="Exists", description="How `value` is compared.")
    value: str | None = Field(default=None, description="Value of the taint, for the operator Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; all effects when not given."
    )

    def manifest(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class KubernetesSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of Jobs and of the launcher's timeouts."""

    namespace: Name | None = Field(
        default=None, description="Namespace of the Jobs; by default the one of the credentials."
    )
    credentials: str | None = Field(
        default=None,
        description="KubernetesCredentials block of Prefect; by default the pod's service account, or KUBECONFIG.",
    )
    service_account: Name | None = Field(default=None, description="Service account of the pods; it needs no rights.")
    spark_service_account: Name | None = Field(
        default=None,
        description="Service account of Spark drivers, which create and delete pods; executors use the other.",
    )
    images: dict[str, str] = Field(
        default_factory=dict,
        description="Image for each kind of stage: cpu, torch, torch-cuda (torch stages that have GPUs), "
        "spark (stages on that engine, and their executors), flow (a deployed flow itself).",
    )
    command: list[str] | None = Field(
        default=None,
        description="Command that starts `superworkflow` in the images; by default the image's entry point.",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="When nodes pull images."
    )
    image_pull_secrets: list[Name] = Field(
        default_factory=list, description="Secrets with the credentials of registries."
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Environment variables of the pods; for secrets use `env_secrets`."
    )
    env_secrets: list[Name] = Field(
        default_factory=list,
        description="Secrets whose entries become environment variables, such as AWS_SECRET_ACCESS_KEY.",
    )
    volumes: list[Volume] = Field(default_factory=list, description="Folders that every pod mounts.")
    user: int = Field(default=1000, ge=1, description="User and group of the process; not 0.")
    node_selector: dict[str, str] = Field(default_factory=dict, description="Node labels that all pods require.")
    gpu_resource: str = Field(default="nvidia.com/gpu", description="Name of the GPU resource.")
    gpu_selectors: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="Node labels for each GPU type, such as `T4: {accelerator: nvidia-t4}`."
    )
    tolerations: list[Toleration] = Field(default_factory=list, description="Taints that all pods tolerate.")
    affinity: dict[str, Any] = Field(
        default_factory=dict, description="Affinity of all pods, in the form of Kubernetes' `spec.affinity`."
    )
    topology_spread_constraints: list[dict[str, Any]] = Field(
        default_factory=list, description="How pods spread over zones or nodes, in the form of Kubernetes."
    )
    priority_class: Name | None = Field(default=None, description="PriorityClass of the pods.")
    runtime_class: Name | None = Field(default=None, description="RuntimeClass of the pods, such as nvidia or gvisor.")
    labels: dict[str, str] = Field(default_factory=dict, description="Additional labels of Jobs and pods.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations of Jobs and pods.")
    cpu_limit: float | None = Field(
        default=None,
        ge=1,
        description="CPU limit of a pod as a multiple of its request, where a quota asks for one; none by default, "
        "so that pods may use idle CPUs.",
    )
    disruption_retries: int = Field(
        default=5,
        ge=0,
        description="New Jobs for a stage whose pod was evicted, preempted, drained or lost with its node; each "
        "continues from the last checkpoint, with the same memory.",
    )
    deadline_s: int = Field(default=86_400, ge=1, description="Seconds after which a Job is stopped.")
    ttl_s: int = Field(default=600, ge=0, description="Seconds for which a failed Job is kept for inspection.")
    grace_s: int = Field(default=15, ge=0, description="Seconds between asking a pod to stop and killing it.")
    schedule_patience_s: float = Field(default=600, ge=0, description="Seconds to wait for a node with enough room.")
    start_patience_s: float = Field(default=120, ge=0, description="Seconds to wait for images, volumes and Secrets.")
    unreachable_patience_s: float = Field(
        default=600, ge=0, description="Seconds to wait for the Kubernetes API to answer."
    )
    memory_factor: float = Field(
        default=2.0, gt=1, le=10, description="Factor by which memory is raised after a stage ran out of it."
    )
    memory_cap: Bytes = Field(
        default=64 << 30, description="Most memory that a stage gets by retries or where it is `auto`."
    )
    cpu_cap: int = Field(default=16, ge=1, description="Most vCPUs that a stage gets where they are `auto`.")
    target_s: float = Field(
        default=600, gt=0, description="Seconds within which a stage should end whose vCPUs are `auto`."
    )
    pod_start_s: float = Field(
        default=1.5,
        ge=0,
        description="Seconds until a stage starts in its pod, for plans in a store without records of runs.",
    )

    def image_for(self, kind: str, gpus: int) -> str | None:
        """Image for a kind of stage, with GPUs or without."""
        names = (f"{kind}-cuda", kind) if gpus else (kind,)
        return next((self.images[name] for name in names if name in self.images), None)

    def covers(self, path: str) -> bool:
        """True if pods see this absolute path through one of the volumes."""
        return any(is_below(path, volume.mount_path) for volume in self.volumes)


def no_image(node: str, kind: str) -> UserError:
    """The error for a stage for which a profile names no image."""
    return UserError(
        f"no image for stage {node}", where="profile: kubernetes.images",
        remedy=f"Name one: `kubernetes: {{images: {{{kind}: REGISTRY/NAME:TAG}}}}`",
    )  # fmt: skip
