"""Prediction of a stage on an engine: its start, its parallel width, the needs of its members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from superworkflow.infra.contract.resources import Group, Resources

if TYPE_CHECKING:
    from superworkflow.infra.contract.estimate import Estimate


@dataclass(frozen=True)
class MembersPrediction:
    """Prediction of the members of one role.

    Args:
        memory_bytes: peak of each, without the engine's own.
        base_bytes: of that, what each has before its work.
        engine_bytes: what the engine itself holds in each from its start.
        cpu_s: CPU seconds of all together.
        start_cpu_s: of these, what they take before their work.
    """

    memory_bytes: int
    base_bytes: int
    engine_bytes: int
    cpu_s: float
    start_cpu_s: float


@dataclass(frozen=True)
class StagePrediction:
    """Prediction of a stage on an engine.

    Args:
        own: of the stage's own process: its memory, and its CPU seconds, of which `own.start_s` are those of any stage.
        width: threads that share the work.
        work_s: wall seconds of the work on `width` threads.
        start_s: wall seconds between the start of the process and the work, for which the engine starts.
        start_cpu_s: CPU seconds of the own process in that time, which are part of `own.cpu_s`.
        engine_bytes: what the engine itself holds from its start, in a process of its own.
        groups: of the members, by role.
        alone_s: of `start_s`, seconds before members are held.
    """

    own: Estimate
    width: int
    work_s: float
    start_s: float = 0.0
    start_cpu_s: float = 0.0
    engine_bytes: int = 0
    groups: Mapping[str, MembersPrediction] = field(default_factory=dict)
    alone_s: float = 0.0


def in_own_process(estimate: Estimate, threads: int) -> StagePrediction:
    """Predict a stage whose own process does the work."""
    return StagePrediction(estimate, threads, estimate.runtime_s(threads) - estimate.start_s)


@dataclass(frozen=True)
class EngineStartup:
    """Start-up cost of an engine whose members do the work, in addition to that of any stage's process.

    Args:
        own_cpu_s: CPU seconds of the stage's own process.
        own_share: share of the own process's work that others wait for; the rest overlaps with theirs, as Java
            compiles on threads of its own, which use idle cores.
        member_cpu_s: CPU seconds of each member.
        member_share: the same of what each member does.
        wait_s: wall seconds in which members get their places.
        engine_bytes: what the engine itself holds, in the stage's own pod and in each member.
        forked: members are forked below the stage's own process: they do not start as a process of a stage does, are
            held for as long as it is, and nothing keeps it to its vCPUs.
    """

    own_cpu_s: float = 0.0
    own_share: float = 1.0
    member_cpu_s: float = 0.0
    member_share: float = 1.0
    wait_s: float = 0.0
    engine_bytes: int = 0
    forked: bool = False


def by_members(
    estimate: Estimate, resources: Resources, groups: Mapping[str, Group], begins: EngineStartup = EngineStartup()
) -> StagePrediction:
    """Predict a stage whose members do the work, each in proportion to its vCPUs, while its own process waits.

    The stage's process starts first, then the engine in it; the members start while the engine is still starting.

    Args:
        estimate: of the work; its memory is that of each member.
        resources: of the stage's own process.
        groups: the members by role; not empty.
        begins: what the engine takes.
    """
    cpus = sum(group.count * group.cpu for group in groups.values())
    slowest = min(group.cpu for group in groups.values())
    width, work_cpu_s, base = max(1, int(cpus)), estimate.cpu_s - estimate.start_s, estimate.base_bytes
    member_cpu_s = begins.member_cpu_s + (0.0 if begins.forked else estimate.start_s)
    members = {}
    for role, group in groups.items():
        start_cpu_s = group.count * member_cpu_s
        share = group.count * group.cpu / cpus
        members[role] = MembersPrediction(
            memory_bytes=max(base, estimate.memory_bytes), base_bytes=base, engine_bytes=begins.engine_bytes,
            cpu_s=start_cpu_s + share * (work_cpu_s - estimate.coordinator_s), start_cpu_s=start_cpu_s,
        )  # fmt: skip
    own = replace(
        estimate, memory_bytes=base + estimate.coordinator_bytes, mapped_bytes=0, output_bytes=0,
        cpu_s=estimate.start_s + begins.own_cpu_s + estimate.coordinator_s,
    )  # fmt: skip
    own_cpu = max(1.0, resources.cpu) if begins.forked else resources.cpu
    alone_s = begins.own_share * begins.own_cpu_s / own_cpu
    waited_s = member_cpu_s - (1 - begins.member_share) * begins.member_cpu_s
    start_s = alone_s + begins.wait_s + waited_s / slowest
    shared = replace(estimate, cpu_s=estimate.cpu_s - estimate.coordinator_s)
    work_s = shared.runtime_s(width) - estimate.start_s + begins.own_share * estimate.coordinator_s / own_cpu
    held_later_s = 0.0 if begins.forked else alone_s
    return StagePrediction(own, width, work_s, start_s, begins.own_cpu_s, begins.engine_bytes, members, held_later_s)
