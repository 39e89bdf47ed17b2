"""Timeline of a run's stages, and the fit of their resources: pure functions of `RecordedStageRun`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from superworkflow.infra.config.prices import FOLDER, PriceTable, load_prices
from superworkflow.infra.contract.resources import Resources, format_bytes
from superworkflow.infra.tracking.run_details import RecordedStageRun

ROOM = 1.25
"""Ratio of recommended to used resources."""
STEP_MEMORY, LEAST_MEMORY = 128 << 20, 256 << 20
STEP_CPU = 0.5
TIGHT = 0.9
"""Share of used memory above which more is recommended."""


@dataclass(frozen=True)
class Phases:
    """One stage on the time axis of its run, in seconds since the run began.

    Args:
        ready: end of waiting for other stages.
        began: end of queueing for resources.
        ended: end of the stage.
    """

    stage: RecordedStageRun
    ready: float
    began: float
    ended: float

    @property
    def waiting_s(self) -> float:
        return self.ready

    @property
    def queued_s(self) -> float:
        return self.began - self.ready

    @property
    def running_s(self) -> float:
        """Includes compiling."""
        return self.ended - self.began

    @property
    def compiling_s(self) -> float:
        return min(self.stage.compile_s, self.running_s)


def timeline(stages: Sequence[RecordedStageRun], start: datetime) -> list[Phases]:
    """Phases of each stage, in the order of their starts.

    Args:
        stages: of one run.
        start: of the run.
    """
    found = []
    for stage in stages:
        began, ended = _at(stage.began, start), _at(stage.ended, start)
        found.append(Phases(stage, max(0.0, began - stage.queued_s), began, max(ended, began)))
    return sorted(found, key=lambda each: (each.began, each.ended))


def _at(moment: datetime, start: datetime) -> float:
    return max(0.0, (moment - start).total_seconds())


@dataclass(frozen=True)
class Fit:
    """Requested and used resources of a stage, and a better fit.

    Args:
        cpu_used: mean over its runtime.
        cpu, memory: recommended; None if the requested amount fits, or if members hide what the stage itself used.
        saves_usd: saving for each run like this one; negative if the stage needs more. None without prices.
    """

    stage: RecordedStageRun
    cpu_used: float
    cpu: float | None
    memory: int | None
    saves_usd: float | None

    @property
    def better(self) -> bool:
        """True if a change is recommended."""
        return self.cpu is not None or self.memory is not None

    @property
    def line(self) -> str:
        """Line for the stage below `stages:` of a profile."""
        parts = [f"cpu: {self.cpu:g}"] if self.cpu is not None else []
        parts += [f"memory: {self.memory >> 20}Mi"] if self.memory is not None else []
        return f"  {self.stage.name}: {{resources: {{{', '.join(parts)}}}}}"


def fits(stages: Sequence[RecordedStageRun], prices: PriceTable | None) -> list[Fit]:
    """Fit of each stage that ran, in their order."""
    return [_fit(each, prices) for each in stages if each.state == "ran" and each.seconds > 0 and each.memory]


def _fit(stage: RecordedStageRun, prices: PriceTable | None) -> Fit:
    used = stage.cpu_s / stage.seconds
    if stage.members:
        return Fit(stage, used, None, None, None)
    cpu = max(STEP_CPU, math.ceil(used * ROOM / STEP_CPU) * STEP_CPU)
    memory = max(LEAST_MEMORY, math.ceil(stage.memory_bytes * ROOM / STEP_MEMORY) * STEP_MEMORY)
    tight = stage.memory_bytes > TIGHT * stage.memory
    better_cpu = cpu if cpu < stage.cpu else None
    better_memory = memory if memory < stage.memory or tight else None
    saves = None
    if prices is not None and (better_cpu is not None or better_memory is not None):
        requested = Resources(cpu=stage.cpu or STEP_CPU, memory=stage.memory)
        better = Resources(cpu=better_cpu or requested.cpu, memory=better_memory or requested.memory)
        saves = prices.cost(requested, stage.seconds) - prices.cost(better, stage.seconds)
    return Fit(stage, used, better_cpu, better_memory, saves)


def profile_lines(found: Sequence[Fit]) -> str:
    """Part of a profile with resources that fit better; empty if all fit."""
    lines = [each.line for each in found if each.better]
    return "\n".join(["stages:", *lines]) if lines else ""


def shipped_prices(name: str) -> PriceTable | None:
    """The price table of this name among those that ship with the project, else their newest.

    The name comes from a record, so it must not open any other file.
    """
    names = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    return load_prices(name if name in names else names[-1]) if names else None


def used_text(fit: Fit) -> str:
    """Used and requested memory, as text."""
    return f"{format_bytes(fit.stage.memory_bytes)} of {format_bytes(fit.stage.memory)}"
