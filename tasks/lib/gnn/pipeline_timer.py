"""Busy seconds of the pipeline's stages on one worker."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

PIPELINE = ("schedule", "sample", "gather", "compact", "compute", "update")
"""Stages in the order in which a batch passes them."""
_KEPT = 4096


class BusySpan(NamedTuple):
    """A span in which a stage was busy, in seconds of the machine's monotonic clock."""

    stage: str
    began: float
    ended: float


class PipelineTimer:
    """Wall seconds by stage; concurrent threads each count in full. `recent` are the last spans."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PIPELINE, 0.0)
        self.recent: deque[BusySpan] = deque(maxlen=_KEPT)

    @contextlib.contextmanager
    def on(self, stage: str) -> Iterator[None]:
        """Count the block towards this stage; only one thread works on a stage."""
        began = time.monotonic()
        yield
        span = BusySpan(stage, began, time.monotonic())
        self.seconds[stage] += span.ended - span.began
        self.recent.append(span)
