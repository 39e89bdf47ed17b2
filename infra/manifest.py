"""The manifest: the last file of a dataset, without which the dataset does not exist."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

MANIFEST_NAME = "manifest.json"

Stat = int | float | str | bool | None
"""A fact about a dataset that later stages, plans and records read without opening its files."""


class FileEntry(BaseModel):
    """One data file of a dataset."""

    model_config = ConfigDict(frozen=True)

    path: str = Field(description="Path inside the dataset's folder, with forward slashes.")
    bytes: int = Field(ge=0)
    sha256: str


class InputEntry(BaseModel):
    """One input that the dataset was made from."""

    model_config = ConfigDict(frozen=True)

    digest: str
    stage: str | None = Field(default=None, description="Stage that made the input; None for a source file.")


class Measurement(BaseModel):
    """What a stage's process measured of itself."""

    model_config = ConfigDict(frozen=True)

    runtime_s: float = Field(ge=0, description="Wall-clock seconds of the stage's own work and start-up.")
    cpu_s: float = Field(ge=0, description="User and system CPU seconds, ended children included.")
    peak_memory_bytes: int = Field(ge=0, description="Largest resident set.")
    rows: int = Field(ge=0)
    bytes: int = Field(ge=0, description="Bytes of the data files written.")
    container_cpu_s: float | None = Field(default=None, description="CPU seconds of the whole container, if in one.")
    container_peak_memory_bytes: int | None = Field(
        default=None, description="Peak memory of the whole container as its limit counts it, with cached files."
    )
    compile_s: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="Seconds of compiling kernels; not in `runtime_s`."
    )
    compile_cpu_s: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="CPU seconds of compiling kernels; not in `cpu_s`."
    )
    delayed_s: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="Longest that one thread waited for a processor."
    )
    processor: str = Field(default="", description="Kind of processor that it ran on.")

    @property
    def memory_bytes(self) -> int:
        """Peak memory: the container's where there is one, since that is what its limit is held against."""
        if self.container_peak_memory_bytes is not None:
            return self.container_peak_memory_bytes
        return self.peak_memory_bytes


class Manifest(BaseModel):
    """What a dataset is, what it was made from, and what its files must be."""

    model_config = ConfigDict(frozen=True)

    format: int = 1
    stage: str
    version: str
    digest: str
    params: dict[str, Any]
    inputs: dict[str, InputEntry]
    files: tuple[FileEntry, ...]
    stats: dict[str, Stat] = Field(default_factory=dict)
    measured: Measurement
    software: dict[str, str] = Field(default_factory=dict)
    engine: str = Field(default="in-process", description="What computed it; another engine gives the same files.")
    created: datetime = Field(default_factory=lambda: datetime.now(UTC))

    @property
    def rows(self) -> int:
        return self.measured.rows

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)
