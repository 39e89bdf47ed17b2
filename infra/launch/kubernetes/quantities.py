"""Values as the Kubernetes API writes them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from superworkflow.infra.contract.resources import format_bytes

_FACTORS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity(text: Any) -> float:
    """Number of a Kubernetes quantity such as `1930m`, `2` or `24Gi`."""
    match = re.fullmatch(r"([\d.]+(?:e\d+)?)([a-zA-Z]*)", str(text))
    return float(match[1]) * _FACTORS.get(match[2], 1) if match else 0.0


def shown(name: str, value: float) -> str:
    """An amount of a resource for people, by Kubernetes' name of it, such as `limits.memory`."""
    return format_bytes(value) if name.endswith(("memory", "ephemeral-storage")) else f"{value:g}"


def read_time(text: Any) -> datetime | None:
    """A time such as `2026-01-01T00:00:04Z`; None where there is none."""
    return datetime.fromisoformat(str(text)) if text else None
