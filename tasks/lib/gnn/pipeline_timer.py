"""Seconds that the stages of the pipeline are busy, on one worker."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

PIPELINE = ("schedule", "sample", "gather", "compact", "compute", "update")
"""In the order in which a batch goes through them."""
_KEPT = 4096


class BusySpan(NamedTuple):
    """When a stage was busy, in seconds of this machine's monotonic clock."""

    stage: str
    began: float
    ended: float


class PipelineTimer:
    """Wall seconds by stage; what threads do at the same time counts for each. `recent` are the last spans of them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PIPELINE, 0.0)
        self.recent: deque[BusySpan] = deque(maxlen=_KEPT)

    @contextlib.contextmanager
    def on(self, stage: str) -> Iterator[None]:
        """Count the block towards this stage; one thread works on a stage."""
        began = time.monotonic()
        yield
        span = BusySpan(stage, began, time.monotonic())
        self.seconds[stage] += span.ended - span.began
        self.recent.append(span)
