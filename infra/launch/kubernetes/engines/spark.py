"""Spark's part of launching a stage on Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.resources import Group
from superworkflow.infra.launch.base import Event
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.engines.base import OnCluster, StagePods
from superworkflow.infra.launch.kubernetes.engines.spark_driver import POD_VERBS, ROLE_NAME, make_driver
from superworkflow.infra.launch.kubernetes.permissions import Check, account_rights
from superworkflow.infra.launch.kubernetes.pod_group import FollowedJob, PodGroup
from superworkflow.infra.process.exit_status import Diagnosis, Reason

_LEFT_ALONE = "disassociated"
"""Message of an executor that ends because its driver did."""
_REFUSED = re.compile(r'pods "[^"]+-exec-\d+" is forbidden: (.{1,300}?)(?:\. Received status|$)')
"""Reason in a driver's log for which the cluster refused an executor, of which there is no pod then."""


class ExecutorPods(PodGroup):
    """Executors, which the driver asks for and replaces."""

    _refusal = ""

    @property
    def title(self) -> str:
        return "Spark executor"

    def blameless(self, report: Mapping[str, Any]) -> bool:
        return _LEFT_ALONE in str(report)

    def hear(self, event: Event) -> bool:
        """Keep the last reason in the driver's log for which an executor was refused; see `PodGroup`."""
        found = _REFUSED.search(str(event.get("message", "")))
        self._refusal = found[1] if found else self._refusal
        return False

    def failure(self, own: Diagnosis) -> Diagnosis | None:
        """See `PodGroup`. Drivers that fill a quota leave no room for executors, so Spark gives up soon."""
        found = super().failure(own)
        if found is not None or not self._refusal or own.reason not in (Reason.FAILED, Reason.CRASHED):
            return found
        return Diagnosis(
            Reason.UNSCHEDULABLE,
            f"the cluster refused {self.title}s: {self._refusal}",
            "Run fewer Spark stages at once, wait for the Jobs that hold the quota, or raise it; `superworkflow check` "
            "compares it with the profile.",
        )


class SparkOnCluster(OnCluster):
    """A stage's pod is the driver, which asks the cluster for its executors; without any, Spark runs inside it."""

    def shape(self, manifest: Json, stage: StagePods) -> None:
        make_driver(manifest, stage.settings, stage.groups[ROLE_NAME], stage.image, stage.labels)

    def members(self, job: FollowedJob, groups: Mapping[str, Group]) -> Sequence[PodGroup]:
        return [ExecutorPods(job, role, group) for role, group in groups.items()]

    async def checks(self, api: KubernetesApi, settings: KubernetesSettings) -> list[Check]:
        """True if drivers may ask for executors."""
        account = settings.spark_service_account
        title = f"spark account: {account}"
        if account is None:
            return [Check(title, False, "the profile names none under kubernetes.spark_service_account")]
        return [await account_rights(api, account, title, "pods", POD_VERBS)]

    def account(self, settings: KubernetesSettings) -> str | None:
        return settings.spark_service_account
