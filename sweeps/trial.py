"""One trial: a flow run with its own parameters, which reuses datasets that it shares with other runs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from superworkflow.infra.base.errors import Stopped
from superworkflow.infra.config.profile import Placement, Profile
from superworkflow.infra.config.request import Request
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch import make_launcher
from superworkflow.infra.launch.base import Event
from superworkflow.infra.orchestration.trial_host import TrialHost
from superworkflow.infra.process.threads import available_cpus
from superworkflow.infra.storage.manifest import METRIC_PREFIX
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord, StageRecord
from superworkflow.sweeps.objective import SweepObjective, judged_node, needed_nodes

State = Literal["complete", "pruned", "failed", "interrupted"]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a trial.

    Args:
        state: `interrupted` when the sweep stopped it; such a trial has not ended and is continued later.
        values: of the objectives; None unless complete.
        paid_usd: its cost, an unfinished stage included.
        reused_usd: cost of the datasets that it took from the store.
        paid_s: seconds for which resources were held.
        reused_s: seconds that the datasets it took from the store had taken.
        reason: why it did not complete.
        stages: state, digest, cost and savings, by node.
        metrics: reported by its stages.
    """

    state: State
    values: tuple[float, ...] | None
    paid_usd: float
    reused_usd: float
    paid_s: float
    reused_s: float
    reason: str = ""
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    run_id: str = ""
    flow_run_id: str = ""

    @property
    def full_usd(self) -> float:
        """Cost of the configuration when nothing is cached."""
        return self.paid_usd + self.reused_usd


def trial_request(base: Request, params: Mapping[str, Any], objectives: Sequence[SweepObjective]) -> Request:
    """The request of one trial: the base with the trial's parameters, and only the nodes that its objectives need.

    Args:
        base: the request that trials vary.
        params: the trial's parameters by dotted name.
        objectives: by which it is judged.

    Raises:
        UserError: parameters that do not fit together.
    """
    over: dict[str, dict[str, Any]] = {}
    for name, value in params.items():
        prefix, _, key = name.partition(".")
        over.setdefault(prefix, {})[key] = value
    settings = {
        prefix: parse_params(type(model), {**model.model_dump(), **over.get(prefix, {})}, prefix)
        for prefix, model in base.params.items()
    }
    diagram = base.superworkflow.build(settings, base.sources)
    kept = needed_nodes(diagram, objectives)
    diagram.nodes = {name: diagram.nodes[name] for name in kept}
    return replace(base, params=settings, diagram=diagram)


def shared_profile(profile: Profile, parallel: int, cores: int | None = None) -> tuple[Profile, int]:
    """The profile with this machine's processors divided among parallel trials, and how many may run at once.

    Each trial runs one stage at a time, so that the threads of all trials together never exceed the processors.
    A launcher that runs stages elsewhere keeps its profile.
    """
    if str(profile.launcher) != "process":
        return profile, parallel
    total = cores or available_cpus()
    parallel = min(parallel, total)
    most = total // parallel

    def limited(placement: Placement) -> Placement:
        resources = placement.resources
        cpu = most if "cpu" in placement.auto else min(resources.cpu, most)
        limited = resources.model_copy(update={"cpu": cpu})
        return placement.model_copy(
            update={"resources": limited, "auto": tuple(name for name in placement.auto if name != "cpu")}
        )

    stages = {name: limited(placement) for name, placement in profile.stages.items()}
    update = {"default": limited(profile.default), "stages": stages, "concurrency": 1}
    return profile.model_copy(update=update), parallel


class TrialRun:
    """Runs one trial.

    Args:
        request: the trial's request.
        name: of its flow run.
        objectives: by which it is judged.
        tracker: makes its tracker.
        host: runs it.
        should_prune: called with `(step, steps, value)` of each intermediate value but the last.
    """

    def __init__(
        self,
        request: Request,
        name: str,
        objectives: Sequence[SweepObjective],
        tracker: Callable[[], Tracker],
        host: TrialHost,
        should_prune: Callable[[int, int, float], bool],
    ):
        self.request, self.name, self.objectives = request, name, objectives
        self._tracker, self._host, self._should_prune = tracker, host, should_prune
        judged = judged_node(request.diagram, objectives)
        self._judged = judged.name if judged else ""
        self._launcher = make_launcher(request.profile)
        self._guard = threading.Lock()
        self._begun: dict[str, float] = {}
        self._resources: dict[str, Resources] = {}
        self._ended: dict[str, StageRecord] = {}
        self._failed: list[StageRecord] = []
        self._pruned = self._stopped = ""
        self._made: list[Tracker] = []
        self._ids = ("", "")

    def __call__(self) -> Outcome:
        """Run to the end and return its outcome; raises only errors that are not the trial's own."""
        try:
            record = self._host.run_trial(self.request, self.name, self._open, self._listen, self._launcher)
            values = self._values(record)
        except BaseException as error:
            self._launcher.cancel()
            if self._pruned:
                return self._outcome("pruned", None, self._pruned)
            if self._stopped:
                return self._outcome("interrupted", None, self._stopped)
            if isinstance(error, Exception):
                return self._outcome("failed", None, str(error) or type(error).__name__)
            raise
        self._ids = (record.run_id, record.flow_run_id)
        return self._outcome("complete", values, "", record.metrics)

    def stop(self, reason: str) -> None:
        """End it at once, from another thread."""
        self._stopped = self._stopped or reason
        self._launcher.cancel()

    def spent(self) -> tuple[float, float]:
        """USD and seconds so far, running stages included."""
        now = time.monotonic()
        with self._guard:
            over = [*self._ended.values(), *self._failed]
            usd = sum(record.cost_usd for record in over)
            seconds = sum(record.runtime_s for record in over)
            for node, begun in self._begun.items():
                if node in self._resources:
                    usd += self.request.prices.cost(self._resources[node], now - begun)
                seconds += now - begun
        return usd, seconds

    def _open(self) -> Tracker:
        tracker = self._tracker()
        self._made.append(tracker)
        return tracker

    def _listen(self, node: str, event: Event) -> None:
        kind = event["event"]
        with self._guard:
            if kind == "end":
                self._begun.pop(node, None)
                self._ended[node] = event["record"]
            elif kind == "failed":
                self._begun.pop(node, None)
                self._failed.append(event["record"])
            elif kind == "begin":
                self._begun[node] = time.monotonic()
            elif kind == "resources":
                self._resources[node] = event["resources"]
        if self._stopped:
            raise Stopped(self._stopped)
        if kind == "report" and node == self._judged and event["step"] < event["steps"]:
            step, steps = int(event["step"]), int(event["steps"])
            if self._should_prune(step, steps, float(event["value"])):
                self._pruned = f"pruned after step {step} of {steps} of {node}"
                self._launcher.cancel()
                raise Stopped(self._pruned)

    def _values(self, record: RunRecord) -> tuple[float, ...]:
        usd = sum(map(self._cost, record.stages))
        seconds = sum(stage.runtime_s + stage.saved_s for stage in record.stages)
        by_node = {stage.name: _metrics(stage) for stage in record.stages}
        return tuple(
            objective.value(by_node.get(objective.node or "", {}), usd, seconds) for objective in self.objectives
        )

    def _cost(self, stage: StageRecord) -> float:
        """Cost of a stage when nothing is cached, in USD.

        On a machine that trials share, wall time depends on the other trials; CPU seconds do not. A GPU belongs to one
        trial while it is held.
        """
        if str(self.request.profile.launcher) != "process" or stage.resources.gpu.count:
            return stage.cost_usd + stage.saved_usd
        return stage.made_cpu_s * self.request.prices.vcpu_hour / 3600

    def _outcome(
        self, state: State, values: tuple[float, ...] | None, reason: str, metrics: Mapping[str, float] | None = None
    ) -> Outcome:
        usd, seconds = self.spent()
        records = self._ended.values()
        run_id = self._ids[0] or (self._made[0].run_id if self._made else "")
        return Outcome(
            state=state, values=values, paid_usd=usd, paid_s=seconds, reason=reason,
            reused_usd=sum(record.saved_usd for record in records),
            reused_s=sum(record.saved_s for record in records),
            stages={
                record.name: {
                    "state": record.state, "digest": record.digest, "cost_usd": record.cost_usd,
                    "saved_usd": record.saved_usd, "seconds": record.runtime_s, "saved_s": record.saved_s,
                }
                for record in records
            },
            metrics=dict(metrics or {}), run_id=run_id, flow_run_id=self._ids[1],
        )  # fmt: skip


def _metrics(stage: StageRecord) -> dict[str, float]:
    """Metrics of a stage; NaN for those that were NaN or infinite, which JSON and so a manifest stores as null."""
    names = [name for name, value in stage.stats.items() if value is None and name.startswith(METRIC_PREFIX)]
    return stage.metrics | {name.removeprefix(METRIC_PREFIX): math.nan for name in names}
