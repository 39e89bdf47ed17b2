"""For how long a pod may be kept from starting."""

from __future__ import annotations

import time
from collections.abc import Callable

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.process.exit_status import Diagnosis, Reason


class StartTimeout:
    """Tells of what keeps a pod from starting once, and gives up on it after the settings' time.

    Args:
        settings: how patient to be.
        tell: receives what is told.
    """

    def __init__(self, settings: KubernetesSettings, tell: Callable[[str], None]):
        self._settings, self._tell = settings, tell
        self._problem: tuple[Reason, float] | None = None
        self._told = ""

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
        if found.summary != self._told and (self._problem is None or self._problem[0] is not found.reason):
            self._told = found.summary
            self._tell(f"waiting: {found.summary}")
        now = time.monotonic()
        if self._problem is None or self._problem[0] is not found.reason:
            self._problem = (found.reason, now)
        unschedulable = found.reason is Reason.UNSCHEDULABLE
        patience = self._settings.schedule_patience_s if unschedulable else self._settings.start_patience_s
        if now - self._problem[1] < patience:
            return None
        return Diagnosis(found.reason, f"{found.summary}, waited for {patience:.0f} s", found.resolution)
