"""Estimates: predictions of a stage's memory, CPU time and output before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import Stat

Stats = Mapping[str, Stat]


@dataclass(frozen=True)
class Estimate:
    """Prediction of a stage before it runs.

    Args:
        memory_bytes: peak memory of the stage's process.
        cpu_s: CPU seconds on one current core of a server.
        output_bytes: bytes of data files.
        stats: predicted facts of the output, which the estimates of later stages read.
        parallel: share of the work after the start that threads divide among themselves (Amdahl).
        start_s: of `cpu_s`, what a process takes before its work: interpreter, imports, cached kernels.
        base_bytes: of `memory_bytes`, what a process has by then.
        mapped_bytes: of `memory_bytes`, pages of input files, which are no container's own.
        kind: names the algorithm where a stage has several that are calibrated separately.
        coordinator_s: part of `cpu_s` that the stage's own process does where members of groups do the work.
        coordinator_bytes: memory of that process beyond `base_bytes`.
    """

    memory_bytes: int
    cpu_s: float
    output_bytes: int
    stats: Stats = field(default_factory=dict)
    parallel: float = 0.9
    start_s: float = 0.0
    base_bytes: int = 0
    mapped_bytes: int = 0
    kind: str = ""
    coordinator_s: float = 0.0
    coordinator_bytes: int = 0

    def runtime_s(self, threads: int) -> float:
        """Wall seconds on `threads` cores."""
        return self.start_s + (self.cpu_s - self.start_s) * (1 - self.parallel + self.parallel / threads)

    @property
    def divided(self) -> float:
        """Share of all that threads divide among themselves."""
        return self.parallel * (1 - self.start_s / self.cpu_s) if self.cpu_s > 0 else 0.0


@dataclass(frozen=True)
class Process:
    """A stage's process before its work: interpreter, imports and cached kernels.

    Args:
        start_s: CPU seconds until then.
        memory_bytes: memory by then.
    """

    start_s: float
    memory_bytes: int

    def estimate(
        self, *, memory_bytes: int, cpu_s: float, output_bytes: int, stats: Stats | None = None,
        parallel: float = 0.0, mapped_bytes: int = 0, kind: str = "",
    ) -> Estimate:  # fmt: skip
        """Estimate of a stage whose work takes `memory_bytes` and `cpu_s` more, by default in one thread."""
        return Estimate(
            memory_bytes=self.memory_bytes + memory_bytes, cpu_s=self.start_s + cpu_s, output_bytes=output_bytes,
            stats=stats or {}, parallel=parallel, start_s=self.start_s, base_bytes=self.memory_bytes,
            mapped_bytes=mapped_bytes, kind=kind,
        )  # fmt: skip


def input_stats(dataset: Dataset) -> Stats:
    """Facts of an input dataset as estimates read them: its stats, and its `bytes`."""
    return {"bytes": dataset.manifest.bytes, **dataset.stats}


def predicted_stats(estimate: Estimate) -> Stats:
    """The same facts of a dataset that is only predicted."""
    return {"bytes": estimate.output_bytes, **estimate.stats}


_PROCESS = Process(start_s=0.5, memory_bytes=60 << 20)
"""One that has imported NumPy and Arrow."""
_BYTES_PER_S = 50e6
"""Input bytes per second and core of a stage without an estimate."""
_EXPANSION = 4
"""Memory per input byte of such a stage: compressed columns unpack, and input and result are in memory together."""


def estimate_from_bytes(params: Any, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Estimate of a stage that declares none: proportional to the bytes of its inputs, on one core.

    It is a rough start; records of earlier runs correct both of its parts (`infra.planning.forecast`).
    """
    size = sum(int(stats.get("bytes") or 0) for stats in inputs.values())
    return _PROCESS.estimate(memory_bytes=_EXPANSION * size, cpu_s=size / _BYTES_PER_S, output_bytes=size)
