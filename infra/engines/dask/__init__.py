"""Dask as an engine of stages.

`session` opens it for a stage: a cluster of processes on the stage's own machine, or the scheduler of one that is there
already, whose address is in Dask's own variable `DASK_SCHEDULER_ADDRESS`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.engines.base import Engine
from superworkflow.infra.engines.prediction import StagePrediction, in_own_process

if TYPE_CHECKING:
    from superworkflow.infra.contract.estimate import Estimate

ADDRESS_VARIABLE = "DASK_SCHEDULER_ADDRESS"
_START_S, _START_CPU_S = 1.5, 1.6
_WORKER_CPU_S, _WORKER_BYTES = 1.2, 90 << 20
"""Of the scheduler in the stage's process, and of each worker until its first task: mostly imports; measured."""


class Dask(Engine):
    """Dask with workers on the stage's own machine, or those of a scheduler that is there already."""

    name = "dask"
    packages: ClassVar[Mapping[str, str]] = {"dask": "dask", "distributed": "dask"}
    software = ("distributed",)
    sized_by_estimate = False  # estimates are of work in one process
    tasks = "superworkflow.infra.engines.dask.session:dask_tasks"

    def expected(self, estimate: Estimate, resources: Resources, on_cluster: bool) -> StagePrediction:
        """Workers start first, then share the work; each is a process of its own."""
        alone, workers = in_own_process(estimate, resources.threads), resources.threads
        start_cpu_s = _START_CPU_S + workers * _WORKER_CPU_S
        return replace(
            alone, own=replace(estimate, cpu_s=estimate.cpu_s + start_cpu_s), start_s=_START_S,
            start_cpu_s=start_cpu_s, engine_bytes=workers * _WORKER_BYTES,
        )  # fmt: skip

    def settings(self) -> Mapping[str, str]:
        """See `Engine`."""
        return {"address": os.environ[ADDRESS_VARIABLE]} if os.environ.get(ADDRESS_VARIABLE) else {}


ENGINE = Dask()
