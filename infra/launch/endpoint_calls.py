"""Calls of HTTP endpoints, as a stage reports them, and what they are priced by."""

from __future__ import annotations

import math
from collections.abc import Mapping

from superworkflow.infra.config.usage import LONGEST_S, Holding
from superworkflow.infra.contract.resources import Endpoint
from superworkflow.infra.engines.scaling import CALLS
from superworkflow.infra.launch.base import Event


class EndpointCalls:
    """Sums of the calls that a stage has reported.

    Args:
        endpoints: of its resources, by role.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint]):
        self._endpoints, self._sums = endpoints, dict[str, tuple[int, float]]()

    def take(self, event: Event) -> None:
        """Count what an event of the stage reports; other events, and numbers that cannot be, report none."""
        role, calls, took = event.get("role"), event.get("calls"), event.get("seconds")
        if event.get("event") != CALLS or not isinstance(role, str) or role not in self._endpoints:
            return
        if type(calls) is not int or not isinstance(took, int | float) or not calls > 0 or not 0 <= took <= LONGEST_S:
            return
        before = self._sums.get(role, (0, 0.0))
        self._sums[role] = before[0] + calls, before[1] + took

    def holdings(self, seconds: float) -> list[Holding]:
        """Functions that were held for all calls.

        Args:
            seconds: for which the stage has run; calls at the same time count as several functions within it.
        """
        found = []
        for role, (calls, took) in self._sums.items():
            count = min(calls, max(1, math.ceil(took / max(seconds, 1e-3))))
            each = self._endpoints[role].each
            found.append(
                Holding(role=role, resources=each, end_s=took / count, count=count, requests=round(calls / count))
            )
        return found
