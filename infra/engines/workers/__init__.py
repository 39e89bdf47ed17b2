"""Worker groups as an engine: the stage's own process coordinates its workers and computes nothing itself.

`session.worker_group(job)` is what a stage's author uses. On one machine the workers are processes, started by the
stage; on Kubernetes they are pods, which the launcher keeps (`infra.launch.kubernetes.engines.workers`). Only
`rendezvous`, `agent` and `rank` import torch, and only while a group with fixed roles is open. Elastic roles
(`elastic_role`, `elastic_member`) do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import WORKER, Group, Resources
from superworkflow.infra.engines.base import Engine
from superworkflow.infra.engines.prediction import EngineStartup, StagePrediction, by_members, in_own_process

if TYPE_CHECKING:
    from superworkflow.infra.contract.estimate import Estimate

ADDRESS_VARIABLE, TOKEN_VARIABLE = "SUPERWORKFLOW_WORKERS_ADDRESS", "SUPERWORKFLOW_WORKERS_TOKEN"
"""Variables by which pods find the coordinator's address, and the token of the group."""


_ENGINE_BYTES = 230 << 20
_PODS = EngineStartup(own_cpu_s=0.8, member_cpu_s=1.0, wait_s=2.0, engine_bytes=_ENGINE_BYTES)
"""Torch is imported by the coordinator and by the agent of each worker."""
_PROCESSES = EngineStartup(own_cpu_s=0.8, member_cpu_s=0.1, wait_s=0.3, engine_bytes=_ENGINE_BYTES, forked=True)
"""On one machine there is one agent for each role, which forks its workers; both measured on an idle machine."""
_AGENT_CPU_S = 0.9
_ELASTIC_BYTES = 40 << 20
_ELASTIC_PODS = EngineStartup(own_cpu_s=0.1, member_cpu_s=0.2, wait_s=2.0, engine_bytes=_ELASTIC_BYTES)
"""Start-up without torch, which no process imports where all roles are elastic."""
_ELASTIC_PROCESSES = replace(_ELASTIC_PODS, wait_s=0.2, forked=True)


class WorkerGroups(Engine):
    """Roles are named by the profile. The stage's own kind of image is that of the workers as well, and needs torch."""

    name = "workers"
    packages: ClassVar[Mapping[str, str]] = {"zmq": "workers"}
    sized_by_estimate = False  # estimates are of work in one process; the coordinator does none of it
    roles = (WORKER,)
    members_are_processes = True
    own_role = "coordinator"
    commands: ClassVar[Mapping[str, str]] = {
        "worker": "superworkflow.infra.engines.workers.agent:join",
        "function": "superworkflow.infra.engines.workers.http_endpoint:serve",
    }
    variables: ClassVar[Mapping[str, str]] = {"address": ADDRESS_VARIABLE, "token": TOKEN_VARIABLE}
    on_cluster = "superworkflow.infra.launch.kubernetes.engines.workers:WorkersOnCluster"

    def used(self, resources: Resources, on_cluster: bool) -> Resources:
        return resources.only(self.groups(resources))

    def groups(self, resources: Resources) -> dict[str, Group]:
        return dict(resources.workers or {})

    def check(self, resources: Resources, where: str) -> None:
        if not resources.workers and not resources.endpoints:
            raise UserError("the stage needs a worker group, and its resources name no workers", where=where,
                            remedy="Write `resources: {workers: {count: 2, cpu: 1, memory: 2Gi}}` in the profile"
                            )  # fmt: skip

    def expected(self, estimate: Estimate, resources: Resources, on_cluster: bool) -> StagePrediction:
        groups = self.groups(resources)
        if not groups:
            return in_own_process(estimate, resources.threads)
        fixed = [role for role, group in groups.items() if not group.elastic]
        begins = _PODS if on_cluster else _PROCESSES
        if not fixed:
            begins = _ELASTIC_PODS if on_cluster else _ELASTIC_PROCESSES
        elif not on_cluster:
            begins = replace(begins, own_cpu_s=begins.own_cpu_s + len(fixed) * _AGENT_CPU_S)
        found = by_members(estimate, resources, groups, begins)
        members = {
            role: each if role in fixed else replace(each, engine_bytes=_ELASTIC_BYTES)
            for role, each in found.groups.items()
        }
        return replace(found, groups=members)


ENGINE = WorkerGroups()
