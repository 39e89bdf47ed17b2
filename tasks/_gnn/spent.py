"""Seconds that the stages of the pipeline are busy, on one worker."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

PIPELINE = ("schedule", "sample", "gather", "compact", "compute", "update")
"""In the order in which a batch goes through them."""


class Spent:
    """Wall seconds by stage; what threads do at the same time counts for each."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PIPELINE, 0.0)

    @contextlib.contextmanager
    def on(self, stage: str) -> Iterator[None]:
        """What is done meanwhile belongs to this stage; one thread works on a stage."""
        began = time.monotonic()
        yield
        self.seconds[stage] += time.monotonic() - began
