"""Worker groups as an engine: workers beside the stage's own process, which coordinates them and does no work.

`session.worker_group(job)` is what a stage's author uses. On one machine the workers are processes, started by the
stage; on Kubernetes they are pods, which the launcher keeps (`cluster`). Only `rendezvous`, `agent` and `ranks` import
torch, and only while a group with fixed roles is open. Elastic roles (`elastic`, `elastic_member`) do without.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from superworkflow.infra.engines.base import Engine
from superworkflow.infra.engines.expected import Beginning, Expected, by_members
from superworkflow.infra.resources import WORKER, Group, Resources

if TYPE_CHECKING:
    from superworkflow.infra.kubernetes.engines import OnCluster
    from superworkflow.infra.stage import Estimate

ADDRESS_VARIABLE, TOKEN_VARIABLE = "SUPERWORKFLOW_WORKERS_ADDRESS", "SUPERWORKFLOW_WORKERS_TOKEN"
"""Where pods find the address of the coordinator's, and the token of the group."""


_BEGINNING = Beginning(own_cpu_s=1.2, member_cpu_s=1.7, wait_s=1.0, engine_bytes=250 << 20)
"""Torch is imported by the coordinator and by each agent, which forks its workers; measured."""
_ELASTIC_BEGINNING = Beginning(own_cpu_s=0.2, member_cpu_s=0.4, wait_s=1.0, engine_bytes=40 << 20)
"""Where all roles are elastic, nobody imports torch; measured."""


class WorkerGroups(Engine):
    """Roles are named by the profile. The stage's own kind of image is that of the workers as well, and needs torch."""

    name = "workers"
    packages: ClassVar[Mapping[str, str]] = {"zmq": "workers"}
    sized_by_estimate = False  # estimates are of work in one process; the coordinator does none of it
    roles = (WORKER,)
    members_are_processes = True
    own_role = "coordinator"
    commands: ClassVar[Mapping[str, str]] = {"worker": "superworkflow.infra.engines.workers.agent:join"}

    def used(self, resources: Resources, on_cluster: bool) -> Resources:
        """See `Engine`."""
        return resources.only(self.groups(resources))

    def groups(self, resources: Resources) -> dict[str, Group]:
        """See `Engine`."""
        return dict(resources.workers or {})

    def expected(self, estimate: Estimate, resources: Resources) -> Expected:
        """See `Engine`."""
        if groups := self.groups(resources):
            elastic = {role for role, group in groups.items() if group.elastic}
            begins = _BEGINNING if groups.keys() - elastic else _ELASTIC_BEGINNING
            found = by_members(estimate, resources, groups, begins)
            light = {
                role: replace(each, engine_bytes=_ELASTIC_BEGINNING.engine_bytes) if role in elastic else each
                for role, each in found.groups.items()
            }
            return replace(found, groups=light)
        return super().expected(estimate, resources)

    def settings(self) -> Mapping[str, str]:
        """See `Engine`."""
        names = {"address": ADDRESS_VARIABLE, "token": TOKEN_VARIABLE}
        return {key: os.environ[name] for key, name in names.items() if name in os.environ}

    @property
    def on_cluster(self) -> OnCluster:
        """See `Engine`."""
        from superworkflow.infra.engines.workers.cluster import WorkersOnCluster

        return WorkersOnCluster()


ENGINE = WorkerGroups()
