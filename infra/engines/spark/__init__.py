"""Spark as an engine of stages.

`session` opens it for a stage, `tasks` is what runs on executors. On Kubernetes the stage's pod is the driver
(`infra.launch.kubernetes.engines.spark_driver`), which asks the cluster for its executors (`executor` is their process,
`infra.launch.kubernetes.engines.spark` the launcher's side).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.engines.base import Engine
from superworkflow.infra.engines.prediction import EngineStartup, StagePrediction, by_members, in_own_process

if TYPE_CHECKING:
    from superworkflow.infra.contract.estimate import Estimate


_JAVA_BYTES = 330 << 20
"""Resident set of Java's process while it moves few rows; measured."""
_SESSION_S = 6.0
_SESSION_CPU_S = 10.5
"""Seconds from asking for a session to the end of its first small job, and CPU seconds of Java in it; measured."""
_BEGINNING = EngineStartup(
    own_cpu_s=12.5, own_share=0.45, member_cpu_s=5.5, member_share=0.75, wait_s=2.0, engine_bytes=_JAVA_BYTES
)
"""The same where driver and executors are pods, on a node with idle cores; measured."""


class Spark(Engine):
    """Spark in the stage's own process, or with executors in pods of their own on a cluster."""

    name = "spark"
    image = "spark"
    packages: ClassVar[Mapping[str, str]] = {"py4j": "spark", "pyspark": "spark"}
    software = ("pyspark",)
    sized_by_estimate = False  # estimates are of work in one process; the driver does none of it
    roles = ("executor",)
    own_role = "driver"
    commands: ClassVar[Mapping[str, str]] = {"executor": "superworkflow.infra.engines.spark.executor:main"}
    on_cluster = "superworkflow.infra.launch.kubernetes.engines.spark:SparkOnCluster"
    tasks = "superworkflow.infra.engines.spark.tasks:spark_tasks"

    def member_memory(self, resources: Resources) -> int:
        """See `Engine`: Java has the rest."""
        from superworkflow.infra.engines.spark.session import python_memory

        return python_memory(resources)

    def expected(self, estimate: Estimate, resources: Resources, on_cluster: bool) -> StagePrediction:
        """Java and its session start first; the work is that of Python's processes, in executors if there are any."""
        if not (groups := self.groups(resources)):
            alone = in_own_process(estimate, resources.threads)
            own = replace(estimate, cpu_s=estimate.cpu_s + _SESSION_CPU_S)
            return replace(
                alone, own=own, start_s=_SESSION_S, start_cpu_s=_SESSION_CPU_S, engine_bytes=_JAVA_BYTES
            )  # fmt: skip
        return by_members(estimate, resources, groups, _BEGINNING)

    def settings(self) -> Mapping[str, str]:
        from superworkflow.infra.engines.spark.session import settings_from_environment

        return settings_from_environment()


ENGINE = Spark()
