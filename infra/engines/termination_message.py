"""Termination message of a member in a pod of its own, the same for every engine."""

from __future__ import annotations

import json
from pathlib import Path

from superworkflow.infra.process.resource_usage import container_usage, out_of_memory_kills

MESSAGE = Path("/dev/termination-log")
"""File whose content Kubernetes keeps with the pod's status."""


def leave_message(message: Path = MESSAGE, error: str = "") -> None:
    """Leave what this container used, and the last error if there was one."""
    cpu_s, peak = container_usage()
    usage = {"cpu_s": cpu_s, "peak_memory_bytes": peak, "out_of_memory_kills": out_of_memory_kills()}
    message.write_text(json.dumps(usage | ({"error": error[:500]} if error else {})))
