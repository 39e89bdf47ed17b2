"""Requests of a stage to its launcher while it runs, as events: to scale a role, and to charge calls of endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from superworkflow.infra.contract.resources import Group

SCALE = "scale"
"""The event: `role`, `count` of members from now on, and `hanging`, hosts of members to be replaced."""

CALLS = "calls"
"""The event: `role` of an endpoint, how many `calls` it executed, and the `seconds` that they took together."""


def requested_count(event: Mapping[str, Any], groups: Mapping[str, Group]) -> tuple[str, int] | None:
    """Role and count that an event asks for; None for other events, and for what the profile does not allow."""
    if event.get("event") != SCALE:
        return None
    role, count = event.get("role"), event.get("count")
    group = groups.get(role) if isinstance(role, str) else None
    if group is None or not group.elastic or type(count) is not int or not 1 <= count <= group.largest:
        return None
    return str(role), count
