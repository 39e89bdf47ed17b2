"""Resources that a profile leaves to the estimate: `resources: {memory: auto, cpu: auto}`.

When a plan is made, the stats of inputs that do not exist yet are themselves estimates; when a stage is launched, its
inputs exist, and the same rule is applied to their true stats.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from superworkflow.infra.config.profile import LEAST, Placement, Profile
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.contract.estimate import Estimate
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.engines import engine
from superworkflow.infra.process.threads import available_cpus
from superworkflow.infra.storage.manifest import Stat

HEADROOM = 1.25
"""Memory over the estimate, which is good to a fifth."""
_STEP = 256 << 20
_BUSY = 0.5
"""Share of the time for which processors must have work for one more to be added."""


@dataclass(frozen=True)
class SizeLimits:
    """The most that may be chosen.

    Args:
        cpu: vCPUs.
        memory: bytes.
        target_s: seconds that a stage should take, where more vCPUs make it so.
    """

    cpu: int
    memory: int
    target_s: float


def limits(profile: Profile) -> SizeLimits:
    """The profile's caps on a cluster; this machine's size for processes on it."""
    given = profile.kubernetes
    if profile.launcher == "kubernetes":
        return SizeLimits(given.cpu_cap, given.memory_cap, given.target_s)
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return SizeLimits(available_cpus(), machine, given.target_s)


def placed(node: Node, profile: Profile, stats: Mapping[str, Mapping[str, Stat]]) -> Placement:
    """Placement of a node of a diagram, with what the profile leaves to the estimate chosen.

    Args:
        node: which stage, with its parameters.
        profile: who places it.
        stats: of each input by name, true or predicted.
    """
    placement = profile.placement(node.name, node.stage.name)
    if not placement.auto or not engine(placement.engine).sized_by_estimate:
        return placement

    def estimate(resources: Resources) -> Estimate:
        return node.stage.estimate(node.params, stats, resources)

    chosen = choose(placement.resources, placement.auto, estimate, limits(profile))
    return placement.model_copy(update={"resources": chosen})


def choose(
    resources: Resources, auto: Collection[str], estimate: Callable[[Resources], Estimate], most: SizeLimits
) -> Resources:
    """Fill in vCPUs, then the memory that the stage needs with this number.

    vCPUs: the fewest with which the stage takes no longer than `most.target_s`, of those that all keep busy for more
    than half of the time (by Amdahl's law n of them do for 1 / (n (1 - p) + p), p the parallel share). Memory: the
    estimate and a quarter, in steps of 256 MiB, at least 512 MiB.
    """
    if "memory" in auto:
        resources = resources.model_copy(update={"memory": most.memory})  # some stages take less where they have less
    if "cpu" in auto:
        cpu = LEAST["cpu"]
        expected = estimate(resources.model_copy(update={"cpu": cpu}))
        while cpu < most.cpu and expected.runtime_s(cpu) > most.target_s:
            if 1 / ((cpu + 1) * (1 - expected.divided) + expected.divided) <= _BUSY:
                break
            cpu += 1
        resources = resources.model_copy(update={"cpu": cpu})
    if "memory" in auto:
        needed = math.ceil(estimate(resources).memory_bytes * HEADROOM / _STEP) * _STEP
        resources = resources.model_copy(update={"memory": min(max(needed, LEAST["memory"]), most.memory)})
    return resources
