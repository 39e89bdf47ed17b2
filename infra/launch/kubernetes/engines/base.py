"""Kubernetes part of an engine, in addition to the stage's own Job."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.resources import Group
from superworkflow.infra.engines import engine
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.permissions import Check
from superworkflow.infra.launch.kubernetes.pod_group import FollowedJob, PodGroup


@dataclass(frozen=True)
class StagePods:
    """Properties of the pods of one stage.

    Args:
        settings: the profile's `kubernetes` part.
        groups: members that the stage needs, by role; never empty.
        image: of the stage, which members run as well.
        labels: of the stage's pods, which members get as well.
    """

    settings: KubernetesSettings
    groups: Mapping[str, Group]
    image: str
    labels: Mapping[str, str]


class OnCluster:
    """The part of an engine that launchers on Kubernetes use. This base adds nothing to a Job.

    Pods of members carry the labels `MEMBER_OF` (name of their Job) and `ROLE` of `infra.launch.kubernetes.pod_group`.
    They belong to the Job's pod, so that they end with it whatever becomes of the launcher, which deletes them by
    these.
    """

    def shape(self, manifest: Json, stage: StagePods) -> None:
        """Change the manifest of a Job whose stage needs groups.

        Args:
            manifest: the Job, changed in place.
            stage: what its members need to know.

        Raises:
            UserError: something that the engine needs is missing or too small.
        """

    def secret(self) -> Mapping[str, str]:
        """Secret that only a Job and its members share; it is in a Secret of the Job's name,
        which must be there before the Job. Empty for nothing."""
        return {}

    def members(self, job: FollowedJob, groups: Mapping[str, Group]) -> Sequence[PodGroup]:
        """Followers of the members of a Job, one for each group.

        Args:
            job: the Job.
            groups: by role.
        """
        return ()

    async def checks(self, api: KubernetesApi, settings: KubernetesSettings) -> list[Check]:
        """Checks of `superworkflow check` where some stage needs groups of this engine."""
        return []

    def account(self, settings: KubernetesSettings) -> str | None:
        """Service account of stages whose image is of the engine's own kind; None for that of all stages."""
        return None


@functools.cache
def engine_on_cluster(name: str) -> OnCluster:
    """The part of an engine that launchers on Kubernetes use, by the engine's name."""
    return cast("OnCluster", imported(engine(name).on_cluster)())
