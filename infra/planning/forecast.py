"""Forecast of a stage: its estimate, corrected by records of earlier runs.

An estimate is of one process that starts afresh on one kind of processor. Records of launches
(`infra.planning.launch_history`) of the same stage, on the same engine and launcher, and for processes of this machine
on its kind of processor, say how far that is from here: for CPU seconds, wall seconds and memory apart, each in two
parts (`infra.planning.calibration`). Without records the figures are built-in ones, measured on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from superworkflow.infra.config.profile import Placement, Profile
from superworkflow.infra.contract.stage import Estimate, Resources, Stage, Stats
from superworkflow.infra.engines import engine
from superworkflow.infra.engines.prediction import MembersPrediction, StagePrediction
from superworkflow.infra.planning.calibration import AffineEstimate, fitted
from superworkflow.infra.planning.launch_history import History, LaunchRecord
from superworkflow.infra.process.resource_usage import processor

FORKED_START = 0.1
"""Share of a stage's start that is left where its process is forked from one that has the imports done."""
FORKED_BYTES = 200 << 20
"""Resident set of such a process before it does anything."""
CONTAINER_SHARE = 0.5
"""Share of a process's initial memory that its container counts: library pages that the node already has in memory are
not charged."""
FORK_S = 0.05
"""Seconds from asking for a process to its beginning."""
_COMPILED_S = 0.2
"""Seconds of compiling above which a record is not used for memory: the compiler needs some too."""
_ALWAYS = 3
"""Runs that all compiled, as in pods that keep no kernels, after which the next one is expected to compile too."""
_DELAYED = 0.1
"""Share of the time that threads waited for processors, above which others kept the machine busy: then CPU seconds
say more of the time that the work takes than the clock does."""


@dataclass(frozen=True)
class MembersForecast:
    """Forecast of the members of one role: peak memory of each, and CPU seconds of all together."""

    memory_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class Forecast:
    """Predicted time and memory of a stage.

    Args:
        memory_bytes: peak, of the container where there is one.
        needed_bytes: of that, what cannot be given back when memory is short: without written files that are cached.
        cpu_s: CPU seconds.
        runtime_s: wall seconds of its process, on cores that nothing else keeps busy.
        wait_s: seconds before, for which the resources are held as well.
        runs: how many recorded runs of the stage this rests on; 0 where it is built in.
        start_s: of `runtime_s`, seconds in which process and engine start.
        width: threads that share the work after that.
        groups: of the members, by role.
        alone_s: of `runtime_s`, seconds before there are members.
    """

    memory_bytes: int
    needed_bytes: int
    cpu_s: float
    runtime_s: float
    wait_s: float
    runs: int
    start_s: float = 0.0
    width: int = 1
    groups: Mapping[str, MembersForecast] = field(default_factory=dict)
    alone_s: float = 0.0


class Forecaster:
    """Forecasts for one profile from the records in one store.

    Args:
        history: the records.
        profile: where stages will run.
        stages: names of the stages whose records are used for the time that starting takes.
    """

    def __init__(self, history: History, profile: Profile, stages: Sequence[str]):
        self._history, self._profile, self._stages = history, profile, tuple(dict.fromkeys(stages))
        self._on_cluster = profile.launcher == "kubernetes"

    def of(self, stage: Stage[Any], params: Any, stats: Mapping[str, Stats], placement: Placement) -> Forecast:
        """The forecast of one stage.

        Args:
            stage: which.
            params: its parameters.
            stats: of each input by name, true or predicted.
            placement: engine and resources.
        """
        resources = placement.resources
        now = self._expected(stage, params, stats, placement.engine, resources)
        before = self._before(stage, now.own, placement)
        quiet = [each for each in before if each[1].delayed_s <= _DELAYED * each[1].runtime_s]
        clean = [each for each in before if each[1].compile_s <= _COMPILED_S]
        if not clean and len(before) >= _ALWAYS:
            clean = before

        def learned(
            parts: Callable[[StagePrediction], AffineEstimate],
            measured: Callable[[LaunchRecord], float],
            from_: Sequence[tuple[StagePrediction, LaunchRecord]] = before,
        ) -> float:
            return fitted(parts(now), [(parts(expected), measured(record)) for expected, record in from_])

        cpu_s = learned(self._cpu, lambda record: record.cpu_s)
        groups = {role: self._members(role, now, before) for role in now.groups}
        if groups and not self._on_cluster:  # members are below the stage's process, whose CPU seconds are theirs too
            ratio = cpu_s / self._cpu(now).sum
            groups = {role: replace(each, cpu_s=ratio * now.groups[role].cpu_s) for role, each in groups.items()}
        if quiet or not before:
            runtime_s = learned(self._runtime, lambda record: record.runtime_s, quiet)
        else:
            runtime_s = self._runtime(now).sum * cpu_s / self._cpu(now).sum
        memory = int(learned(self._memory, lambda record: record.memory_bytes, clean))
        needed = memory
        if self._on_cluster:
            # What a container has written stays cached while its limit has room, and is given back after that.
            needed = max(memory - now.own.output_bytes, memory // 2)
            memory = max(needed, min(memory, resources.memory))
        return Forecast(
            memory_bytes=memory,
            needed_bytes=needed,
            cpu_s=cpu_s - (0.0 if self._on_cluster else sum(each.cpu_s for each in groups.values())),
            runtime_s=runtime_s,
            wait_s=self._wait(placement),
            start_s=min(runtime_s, self._runtime(now).start),
            width=now.width,
            groups=groups,
            runs=len(before),
            alone_s=min(runtime_s, self._start(now) + now.alone_s),
        )

    def _expected(
        self, stage: Stage[Any], params: Any, stats: Mapping[str, Stats], name: str, resources: Resources
    ) -> StagePrediction:
        estimate = stage.estimate_on(name, params, stats, resources)
        return engine(name).expected(estimate, resources, self._on_cluster)

    def _members(
        self, role: str, now: StagePrediction, before: Sequence[tuple[StagePrediction, LaunchRecord]]
    ) -> MembersForecast:
        measured = [
            (expected.groups[role], record.members[role])
            for expected, record in before
            if role in expected.groups and role in record.members
        ]

        def memory(expected: MembersPrediction) -> AffineEstimate:
            share = CONTAINER_SHARE if self._on_cluster else 1.0
            return AffineEstimate(
                expected.base_bytes * share + expected.engine_bytes, expected.memory_bytes - expected.base_bytes
            )

        def cpu(expected: MembersPrediction) -> AffineEstimate:
            return AffineEstimate(expected.start_cpu_s, expected.cpu_s - expected.start_cpu_s)

        return MembersForecast(
            memory_bytes=int(fitted(memory(now.groups[role]), [(memory(e), m.memory_bytes) for e, m in measured])),
            cpu_s=fitted(cpu(now.groups[role]), [(cpu(e), m.cpu_s) for e, m in measured]),
        )

    def _before(
        self, stage: Stage[Any], now: Estimate, placement: Placement
    ) -> list[tuple[StagePrediction, LaunchRecord]]:
        """Records of the same kind of work on the same kind of machine, each with today's prediction of it."""
        found: list[tuple[StagePrediction, LaunchRecord]] = []
        for record in self._here(self._history.records(stage.name)):
            if record.version != stage.version or record.engine != placement.engine:
                continue
            if record.resources.gpu != placement.resources.gpu:
                continue
            if record.resources.groups.keys() != placement.resources.groups.keys():
                continue
            try:
                params = stage.params.model_validate(record.params)
                expected = self._expected(stage, params, record.inputs, record.engine, record.resources)
            except Exception:  # parameters or stats that this version of the stage does not know, or that are odd
                continue
            if expected.own.kind == now.kind and expected.own.cpu_s > 0:
                found.append((expected, record))
        return found

    def _here(self, records: Sequence[LaunchRecord]) -> list[LaunchRecord]:
        """Those of this launcher: of processes on this kind of processor, of Jobs in this cluster if there are any."""
        same = [record for record in records if record.launcher == self._profile.launcher]
        if not self._on_cluster:
            return [record for record in same if record.processor == processor()]
        return [record for record in same if record.cluster == self._profile.name] or same

    def _wait(self, placement: Placement) -> float:
        """The median of all stages, of those in the same image if that is known."""
        records = self._here([record for stage in self._stages for record in self._history.records(stage)])
        same = [record for record in records if record.image.partition("@")[0] == placement.image]
        waits = [record.wait_s for record in same or records]
        if waits:
            return median(waits)
        return self._profile.start_s if self._on_cluster else FORK_S

    def _start(self, expected: StagePrediction) -> float:
        """Seconds of any process's own start."""
        return expected.own.start_s * (1.0 if self._on_cluster else FORKED_START)

    def _cpu(self, expected: StagePrediction) -> AffineEstimate:
        beginning = expected.own.start_s + expected.start_cpu_s
        start, work = self._start(expected) + expected.start_cpu_s, max(0.0, expected.own.cpu_s - beginning)
        for each in () if self._on_cluster else expected.groups.values():
            start, work = start + each.start_cpu_s, work + each.cpu_s - each.start_cpu_s
        return AffineEstimate(start, work)

    def _runtime(self, expected: StagePrediction) -> AffineEstimate:
        return AffineEstimate(self._start(expected) + expected.start_s, expected.work_s)

    def _memory(self, expected: StagePrediction) -> AffineEstimate:
        own = expected.own
        base, work = float(own.base_bytes), float(own.memory_bytes - own.base_bytes)
        if self._on_cluster:
            beginning = base * CONTAINER_SHARE + expected.engine_bytes
            return AffineEstimate(beginning, work - own.mapped_bytes + own.output_bytes)
        # Of several processes the largest counts.
        return AffineEstimate(max(base, min(FORKED_BYTES, 2 * base), expected.engine_bytes), work)
