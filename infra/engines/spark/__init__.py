"""Spark as an engine of stages.

`session` opens it for a stage, `tasks` is what runs on executors. On Kubernetes the stage's pod is the driver
(`driver`), which asks the cluster for its executors (`executor` is their process, `cluster` the launcher's side).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from superworkflow.infra.engines.base import Engine

if TYPE_CHECKING:
    from superworkflow.infra.kubernetes.engines import OnCluster


class Spark(Engine):
    """Spark in the stage's own process, or with executors beside it on a cluster."""

    name = "spark"
    image = "spark"
    packages: ClassVar[Mapping[str, str]] = {"fugue_spark": "spark", "py4j": "spark", "pyspark": "spark"}
    software = ("pyspark",)
    sized_by_estimate = False  # estimates are of work in one process; the driver does none of it
    roles = ("executor",)
    own_role = "driver"
    commands: ClassVar[Mapping[str, str]] = {"executor": "superworkflow.infra.engines.spark.executor:main"}

    def settings(self) -> Mapping[str, str]:
        """See `Engine`."""
        from superworkflow.infra.engines.spark.session import settings_from_environment

        return settings_from_environment()

    @property
    def on_cluster(self) -> OnCluster:
        """See `Engine`."""
        from superworkflow.infra.engines.spark.cluster import SparkOnCluster

        return SparkOnCluster()


ENGINE = Spark()
