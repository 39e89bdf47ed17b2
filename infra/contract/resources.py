"""Resources of a stage: processors, memory, accelerators, disk."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from superworkflow.infra.process.threads import available_cpus

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def parse_bytes(value: Any) -> int:
    """Bytes from a Kubernetes quantity (`512Mi`, `16Gi`, `1G`) or a number.

    Raises:
        ValueError: not a quantity, or negative.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?", str(value).strip())
    if not match:
        raise ValueError("not a quantity of bytes such as 512Mi or 16Gi")
    return int(float(match[1]) * _UNITS[match[2] or ""])


def format_bytes(value: float) -> str:
    """Bytes for people: `1.4 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """Seconds for people: `3.2 s`, `4 m 10 s`, `2 h 05 m`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} m {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} m"


def format_usd(value: float) -> str:
    """USD for people; small sums keep their leading digits."""
    if value == 0:
        return "$0"
    return f"${value:,.2f}" if value >= 1 else f"${value:.6f}"


def _cpu(value: Any) -> Any:
    return available_cpus() if value == "all" else value


QUANTITY = {"type": "string", "pattern": r"^\d+(\.\d+)?\s*([KMGT]i?)?B?$"}
"""JSON schema of a quantity of bytes as text."""
Bytes = Annotated[
    int, BeforeValidator(parse_bytes), Field(ge=0),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, QUANTITY]}),
]  # fmt: skip
Cpus = Annotated[
    float,
    BeforeValidator(_cpu),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "all"}]}),
]


EXECUTOR, WORKER = "executor", "worker"
"""Roles of members where the profile names none."""


class Gpu(BaseModel, frozen=True, extra="forbid"):
    """Accelerators."""

    count: int = Field(default=0, ge=0, description="How many.")
    type: str | None = Field(default=None, description="Name in the price table, such as T4 or A100.")


class Group(BaseModel, frozen=True, extra="forbid"):
    """Members of one size in addition to a stage's own process: pods on a cluster."""

    count: int = Field(ge=1, description="How many.")
    cpu: float = Field(gt=0, description="vCPUs of each.")
    memory: Bytes = Field(description="Memory of each.")

    @property
    def each(self) -> Resources:
        """Resources of one member."""
        return Resources(cpu=self.cpu, memory=self.memory)

    @property
    def elastic(self) -> bool:
        """True if members join and leave while the stage runs."""
        return False

    @property
    def largest(self) -> int:
        """The most members that there may be at once."""
        return self.count


class Executors(Group, frozen=True):
    """Members that have one role, for engines whose members all do."""

    max: int | None = Field(
        default=None, ge=1,
        description="Makes them elastic: at least `count`, and up to this many while tasks wait for one.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _possible(self) -> Executors:
        if self.max is not None and self.max < self.count:
            raise ValueError(f"max ({self.max}) is less than count ({self.count})")
        return self

    @property
    def elastic(self) -> bool:
        return self.max is not None and self.max > self.count

    @property
    def largest(self) -> int:
        return self.max or self.count


class Workers(Group, frozen=True):
    """Members of one of several roles."""

    count: int = Field(ge=0, description="How many; an elastic role may have 0.")
    most: int | None = Field(
        default=None, ge=1,
        description="Makes the role elastic: `count` members at first, and up to this many as the stage asks.",
    )  # fmt: skip
    gpu: Gpu = Field(default=Gpu(), description="GPUs of each; not for elastic roles.")
    shm: Bytes = Field(default=0, description="Size of /dev/shm of each; 0 for the default.")

    @model_validator(mode="after")
    def _possible(self) -> Workers:
        if not self.count and self.most is None:
            raise ValueError("count may be 0 for elastic roles (`most`) alone")
        if self.most is not None and self.most < self.count:
            raise ValueError(f"most ({self.most}) is less than count ({self.count})")
        if self.most is not None and self.gpu.count:
            raise ValueError("elastic roles (`most`) have no GPUs; give the role a fixed `count`")
        return self

    @property
    def each(self) -> Resources:
        return Resources(cpu=self.cpu, memory=self.memory, gpu=self.gpu, shm=self.shm)

    @property
    def elastic(self) -> bool:
        return self.most is not None

    @property
    def largest(self) -> int:
        return self.most or self.count


class Endpoint(BaseModel, frozen=True, extra="forbid"):
    """An HTTP endpoint that executes calls of a role: functions that are paid for by call."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$")] = Field(description="Address.")
    most: int = Field(default=16, ge=1, le=1000, description="Most calls at once.")
    memory: Bytes = Field(default=192 << 20, description="Memory of each function, by which calls are priced.")

    @property
    def each(self) -> Resources:
        """Resources of one function; providers give vCPUs by memory, AWS Lambda one for 1769 MiB."""
        return Resources(cpu=max(0.01, self.memory / (1769 << 20)), memory=self.memory)


def _roles(value: Any) -> Any:
    """Workers by role; those of one role need not name it."""
    if isinstance(value, dict) and not all(isinstance(each, dict | Workers) for each in value.values()):
        return {WORKER: value}
    return value


RoleName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
RolesOfWorkers = Annotated[dict[RoleName, Workers], BeforeValidator(_roles)]


GROUPS = ("executors", "workers")
"""Fields of `Resources` with groups of members."""


class Resources(BaseModel, frozen=True, extra="forbid"):
    """Resources of one stage: of its own process or pod, and of further members in groups of one role each."""

    cpu: Cpus = Field(default=1, gt=0, description="vCPUs, or `all`.")
    memory: Bytes = Field(default=2 << 30, description="Memory, such as 4Gi.")
    gpu: Gpu = Field(default=Gpu(), description="GPUs of the stage.")
    ephemeral_storage: Bytes = Field(default=0, description="Scratch disk, such as 20Gi; 0 for no request.")
    shm: Bytes = Field(default=0, description="Size of /dev/shm; 0 for the default.")
    executors: Executors | None = Field(default=None, description="Executors in addition to the stage's own process.")
    workers: RolesOfWorkers | None = Field(
        default=None,
        description="Workers in addition to the stage's own process: those of one role, or a mapping of roles.",
    )
    endpoints: dict[RoleName, Endpoint] | None = Field(
        default=None,
        description="HTTP endpoints by role, which execute a stage's calls in place of workers.",
    )

    @field_validator("workers")
    @classmethod
    def _named(cls, workers: dict[str, Workers] | None) -> dict[str, Workers] | None:
        if EXECUTOR in (workers or ()):
            raise ValueError(f"a role of workers may not be called {EXECUTOR}")
        if workers is not None and not workers:
            raise ValueError("names no role")
        return workers

    @property
    def threads(self) -> int:
        """Threads for the stage's own work: whole vCPUs, at least one."""
        return max(1, int(self.cpu))

    @property
    def groups(self) -> dict[str, Group]:
        """All groups by role, whichever engine uses them."""
        executors: dict[str, Group] = {EXECUTOR: self.executors} if self.executors else {}
        return executors | dict(self.workers or {})

    @staticmethod
    def path(role: str) -> str:
        """Key of a role's group in resources, such as `executors`."""
        return f"{role}s" if role in (EXECUTOR, WORKER) else f"workers.{role}"

    def only(self, roles: Collection[str] = ()) -> Resources:
        """The same with no groups but those of these roles."""
        if all(role in roles for role in self.groups):
            return self
        workers = {role: group for role, group in (self.workers or {}).items() if role in roles}
        return self.model_copy(
            update={"executors": self.executors if EXECUTOR in roles else None, "workers": workers or None}
        )

    def memory_of(self, role: str) -> int:
        """Bytes of each member of a role; of the stage's own process where there is no such role."""
        return self.groups[role].memory if role in self.groups else self.memory

    def with_memory(self, memory: int, role: str = "") -> Resources:
        """The same with other memory for each member of a role, or for the stage's own process."""
        if role not in self.groups:
            return self.model_copy(update={"memory": memory})
        group = self.groups[role].model_copy(update={"memory": memory})
        if role == EXECUTOR:
            return self.model_copy(update={"executors": group})
        return self.model_copy(update={"workers": {**(self.workers or {}), role: group}})
