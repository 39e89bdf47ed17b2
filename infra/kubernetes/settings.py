"""Settings of stages as Kubernetes Jobs: the part `kubernetes:` of a profile. Never in a digest."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from superworkflow.infra.resources import Bytes

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]


class Volume(BaseModel):
    """A folder that every pod sees, such as a store on shared storage: of the node, or a volume claim."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mount_path: str = Field(pattern="^/.+", description="Where pods see it.")
    host_path: str | None = Field(
        default=None,
        pattern="^/",
        description="Folder of the node; refused where pods are restricted, as in rbac.yaml.",
    )
    claim: Name | None = Field(default=None, description="Name of a PersistentVolumeClaim.")
    read_only: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> Volume:
        if (self.host_path is None) == (self.claim is None):
            raise ValueError("needs either host_path or claim")
        return self


class Toleration(BaseModel):
    """A taint that the pods tolerate, as in Kubernetes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str | None = None
    operator: Literal["Equal", "Exists"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None

    def manifest(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class KubernetesSettings(BaseModel):
    """How Jobs are made and for how long the launcher is patient."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: Name | None = Field(default=None, description="Namespace; that of the credentials when not given.")
    credentials: str | None = Field(
        default=None,
        description="Name of a KubernetesCredentials block in Prefect; the pod's own account or KUBECONFIG otherwise.",
    )
    service_account: Name | None = Field(default=None, description="Service account of the pods; it needs no rights.")
    spark_service_account: Name | None = Field(
        default=None, description="Account of Spark drivers, which may make and delete pods; executors have the other."
    )
    images: dict[str, str] = Field(
        default_factory=dict,
        description="Image for each kind of stage: cpu, torch, torch-cuda (torch stages that have GPUs), "
        "spark (stages on that engine, and their executors), flow (a deployed flow itself).",
    )
    command: list[str] | None = Field(default=None, description="Starts the command line; the image's own by default.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secret: Name | None = None
    env: dict[str, str] = Field(default_factory=dict, description="Environment of the pods; no secrets here.")
    env_secrets: list[Name] = Field(
        default_factory=list, description="Secrets whose entries become environment, such as AWS_SECRET_ACCESS_KEY."
    )
    volumes: list[Volume] = Field(default_factory=list)
    user: int = Field(default=1000, ge=1, description="User and group of the process; not 0.")
    node_selector: dict[str, str] = Field(default_factory=dict)
    gpu_resource: str = Field(default="nvidia.com/gpu", description="Name of the GPU resource.")
    gpu_selectors: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="Node labels for each GPU type, such as `T4: {accelerator: nvidia-t4}`."
    )
    tolerations: list[Toleration] = Field(default_factory=list)
    labels: dict[str, str] = Field(default_factory=dict, description="More labels for Jobs and pods.")
    deadline_s: int = Field(default=86_400, ge=1, description="Seconds after which a Job is ended.")
    ttl_s: int = Field(default=600, ge=0, description="Seconds for which a failed Job is kept to be looked at.")
    grace_s: int = Field(default=5, ge=0, description="Seconds between asking a pod to end and ending it.")
    schedule_patience_s: float = Field(default=600, ge=0, description="Seconds to wait for a node that fits.")
    start_patience_s: float = Field(default=120, ge=0, description="Seconds to wait for the image, volumes, Secrets.")
    unreachable_patience_s: float = Field(default=600, ge=0, description="Seconds without an answer of the API.")
    memory_factor: float = Field(
        default=2.0, gt=1, le=10, description="Memory of the next attempt after out-of-memory."
    )
    memory_cap: Bytes = Field(
        default=64 << 30, description="No stage gets more memory than this by retrying, or where it is `auto`."
    )
    cpu_cap: int = Field(default=16, ge=1, description="No stage gets more vCPUs than this where they are `auto`.")
    target_s: float = Field(
        default=600, gt=0, description="Seconds that a stage whose vCPUs are `auto` should take at most."
    )
    pod_start_s: float = Field(
        default=1.5,
        ge=0,
        description="Seconds until a stage begins in its pod, for the plans of a store that has no records of runs.",
    )

    def image_for(self, kind: str, gpus: int) -> str | None:
        """Image for a kind of stage, with GPUs or without."""
        names = (f"{kind}-cuda", kind) if gpus else (kind,)
        return next((self.images[name] for name in names if name in self.images), None)

    def covers(self, path: str) -> bool:
        """Whether pods see this absolute path through one of the volumes."""
        return any(path == v.mount_path or path.startswith(v.mount_path.rstrip("/") + "/") for v in self.volumes)
