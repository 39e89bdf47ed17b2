"""Worker groups as an engine: workers beside the stage's own process, which coordinates them and does no work.

`session.worker_group(job)` is what a stage's author uses. Only `rendezvous`, `agent` and `ranks` import torch, and
only while a group is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from superworkflow.infra.engines.base import Engine
from superworkflow.infra.errors import UserError
from superworkflow.infra.resources import WORKER, Group, Resources


class WorkerGroups(Engine):
    """Roles are named by the profile; those of one machine are processes on it."""

    name = "workers"
    image = "torch"
    packages: ClassVar[Mapping[str, str]] = {"zmq": "workers"}
    sized_by_estimate = False  # estimates are of work in one process; the coordinator does none of it
    roles = (WORKER,)
    members_are_processes = True
    own_role = "coordinator"

    def used(self, resources: Resources, on_cluster: bool) -> Resources:
        """See `Engine`.

        Raises:
            UserError: on a cluster there are no worker groups yet.
        """
        if on_cluster:
            raise UserError(
                "worker groups do not run on Kubernetes yet", where="profile: engine", value=self.name,
                remedy="Use `launcher: process`, or another engine of the stage",
            )  # fmt: skip
        return resources.only(self.groups(resources))

    def groups(self, resources: Resources) -> dict[str, Group]:
        """See `Engine`."""
        return dict(resources.workers or {})


ENGINE = WorkerGroups()
