"""Spark's part of launching a stage on Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.resources import Group
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.engines.base import OnCluster, StagePods
from superworkflow.infra.launch.kubernetes.engines.spark_driver import POD_VERBS, ROLE_NAME, make_driver
from superworkflow.infra.launch.kubernetes.permissions import Check, account_rights
from superworkflow.infra.launch.kubernetes.pod_group import FollowedJob, PodGroup

_LEFT_ALONE = "disassociated"
"""Message of an executor that ends because its driver did."""


class ExecutorPods(PodGroup):
    """Executors, which the driver asks for and replaces."""

    @property
    def title(self) -> str:
        """See `PodGroup`."""
        return "Spark executor"

    def blameless(self, report: Mapping[str, Any]) -> bool:
        """See `PodGroup`."""
        return _LEFT_ALONE in str(report)


class SparkOnCluster(OnCluster):
    """A stage's pod is the driver, which asks the cluster for its executors; without any, Spark runs inside it."""

    def shape(self, manifest: Json, stage: StagePods) -> None:
        """See `OnCluster`."""
        make_driver(manifest, stage.settings, stage.groups[ROLE_NAME], stage.image, stage.labels)

    def members(self, job: FollowedJob, groups: Mapping[str, Group]) -> Sequence[PodGroup]:
        """See `OnCluster`."""
        return [ExecutorPods(job, role, group) for role, group in groups.items()]

    async def checks(self, api: KubernetesApi, settings: KubernetesSettings) -> list[Check]:
        """True if drivers may ask for executors."""
        account = settings.spark_service_account
        title = f"spark account: {account}"
        if account is None:
            return [Check(title, False, "the profile names none under kubernetes.spark_service_account")]
        return [await account_rights(api, account, title, "pods", POD_VERBS)]

    def account(self, settings: KubernetesSettings) -> str | None:
        """See `OnCluster`."""
        return settings.spark_service_account
