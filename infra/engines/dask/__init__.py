"""Dask as an engine of stages.

`session` opens it for a stage. Its workers are processes on the stage's own machine, those of a scheduler that is there
already, whose address is in Dask's own variable `DASK_SCHEDULER_ADDRESS`, or on Kubernetes pods of the stage's own:
`worker` is what these run, `infra.launch.kubernetes.engines.dask` the launcher's side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import EXECUTOR, Group, Resources
from superworkflow.infra.engines.base import Engine
from superworkflow.infra.engines.prediction import EngineStartup, StagePrediction, by_members, in_own_process

if TYPE_CHECKING:
    from superworkflow.infra.contract.estimate import Estimate

ADDRESS_VARIABLE = "DASK_SCHEDULER_ADDRESS"
HOST_VARIABLE = "SUPERWORKFLOW_DASK_HOST"
CERTIFICATE_VARIABLE, KEY_VARIABLE = "SUPERWORKFLOW_DASK_CERTIFICATE", "SUPERWORKFLOW_DASK_KEY"
"""Variables by which pods find the address of the stage's own, and what proves that they belong together."""
CORES_VARIABLE, MEMORY_VARIABLE = "SUPERWORKFLOW_DASK_CORES", "SUPERWORKFLOW_DASK_MEMORY"
"""Variables with the whole cores and the bytes of a pod of workers."""
_START_S, _START_CPU_S = 1.5, 1.6
_WORKER_CPU_S, _WORKER_BYTES = 1.2, 90 << 20
"""Of the scheduler in the stage's process, and of each worker until its first task: mostly imports; measured."""
_POD_WORKER_CPU_S, _POD_WAIT_S = 2.5, 2.0
"""Of each worker in a pod, and until pods have their places; measured."""


class Dask(Engine):
    """Dask with workers on the stage's own machine, in pods of its own, or those of a scheduler that is there."""

    name = "dask"
    packages: ClassVar[Mapping[str, str]] = {"dask": "dask", "distributed": "dask"}
    software = ("distributed",)
    sized_by_estimate = False  # estimates are of work in one process
    roles = (EXECUTOR,)
    own_role = "scheduler"
    commands: ClassVar[Mapping[str, str]] = {"dask-worker": "superworkflow.infra.engines.dask.worker:join"}
    on_cluster = "superworkflow.infra.launch.kubernetes.engines.dask:DaskOnCluster"
    variables: ClassVar[Mapping[str, str]] = {
        "address": ADDRESS_VARIABLE, "host": HOST_VARIABLE, "certificate": CERTIFICATE_VARIABLE, "key": KEY_VARIABLE,
    }  # fmt: skip
    tasks = "superworkflow.infra.engines.dask.session:dask_tasks"

    def member_memory(self, resources: Resources) -> int:
        return resources.memory_of(EXECUTOR)

    def used(self, resources: Resources, on_cluster: bool) -> Resources:
        """See `Engine`.

        Raises:
            UserError: executors are elastic.
        """
        used = super().used(resources, on_cluster)
        if used.executors is not None and used.executors.elastic:
            raise UserError(
                "executors of Dask have a fixed number", where="profile: resources.executors.max",
                value=used.executors.max, remedy="Leave `max` out",
            )  # fmt: skip
        return used

    def expected(self, estimate: Estimate, resources: Resources, on_cluster: bool) -> StagePrediction:
        """Workers start first, then share the work; each is a process of its own."""
        if groups := self.groups(resources):
            return _by_pods(estimate, resources, groups[EXECUTOR])
        alone, workers = in_own_process(estimate, resources.threads), resources.threads
        start_cpu_s = _START_CPU_S + workers * _WORKER_CPU_S
        return replace(
            alone, own=replace(estimate, cpu_s=estimate.cpu_s + start_cpu_s), start_s=_START_S,
            start_cpu_s=start_cpu_s, engine_bytes=workers * _WORKER_BYTES,
        )  # fmt: skip


def _by_pods(estimate: Estimate, resources: Resources, executors: Group) -> StagePrediction:
    """Pods have a process for each whole core, which has the estimate's memory all together."""
    processes = executors.each.threads
    startup = EngineStartup(
        own_cpu_s=_START_CPU_S,
        member_cpu_s=processes * _POD_WORKER_CPU_S,
        wait_s=_POD_WAIT_S,
        engine_bytes=_WORKER_BYTES,
    )
    found = by_members(estimate, resources, {EXECUTOR: executors}, startup)
    pods = replace(found.groups[EXECUTOR], engine_bytes=processes * _WORKER_BYTES)
    return replace(found, groups={EXECUTOR: pods})


ENGINE = Dask()
