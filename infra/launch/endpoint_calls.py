"""Calls of HTTP endpoints, as a stage reports them, and what they are priced by."""

from __future__ import annotations

import math
from collections.abc import Mapping

from superworkflow.infra.config.usage import LONGEST_S, Holding
from superworkflow.infra.contract.resources import Endpoint
from superworkflow.infra.engines.scaling import CALLS
from superworkflow.infra.launch.base import Event


def calls_of(event: Event, endpoints: Mapping[str, Endpoint], seconds: float) -> list[Holding]:
    """Holdings of the calls that an event reports; none for other events.

    Args:
        event: of a stage.
        endpoints: of its resources.
        seconds: for which the stage has run; calls at the same time count as several functions within it.
    """
    role, calls, took = event.get("role"), event.get("calls"), event.get("seconds")
    if event.get("event") != CALLS or not isinstance(role, str) or role not in endpoints:
        return []
    if type(calls) is not int or not isinstance(took, int | float) or not calls > 0 or not 0 <= took <= LONGEST_S:
        return []
    count = min(calls, max(1, math.ceil(took / max(seconds, 1e-3))))
    each = endpoints[role].each
    return [Holding(role=role, resources=each, end_s=took / count, count=count, requests=round(calls / count))]
