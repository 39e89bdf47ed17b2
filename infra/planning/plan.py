"""Plan of a run before anything starts: cached stages, stages to run, time, memory and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.config.prices import PriceTable
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.config.request import Request
from superworkflow.infra.config.usage import held
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.contract.estimate import estimate_from_bytes, input_stats, predicted_stats
from superworkflow.infra.contract.stage import IN_PROCESS, Resources
from superworkflow.infra.engines import engine
from superworkflow.infra.launch.memory_history import Sizing
from superworkflow.infra.planning.autosize import placed
from superworkflow.infra.planning.forecast import Forecast, Forecaster
from superworkflow.infra.planning.launch_history import History
from superworkflow.infra.planning.timeline import TimelineTask, timeline
from superworkflow.infra.process.threads import available_cpus
from superworkflow.infra.storage.manifest import Stat, warnings_of
from superworkflow.infra.storage.source import Source


@dataclass(frozen=True)
class PlannedGroup:
    """Prediction for the members of one role.

    Args:
        count, cpu, given_bytes: number of members, and vCPUs and memory of each. For an elastic role it is the number
            at the start, which the prediction assumes throughout.
        memory_bytes: peak of each.
        cpu_s: CPU seconds of all together.
        fits: whether the memory of each holds its peak.
        begin_s: seconds after the stage's beginning from which they are held.
        most: that the stage may scale an elastic role up to; 0 for a fixed one.
    """

    role: str
    count: int
    cpu: float
    given_bytes: int
    memory_bytes: int
    cpu_s: float
    fits: bool
    begin_s: float
    most: int = 0


@dataclass(frozen=True)
class PlannedStage:
    """Prediction for one node; for a cached one, what it took when it ran.

    Args:
        seconds: wall seconds on `resources`, the start of its pod included, and longer where stages that run at once
            share this machine's processors.
        memory_bytes: peak of the stage's own process or pod.
        cpu_s: CPU seconds, of members too.
        resources: those of the profile, or chosen where it says `auto`.
        memory_fits: whether that memory holds the predicted peak.
        runs: how many recorded runs of the stage the prediction rests on.
        built_in: without records it rests on an estimate of the stage's own, else on the bytes of its inputs alone.
        end_s: when it ends, in seconds after the run's first stage began; 0 for a cached one.
        engine: what computes.
        start_s: of `seconds`, those before the work begins: pods, process, engine.
        width: threads that share the work after that.
        groups: members in addition to the stage's own process.
        gpu_s: seconds for which GPUs are held, times their number.
        warnings: warnings about its input, of one that is to run by the first rows of its sources.
    """

    name: str
    state: Literal["run", "cached"]
    memory_bytes: int
    cpu_s: float
    seconds: float
    cost_usd: float
    output_bytes: int
    resources: Resources
    memory_fits: bool
    output: str
    runs: int = 0
    end_s: float = 0.0
    engine: str = IN_PROCESS
    start_s: float = 0.0
    width: int = 1
    groups: tuple[PlannedGroup, ...] = ()
    gpu_s: float = 0.0
    built_in: bool = True
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """True if memory holds all predicted peaks, of members too."""
        return self.memory_fits and all(group.fits for group in self.groups)

    @property
    def basis(self) -> str:
        """Basis of the prediction, for people."""
        if self.state == "cached":
            return "itself"
        if self.runs:
            return f"{self.runs} run{'s' if self.runs > 1 else ''}"
        return "built-in" if self.built_in else "input bytes"


def plan(request: Request) -> list[PlannedStage]:
    """Predict every stage of a request, in the order of its diagram.

    A cached stage passes its true stats to the estimates of later ones, one that would run its predicted stats.
    Resources that the profile leaves to the estimate are chosen from these, and start on a cluster with the memory
    that such an input turned out to need before.

    Raises:
        DatasetDamaged: a dataset that would be reused does not match its manifest.
    """
    outputs: dict[str, Mapping[str, Stat]] = {}
    planned: list[PlannedStage] = []
    tasks: list[TimelineTask] = []
    forecaster = Forecaster(
        History(request.store.root), request.profile, [node.stage.name for node in request.diagram.nodes.values()]
    )
    for node in request.diagram.nodes.values():
        groups: tuple[PlannedGroup, ...] = ()
        stats = {
            name: outputs[given.name] if isinstance(given, Node) else node.stats_of(name)
            for name, given in node.inputs.items()
        }
        placement = placed(node, request.profile, stats)
        resources = _remembered(node, request, placement, stats)
        location = request.store.location(node.stage.name, node.digest)
        dataset = request.store.find(node.stage.name, node.digest)
        if dataset is not None:
            measured = dataset.manifest.measured
            outputs[node.name] = input_stats(dataset)
            memory, cpu_s, seconds = measured.memory_bytes, measured.cpu_s, measured.runtime_s
            output_bytes, fits, runs = dataset.manifest.bytes, True, 0
            start_s, width = 0.0, 1
            tasks.append(TimelineTask(node.name, (), 0.0, 0.0, 0.0))
        else:
            estimate = node.stage.estimate_on(placement.engine, node.params, stats, resources)
            outputs[node.name] = predicted_stats(estimate)
            forecast = forecaster.of(
                node.stage, node.params, stats, placement.model_copy(update={"resources": resources})
            )
            groups = _groups(forecast, resources)
            memory, seconds = forecast.memory_bytes, forecast.wait_s + forecast.runtime_s
            cpu_s = forecast.cpu_s + sum(group.cpu_s for group in groups)
            output_bytes, runs = estimate.output_bytes, forecast.runs
            fits = forecast.needed_bytes <= resources.memory
            start_s, width = forecast.wait_s + forecast.start_s, forecast.width
            upstream = tuple(each.name for each in node.upstream)
            tasks.append(TimelineTask(node.name, upstream, forecast.wait_s, forecast.runtime_s, cpu_s))
        planned.append(
            PlannedStage(
                name=node.name,
                state="cached" if dataset else "run",
                memory_bytes=memory,
                cpu_s=cpu_s,
                seconds=seconds,
                cost_usd=0.0,
                output_bytes=output_bytes,
                resources=resources,
                memory_fits=fits,
                output=location.uri,
                runs=runs,
                engine=placement.engine,
                start_s=start_s,
                width=width,
                groups=groups,
                built_in=node.stage.estimate is not estimate_from_bytes,
                warnings=warnings_of(dataset.manifest.stats) if dataset is not None else _doubts(node),
            )
        )
    cores = available_cpus() if request.profile.launcher == "process" else None
    spans = timeline(tasks, request.profile.concurrency, cores)
    return [_scheduled(stage, *spans[stage.name], request.prices) for stage in planned]


def _doubts(node: Node) -> tuple[str, ...]:
    """Warnings about its sources that a stage is going to give, or the error with which it will refuse them."""
    sources = {name: given for name, given in node.inputs.items() if isinstance(given, Source)}
    if not node.stage.doubts or not sources:
        return ()
    try:
        return tuple(imported(node.stage.doubts)(node.params, sources))
    except UserError as error:
        return (f"will be refused: {error}",)


def _scheduled(stage: PlannedStage, begin_s: float, end_s: float, prices: PriceTable) -> PlannedStage:
    if stage.state == "cached":
        return stage
    seconds = end_s - begin_s
    begins = {group.role: min(group.begin_s, seconds) for group in stage.groups}
    holdings = [
        each.model_copy(update={"begin_s": begins.get(each.role, 0.0)}) for each in held(stage.resources, seconds)
    ]
    gpu_s = sum(each.resources.gpu.count * each.count * each.seconds for each in holdings)
    return replace(stage, seconds=seconds, cost_usd=prices.price(holdings), end_s=end_s, gpu_s=gpu_s)


def _groups(forecast: Forecast, resources: Resources) -> tuple[PlannedGroup, ...]:
    return tuple(
        PlannedGroup(
            role=role, count=group.count, cpu=group.cpu, given_bytes=group.memory,
            memory_bytes=forecast.groups[role].memory_bytes, cpu_s=forecast.groups[role].cpu_s,
            fits=forecast.groups[role].memory_bytes <= group.memory, begin_s=forecast.wait_s + forecast.alone_s,
            most=group.largest if group.elastic else 0,
        )
        for role, group in resources.groups.items()
        if role in forecast.groups
    )  # fmt: skip


def _remembered(
    node: Node, request: Request, placement: Placement, stats: Mapping[str, Mapping[str, Stat]]
) -> Resources:
    """The resources, with the memory that the launcher on a cluster will start with."""
    resources = placement.resources
    if request.profile.launcher != "kubernetes":
        return resources
    expected = node.stage.estimate(node.params, stats, resources).memory_bytes
    sizing, cap = Sizing(request.store.root), request.profile.kubernetes.memory_cap
    for role in ("", *resources.groups):
        key = engine(placement.engine).sizing_key(node.stage.name, resources, role)
        memory = min(sizing.memory(key, expected), cap)
        resources = resources.with_memory(max(resources.memory_of(role), memory), role)
    return resources
