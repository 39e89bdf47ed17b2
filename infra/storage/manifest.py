"""The manifest: the last file of a dataset, without which the dataset does not exist."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import (
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from superworkflow.infra.storage.digest import Algorithm, dataset_digest, file_sum, json_sha256
from superworkflow.infra.storage.safe_names import Digest, FileName, InputDigest, StageName, Sum

MANIFEST_NAME = "manifest.json"
ATTEMPT_NAME = "_attempt.json"
"""File inside an unfinished dataset that names what the attempt makes; see `infra.storage.attempt_marker`."""
CHECKPOINT_FOLDER = "_checkpoint"
"""Folder inside an unfinished dataset for what a stage needs to resume; gone when the dataset is complete."""
PARTS_FOLDER = "_parts"
"""Folder inside an unfinished dataset for what its tasks pass to each other; gone when the dataset is complete."""
WHOLE_FOLDER = f"{PARTS_FOLDER}/whole"
"""Folder inside an unfinished dataset that says which of its files are whole, for an attempt that takes them over."""

FORMAT = 3
"""Newest format. Manifests of format 1 have no sum of themselves; only those that hold a BLAKE3 sum are of format 3."""

Stat = int | float | str | bool | None
"""A fact about a dataset that later stages, plans and records read without opening its files."""


class FileEntry(BaseModel, frozen=True):
    """One data file of a dataset."""

    path: FileName = Field(description="Path inside the dataset's folder, with forward slashes.")
    bytes: int = Field(ge=0)
    sha256: Sum | None = Field(default=None, description="SHA-256 of the content.")
    blake3: Sum | None = Field(default=None, description="BLAKE3 of the content, of a large file instead.")

    @model_validator(mode="after")
    def _has_one_sum(self) -> FileEntry:
        if (self.sha256 is None) == (self.blake3 is None):
            raise ValueError("a file has one sum, sha256 or blake3")
        return self

    @model_serializer(mode="wrap")
    def _without_other_sum(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}

    @classmethod
    def summed(cls, path: str, size: int, made: tuple[Algorithm, str]) -> FileEntry:
        """Entry of a file of `size` bytes; `made` is an algorithm with the sum that it made of them."""
        return cls.model_validate({"path": path, "bytes": size, made[0]: made[1]})

    @property
    def sum(self) -> tuple[Algorithm, str]:
        """The algorithm, and what it made of the content."""
        return ("sha256", self.sha256) if self.sha256 is not None else ("blake3", self.blake3 or "")

    def holds(self, path: Path) -> bool:
        """True if a local file has this content."""
        algorithm, made = self.sum
        return file_sum(path, algorithm) == made


class InputEntry(BaseModel, frozen=True):
    """One input that the dataset was made from."""

    digest: InputDigest
    stage: StageName | None = Field(default=None, description="Stage that made the input; None for a source file.")


class Measurement(BaseModel, frozen=True):
    """Resource usage that a stage's process measured."""

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


class NewerFormat(ValueError):
    """A manifest that a later version of this project wrote."""


METRIC_PREFIX, DRIFT_PREFIX, WARNING_PREFIX = "metrics.", "drift.", "input_warning."
"""Prefixes of quality, of drift and of warnings about the input among a dataset's stats."""


def warnings_of(stats: Mapping[str, Any], prefix: str = WARNING_PREFIX) -> tuple[str, ...]:
    """Warnings about the input among stats or tags, in their order."""
    found = {name.removeprefix(prefix): str(text) for name, text in stats.items() if name.startswith(prefix)}
    return tuple(found[number] for number in sorted(found, key=lambda each: (len(each), each)))


def prefixed(stats: Mapping[str, Stat], prefix: str) -> dict[str, float]:
    """Numbers among stats under a prefix, by their names without it."""
    return {
        name.removeprefix(prefix): float(value)
        for name, value in stats.items()
        if name.startswith(prefix) and isinstance(value, int | float)
    }


class Manifest(BaseModel, frozen=True):
    """Manifest of a dataset: its identity, inputs, and the checksums of its files.

    As text it has one field more, `sha256`: the sum of the canonical JSON of all others.
    """

    format: int = Field(default=2, ge=1)
    stage: StageName
    version: str
    digest: Digest
    params: dict[str, Any]
    inputs: dict[str, InputEntry]
    files: tuple[FileEntry, ...]
    stats: dict[str, Stat] = Field(default_factory=dict)
    measured: Measurement
    software: dict[str, str] = Field(default_factory=dict)
    engine: str = Field(default="in-process", description="What computed it; another engine gives the same files.")
    created: datetime = Field(default_factory=lambda: datetime.now(UTC))

    @model_validator(mode="after")
    def _names_data_files(self) -> Manifest:
        names = [file.path for file in self.files]
        if len(set(names)) < len(names):
            raise ValueError("a file is named twice")
        if reserved := next((name for name in names if is_reserved(name)), None):
            raise ValueError(f"{reserved!r} is the name of no data file")
        if self.format < format_of(self.files) == 3:
            raise ValueError(f"format {self.format} knows no BLAKE3")
        return self

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """A manifest from its text, held against its own sum and digest.

        Raises:
            NewerFormat: a later version wrote it.
            ValueError: it is no manifest, was altered, or its digest is not that of what it says it was made from.
        """
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError("not a JSON object")
        written = document.pop("sha256", None)
        number = document.get("format")
        if isinstance(number, int) and number > FORMAT:
            raise NewerFormat(f"format {number}; this version reads up to {FORMAT}")
        if (number != 1 or written is not None) and written != json_sha256(document):
            raise ValueError("it was altered: its SHA-256 is not that of its content")
        manifest = cls.model_validate(document)
        inputs = {name: entry.digest for name, entry in manifest.inputs.items()}
        if manifest.digest != (made := dataset_digest(manifest.stage, manifest.version, manifest.params, inputs)):
            raise ValueError(f"its digest {manifest.digest} is not that of its parameters and inputs ({made})")
        return manifest

    def text(self) -> str:
        """Text that `parse` reads."""
        document = json.loads(self.model_dump_json())
        return json.dumps({**document, "sha256": json_sha256(document)}, indent=1, ensure_ascii=False)

    @property
    def rows(self) -> int:
        return self.measured.rows

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def format_of(files: Iterable[FileEntry]) -> int:
    """Format of a manifest with these files, which programs that do not know it refuse."""
    return 3 if any(file.blake3 is not None for file in files) else 2


def is_reserved(name: str) -> bool:
    """True if a file of this name in a dataset's folder is the platform's own."""
    return name in (MANIFEST_NAME, ATTEMPT_NAME) or is_of_work(name)


def is_of_work(name: str) -> bool:
    """True if a file of this name is one of a stage that works, gone when the dataset is complete."""
    return name.split("/", 1)[0] in (CHECKPOINT_FOLDER, PARTS_FOLDER)
