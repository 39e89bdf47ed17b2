"""Pictures of one run, drawn and attached to its record."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

from superworkflow.infra.dataset import Dataset
from superworkflow.infra.filesystem import Location
from superworkflow.infra.records import RunRecord
from superworkflow.infra.tracking.base import Tracker

PROJECTION_FILE = "projection.parquet"
"""A dataset that holds this file (node, x, y, label) has its embeddings drawn."""


def attach_pictures(run: RunRecord, tracker: Tracker) -> None:
    """Draw cost and runtime per stage, and the projection of the embeddings where a stage made one."""
    if type(tracker) is Tracker:
        return  # nothing keeps the pictures
    from superworkflow.dashboards.pictures import cost_picture, projection_picture

    with tempfile.TemporaryDirectory(prefix="superworkflow-pictures-") as folder:
        cost = Path(folder) / "stages.png"
        cost_picture(run.stages, cost)
        tracker.picture(cost)
        for record in run.stages:
            with closing(Dataset.open(Location.of(record.output))) as dataset:
                if PROJECTION_FILE in dataset:
                    path = Path(folder) / f"{record.name}-projection.png"
                    projection_picture(dataset.local(PROJECTION_FILE), path)
                    tracker.picture(path)
