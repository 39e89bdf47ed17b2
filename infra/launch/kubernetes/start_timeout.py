"""Timeout of pods that cannot start."""

from __future__ import annotations

import time
from collections.abc import Callable

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.process.exit_status import Diagnosis, Reason


class StartTimeout:
    """Reports once why a pod cannot start, and gives up after the configured time.

    Args:
        settings: the profile's `kubernetes` part, with the times.
        log: receives the reports.
    """

    def __init__(self, settings: KubernetesSettings, log: Callable[[str], None]):
        self._settings, self._log = settings, log
        self._problem: tuple[Reason, float] | None = None
        self._reported = ""

    def consider(self, found: Diagnosis | None, started: bool) -> Diagnosis | None:
        """Problem that has lasted for too long, or None.

        Args:
            found: what keeps the pod from starting now.
            started: the pod has started.
        """
        if found is None:
            # An image error shows as ContainerCreating between two tries; it has not passed for that.
            if self._problem is not None and (started or self._problem[0] is Reason.UNSCHEDULABLE):
                self._problem = None
            return None
        if found.summary != self._reported and (self._problem is None or self._problem[0] is not found.reason):
            self._reported = found.summary
            self._log(f"waiting: {found.summary}")
        now = time.monotonic()
        if self._problem is None or self._problem[0] is not found.reason:
            self._problem = (found.reason, now)
        unschedulable = found.reason is Reason.UNSCHEDULABLE
        patience = self._settings.schedule_patience_s if unschedulable else self._settings.start_patience_s
        if now - self._problem[1] < patience:
            return None
        return Diagnosis(found.reason, f"{found.summary}, waited for {patience:.0f} s", found.resolution)
