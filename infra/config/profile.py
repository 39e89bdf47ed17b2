"""Profiles: which launcher, engine, image and resources each stage gets. Never in a digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.config.config_files import read_yaml
from superworkflow.infra.config.kubernetes import KubernetesSettings, Toleration
from superworkflow.infra.contract.stage import IN_PROCESS, Resources
from superworkflow.infra.engines import engine, engine_names

FOLDER = Path(__file__).parent.parent / "profiles"


class _Unknown(ValueError):
    """A name that there is not: what of, and which may have been meant."""


class Placement(BaseModel, frozen=True, extra="forbid"):
    """Engine, image and resources of one stage."""

    engine: str = Field(
        default=IN_PROCESS, description="What computes the stage.", json_schema_extra={"enum": list(engine_names())}
    )
    image: str | None = Field(
        default=None,
        description="Image of the stage on Kubernetes; by default the one in `kubernetes.images` for its kind.",
    )
    resources: Resources = Field(
        default=Resources(), description="Size of the stage's own process or pod, and of its members."
    )
    auto: tuple[Literal["cpu", "memory"], ...] = Field(
        default=(), description="Resources that are chosen from the estimate, written there as `auto`."
    )
    node_selector: dict[str, str] = Field(
        default_factory=dict,
        description="Node labels that the stage's pods require on Kubernetes, in addition to the profile's.",
    )
    tolerations: tuple[Toleration, ...] = Field(
        default=(), description="Taints that the stage's pods tolerate on Kubernetes, in addition to the profile's."
    )

    @field_validator("engine")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in engine_names():
            raise _Unknown("no such engine", nearest(name, engine_names()))
        return name

    @model_validator(mode="before")
    @classmethod
    def _auto(cls, values: Any) -> Any:
        """Move `auto` out of the resources, where everything is a number."""
        given = values.get("resources") if isinstance(values, dict) else None
        if not isinstance(given, dict):
            return values
        auto = [name for name in ("cpu", "memory") if given.get(name) == "auto"]
        sizes = {name: value for name, value in given.items() if name not in auto}
        return {**values, "resources": sizes, "auto": [*values.get("auto", ()), *auto]}

    def on(self, settings: KubernetesSettings) -> KubernetesSettings:
        """The profile's `kubernetes` part with the nodes of this stage, such as spot nodes."""
        if not (self.node_selector or self.tolerations):
            return settings
        selector = settings.node_selector | self.node_selector
        tolerations = [*settings.tolerations, *self.tolerations]
        return settings.model_copy(update={"node_selector": selector, "tolerations": tolerations})


class Profile(BaseModel, frozen=True, extra="forbid"):
    """One profile file.

    `stages` is looked up by the node's name, then the stage's name; what an entry leaves out comes from `default`.
    """

    name: str = Field(description="Name in tables and records; the file's by default.")
    description: str = Field(default="", description="What the profile is for.")
    launcher: Literal["process", "kubernetes"] = Field(
        default="process", description="Where stages run: processes on this machine, or Kubernetes Jobs."
    )
    concurrency: int = Field(default=1, ge=1, description="Stages that may run at once.")
    prices: str | None = Field(default=None, description="Name or path of a price table; the newest by default.")
    kubernetes: KubernetesSettings = Field(
        default=KubernetesSettings(), description="Settings of `launcher: kubernetes`."
    )
    variant: str | None = Field(
        default=None,
        description="Entries that superworkflows add to `stages` themselves, by the name that they declare them under, "
        "such as laptop; those of the file win.",
    )
    default: Placement = Field(default=Placement(), description="What every stage gets unless `stages` says otherwise.")
    stages: dict[str, Placement] = Field(
        default_factory=dict,
        description="What differs from `default`, by the name of a node of the diagram or else of a stage.",
    )

    def placement(self, node: str, stage: str) -> Placement:
        """Placement of a node of a diagram: what its engine uses of it."""
        found = self.stages.get(node) or self.stages.get(stage) or self.default
        used = engine(found.engine).used(found.resources, self.launcher == "kubernetes")
        return found if used is found.resources else found.model_copy(update={"resources": used})

    @property
    def start_s(self) -> float:
        """Seconds from requesting a stage to its beginning, for plans without records to learn it from."""
        return self.kubernetes.pod_start_s if self.launcher == "kubernetes" else 0.0

    def path(self, node: str, stage: str) -> str:
        """Dotted path of the entry that places a node, for errors."""
        return next((f"stages.{name}" for name in (node, stage) if name in self.stages), "default")


def profile_names() -> list[str]:
    """Names of the profiles that come with the project."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_profile(name: str, variants: Mapping[str, Mapping[str, Any]] | None = None) -> Profile:
    """A shipped profile by its name, or any by the path or URI of its file.

    Args:
        name: which.
        variants: entries of `stages` that a superworkflow declares, by the profile's `variant`.

    Raises:
        UserError: unknown name, unreadable file, or a bad entry (with its dotted path).
    """
    path, stem = str(FOLDER / f"{name}.yaml"), Path(name).stem
    if is_file(name):
        path = name
    elif not Path(path).exists():
        raise UserError("no such profile", where="--profile", value=name, remedy=nearest(name, profile_names()))
    values = read_yaml(path)
    default = _mapping(values.get("default"), path, "default")
    declared = (variants or {}).get(str(values.get("variant")), {})
    entries = {**declared, **_mapping(values.get("stages"), path, "stages")}
    stages = {key: _merge(default, _mapping(entry, path, f"stages.{key}")) for key, entry in entries.items()}
    try:
        return Profile.model_validate({"name": stem, **values, "default": default, "stages": stages})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        dotted = ".".join(str(part) for part in first["loc"])
        cause = first.get("ctx", {}).get("error")
        message, remedy = first["msg"].removeprefix("Value error, "), "Correct the profile"
        if isinstance(cause, _Unknown):
            message, remedy = cause.args
        elif first["type"] == "extra_forbidden":
            message, remedy = "no such key", _meant(str(first["loc"][-1]))
        raise UserError(message, where=f"{path}: {dotted}", value=first.get("input"), remedy=remedy) from None


def _meant(key: str) -> str:
    """Remedy for a key that a mapping of a profile does not have."""
    schema = Profile.model_json_schema()
    keys = {name for each in (schema, *schema["$defs"].values()) for name in each.get("properties", {})}
    return "It is a key of another mapping: see docs/profiles.md" if key in keys else nearest(key, sorted(keys))


def is_file(name: str) -> bool:
    """True if this is the path or URI of a file rather than the name of one that comes with the project."""
    return name.endswith((".yaml", ".yml")) or "/" in name


def _mapping(value: Any, path: str, dotted: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise UserError("must be a mapping", where=f"{path}: {dotted}", value=value, remedy="Correct the profile")
    return value or {}


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


LEAST: Mapping[str, int] = {"cpu": 1, "memory": 512 << 20}
"""Minimum resources of a stage."""
