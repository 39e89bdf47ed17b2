"""Contract of every engine: what computes inside a stage.

An engine is a package of this room, named as the engine with `_` for `-`, with an `ENGINE`. The package itself is
light: profiles and plans read it. What opens its sessions, and what it does on a cluster, is imported where needed.

Nothing outside of the package knows the name. An engine whose stages need more than their own process names groups of
members (`Group` of the resources) by their roles: the executors of a cluster of its own, say, or ranks. On Kubernetes
these are pods next to the stage's Job; an `OnCluster` (`infra.launch.kubernetes.engines.base`) defines how it runs
there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from superworkflow.infra.contract.resources import Group, Resources
from superworkflow.infra.engines.prediction import StagePrediction, by_members, in_own_process

if TYPE_CHECKING:
    from superworkflow.infra.contract.estimate import Estimate


class Engine:
    """One engine. This base needs only the stage's own process.

    A stage gets its session from a function of the engine's own, given its `StageRun`; the launcher's settings for it
    are in `StageRun.engine_settings`.
    """

    name: str
    """As in profiles and manifests."""
    image: str = ""
    """Kind of image that holds what its stages need; empty where it is the stage's own kind."""
    packages: ClassVar[Mapping[str, str]] = {}
    """Packages that it imports, each with the extra of the distribution that has it."""
    software: tuple[str, ...] = ()
    """Libraries that compute, whose versions manifests name."""
    sized_by_estimate: bool = True
    """True if the stage's own process does the work, so that its size can follow from the stage's estimate (`auto`)."""
    roles: tuple[str, ...] = ()
    """Roles of the groups that it can use."""
    members_are_processes: bool = False
    """True if it has members also where stages are processes: as further processes on the same machine."""
    own_role: str = ""
    """Role of the stage's own process where it has members, such as `driver`."""
    commands: ClassVar[Mapping[str, str]] = {}
    """Commands that its members run, with import strings of functions of their arguments to an exit status."""
    on_cluster: str = "superworkflow.infra.launch.kubernetes.engines.base:OnCluster"
    """Import string of its `OnCluster`, which launchers on Kubernetes open."""
    variables: ClassVar[Mapping[str, str]] = {}
    """Variables of the environment by which a launcher passes it settings, by the settings' names."""
    tasks: str = ""
    """Import string of what opens its `TaskSession` (`infra.engines.task_session`); empty for an engine without."""

    def member_memory(self, resources: Resources) -> int:
        """Bytes that a member has for tasks, or the stage's own process where it has no members."""
        return resources.memory

    def used(self, resources: Resources, on_cluster: bool) -> Resources:
        """Select the resources of a profile that this engine uses: groups of other engines are left out.

        Args:
            resources: of a stage.
            on_cluster: stages are Jobs; otherwise they are processes on one machine.
        """
        return resources.only(self.roles if on_cluster or self.members_are_processes else ())

    def groups(self, resources: Resources) -> dict[str, Group]:
        """Groups that a stage with these resources needs in addition to its own process, by role."""
        return {role: group for role, group in resources.groups.items() if role in self.roles}

    def check(self, resources: Resources, where: str) -> None:
        """Refuse resources with which a stage can only fail.

        Args:
            resources: of a stage on this engine.
            where: they are given, for the error.

        Raises:
            UserError: they lack what the engine needs.
        """

    def settings(self) -> Mapping[str, str]:
        """Settings that a launcher passed to this engine in the environment of the stage's process.

        Raises:
            UserError: it cannot be read.
        """
        return {key: os.environ[name] for key, name in self.variables.items() if os.environ.get(name)}

    def expected(self, estimate: Estimate, resources: Resources, on_cluster: bool) -> StagePrediction:
        """Predict the time and memory of a stage.

        Args:
            estimate: the stage's, for this engine if it has one (`Stage.estimates`), else for its own process.
            resources: what it gets, of which this engine uses all (see `used`).
            on_cluster: stages are Jobs; otherwise they are processes on one machine.
        """
        if groups := self.groups(resources):
            return by_members(estimate, resources, groups)
        return in_own_process(estimate, resources.threads)

    def sizing_key(self, stage: str, resources: Resources, role: str = "") -> str:
        """Key under which sufficient memory is remembered, for a stage or for each member of a role.

        What a stage needs by itself says nothing of what it needs where members do the work.
        """
        return f"{stage}.{role or self.own_role}" if self.groups(resources) else stage
