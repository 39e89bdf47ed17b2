"""Progress of one stage as a Prefect artifact."""

from __future__ import annotations

import time
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact

SECONDS_BETWEEN = 3.0
"""Each update is a request to the server; shorter stages than this get no artifact at all."""


class ProgressArtifact:
    """A bar in Prefect's UI for a stage that takes long enough to watch.

    Args:
        name: the node's; Prefect's keys have dashes for its underscores.
    """

    def __init__(self, name: str):
        self._name, self._id = name, None  # type: str, UUID | None
        self._last = time.monotonic()

    def update(self, done: float, total: float) -> bool:
        """Move the bar, if there is a total; returns whether it was time to."""
        now = time.monotonic()
        if now - self._last < SECONDS_BETWEEN:
            return False
        self._last = now
        if not total:
            return True
        share = 100.0 * done / total
        if self._id is None:
            key = self._name.replace("_", "-")
            created = create_progress_artifact(progress=share, key=key, description=f"Progress of {self._name}")
            assert isinstance(created, UUID)
            self._id = created
        else:
            update_progress_artifact(self._id, progress=share)
        return True

    def close(self) -> None:
        """Fill the bar, if there is one."""
        if self._id is not None:
            update_progress_artifact(self._id, progress=100.0)
