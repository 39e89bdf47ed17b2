"""What would run, what is there already, and what it would take: before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from infra.autosize import placed
from infra.diagram import Node
from infra.kubernetes.sizing import Sizing
from infra.manifest import Stat
from infra.request import Request
from infra.resources import Resources


@dataclass(frozen=True)
class PlannedStage:
    """Prediction for one node; for a cached one, what it took when it ran.

    Args:
        seconds: wall seconds on `resources`, the start of its pod included.
        resources: those of the profile, or chosen where it says `auto`.
        fits: whether that memory holds the predicted peak.
    """

    name: str
    state: Literal["run", "cached"]
    memory_bytes: int
    cpu_s: float
    seconds: float
    cost_usd: float
    output_bytes: int
    resources: Resources
    fits: bool
    output: str


def plan(request: Request) -> list[PlannedStage]:
    """Predict every stage of a request, in the order of its diagram.

    A cached stage passes its true stats to the estimates of later ones, one that would run its predicted stats.
    Resources that the profile leaves to the estimate are chosen from these, and start on a cluster with the memory
    that such an input turned out to need before.

    Raises:
        DatasetDamaged: a dataset that would be reused does not match its manifest.
    """
    known: dict[str, Mapping[str, Stat]] = {}
    planned: list[PlannedStage] = []
    for node in request.diagram.nodes.values():
        stats = _input_stats(node, known)
        resources = _remembered(node, request, placed(node, request.profile, stats).resources, stats)
        location = request.store.location(node.stage.name, node.digest)
        dataset = request.store.find(node.stage.name, node.digest)
        if dataset is not None:
            measured = dataset.manifest.measured
            known[node.name] = dataset.stats
            memory, cpu_s, seconds = measured.peak_memory_bytes, measured.cpu_s, measured.runtime_s
            output_bytes, cost = dataset.manifest.bytes, 0.0
        else:
            estimate = node.stage.estimate(node.params, stats, resources)
            known[node.name] = estimate.stats
            memory, cpu_s, seconds = estimate.memory_bytes, estimate.cpu_s, estimate.runtime_s(resources.threads)
            seconds += request.profile.start_s
            output_bytes, cost = estimate.output_bytes, request.prices.cost(resources, seconds)
        planned.append(
            PlannedStage(
                name=node.name,
                state="cached" if dataset else "run",
                memory_bytes=memory,
                cpu_s=cpu_s,
                seconds=seconds,
                cost_usd=cost,
                output_bytes=output_bytes,
                resources=resources,
                fits=dataset is not None or memory <= resources.memory,
                output=location.uri,
            )
        )
    return planned


def _remembered(
    node: Node, request: Request, resources: Resources, stats: Mapping[str, Mapping[str, Stat]]
) -> Resources:
    """The resources, with the memory that the launcher on a cluster will start with."""
    if request.profile.launcher != "kubernetes":
        return resources
    expected = node.stage.estimate(node.params, stats, resources).memory_bytes
    memory = Sizing(request.store.root).memory(node.stage.name, expected)
    more = max(resources.memory, min(memory, request.profile.kubernetes.memory_cap))
    return resources.model_copy(update={"memory": more})


def _input_stats(node: Node, known: Mapping[str, Mapping[str, Stat]]) -> dict[str, Mapping[str, Stat]]:
    return {name: known[given.name] if isinstance(given, Node) else given.stats for name, given in node.inputs.items()}
